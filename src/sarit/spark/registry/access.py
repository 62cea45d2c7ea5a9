"""A schema registry as drivers and tasks ask it: by either API, and again while it does not reply.

A schema never changes under its id, so a process asks for it once (`REGISTRIES`): the first task that meets an id.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from sarit.client.core.login import UserPassword
from sarit.core.errors import Invalid, Unavailable
from sarit.core.properties import NO_HEADER, PRAVEGA
from sarit.env.real import RealClock
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import whole_text
from sarit.schemas.avro_shapes import shape_of
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.limits import MAX_AVRO_LEVELS, MAX_CACHED_SCHEMAS
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.registry_client import Recent, RegistryClient
from sarit.serializers.schema import AVRO, PROTOBUF, Schema
from sarit.spark.limits import SPARK_REGISTRY_RETRY_SECONDS
from sarit.spark.worker_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sarit.spark.registry.options import RegistryTarget

T = TypeVar("T")


class UnusableSchema(Invalid):
    """A schema that the registry has, and whose data the connector does not decode."""


class Written(NamedTuple):
    """The schema of events.  `format`: as registries name it.  `text`: of Avro with what it refers to.  `recursive`: an
    Avro schema has a type that contains itself.  `codec`: of the payloads, "" for none.  `references`: of Protobuf, the
    path of each import and its text."""

    format: str
    text: str
    recursive: bool = False
    codec: str = ""
    references: tuple[tuple[str, str], ...] = ()


class SchemaAccess(Protocol):
    """The registry of a query, for a driver or a task.

    Calls block; all raise Unavailable, Unauthenticated, Forbidden, Invalid (the call is wrong); NotFound for what it
    does not have; UnusableSchema."""

    def written(self, subject: str, number: int) -> Written:
        """Return the schema that the number in an event's header names."""

    def version(self, subject: str, version: int | None) -> Written:
        """Return a version of a subject; None: the latest one."""

    def add(self, subject: str, schema: Schema) -> bytes:
        """Add a schema to a subject, unless it has it.  Returns the header of its events.  Raises Conflict."""

    def find(self, subject: str, schema: Schema) -> bytes:
        """Return the header of events of a schema that a subject has."""


class ConfluentSchemas:
    """A registry with Confluent's API; events without headers have their schemas there, too."""

    def __init__(self, target: RegistryTarget, *, headers: bool) -> None:
        self._client = RegistryClient(target.url, **_login(target))
        self._headers = headers
        self._written = Recent[int, Written](MAX_CACHED_SCHEMAS)

    def written(self, subject: str, number: int) -> Written:  # ids are the whole registry's
        """Return the schema of an id."""
        found = self._written.get(number)
        if found is None:
            found = self._whole(self._client.schema_by_id(number))
            self._written.put(number, found)
        return found

    def version(self, subject: str, version: int | None) -> Written:
        """Return a version of a subject."""
        found = self._client.latest(subject) if version is None else self._client.version(subject, version)
        return self._whole(found.schema)

    def add(self, subject: str, schema: Schema) -> bytes:
        """Register a schema."""
        return self._header(self._client.register(subject, schema, normalize=True))

    def find(self, subject: str, schema: Schema) -> bytes:
        """Look a schema up."""
        return self._header(self._client.lookup(subject, schema, normalize=True).id)

    def _header(self, number: int) -> bytes:
        return confluent_header(number) if self._headers else b""

    def _whole(self, schema: Schema) -> Written:
        if schema.format not in (AVRO, PROTOBUF):
            return Written(schema.format, schema.text)
        others = {name: one.text for name, one in self._client.referenced(schema).items()}
        if schema.format == PROTOBUF:
            return Written(PROTOBUF, schema.text, references=tuple(others.items()))
        return _avro(schema.text, others)


class PravegaSchemas:
    """A registry with Pravega's API, whose numbers are those of encodings of a group."""

    def __init__(self, target: RegistryTarget) -> None:
        self._client = PravegaRegistry(target.url, **_login(target))

    def written(self, subject: str, number: int) -> Written:
        """Return the schema of an encoding id."""
        found = self._client.encoding(subject, number)
        return _alone(found.schema)._replace(codec=found.codec)

    def version(self, subject: str, version: int | None) -> Written:
        """Return the latest version of a group with schemas of one type."""
        if version is not None:
            raise Invalid("option schemaVersion is for registries with Confluent's API: give option avroSchema instead")
        return _alone(self._client.latest(subject))

    def add(self, subject: str, schema: Schema) -> bytes:
        """Add a schema to a group, which is created if there is none."""
        return pravega_header(self._client.register(subject, schema, _type_of(schema)))

    def find(self, subject: str, schema: Schema) -> bytes:
        """Find a schema of a group."""
        return pravega_header(self._client.register(subject, schema, _type_of(schema), add=False))


class RetriedSchemas:
    """A registry that is asked again, for as long as the query waits for a node, while it does not reply."""

    def __init__(self, target: RegistryTarget, header: str) -> None:
        self._target = target
        self._inner: SchemaAccess = (
            PravegaSchemas(target) if header == PRAVEGA else ConfluentSchemas(target, headers=header != NO_HEADER)
        )

    def written(self, subject: str, number: int) -> Written:
        """Return the schema that the number in an event's header names."""
        return self._with_retry(lambda: self._inner.written(subject, number))

    def version(self, subject: str, version: int | None) -> Written:
        """Return a version of a subject."""
        return self._with_retry(lambda: self._inner.version(subject, version))

    def add(self, subject: str, schema: Schema) -> bytes:
        """Add a schema to a subject."""
        return self._with_retry(lambda: self._inner.add(subject, schema))

    def find(self, subject: str, schema: Schema) -> bytes:
        """Find a schema of a subject."""
        return self._with_retry(lambda: self._inner.find(subject, schema))

    def _with_retry(self, call: Callable[[], T]) -> T:
        end = RealClock.monotonic() + self._target.wait_seconds
        while True:
            try:
                return call()
            except Unavailable as error:
                if RealClock.monotonic() + SPARK_REGISTRY_RETRY_SECONDS >= end:
                    raise Unavailable(
                        f"{error}; the query has waited for {self._target.wait_seconds} s: check option "
                        "schemaRegistry, or raise option waitSeconds"
                    ) from None
            threading.Event().wait(SPARK_REGISTRY_RETRY_SECONDS)


def _alone(schema: Schema) -> Written:
    return _avro(schema.text, {}) if schema.format == AVRO else Written(schema.format, schema.text)


def _avro(text: str, references: Mapping[str, str]) -> Written:
    """Return an Avro schema whose data do no harm.  Raises UnusableSchema for another one."""
    try:
        found = parse_avro(text, references)
    except Invalid as error:
        raise UnusableSchema(f"its schema cannot be used: {error}") from None
    shape = shape_of(found.root)
    if shape.levels > MAX_AVRO_LEVELS:
        raise UnusableSchema(f"the Avro schema has more than {MAX_AVRO_LEVELS} types within each other")
    if shape.array_of_nothing:
        raise UnusableSchema("the Avro schema has an array whose items take no bytes, so that no data bound its length")
    return Written(AVRO, whole_text(found), shape.recursive)


def _login(target: RegistryTarget) -> dict[str, Any]:
    one = target.credentials
    if one is None:
        return {"ca": target.ca_file}
    if isinstance(one, UserPassword):
        return {"user": one.user, "password": one.password, "ca": target.ca_file}
    return {"token": one.token, "ca": target.ca_file}


def _type_of(schema: Schema) -> str:
    """Return the name by which Pravega's registry knows a schema: that of the record, or the title."""
    found = json.loads(schema.text)
    name = found.get("name" if schema.format == AVRO else "title")
    if not isinstance(name, str) or not name:
        raise Invalid("Pravega's registry needs a name: give the schema one")
    space = found.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


# The registries of this process for its tasks and for its work on the driver, by target and header.
REGISTRIES: Final[PerProcess[tuple[RegistryTarget, str], SchemaAccess]] = PerProcess(
    lambda key: RetriedSchemas(*key), lambda access: None
)
