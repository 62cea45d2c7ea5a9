"""Schemas of events from a registry over HTTP, by either of its APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.serializers.event_documents import descriptor_files
from sarit.serializers.limits import MAX_CACHED_SCHEMAS
from sarit.serializers.recent_values import RecentValues
from sarit.serializers.schema import AVRO, PROTOBUF
from sarit.serializers.schema_source import UnusableSchema, WrittenSchema, written_schema

if TYPE_CHECKING:
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.registry_client import RegistryClient
    from sarit.serializers.schema import Schema


class ConfluentSchemas:
    """The schemas of a registry with Confluent's API, whose ids are those of the whole registry."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._written = RecentValues[int, WrittenSchema](MAX_CACHED_SCHEMAS)

    def __repr__(self) -> str:
        return f"<ConfluentSchemas, {self._client!r}>"

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema of an id."""
        _check_header(header, self._client)
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

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema of an encoding id."""
        _check_header(header, self._client)
        found = self._client.encoding(subject, number)
        return self._whole(found.schema, found.type, found.codec)

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return the latest version of a group with schemas of one type."""
        if version is not None:
            raise Invalid("a registry with Pravega's API is asked for the latest version of a group alone: name none")
        schema, message = self._client.latest_typed(subject)
        return self._whole(schema, message)

    def _whole(self, schema: Schema, message: str, codec: str = "") -> WrittenSchema:
        if schema.format != PROTOBUF:
            return written_schema(schema.format, schema.text, {}, codec)
        try:
            text, others = descriptor_files(schema.text, message)
        except Invalid as error:
            raise UnusableSchema(str(error)) from None
        return written_schema(PROTOBUF, text, others, codec, message)


def _check_header(header: str, client: RegistryClient | PravegaRegistry) -> None:
    if header != client.header:
        raise Invalid(f"the registry at {client.url} was given as one for the header {client.header}, not {header}")
