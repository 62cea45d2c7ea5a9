"""The columns of a stream's table, and its rows from batches of events (pure).  Format: docs/formats/iceberg.md.

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
from sarit.lake.table_types import table_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.lake.ports import ValueColumns

SARIT: Final = "sarit"
PARTITION_COLUMN: Final = "sarit.ingested"
PARTITIONS: Final = "hour(sarit.ingested)"
UTC_TIME: Final = pa.timestamp("us", tz="UTC")
NAIVE_TIME: Final = pa.timestamp("us")
HEADERS: Final = pa.list_(envelope_columns.HEADER_TYPE)


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
    fields = [pa.field(field.name, table_type(field.type, naive_times=naive_times)) for field in values]
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


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, and dead letters, of one batch of events."""

    good: pa.RecordBatch | None
    dead: pa.RecordBatch | None


def rows(
    batch: pa.RecordBatch,
    columns: ValueColumns,
    ingested_us: int,
    *,
    naive_times: bool = False,
    dead: DeadPositions | None = None,
) -> Rows:
    """Return the rows of a batch (event, segment, offset).

    `dead`: the events that were taken for dead letters before, which are in neither part of the result.  Raises what
    the columns raise."""
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
    known = np.zeros(count, bool) if dead is None else dead.contain(segments, offsets)
    left_out = decoded.bad | known
    if not left_out.any():
        return Rows(good, None)
    good = good.filter(pa.array(~left_out))
    letters = None
    if (new := decoded.bad & ~known).any():
        wrong = pa.array(new)
        errors = [_reason(columns, payload.as_py()) for payload in payloads.filter(wrong)]
        letters = pa.RecordBatch.from_arrays(
            [*(each.filter(wrong) for each in (segments, offsets, ingested, events)), pa.array(errors, pa.string())],
            schema=dead_letter_schema(naive_times=naive_times),
        )
    return Rows(good if len(good) else None, letters)


class DeadPositions:
    """Positions of events that are dead letters already.

    `count`: how many events of the commit should have one of them.  `matched`: how many had one so far."""

    def __init__(self, tables: Iterable[pa.Table], count: int) -> None:
        """Take the columns `segment` and `offset` of tables, which may have those of other commits, too."""
        found: dict[int, list[int]] = {}
        for table in tables:
            for segment, offset in zip(table["segment"].to_pylist(), table["offset"].to_pylist(), strict=True):
                found.setdefault(segment, []).append(offset)
        self._offsets = {segment: np.unique(np.array(offsets, np.int64)) for segment, offsets in found.items()}
        self.count = count
        self.matched = 0

    def __repr__(self) -> str:
        return f"<DeadPositions, {self.matched} of {self.count}>"

    def contain(self, segments: pa.Array, offsets: pa.Array) -> Any:
        """Return for each event whether its position is one of these, and count them.  Each event is asked for once."""
        found = np.zeros(len(segments), bool)
        of, at = segments.to_numpy(), offsets.to_numpy()
        for segment, known in self._offsets.items():
            found |= (of == segment) & np.isin(at, known)
        self.matched += int(found.sum())
        return found


def payloads_of(events: pa.Array) -> pa.Array:
    """Return the payload of each event; of one that is no envelope, the event."""
    return _taken_apart(events, len(events))[3]


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
