"""A schema registry as drivers and tasks ask it: by either API, and again while it does not reply.

A schema never changes under its id, so a process asks for it once (`REGISTRIES`): the first task that meets an id.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.client.core.login import UserPassword
from sarit.core.errors import Invalid, Unavailable
from sarit.core.properties import NO_HEADER, PRAVEGA
from sarit.env.real import RealClock
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.http_schemas import ConfluentSchemas, PravegaSchemas
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import AVRO, Schema
from sarit.spark.limits import SPARK_REGISTRY_RETRY_SECONDS
from sarit.spark.worker_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sarit.serializers.schema_source import SchemaSource, WrittenSchema
    from sarit.spark.registry.options import RegistryTarget

T = TypeVar("T")


class QueryRegistry:
    """The registry of a query, for a driver or a task: asked again, for as long as the query waits for a node, while it
    does not reply.

    Calls block; all raise Unavailable, Unauthenticated, Forbidden, Invalid (the call is wrong); NotFound for what it
    does not have; UnusableSchema."""

    def __init__(self, target: RegistryTarget, header: str) -> None:
        self._target = target
        self._has_headers = header != NO_HEADER
        self._client: RegistryClient | PravegaRegistry
        self._schemas: SchemaSource
        if header == PRAVEGA:
            self._client = pravega = PravegaRegistry(target.url, **_login(target))
            self._schemas = PravegaSchemas(pravega)
        else:
            self._client = client = RegistryClient(target.url, **_login(target))
            self._schemas = ConfluentSchemas(client)

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema that the number in an event's header names."""
        return self._with_retry(lambda: self._schemas.written(subject, number, header))

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject; None: the latest one."""
        if version is not None and isinstance(self._client, PravegaRegistry):
            raise Invalid("option schemaVersion is for registries with Confluent's API: give option avroSchema instead")
        return self._with_retry(lambda: self._schemas.version(subject, version))

    def header(self, subject: str, schema: Schema, *, add: bool) -> bytes:
        """Return the header of events of a schema that a subject has.  `add`: it gets the schema, unless it has it.

        Raises Conflict."""
        return self._with_retry(lambda: self._header(subject, schema, add))

    def _header(self, subject: str, schema: Schema, add: bool) -> bytes:
        if isinstance(self._client, PravegaRegistry):
            return pravega_header(self._client.register(subject, schema, _type_of(schema), add=add))
        if add:
            number = self._client.register(subject, schema, normalize=True)
        else:
            number = self._client.lookup(subject, schema, normalize=True).id
        return confluent_header(number) if self._has_headers else b""

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


@dataclass(frozen=True, slots=True)
class TaskSchemas:
    """The schemas of a query's registry, as a value that is pickled to tasks: those of a process share its registry."""

    target: RegistryTarget
    header: str

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema that the number in an event's header names."""
        return REGISTRIES.get((self.target, self.header)).written(subject, number, header)

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject; None: the latest one."""
        return REGISTRIES.get((self.target, self.header)).version(subject, version)


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
REGISTRIES: Final[PerProcess[tuple[RegistryTarget, str], QueryRegistry]] = PerProcess(
    lambda key: QueryRegistry(*key), lambda registry: None
)
