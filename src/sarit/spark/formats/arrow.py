"""Arrow payloads.  A payload is a whole Arrow IPC stream of record batches, so one event has many rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from sarit.core.errors import Invalid
from sarit.schemas.payloads import Rows
from sarit.spark.formats.types import spark_type
from sarit.spark.limits import ARROW_EVENT_BYTES

_ERRORS: Final = (pa.ArrowException, OSError, EOFError, ValueError, TypeError)
_HALVES: Final = 2


def arrow_fields(payload: bytes | None) -> StructType:
    """Return the columns of a stream's first payload.  Raises Invalid if it is None or no Arrow stream."""
    if payload is None:
        raise Invalid("format arrow takes its columns from the first event, and the stream is empty: give .schema(...)")
    try:
        schema = pa.ipc.open_stream(payload).schema
    except _ERRORS as error:
        raise Invalid(f"the first event is no Arrow IPC stream: {error}; give the columns with .schema(...)") from None
    return StructType([StructField(field.name, spark_type(field.type, field.name)) for field in schema])


class ArrowReader:
    """Decodes streams of record batches; columns are found by their names, and missing ones are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def problem(self, payload: bytes | None) -> str:
        """Return what is wrong with a payload."""
        try:
            self._table(payload)
        except _ERRORS as error:
            return str(error)
        return "nothing is wrong with it"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads to all their rows; a payload that cannot be decoded gives one row of nulls."""
        tables, counts, bad = [], np.zeros(len(payloads), np.int64), np.zeros(len(payloads), bool)
        for at, payload in enumerate(payloads):
            try:
                # Pass a buffer, so that no bytes are copied.
                table = self._table(payload.as_buffer() if payload.is_valid else None)
            except _ERRORS:
                table, bad[at] = self._nulls(), True
            tables.append(table)
            counts[at] = len(table)
        event_of = np.repeat(np.arange(len(payloads)), counts)
        whole = pa.concat_tables(tables) if tables else self._schema.empty_table()
        return Rows([_joined(whole.column(at)) for at in range(whole.num_columns)], bad[event_of], event_of)

    def _table(self, payload: Any) -> pa.Table:
        """Return the rows of a payload as columns of the schema.  Raises one of `_ERRORS`."""
        if payload is None:
            raise ValueError("there is no payload")
        found = pa.ipc.open_stream(payload).read_all()
        # Validate, because damaged lengths would lead beyond the buffers.
        found.validate(full=True)
        columns = []
        for field in self._schema:
            places = found.schema.get_all_field_indices(field.name)
            if len(places) > 1:
                raise ValueError(f"there are {len(places)} columns {field.name}")
            if not places:
                columns.append(pa.nulls(len(found), field.type))
                continue
            column = found.column(places[0])
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except _ERRORS as error:
                    raise ValueError(f"column {field.name} is {column.type}: {error}") from None
            columns.append(column)
        return pa.table(columns, names=self._schema.names)

    def _nulls(self) -> pa.Table:
        return pa.table([pa.nulls(1, field.type) for field in self._schema], names=self._schema.names)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


class ArrowWriter:
    """Encodes the rows of a batch as one event, or one per routing key.  Large batches become several events."""

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Encode rows.  Returns the payloads, and the key of each; the rows of a key stay in order."""
        if keys is None:
            return pa.array(list(_payloads(rows)), pa.large_binary()), None
        encoded = keys.dictionary_encode()
        numbers = encoded.indices.fill_null(-1)
        payloads, own = [], []
        names = [*enumerate(encoded.dictionary.to_pylist()), *([(-1, None)] if encoded.null_count else [])]
        for number, name in names:
            found = list(_payloads(rows.filter(pc.equal(numbers, number))))
            payloads += found
            own += [name] * len(found)
        return pa.array(payloads, pa.large_binary()), pa.array(own, pa.string())


def _payloads(rows: pa.RecordBatch) -> Any:
    """Yield payloads with the rows, in order, of about ARROW_EVENT_BYTES at most; a single row may be larger."""
    if not len(rows):
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    payload = sink.getvalue()
    if payload.size <= ARROW_EVENT_BYTES or len(rows) == 1:
        yield payload.to_pybytes()
        return
    half = len(rows) // _HALVES
    yield from _payloads(rows[:half])
    yield from _payloads(rows[half:])
