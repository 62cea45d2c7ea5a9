"""Converts the rows of a write to events, divided by stream: a column `stream`, if there is one, names each row's.

An Arrow batch of rows becomes parts, one for each stream, in the order of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructType

from sarit.client.limits import MAX_EVENT_BYTES
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import StreamName
from sarit.spark.formats.encoders import encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.spark.formats.options import FormatOptions
    from sarit.spark.sink.options import WriteOptions

STREAM_COLUMN = "stream"
LARGEST_EVENT_BYTES = MAX_EVENT_BYTES - EVENT_HEADER_BYTES


class Part(NamedTuple):
    """Events for one stream (`SCOPE/STREAM`).  `keys`: their routing keys; None: no event has a key."""

    stream: str
    events: pa.Array
    keys: pa.Array | None


class RowsToEvents:
    """Makes parts from the batches of a write.  Made on the driver, and pickled for the tasks."""

    def __init__(
        self,
        schema: StructType,
        options: WriteOptions,
        formats: FormatOptions,
        register: Callable[[StructType], bytes] | None = None,
    ) -> None:
        """`register`: as of `payload_writer`.  Raises Invalid for columns that do not fit."""
        fields = {field.name: field.dataType for field in schema.fields}
        self._by_column = STREAM_COLUMN in fields
        self._stream = options.stream
        self._scope = options.scope or (options.stream.scope if options.stream else None)
        if self._stream is None and not self._by_column:
            raise Invalid('which stream? give .option("stream", "SCOPE/STREAM"), or a column stream')
        if self._by_column and not isinstance(fields[STREAM_COLUMN], StringType):
            raise Invalid(f"column stream {fields[STREAM_COLUMN].simpleString()}: the stream of a row is a string")
        if self._by_column and register is not None:
            raise Invalid("option schemaRegistry is for writes to one stream: a column stream cannot be given with it")
        self._encoder = encoder(
            schema, formats, key_column=options.key_column, apart=(STREAM_COLUMN,), register=register
        )

    def parts(self, batch: pa.RecordBatch, partition: int, first_row: int) -> Iterator[Part]:
        """Yield the parts of a batch.

        `first_row`: the number of its first row in the partition, from 0, for errors.  Raises Invalid: a null event,
        an event too large, a null stream, a stream without a scope, what cannot be encoded."""
        for stream, mine in self._by_stream(batch, partition, first_row):
            rows = batch if mine is None else batch.filter(mine)
            events, keys = self._encoder.encode(rows)
            wrong = _first_wrong(events)
            if wrong is not None:
                row = wrong if mine is None else pc.indices_nonzero(mine)[wrong].as_py()
                # An event of format arrow holds many rows.
                of = f"row {first_row + row}" if len(events) == rows.num_rows else f"an event of rows from {first_row}"
                raise _refused(events[wrong], f"{of} of partition {partition}")
            yield Part(stream, events, keys)

    def _by_stream(
        self, batch: pa.RecordBatch, partition: int, first_row: int
    ) -> Iterator[tuple[str, pa.Array | None]]:
        """Yield each stream of a batch, with a mask of its rows; None: all rows."""
        if not self._by_column:
            yield str(self._stream), None
            return
        streams = batch.column(STREAM_COLUMN).dictionary_encode()
        if streams.null_count and self._stream is None:
            row = first_row + pc.indices_nonzero(pc.is_null(streams.indices))[0].as_py()
            raise Invalid(f"row {row} of partition {partition} has no stream: its column stream is null")
        numbers = streams.indices.fill_null(len(streams.dictionary))
        for number, name in enumerate([*streams.dictionary.to_pylist(), None]):
            mine = pc.equal(numbers, number)
            if pc.any(mine).as_py():
                yield self._named(name), mine

    def _named(self, name: str | None) -> str:
        if name is None:
            return str(self._stream)
        if "/" in name:
            return str(StreamName.parse(name))
        if self._scope is None:
            raise Invalid(f'stream {name!r} has no scope: write SCOPE/STREAM, or give .option("scope", "SCOPE")')
        return str(StreamName(self._scope, name))


def _first_wrong(events: pa.Array) -> int | None:
    """Return the index of the first event that is null or too large; None: there is none."""
    if not len(events):
        return None
    sizes = pc.binary_length(events)
    if not events.null_count and pc.max(sizes).as_py() <= LARGEST_EVENT_BYTES:
        return None
    wrong = pc.fill_null(pc.greater(sizes, LARGEST_EVENT_BYTES), True)
    found: int = pc.index(wrong, True).as_py()
    return found


def _refused(event: pa.Scalar, row: str) -> Invalid:
    if event.is_valid:
        size = len(event.as_py())
        return Invalid(f"{row} has an event of {size} bytes, and an event has at most {LARGEST_EVENT_BYTES}")
    return Invalid(f"{row} has a null event, and nothing of its batch is written: filter such rows out")
