"""The columns of a stream's values in a query: by its schemas, inferred from JSON, or bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sarit.client.core.contexts import registry_url
from sarit.core.properties import PRAVEGA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from sarit.core.names import StreamName
    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.serializers.schema_source import SchemaSource


class Schemas(Protocol):
    """Finds the registry of events with a header."""

    def __call__(self, header: str) -> SchemaSource:
        """Return the schemas of events that begin with a header.  Raises NotFound: no registry is known."""


class Values(Protocol):
    """Chooses the columns of streams' values."""

    def columns(
        self,
        stream: StreamName,
        properties: Mapping[str, str],
        sample: Callable[[], Iterable[bytes | None]],
        known: pa.Schema | None = None,
    ) -> PayloadColumns:
        """Return the columns of a stream; `known`: those that earlier values have in a table.  Blocks."""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """How values become columns.  `choice`: as of `serializers/column_choice.py`.

    `schemas`: asked for streams whose properties say that their events have schemas; None: a registry by HTTP, at the
    address that a client asks without one."""

    choice: str = "auto"
    schemas: Schemas | None = None

    def columns(
        self,
        stream: StreamName,
        properties: Mapping[str, str],
        sample: Callable[[], Iterable[bytes | None]],
        known: pa.Schema | None = None,
    ) -> PayloadColumns:
        """Return the columns of a stream; `known`: those that earlier values have in a table.  Blocks.

        Raises Invalid (the stream does not fit the choice), NotFound, Unavailable (the registry), UnusableSchema."""
        from sarit.core.properties import SCHEMA_HEADER
        from sarit.serializers.column_choice import AUTO, SCHEMA, choose_columns, open_columns

        header = properties.get(SCHEMA_HEADER)
        source = None
        if self.choice in (AUTO, SCHEMA) and header is not None:
            source = (self.schemas or http_schemas(None))(header)
        return open_columns(choose_columns(properties, stream, source, self.choice, sample, known), source)


def http_schemas(url: str | None) -> Schemas:
    """Return the schemas of a registry by HTTP; None: at the address that a client asks without one."""

    def open_source(header: str) -> SchemaSource:
        from sarit.serializers.http_schemas import ConfluentSchemas, PravegaSchemas
        from sarit.serializers.pravega_registry import PravegaRegistry
        from sarit.serializers.registry_client import RegistryClient

        address = url or registry_url()
        if header == PRAVEGA:
            return PravegaSchemas(PravegaRegistry(address))
        return ConfluentSchemas(RegistryClient(address))

    return open_source
