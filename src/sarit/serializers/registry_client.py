"""The client of a schema registry that speaks Confluent's API.

Blocking, and for any number of threads at the same time; asyncio's side calls it on a thread.  What never changes is
asked once: the schema of an id, and the id under which a subject holds a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.core.properties import CONFLUENT
from sarit.schemas.limits import MAX_SCHEMA_REFERENCES
from sarit.schemas.schema_text import shown
from sarit.serializers.limits import MAX_CACHED_REGISTRATIONS, MAX_CACHED_SCHEMAS
from sarit.serializers.recent_values import RecentValues
from sarit.serializers.registry_calls import RegistryCalls, field, list_of
from sarit.serializers.schema import AVRO, Schema, SchemaReference, SchemaVersion

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ALL_CONTEXTS: Final = ":*:"


class RegistryClient:
    """A schema registry with Confluent's API: Sarit's own, or any other that speaks it.  May be shared by threads.

    `url`: as http://HOST:8081.  `user` and `password`, or `token` (a text, or a function that is asked before each
    call): sent over https:// alone, except to this machine.  `ca`: a PEM file; None: the CAs of the system.

    Every call blocks for 10 s at most.  Raises Unavailable (not reachable, too busy, or not a registry),
    Unauthenticated, Forbidden, Invalid, and NotFound for what the registry does not have."""

    header: Final = CONFLUENT

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | None = None,
    ) -> None:
        self._calls = RegistryCalls(url, _CONTENT_TYPE, user=user, password=password, token=token, ca=ca, coded=True)
        self._schemas = RecentValues[tuple[int, str], Schema](MAX_CACHED_SCHEMAS)
        self._registered = RecentValues[tuple[str, Schema, bool], int](MAX_CACHED_REGISTRATIONS)

    def __repr__(self) -> str:
        return f"RegistryClient({self.url})"

    @property
    def url(self) -> str:
        """Where the registry is."""
        return self._calls.url

    # -- schemas --------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Add a schema to a subject, unless it has it.  Returns the schema's id.

        `normalize`: as the registry normalizes texts, so that texts of one meaning are one schema.  Raises Conflict
        with the reasons when the subject's compatibility does not allow it."""
        key = (subject, schema, normalize)
        if (known := self._registered.get(key)) is None:
            answer = self._calls.call(
                "POST", ("subjects", subject, "versions"), {"normalize": normalize or None}, _body(schema)
            )
            known = field(answer, "id", int)
            self._registered.put(key, known)
        return known

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False) -> SchemaVersion:
        """Return the version under which a subject has a schema; `deleted`: also one that was deleted softly."""
        query = {"normalize": normalize or None, "deleted": deleted or None}
        return _version(self._calls.call("POST", ("subjects", subject), query, _body(schema)))

    def schema_by_id(self, schema_id: int, *, format: str = "") -> Schema:
        """Return the schema of an id.  `format`: as the registry knows it, "serialized" for a Protobuf descriptor."""
        key = (schema_id, format)
        if (known := self._schemas.get(key)) is None:
            answer = self._calls.call("GET", ("schemas", "ids", str(schema_id)), {"format": format or None})
            known = _schema(answer)
            self._schemas.put(key, known)
        return known

    def latest(self, subject: str) -> SchemaVersion:
        """Return the latest version of a subject."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SchemaVersion:
        """Return one version of a subject, by its number or as "latest"; `deleted`: also one deleted softly."""
        query = {"deleted": deleted or None}
        return _version(self._calls.call("GET", ("subjects", subject, "versions", str(version)), query))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions; `deleted`: with those that were deleted softly."""
        return list_of(self._calls.call("GET", ("subjects", subject, "versions"), {"deleted": deleted or None}), int)

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects that begin with `prefix`; `deleted`: with those that were deleted softly.

        `prefix` ALL_CONTEXTS: those of all contexts."""
        query = {"subjectPrefix": prefix or None, "deleted": deleted or None}
        found = list_of(self._calls.call("GET", ("subjects",), query), str)
        # Older registries do not know the prefix.  ALL_CONTEXTS is no beginning of a name.
        return [name for name in found if name.startswith(prefix) or prefix == ALL_CONTEXTS]

    def holders(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Return subject and number of the versions that hold the schema of an id; `deleted`: also softly deleted
        ones."""
        path = ("schemas", "ids", str(schema_id), "versions")
        answer = list_of(self._calls.call("GET", path, {"deleted": deleted or None}), dict)
        return [(field(one, "subject", str), field(one, "version", int)) for one in answer]

    def referenced(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas that a schema uses, and those that they use, by their names: a used one before its users.

        Raises Invalid for more than 200, and for one name with two meanings."""
        found: dict[str, Schema] = {}
        self._add_referenced(schema, found, ())
        return found

    def _add_referenced(self, schema: Schema, found: dict[str, Schema], users: tuple[SchemaReference, ...]) -> None:
        for one in schema.references:
            if one in users or len(found) + len(users) >= MAX_SCHEMA_REFERENCES:
                raise Invalid(
                    f"the schema has more than {MAX_SCHEMA_REFERENCES} references, or they refer to each other in a "
                    f"circle, at {shown(one.name)}"
                )
            used = self.version(one.subject, one.version).schema
            if one.name in found:
                if found[one.name] != used:
                    raise Invalid(f"the schema refers to two versions of {shown(one.name)}: make it refer to one")
                continue
            self._add_referenced(used, found, (*users, one))
            found[one.name] = used

    # -- compatibility --------------------------------------------------------------------------

    def check(self, subject: str, schema: Schema, version: int | str = "latest") -> list[str]:
        """Return why a schema is not compatible with a version of a subject, a sentence each; an empty list if it is.

        `version`: its number, "latest", or "all" for those that the subject's compatibility compares with."""
        path: tuple[str, ...] = ("compatibility", "subjects", subject, "versions")
        path += () if version == "all" else (str(version),)
        answer = self._calls.call("POST", path, {"verbose": True}, _body(schema))
        compatible = field(answer, "is_compatible", bool)
        reasons = answer.get("messages")
        reported = [one for one in reasons if isinstance(one, str)] if isinstance(reasons, list) else []
        return [] if compatible else reported or ["the registry does not say why"]

    def compatibility(self, subject: str | None = None) -> str:
        """Return the level of compatibility of a subject (its own or the registry's), or of the registry."""
        path = ("config",) if subject is None else ("config", subject)
        query = None if subject is None else {"defaultToGlobal": True}
        return str(field(self._calls.call("GET", path, query), "compatibilityLevel", str))

    def set_compatibility(self, level: str | None, subject: str | None = None) -> None:
        """Set the level of compatibility of a subject or of the registry, as "BACKWARD"; None: back to the default."""
        path = ("config",) if subject is None else ("config", subject)
        if level is None:
            self._calls.call("DELETE", path)
        else:
            self._calls.call("PUT", path, None, {"compatibility": level})

    def own_compatibility(self, subject: str | None = None) -> str | None:
        """Return the level of compatibility that is set for a subject, or with None for the registry.

        Returns None if none is set."""
        return self._own("config", "compatibilityLevel", subject)

    # -- modes ----------------------------------------------------------------------------------

    def own_mode(self, subject: str | None = None) -> str | None:
        """Return the mode that is set for a subject, or with None for the registry, as "READONLY".

        Returns None if none is set."""
        return self._own("mode", "mode", subject)

    def set_mode(self, mode: str | None, subject: str | None = None, *, force: bool = False) -> None:
        """Set the mode of a subject or of the registry, as "IMPORT"; None: back to the default.

        `force`: also to IMPORT where there are versions already."""
        path = ("mode",) if subject is None else ("mode", subject)
        if mode is None:
            self._calls.call("DELETE", path)
        else:
            self._calls.call("PUT", path, {"force": force or None}, {"mode": mode})

    def import_version(self, version: SchemaVersion) -> int:
        """Add a version of another registry with its number and id; the subject is in the mode IMPORT.

        Returns the id.  Raises Conflict when the registry has another schema of that id."""
        body = {**_body(version.schema), "id": version.id, "version": version.version}
        answer = self._calls.call("POST", ("subjects", version.subject, "versions"), None, body)
        return int(field(answer, "id", int))

    def _own(self, what: str, name: str, subject: str | None) -> str | None:
        try:
            return str(field(self._calls.call("GET", (what,) if subject is None else (what, subject)), name, str))
        except NotFound:
            return None

    # -- deletion -------------------------------------------------------------------------------

    def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        """Delete a version, or a subject with all of them.  Returns the numbers of the versions that were deleted.

        A soft deletion hides them; events with their ids can still be read.  `permanent`: after a soft one, for
        ever."""
        path: tuple[str, ...] = ("subjects", subject)
        path += () if version is None else ("versions", str(version))
        answer = self._calls.call("DELETE", path, {"permanent": permanent or None})
        self._registered.clear()
        return [answer] if isinstance(answer, int) else list_of(answer, int)


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.format != AVRO:
        body["schemaType"] = schema.format
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return body


def _schema(answer: Any) -> Schema:
    text = field(answer, "schema", str)
    kind = answer.get("schemaType") or AVRO
    references = answer.get("references") or []
    if not isinstance(kind, str) or not isinstance(references, list) or len(references) > MAX_SCHEMA_REFERENCES:
        raise Unavailable("the registry's answer is no schema: is it a schema registry?")
    return Schema(
        text,
        kind,
        tuple(
            SchemaReference(field(one, "name", str), field(one, "subject", str), field(one, "version", int))
            for one in references
        ),
    )


def _version(answer: Any) -> SchemaVersion:
    number, schema_id = field(answer, "version", int), field(answer, "id", int)
    return SchemaVersion(field(answer, "subject", str), number, schema_id, _schema(answer))
