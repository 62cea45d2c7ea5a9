"""Rows of streams: record batches of events become the column `sarit` and the columns of values (pure).

An event that is an envelope gives its key, time and headers to `sarit`, and its payload to the value.  Any other event
is the value as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core import envelope_columns
from sarit.core.envelope_layout import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

TIME: Final = pa.timestamp("us", tz="UTC")
SARIT_TYPE: Final = pa.struct(
    [
        pa.field("segment", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("ingested", TIME),
        pa.field("time", TIME),
        pa.field("key", pa.string()),
        pa.field("headers", envelope_columns.COLUMNS["headers"]),
    ]
)
# Fields of `sarit` that are in envelopes, and what they are called there.
_OF_ENVELOPES: Final = {"time": "event_time", "key": "key", "headers": "headers"}


def binary_schema() -> pa.Schema:
    """Return the columns of a stream whose values are bytes."""
    return pa.schema([pa.field("sarit", SARIT_TYPE), pa.field("value", pa.binary())])


def ingested_at(bounds: Any, times_us: Any, offsets: Any) -> pa.Array:
    """Return when events of one segment were ingested, at the earliest; 1970, as in tables, before the first cut.

    `bounds`: offsets of the recorded cuts in the segment, ascending; `times_us`: when each was recorded."""
    times = np.concatenate((np.zeros(1, np.int64), times_us))[np.searchsorted(bounds, offsets, side="right")]
    return pa.Array.from_buffers(TIME, len(times), [None, pa.py_buffer(times)])


def split(events: pa.Array, wanted: Collection[str]) -> tuple[dict[str, pa.Array], pa.Array]:
    """Return the wanted fields of `sarit` that are in envelopes, by name, and the payloads."""
    count = len(events)
    begins = pc.starts_with(events, pattern=MAGIC)
    fields = [name for name in _OF_ENVELOPES if name in wanted]
    if not pc.any(begins, min_count=0).as_py():
        return {name: pa.nulls(count, SARIT_TYPE.field(name).type) for name in fields}, events
    decoded = envelope_columns.decode(events, [*(_OF_ENVELOPES[name] for name in fields), "payload"])
    payloads = decoded.columns["payload"]
    if decoded.bad.any():
        payloads = pc.if_else(pa.array(decoded.bad), events.cast(pa.binary()), payloads)
    return {name: decoded.columns[_OF_ENVELOPES[name]] for name in fields}, payloads


def rows(
    batch: pa.RecordBatch, columns: Sequence[str], ingested: Callable[[pa.RecordBatch], pa.Array]
) -> pa.RecordBatch:
    """Return rows of a batch (event, segment, offset of one segment).  `columns`: as of `Relation.read`."""
    fields = {name.partition(".")[2] for name in columns if name.startswith("sarit.")}
    if "sarit" in columns:
        fields = {field.name for field in SARIT_TYPE}
    events = batch.column(0)
    inside = fields & set(_OF_ENVELOPES)
    found, payloads = split(events, inside) if inside or "value" in columns else ({}, events)
    found |= {"segment": batch.column(1), "offset": batch.column(2)}
    if "ingested" in fields:
        found["ingested"] = ingested(batch)
    arrays: dict[str, pa.Array] = {}
    if fields:
        count = batch.num_rows
        parts = [found[field.name] if field.name in found else pa.nulls(count, field.type) for field in SARIT_TYPE]
        arrays["sarit"] = pa.StructArray.from_arrays(parts, fields=list(SARIT_TYPE))
    if "value" in columns:
        arrays["value"] = payloads
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
