"""Rows of events: what is in `sarit`, what in the values, and that an event that does not fit is a row all the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from sarit.core.envelope import Envelope
from sarit.serializers.payload_columns import binary_columns, json_columns
from sarit.sql.meter import ScanMeter
from sarit.sql.rows import RowMaker

EVENTS = [
    b"plain",
    bytes(Envelope(b"inside", key="anna", event_time=7_000_000, headers=[("a", b"1"), ("a", b"2")])),
    bytes(Envelope(b"", key="", headers=[])),
    bytes(Envelope(b"bad"))[:9],  # begins as an envelope does
]
BOUNDS, TIMES = np.array([10, 20]), np.array([1_000_000, 2_000_000, 3_000_000])


def batch(events):
    offsets = [10 * at for at in range(len(events))]
    arrays = [pa.array(events, pa.binary()), pa.array([5] * len(events), pa.int64()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=["event", "segment", "offset"])


def test_parts_of_envelopes_are_in_the_column_of_positions():
    rows = RowMaker(binary_columns(), ScanMeter(None)).rows(batch(EVENTS), ["sarit", "value"], BOUNDS, TIMES)
    assert rows.column("value").to_pylist() == [b"plain", b"inside", b"", EVENTS[3]]
    sarit = rows.column("sarit").to_pylist()
    assert [row["key"] for row in sarit] == [None, "anna", "", None]
    assert [row["segment"] for row in sarit] == [5] * 4
    assert [row["offset"] for row in sarit] == [0, 10, 20, 30]
    assert [row["ingested"].timestamp() for row in sarit] == [1, 2, 3, 3]
    assert sarit[1]["time"] == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert sarit[1]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]
    assert sarit[0]["headers"] is None


@pytest.mark.parametrize(
    "columns",
    [["value"], ["sarit"], ["value", "sarit"], ["sarit.segment"], ["sarit.offset", "sarit.ingested", "value"]],
)
def test_columns_are_those_of_a_whole_row_in_the_order_asked_for(columns):
    maker = RowMaker(binary_columns(), ScanMeter(None))
    whole = maker.rows(batch(EVENTS), ["sarit", "value"], BOUNDS, TIMES)
    found = maker.rows(batch(EVENTS), columns, BOUNDS, TIMES)
    assert found.schema.names == list(dict.fromkeys(name.partition(".")[0] for name in columns))
    for name in columns:
        top, _, field = name.partition(".")
        values, expected = found.column(top).to_pylist(), whole.column(top).to_pylist()
        assert [row[field] if field else row for row in values] == [row[field] if field else row for row in expected]


def test_payloads_that_do_not_fit_have_no_values_and_are_counted():
    meter = ScanMeter(None)
    maker = RowMaker(json_columns(pa.schema([pa.field("id", pa.int64(), nullable=False)])), meter)
    events = [json.dumps({"id": 1}).encode(), b"no json", bytes(Envelope(b'{"id": 2}'))]
    rows = maker.rows(batch(events), ["sarit", "id"], BOUNDS, TIMES)
    assert rows.column("id").to_pylist() == [1, None, 2]
    assert meter.undecoded == 1
    assert maker.rows(batch(events), ["sarit"], BOUNDS, TIMES).num_rows == 3
