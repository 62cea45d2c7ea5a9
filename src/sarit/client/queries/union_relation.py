"""The union of a stream's Iceberg table and of its tail: complete to the last event, and each event once.

The table is read at one snapshot, and the stream from exactly the cut that this snapshot has.  Events that did not fit
their schema are in neither part: the table has them in its table of dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.lake.layout import SARIT, table_schema
from sarit.lake.table_types import fitted
from sarit.serializers.widening import wider
from sarit.sql.ports import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.client.queries.access import QueryAccess
    from sarit.client.queries.stream_relation import StreamRelation
    from sarit.lake.table_reads import TableRead


class UnionRelation:
    """The rows of a table, and behind them those of the tail of its stream."""

    def __init__(self, access: QueryAccess, table: TableRead, tail: StreamRelation, *, naive_times: bool) -> None:
        """Take both parts.  Raises Invalid: a column of the tail is of a type that does not go with the table's."""
        self._access = access
        self._table = table
        self._tail = tail
        position, *values = tail.schema
        self._tail_schema = pa.schema([position, *list(table_schema(pa.schema(values), naive_times=naive_times))[1:]])
        self._schema = pa.schema([position, *wider(_values(table.schema), _values(self._tail_schema))])
        files = [
            Part(number, file.bytes, segment=_single(file.segments), ingested_us=file.ingested_us)
            for number, file in enumerate(table.files)
        ]
        self._files = len(files)
        self._parts = (*files, *(_renumbered(part, len(files)) for part in tail.parts))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, and those that only newer events have."""
        return self._schema

    @property
    def parts(self) -> Sequence[Part]:
        """The files of the table, and the parts of the tail."""
        return self._parts

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts.  Raises Truncated, Unavailable, Forbidden, Invalid."""
        names = list(dict.fromkeys(name if name in self._schema.names else SARIT for name in columns))
        target = pa.schema([self._schema.field(name) for name in names])
        files = [number for number in numbers if number < self._files]
        if files:
            self._access.meter.read(sum(self._table.files[number].bytes for number in files))
            read = [name for name in names if name in self._table.schema.names] or [SARIT]
            yield from self._table.batches(files, read, target)
        tail = [number - self._files for number in numbers if number >= self._files]
        if tail:
            of_tail = [name for name in names if name in self._tail.schema.names] or [SARIT]
            fields = [self._tail_schema.field(name) for name in of_tail]
            for batch in self._tail.read(tail, of_tail):
                arrays = [column.cast(field.type) for column, field in zip(batch.columns, fields, strict=True)]
                yield fitted(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), target)


def _values(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != SARIT])


def _single(bounds: tuple[int, int] | None) -> int | None:
    return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None


def _renumbered(part: Part, by: int) -> Part:
    return Part(part.number + by, part.bytes, part.segment, part.start, part.end, part.ingested_us)
