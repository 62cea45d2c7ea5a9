"""The columns of a stream's table (`lake/ports.py`): from its schema, from its JSON, or one of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.client.streams import properties
from sarit.lake.layout import SARIT, table_schema
from sarit.lake.table_types import covers
from sarit.serializers.column_choice import DOCUMENTS, choose_columns, open_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.aio import Client
    from sarit.core.names import StreamName
    from sarit.env.ports import Worker
    from sarit.lake.ports import LakeTables, ValueColumns
    from sarit.lake.settings import IcebergSettings
    from sarit.serializers.schema_source import SchemaSource


class StreamColumns:
    """The columns of one stream.  `wants_sample`: they are inferred from payloads."""

    def __init__(
        self, client: Client, stream: StreamName, settings: IcebergSettings, tables: LakeTables,
        schemas: SchemaSource | None, worker: Worker,
    ) -> None:  # fmt: skip
        """`schemas`: the registry; None: there is none.  `worker`: runs what blocks."""
        self._client = client
        self._stream = stream
        self._settings = settings
        self._tables = tables
        self._schemas = schemas
        self._worker = worker
        self._opened: tuple[str, ValueColumns] | None = None
        self.wants_sample = settings.value == DOCUMENTS

    def __repr__(self) -> str:
        return f"<StreamColumns of {self._stream}>"

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        """Return the text that names the columns from now on.

        Raises TableProblem: the table cannot have them.  An intent with them could never be finished, whatever version
        came next.  Raises Invalid, NotFound, Unavailable."""
        found = await properties.read(self._client.session, self._stream)

        def choose() -> str:
            known = self._known(before) if self.wants_sample else None
            if known is None and not sample:  # the table is created, before the first events are read
                known = pa.schema([])
            choice, source = self._settings.value, self._schemas
            made = choose_columns(found, self._stream, source, choice, sample=lambda: sample, known=known)
            if made != before:
                self._check(made)
            return made

        chosen: str = await self._worker.run(choose)
        return chosen

    async def open(self, chosen: str) -> ValueColumns:
        """Return the columns of such a text.  Raises Invalid, NotFound, Corrupt, Unavailable."""
        if self._opened is None or self._opened[0] != chosen:
            columns = await self._worker.run(lambda: open_columns(chosen, self._schemas))
            self._opened = chosen, columns
        return self._opened[1]

    def _check(self, chosen: str) -> None:
        table = self._tables.load(self._settings.identifier)
        if table is not None:
            values = open_columns(chosen, self._schemas).schema
            covers(table.schema, table_schema(values, naive_times=self._settings.naive_times))

    def _known(self, before: str) -> pa.Schema | None:
        """Return the columns that the values had so far: by the text before, or by the table that a new job adopts."""
        if before:
            return open_columns(before, self._schemas).schema
        table = self._tables.load(self._settings.identifier)
        return None if table is None else table.schema.remove(table.schema.get_field_index(SARIT))
