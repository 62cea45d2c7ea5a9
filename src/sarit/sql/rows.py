"""Rows of streams: record batches of events become the column `sarit` and the columns of values (pure).

An event that is an envelope gives its key, time and headers to `sarit`, and its payload to the value.  Any other event
is the value as it is.  A payload that its schema does not fit is a row all the same, whose values are null: what a
query counts does not depend on the columns that it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core import envelope_columns
from sarit.core.envelope_layout import MAGIC
from sarit.lake.layout import SARIT, UTC_TIME, sarit_type

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.sql.meter import ScanMeter

TIME: Final = UTC_TIME
SARIT_TYPE: Final = sarit_type()
# Fields of `sarit` that are in envelopes, and what they are called there.
_OF_ENVELOPES: Final = {"time": "event_time", "key": "key", "headers": "headers"}


def ingested_at(bounds: Any, times_us: Any, offsets: Any) -> pa.Array:
    """Return when events of one segment were ingested, at the earliest.

    `bounds`: offsets of the recorded cuts in the segment, ascending; `times_us`: when each was recorded, after a time
    for events before the first."""
    times = times_us[np.searchsorted(bounds, offsets, side="right")]
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


class RowMaker:
    """Makes the rows of one stream; `schema`: their columns."""

    def __init__(self, values: PayloadColumns, meter: ScanMeter, *, whole: bool = False) -> None:
        """Take the columns of values; `meter`: counts payloads that have none; `whole`: these are left out."""
        self._values = values
        self._whole = whole
        self._meter = meter
        self.schema = pa.schema([pa.field(SARIT, SARIT_TYPE), *(one.with_nullable(True) for one in values.schema)])

    def rows(self, events: pa.RecordBatch, columns: Sequence[str], bounds: Any, times_us: Any) -> pa.RecordBatch:
        """Return rows of a batch (event, segment, offset) of one segment.

        `columns`: as of `Relation.read`; `bounds`, `times_us`: as of `ingested_at`.  Raises what decoding raises."""
        fields = {name.partition(".")[2] for name in columns if name not in self.schema.names}
        if SARIT in columns:
            fields = {field.name for field in SARIT_TYPE}
        wanted = [name for name in columns if name in self.schema.names and name != SARIT]
        inside = fields & set(_OF_ENVELOPES)
        found, payloads = split(events.column(0), inside) if inside or wanted or self._whole else ({}, None)
        found |= {"segment": events.column(1), "offset": events.column(2)}
        if "ingested" in fields:
            found["ingested"] = ingested_at(bounds, times_us, events.column(2).to_numpy())
        arrays: dict[str, pa.Array] = {}
        if fields:
            nulls = (pa.nulls(events.num_rows, field.type) for field in SARIT_TYPE)
            parts = [found.get(field.name, null) for field, null in zip(SARIT_TYPE, nulls, strict=True)]
            arrays[SARIT] = pa.StructArray.from_arrays(parts, fields=list(SARIT_TYPE))
        bad = None
        if wanted or self._whole:
            decoded = self._values.read(payloads)
            bad = decoded.bad
            self._meter.undecoded += int(bad.sum())
            by_name = dict(zip(self._values.schema.names, decoded.columns, strict=True))
            arrays |= {name: by_name[name] for name in wanted}
        order = list(dict.fromkeys(name if name in self.schema.names else SARIT for name in columns))
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in order], schema=self.columns(order))
        return rows.filter(pa.array(~bad)) if self._whole and bad is not None and bad.any() else rows

    def columns(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns."""
        return pa.schema([self.schema.field(name) for name in names])
