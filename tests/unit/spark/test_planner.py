from __future__ import annotations

from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.spark.source.admission import Limits
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, A, B, FakeStream, S, planner_of, take

OPTIONS = parse_read({"stream": "s/t"})


def limited(**limits):
    return replace(OPTIONS, streaming=replace(OPTIONS.streaming, limits=Limits(**limits)))


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def test_micro_batches_follow_the_tail(stream):
    stream.events[A] = [10, 10]
    planner = planner_of(OPTIONS, stream)
    first = planner.initial()
    at, ranges = take(planner, first)
    assert ranges == [Range(S, A, 0, 20)]
    assert take(planner, at) == (at, [])
    stream.events[A].append(5)
    stream.events[B].append(7)
    _, ranges = take(planner, at)
    assert ranges == [Range(S, A, 20, 25), Range(S, B, 0, 7)]


def test_successor_is_read_after_its_predecessor(stream):
    stream.events[B] = [10]
    planner = planner_of(OPTIONS, stream)
    at = planner.initial()
    stream.split_b()
    stream.events[LEFT] = [8]
    at, ranges = take(planner, at)
    assert ranges == [Range(S, B, 0, 10)]
    at, ranges = take(planner, at)
    assert ranges == [Range(S, LEFT, 0, 8)]
    assert take(planner, at) == (at, [])


def test_event_limit_is_hard_and_no_event_is_missed(stream):
    stream.events[A] = [10] * 50
    stream.events[B] = [30] * 7
    planner = planner_of(limited(max_events=9), stream)
    at, seen = planner.initial(), []
    while True:
        at, ranges = take(planner, at)
        if not ranges:
            break
        batch = [
            (r.segment, b.as_py()) for r in ranges for _, o in stream.batches(r.segment, r.start, r.end) for b in o
        ]
        assert len(batch) <= 9
        seen += batch
    assert len(seen) == len(set(seen)) == 57


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(35, [30, 30, 30, 10, 500, 30]), (30, [30, 30, 30, 10, 500, 30]), (5, [10] * 10 + [500] + [10] * 3)],
)
def test_byte_limit_holds_except_for_a_single_larger_event(stream, limit, expected):
    stream.events[A] = [10] * 10 + [500] + [10] * 3
    planner = planner_of(limited(max_bytes=limit), stream)
    at, sizes = planner.initial(), []
    while True:
        at, ranges = take(planner, at)
        if not ranges:
            break
        sizes.append(sum(r.end - r.start for r in ranges))
    assert sizes == expected


def test_unused_byte_allowance_passes_to_the_next_segment(stream):
    stream.events |= {A: [100] * 2, B: [20] * 10}
    planner = planner_of(limited(max_bytes=150), stream)
    _, ranges = take(planner, planner.initial())
    assert ranges == [Range(S, A, 0, 100), Range(S, B, 0, 40)]


@pytest.mark.parametrize(
    ("limit", "event", "fed"),
    [({"max_bytes": 1000}, 2000, [100]), ({"max_bytes": 1000}, 950, [100] * 5), ({"max_events": 1}, 100, [100])],
)
def test_no_segment_starves_beside_a_busy_one(stream, limit, event, fed):
    stream.events |= {A: [], B: [event]}
    planner = planner_of(limited(**limit), stream)
    at, read = planner.initial(), []
    for _ in range(20):
        stream.events[A] += fed
        at, ranges = take(planner, at)
        read += ranges
    assert Range(S, B, 0, event) in read


def test_restarted_query_continues_at_its_checkpoint(stream):
    stream.events[A] = [10] * 4
    planner = planner_of(limited(max_events=3), stream)
    at, _ = take(planner, planner.initial())
    again = planner_of(limited(max_events=3), stream)
    _, ranges = take(again, at)
    assert ranges == [Range(S, A, 30, 40)]


def test_origin_is_stable_although_the_tail_moved(stream):
    stream.events[A] = [10] * 4
    from_tail = replace(OPTIONS, start="tail")
    planner = planner_of(from_tail, stream)
    origin = planner.initial()
    stream.events[A].append(10)
    at, ranges = take(planner, origin)
    assert ranges == [Range(S, A, 40, 50)]
    stream.events[A].append(10)
    again = planner_of(from_tail, stream)  # killed before the first micro-batch was committed
    assert again.initial() != origin
    assert again.ranges(again.initial(), at) == [Range(S, A, 40, 50)]


def test_query_cannot_start_after_the_end(stream):
    stream.events[A] = [10]
    stream.cut = {"head": {A: 20, B: 0}}.get
    with pytest.raises(Invalid, match="beyond the end of segment 0.#epoch.0, which is at 10"):
        take(planner := planner_of(OPTIONS, stream), planner.initial())


def test_misspelt_option_is_refused():
    with pytest.raises(Invalid, match="maxEventPerTrigger"):
        parse_read({"stream": "s/t", "maxEventPerTrigger": "3"})
    with pytest.raises(Invalid, match="at least 1"):
        parse_read({"stream": "s/t", "minPartitions": "0"})
    with pytest.raises(Invalid, match="which stream"):
        parse_read({})
