"""Schemas of events from a registry over HTTP, by either of its APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.serializers.limits import MAX_CACHED_SCHEMAS
from sarit.serializers.registry_client import Recent
from sarit.serializers.schema import AVRO, PROTOBUF
from sarit.serializers.schema_source import WrittenSchema, written_schema

if TYPE_CHECKING:
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.registry_client import RegistryClient
    from sarit.serializers.schema import Schema


class ConfluentSchemas:
    """The schemas of a registry with Confluent's API, whose ids are those of the whole registry."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._written = Recent[int, WrittenSchema](MAX_CACHED_SCHEMAS)

    def __repr__(self) -> str:
        return f"<ConfluentSchemas, {self._client!r}>"

    def written(self, subject: str, number: int) -> WrittenSchema:
        """Return the schema of an id."""
        found = self._written.get(number)
        if found is None:
            found = self._whole(self._client.schema_by_id(number))
            self._written.put(number, found)
        return found

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject."""
        found = self._client.latest(subject) if version is None else self._client.version(subject, version)
        return self._whole(found.schema)._replace(version=found.version)

    def _whole(self, schema: Schema) -> WrittenSchema:
        if schema.format not in (AVRO, PROTOBUF):
            return written_schema(schema.format, schema.text, {})
        others = {name: one.text for name, one in self._client.referenced(schema).items()}
        return written_schema(schema.format, schema.text, others)


class PravegaSchemas:
    """The schemas of a registry with Pravega's API, whose numbers are those of encodings of a group."""

    def __init__(self, client: PravegaRegistry) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<PravegaSchemas, {self._client!r}>"

    def written(self, subject: str, number: int) -> WrittenSchema:
        """Return the schema of an encoding id."""
        found = self._client.encoding(subject, number)
        return written_schema(found.schema.format, found.schema.text, {}, found.codec)

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return the latest version of a group with schemas of one type."""
        if version is not None:
            raise Invalid("a registry with Pravega's API is asked for the latest version of a group alone: name none")
        latest = self._client.latest(subject)
        return written_schema(latest.format, latest.text, {})
