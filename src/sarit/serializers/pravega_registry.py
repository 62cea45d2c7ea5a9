"""The client of a schema registry that speaks Pravega's API: what serializers need of it.

An encoding id is of one group, and stands for a version of a schema there and a codec.  Blocking, and for any number of
threads at the same time.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.properties import PRAVEGA
from sarit.serializers.limits import MAX_CACHED_REGISTRATIONS, MAX_CACHED_SCHEMAS
from sarit.serializers.recent_values import RecentValues
from sarit.serializers.registry_calls import RegistryCalls, field
from sarit.serializers.schema import AVRO, JSON, PROTOBUF, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMATS: Final = {AVRO: "Avro", JSON: "Json", PROTOBUF: "Protobuf"}
_NAMES: Final = {name: known for known, name in _FORMATS.items()}


class Encoding(NamedTuple):
    """The meaning of an encoding id.  `type`: the name of the record or message; `codec`: "" for none."""

    schema: Schema
    type: str
    codec: str


class PravegaRegistry:
    """A schema registry with Pravega's API: Sarit's own, or Pravega's.  May be shared by threads.

    `url`: as http://HOST:9092, without /v1.  `namespace`: of the groups; None: the default one.  Logins, times and
    errors are those of `RegistryClient`."""

    header: Final = PRAVEGA

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | None = None,
    ) -> None:
        self._calls = RegistryCalls(url, "application/json", user=user, password=password, token=token, ca=ca)
        self._namespace = namespace
        self._encodings = RecentValues[tuple[str, int], Encoding](MAX_CACHED_SCHEMAS)
        self._registered = RecentValues[tuple[str, Schema, str], int](MAX_CACHED_REGISTRATIONS)

    def __repr__(self) -> str:
        return f"PravegaRegistry({self.url})"

    @property
    def url(self) -> str:
        """Where the registry is."""
        return self._calls.url

    def create_group(self, group: str, format: str, *, compatibility: str = "BackwardTransitive") -> bool:
        """Create a group for schemas of a format.  Returns False if there is one of that name.

        `compatibility`: the name of a policy, for Avro; groups of other formats allow any schema."""
        policy = compatibility if format == AVRO else "AllowAny"
        properties = {
            "serializationFormat": {"serializationFormat": _FORMATS.get(format, "Any")},
            "compatibility": {"policy": policy},
            "allowMultipleTypes": False,
            "properties": {},
        }
        try:
            self._call("POST", ("groups",), {"groupName": group, "groupProperties": properties})
        except Conflict:
            return False
        return True

    def register(self, group: str, schema: Schema, type: str, *, add: bool = True) -> int:
        """Return the encoding id of a schema, without a codec.  `type`: the name of its record or message.

        `add`: add the schema to the group, which is created if there is none; otherwise the group must have it.
        Raises Conflict when the group's policy does not allow it, NotFound."""
        key = (group, schema, type)
        if (known := self._registered.get(key)) is None:
            info = _schema_info(schema, type)
            version = self._added(group, schema.format, info) if add else self._found(group, info)
            answer = self._call("PUT", ("groups", group, "encodings"), {"versionInfo": version, "codecType": ""})
            known = field(answer, "encodingId", int)
            self._registered.put(key, known)
        return known

    def _added(self, group: str, format: str, info: dict[str, Any]) -> Any:
        try:
            return self._call("POST", ("groups", group, "schemas"), info)
        except NotFound:
            self.create_group(group, format)
            return self._call("POST", ("groups", group, "schemas"), info)

    def _found(self, group: str, info: dict[str, Any]) -> Any:
        return self._call("POST", ("groups", group, "schemas", "versions", "find"), info)

    def encoding(self, group: str, encoding_id: int) -> Encoding:
        """Return what an encoding id of a group stands for."""
        key = (group, encoding_id)
        if (known := self._encodings.get(key)) is None:
            answer = self._call("GET", ("groups", group, "encodings", str(encoding_id)))
            info = field(answer, "schemaInfo", dict)
            known = Encoding(_schema(info), field(info, "type", str), _codec(answer.get("codecType")))
            self._encodings.put(key, known)
        return known

    def latest(self, group: str, type: str | None = None) -> Schema:
        """Return the latest schema of a type in a group; None: of the only type.  Raises Invalid: it has several."""
        return self.latest_typed(group, type)[0]

    def latest_typed(self, group: str, type: str | None = None) -> tuple[Schema, str]:
        """Return the latest schema of a type in a group, as `latest`, and the name of the type."""
        query = self._query() if type is None else self._query(type=type)
        answer = self._calls.call("GET", ("v1", "groups", group, "schemas"), query)
        found = field(answer, "schemas", list)
        if not found:
            raise NotFound(f"the registry at {self.url} has no schema {type or ''} in group {group}")
        if len(found) > 1:
            raise Invalid(f"group {group} has schemas of {len(found)} types: name one")
        info = field(found[0], "schemaInfo", dict)
        return _schema(info), field(info, "type", str)

    def _call(self, method: str, path: tuple[str, ...], body: object = None) -> Any:
        return self._calls.call(method, ("v1", *path), self._query(), body)

    def _query(self, **more: str) -> dict[str, object]:
        return {"namespace": self._namespace, **more}


def _schema_info(schema: Schema, type: str) -> dict[str, Any]:
    data = base64.b64decode(schema.text) if schema.format == PROTOBUF else schema.text.encode()
    return {
        "type": type,
        "serializationFormat": {"serializationFormat": _FORMATS.get(schema.format, "Custom")},
        "schemaData": base64.b64encode(data).decode(),
        "properties": {},
    }


def _schema(info: Any) -> Schema:
    name = field(field(info, "serializationFormat", dict), "serializationFormat", str)
    known = _NAMES.get(name, name.upper())
    data = field(info, "schemaData", str)
    try:
        return Schema(data if known == PROTOBUF else base64.b64decode(data, validate=True).decode(), known)
    except (binascii.Error, UnicodeDecodeError):
        raise Unavailable("the registry's answer has a schema that is no text: is it a schema registry?") from None


def _codec(given: Any) -> str:
    """Return the name of a codec, which is a text or an object with a name."""
    if given is None or isinstance(given, str):
        return given or ""
    return str(field(given, "name", str))
