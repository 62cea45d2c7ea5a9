"""Parts of a stream: where recorded cuts divide it, and what is known of each part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sarit.client.queries.stream_relation import divided, joined, part_of
from sarit.client.queries.timeline import times_of
from sarit.client.reader.batch import Slice
from sarit.client.streams.recorded_cuts import RecordedCut
from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName

STREAM = StreamName("shop", "orders")
FIRST, SECOND, LATER = SegmentId(0, 0), SegmentId(0, 1), SegmentId(2, 2)
# SECOND is replaced by LATER in epoch 2.
CUTS = [
    RecordedCut(1000, StreamCut(STREAM, {FIRST: 10, SECOND: 0})),
    RecordedCut(2000, StreamCut(STREAM, {FIRST: 30, SECOND: 50})),
    RecordedCut(3000, StreamCut(STREAM, {FIRST: 30, LATER: 20})),
]


def test_cuts_lie_where_their_segment_is_or_before_it_or_nowhere():
    assert times_of(FIRST, CUTS, 9000).bounds == (10, 30, 30)
    assert times_of(FIRST, CUTS, 9000).times_us == (1_000_000, 1_000_000, 2_000_000, 3_000_000)
    assert times_of(SECOND, CUTS, 9000).bounds == (0, 50)
    assert times_of(LATER, CUTS, 9000).bounds == (0, 0, 20)
    assert times_of(FIRST, [], 9000).times_us == (9_000_000,)


def test_parts_have_the_times_between_their_cuts():
    times = {FIRST: times_of(FIRST, CUTS, 9000)}
    slices = divided([Slice(STREAM, FIRST, 0, 40)], times)
    assert [(part.start, part.end) for part in slices] == [(0, 10), (10, 30), (30, 40)]
    parts = [part_of(number, part, times[FIRST]) for number, part in enumerate(slices)]
    second = 1_000_000
    assert [part.ingested_us for part in parts] == [(second, second), (second, second), (3 * second, 3 * second)]
    assert [(part.bytes, part.segment, part.start, part.end) for part in parts][1] == (20, 0, 10, 30)


def test_clock_that_was_set_back_leaves_bounds_that_hold():
    cuts = [RecordedCut(time, StreamCut(STREAM, {FIRST: at})) for time, at in ((5000, 10), (2000, 20), (7000, 30))]
    times = times_of(FIRST, cuts, 9000)
    part = part_of(0, Slice(STREAM, FIRST, 0, 35), times)
    assert part.ingested_us == (2_000_000, 7_000_000)


@given(
    slices=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 120), max_size=8).map(sorted),
)
def test_parts_are_the_slices_and_joined_they_are_again(slices, cuts):
    segments = [SegmentId(0, number) for number in range(len(slices))]
    whole = [Slice(STREAM, one, at, at + length) for one, (at, length) in zip(segments, slices, strict=True)]
    records = [RecordedCut(1000 * n, StreamCut(STREAM, dict.fromkeys(segments, at))) for n, at in enumerate(cuts)]
    times = {one: times_of(one, records, 9000) for one in segments}
    parts = divided(whole, times)
    assert joined(parts) == whole
    assert joined(list(reversed(parts))) == whole
    for part in parts:
        known, (low, high) = times[part.segment], part_of(0, part, times[part.segment]).ingested_us
        for offset in (part.start, part.end - 1):
            at = max((n for n, bound in enumerate(known.bounds, 1) if bound <= offset), default=0)
            assert low <= known.times_us[at] <= high
