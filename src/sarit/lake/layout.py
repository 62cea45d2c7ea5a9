"""The columns of a stream's table, and its rows from batches of events (pure).  Format: docs/formats/iceberg-table.md.

A row has a struct column `sarit`, which says where its event lies, and the columns of the event's value.  An event that
is an envelope is taken apart: its time, key and headers go into `sarit`, and its payload is the value.  Any other event
is its own value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core import envelope_columns
from sarit.core.errors import Invalid
from sarit.lake.limits import MAX_LAKE_ERROR_CHARACTERS

if TYPE_CHECKING:
    from sarit.lake.ports import ValueColumns

SARIT: Final = "sarit"
PARTITION_COLUMN: Final = "sarit.ingested"
PARTITIONS: Final = "hour(sarit.ingested)"
UTC_TIME: Final = pa.timestamp("us", tz="UTC")
NAIVE_TIME: Final = pa.timestamp("us")
HEADERS: Final = pa.list_(envelope_columns.HEADER_TYPE)
VALUE: Final = pa.schema([pa.field("value", pa.binary())])


def sarit_type(*, naive_times: bool = False) -> pa.StructType:
    """Return the type of the column `sarit`."""
    time = NAIVE_TIME if naive_times else UTC_TIME
    return pa.struct(
        [
            pa.field("segment", pa.int64()),
            pa.field("offset", pa.int64()),
            pa.field("ingested", time),
            pa.field("time", time),
            pa.field("key", pa.string()),
            pa.field("headers", HEADERS),
        ]
    )


def table_schema(values: pa.Schema, *, naive_times: bool = False) -> pa.Schema:
    """Return the columns of a table for values of these columns.  Raises Invalid: one of them is called `sarit`."""
    if any(name.lower() == SARIT for name in values.names):
        raise Invalid(f"the values have a column {SARIT}, which tables have for the event's position: rename it")
    fields = [field.with_type(naive(field.type)) for field in values] if naive_times else list(values)
    return pa.schema([pa.field(SARIT, sarit_type(naive_times=naive_times)), *fields])


def dead_letter_schema(*, naive_times: bool = False) -> pa.Schema:
    """Return the columns of a table of events that could not be decoded."""
    time = NAIVE_TIME if naive_times else UTC_TIME
    return pa.schema(
        [
            pa.field("segment", pa.int64()),
            pa.field("offset", pa.int64()),
            pa.field("ingested", time),
            pa.field("raw", pa.binary()),
            pa.field("error", pa.string()),
        ]
    )


def naive(kind: pa.DataType) -> pa.DataType:
    """Return a type with timestamps in UTC without a zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(naive(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(naive(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(naive(kind.key_type), kind.item_field.with_type(naive(kind.item_type)))
    return kind


@dataclass(frozen=True, slots=True)
class BinaryColumns:
    """Values as they are: one column of bytes."""

    @property
    def schema(self) -> pa.Schema:
        """The column."""
        return VALUE

    def read(self, payloads: pa.Array) -> Decoded:
        """Return the payloads."""
        return Decoded([payloads], np.zeros(len(payloads), bool))

    def problem(self, payload: bytes) -> str:
        """Return nothing: there are no wrong bytes."""
        return ""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns of values, and which rows could not be decoded."""

    columns: list[pa.Array]
    bad: Any


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, and dead letters, of one batch of events."""

    good: pa.RecordBatch | None
    dead: pa.RecordBatch | None


def rows(batch: pa.RecordBatch, columns: ValueColumns, ingested_us: int, *, naive_times: bool = False) -> Rows:
    """Return the rows of a batch (event, segment, offset).  Raises what the columns raise."""
    events, segments, offsets = batch.columns
    count = len(batch)
    time, key, headers, payloads = _taken_apart(events, count)
    kind = NAIVE_TIME if naive_times else UTC_TIME
    ingested = pa.array(np.full(count, ingested_us, np.int64)).cast(kind)
    decoded = columns.read(payloads)
    position = [segments, offsets, ingested, time.cast(kind), key, headers]
    sarit = pa.StructArray.from_arrays(position, fields=list(sarit_type(naive_times=naive_times)))
    schema = table_schema(columns.schema, naive_times=naive_times)
    values = [column.cast(field.type) for column, field in zip(decoded.columns, list(schema)[1:], strict=True)]
    good = pa.RecordBatch.from_arrays([sarit, *values], schema=schema)
    if not decoded.bad.any():
        return Rows(good, None)
    wrong = pa.array(decoded.bad)
    dead_payloads = payloads.filter(wrong)
    errors = [_reason(columns, payload.as_py()) for payload in dead_payloads]
    dead = [segments.filter(wrong), offsets.filter(wrong), ingested.filter(wrong), events.filter(wrong)]
    letters = pa.RecordBatch.from_arrays(
        [*dead, pa.array(errors, pa.string())], schema=dead_letter_schema(naive_times=naive_times)
    )
    kept = good.filter(pc.invert(wrong))
    return Rows(kept if len(kept) else None, letters)


def _taken_apart(events: pa.Array, count: int) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Return time, key, headers and payload of each event; of one that is no envelope, the event as its payload."""
    found = envelope_columns.decode(events)
    time, key, headers, payload = (found.columns[name] for name in ("event_time", "key", "headers", "payload"))
    if found.bad.all():
        return pa.nulls(count, UTC_TIME), pa.nulls(count, pa.string()), pa.nulls(count, HEADERS), events
    if found.bad.any():
        payload = pc.if_else(pa.array(found.bad), events, payload)
    return time, key, headers, payload


def _reason(columns: ValueColumns, payload: bytes) -> str:
    text = columns.problem(payload)[:MAX_LAKE_ERROR_CHARACTERS]
    # A text from outside may hold half of a surrogate pair, which is no UTF-8.
    return text.encode("utf-8", "replace").decode()
