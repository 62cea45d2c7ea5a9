"""Batches of events: what they hold, and what they need."""

import subprocess
import sys

import pyarrow as pa
import pytest

from sarit.client.core.framing import frame_events
from sarit.client.reader.cursor import EventCursor, arrow_schema
from sarit.core.names import SegmentId

EVENTS = [b"x" * (number % 3) for number in range(60)] + [b"as long"] * 200 + [b""]
SEGMENT = SegmentId.unpack(7)


@pytest.mark.parametrize("cut", [0, 9, 1000])
def test_record_batch_has_event_segment_and_offset(cut):
    data, cursor = frame_events(EVENTS), EventCursor(SEGMENT, 100)
    batches = [cursor.table(piece, arrow_schema()) for piece in (data[:cut], data[cut:])]
    table = pa.Table.from_batches([batch for batch in batches if batch is not None])
    table.validate(full=True)
    assert table.schema == arrow_schema()
    assert table["event"].to_pylist() == EVENTS
    assert table["segment"].to_pylist() == [SEGMENT.packed] * len(EVENTS)
    assert table["offset"].to_pylist() == [100 + len(frame_events(EVENTS[:at])) for at in range(len(EVENTS))]


def test_record_batches_do_not_import_pandas():
    program = """
import sys
from sarit.client.core.framing import frame_events
from sarit.client.reader.cursor import EventCursor, arrow_schema
from sarit.client.reader.reader import _empty
from sarit.core.names import SegmentId
events = [b"x" * (number % 3) for number in range(60)] + [b"as long"] * 200
assert EventCursor(SegmentId.unpack(0), 0).table(frame_events(events), arrow_schema()).num_rows == 260
assert _empty(arrow_schema()).num_rows == 0
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
