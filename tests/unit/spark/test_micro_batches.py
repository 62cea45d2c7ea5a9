"""Micro-batches of a streaming query: several streams, patterns, limits without reading, available now."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid, NotFound
from sarit.core.names import SegmentId, StreamName
from sarit.spark.limits import SPARK_TASK_BYTES
from sarit.spark.source.admission import Limits
from sarit.spark.source.lag import Lag, StreamLag, lag
from sarit.spark.source.options import parse_read
from sarit.spark.source.partitions import put_together
from sarit.spark.source.planner import QueryPlanner
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S, planner_of, take

OPTIONS = parse_read({"stream": "s/t"})
T2, T3 = StreamName("s", "t2"), StreamName("s", "t3")


def options(**given):
    return parse_read({"stream": "s/t", **given} if not {"streams", "streamPattern"} & given.keys() else given)


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def drain(planner, start):
    """All micro-batches until there are no more."""
    batches = []
    while True:
        end, ranges = take(planner, start)
        if end == start:
            return start, batches
        batches.append(ranges)
        start = end


def size(ranges):
    return sum(part.end - part.start for part in ranges)


# -- several streams -----------------------------------------------------------------------------


def test_streams_of_one_query_share_limits_in_proportion():
    one, two = FakeStream(), FakeStream(T2)
    one.events[A], two.events[A] = [10] * 300, [10] * 100
    planner = planner_of(options(streams="s/t,s/t2", maxBytesPerTrigger="400"), one, two)
    _, ranges = take(planner, planner.initial())
    assert [(part.stream, part.end) for part in ranges] == [(S, 300), (T2, 100)]
    _, batches = drain(planner, planner.initial())
    assert all(size(ranges) <= 400 for ranges in batches)
    assert sum(map(size, batches)) == 4000
    assert len(batches) <= 11


def test_later_stream_of_a_pattern_enters_at_its_head():
    one, two = FakeStream(), FakeStream(T2)
    one.events[A] = [10]
    planner = planner_of(options(streamPattern="s/t.*", start="tail", discoverySeconds="5"), one)
    source = planner._source
    begin = planner.initial()
    at, _ = take(planner, begin)
    two.events[A] = [7, 7]
    source.streams[T2] = two
    one.events[A].append(10)
    at, ranges = take(planner, at)
    assert ranges == [Range(S, A, 10, 20)]
    source.now += 5
    end, ranges = take(planner, at)
    assert ranges == [Range(T2, A, 0, 14)]
    # A restarted query plans the same.
    two.events[A].append(7)
    again = QueryPlanner(planner._options, source)
    assert again.ranges(at, end) == ranges
    assert take(again, end)[1] == [Range(T2, A, 14, 21)]


def test_stream_that_left_a_pattern_is_an_error_or_left_out():
    one, two = FakeStream(), FakeStream(T2)
    one.events[A] = [10]
    given = options(streamPattern="s/t.*")
    planner = planner_of(given, one, two)
    at, _ = take(planner, planner.initial())
    del planner._source.streams[T2]
    one.events[A] += [10]
    with pytest.raises(NotFound, match="s/t2: deleted, or streamPattern s/t.* .*failOnDataLoss"):
        take(QueryPlanner(given, planner._source), at)
    lenient = QueryPlanner(replace(given, fail_on_data_loss=False), planner._source)
    at, ranges = take(lenient, at)
    assert ranges == [Range(S, A, 10, 20)]
    assert list(at["streams"]) == ["s/t"]


def test_checkpoint_of_other_streams_is_refused(stream):
    other = FakeStream(T2)
    stream.events[A] = [10]
    planner = planner_of(options(), stream)
    at, _ = take(planner, planner.initial())
    with pytest.raises(Invalid, match="belongs to s/t, the query reads s/t2: use another checkpointLocation"):
        take(planner_of(options(stream="s/t2"), other), at)
    both = planner_of(options(streams="s/t,s/t2"), stream, other)
    other.events[B] = [5]
    at, ranges = take(both, at)
    assert ranges == [Range(T2, B, 0, 5)]
    with pytest.raises(Invalid, match="has s/t2, which the query does not select any more"):
        take(planner, at)


def test_deleted_stream_is_a_clear_error(stream):
    stream.events[A] = [10]
    planner = planner_of(options(), stream)
    at, _ = take(planner, planner.initial())
    planner._source.streams.clear()
    with pytest.raises(NotFound, match="stream s/t was deleted while a query reads it"):
        take(QueryPlanner(planner._options, planner._source), at)


# -- limits --------------------------------------------------------------------------------------


def coarse(stream, step):
    """The store knows only some boundaries, at most every `step` bytes."""
    stream.known = {}
    for segment, sizes in stream.events.items():
        kept = [0]
        for at in itertools.accumulate(sizes):
            if at - kept[-1] >= step:
                kept.append(at)
        stream.known[segment] = kept[1:]


@pytest.mark.parametrize("limit", [{"max_bytes": 10_000_000}, {"max_events": 100_000}])
def test_driver_reads_only_samples_to_find_the_end(stream, limit):
    stream.events |= {A: [100] * 500_000, B: [100] * 250_000}
    coarse(stream, 262_144)
    planner = planner_of(replace(OPTIONS, streaming=replace(OPTIONS.streaming, limits=Limits(**limit))), stream)
    _, batches = drain(planner, planner.initial())
    assert sum(map(size, batches)) == 75_000_000
    assert all(size(ranges) <= 10_000_000 for ranges in batches)
    # The granularity of the boundaries, of two segments.
    assert all(size(ranges) >= 10_000_000 - 2 * 2 * 262_144 for ranges in batches[:-2])
    assert stream.read_bytes <= len(batches) * 2 * 65_536


def test_limit_of_events_holds_about_for_mixed_sizes(stream):
    rng = random.Random(1)
    stream.events[A] = [rng.randrange(8, 2000) for _ in range(100_000)]
    coarse(stream, 262_144)
    planner = planner_of(options(maxEventsPerTrigger="20000"), stream)
    at = planner.initial()
    ends = list(itertools.accumulate(stream.events[A]))
    counts = []
    while (step := take(planner, at))[1]:
        at, [part] = step
        counts.append(sum(part.start < end <= part.end for end in ends))
        assert part.end in ends
    assert sum(counts) == 100_000
    assert all(count < 20_000 * 1.3 for count in counts)


def test_large_events_between_coarse_boundaries_are_passed(stream):
    stream.events[A] = [5_000_000, 100, 3_000_000] + [100] * 50_000
    coarse(stream, 262_144)
    planner = planner_of(options(maxBytesPerTrigger="100000"), stream)
    _, batches = drain(planner, planner.initial())
    assert sum(map(size, batches)) == 13_000_100
    assert [size(ranges) for ranges in batches[:3]] == [5_000_000, 100, 3_000_000]
    assert max(map(size, batches[3:])) <= 100_000


def test_minimum_of_events_is_awaited_until_the_delay(stream):
    planner = planner_of(options(minEventsPerTrigger="5", maxTriggerDelay="10s"), stream)
    source = planner._source
    at = planner.initial()
    stream.events |= {A: [10] * 3, B: [10]}
    assert take(planner, at) == (at, [])
    stream.events[B] += [10]
    at, ranges = take(planner, at)
    assert size(ranges) == 50
    stream.events[A] += [10]
    source.now += 9
    assert take(planner, at) == (at, [])
    source.now += 1
    at, ranges = take(planner, at)
    assert size(ranges) == 10
    # The delay counts from the last micro-batch that had any events.
    source.now += 10
    assert take(planner, at) == (at, [])
    stream.events[A] += [10]
    assert size(take(planner, at)[1]) == 10


def test_options_of_the_minimum_are_checked():
    with pytest.raises(Invalid, match="no effect without minEventsPerTrigger"):
        options(maxTriggerDelay="10s")
    with pytest.raises(Invalid, match="above maxEventsPerTrigger"):
        options(minEventsPerTrigger="10", maxEventsPerTrigger="5")
    with pytest.raises(Invalid, match="'10 years': give a number and a unit"):
        options(minEventsPerTrigger="1", maxTriggerDelay="10 years")
    assert options(minEventsPerTrigger="1", maxTriggerDelay="2m").streaming.limits.max_delay_ms == 120_000


@pytest.mark.parametrize("wanted", [1, 2, 5, 16])
def test_micro_batch_is_cut_into_more_partitions_at_boundaries(stream, wanted):
    stream.events |= {A: [100] * 200_000, B: [100] * 10}
    coarse(stream, 262_144)
    planner = planner_of(options(minPartitions=str(wanted)), stream)
    begin = planner.initial()
    end, ranges = take(planner, begin)
    assert len(ranges) >= wanted
    assert size(ranges) == 20_001_000
    for left, right in itertools.pairwise(ranges):
        assert left.segment != right.segment or left.end == right.start
        assert left.end % 100 == 0
    assert planner_of(planner._options, stream).ranges(begin, end) == ranges
    assert stream.read_bytes <= 2 * 65_536


# -- available now -------------------------------------------------------------------------------


def test_available_now_reads_through_scales_up_to_its_start(stream):
    stream.events |= {A: [10] * 10, B: [10] * 10}
    stream.split_b()
    stream.events |= {LEFT: [10] * 5, RIGHT: [10] * 5}
    planner = planner_of(options(maxBytesPerTrigger="40"), stream)
    planner.prepare_available_now()
    begin = planner.initial()
    # What comes after its start is not read: events, nor segments that replace those of its start.
    stream.events[A] += [10] * 3
    stream.sealed |= {LEFT, RIGHT}
    merged = SegmentId(2, 4)
    stream.next |= {LEFT: {merged: frozenset({LEFT, RIGHT})}, RIGHT: {merged: frozenset({LEFT, RIGHT})}}
    stream.events[merged] = [10] * 7
    at, batches = drain(planner, begin)
    assert sum(map(size, batches)) == 300
    assert all(size(ranges) <= 40 for ranges in batches)
    assert take(planner, at) == (at, [])
    assert at["streams"]["s/t"].keys() == {"0.#epoch.0", "2.#epoch.1", "3.#epoch.1"}
    # The next run reads the rest.
    again = planner_of(options(), stream)
    again.prepare_available_now()
    _, batches = drain(again, at)
    assert sum(map(size, batches)) == 100


def test_available_now_continues_in_the_middle_after_a_restart(stream):
    stream.events |= {A: [10] * 10, B: [10] * 10}
    planner = planner_of(options(maxEventsPerTrigger="3"), stream)
    planner.prepare_available_now()
    at, first = take(planner, planner.initial())
    stream.events[A] += [10] * 2
    again = planner_of(options(maxEventsPerTrigger="3"), stream)
    again.prepare_available_now()
    stream.events[A] += [10] * 50
    _, batches = drain(again, at)
    assert size(first) + sum(map(size, batches)) == 220


def test_available_now_ends_at_once_at_the_tail_and_in_a_sealed_stream(stream):
    stream.events |= {A: [10], B: [10]}
    planner = planner_of(options(start="tail"), stream)
    planner.prepare_available_now()
    stream.split_b()
    stream.events[LEFT] = [10]
    at, batches = drain(planner, planner.initial())
    assert sum(map(size, batches)) == 0
    stream.events[RIGHT] = [10]
    stream.sealed |= {A, LEFT, RIGHT}
    again = planner_of(options(), stream)
    again.prepare_available_now()
    _, batches = drain(again, at)
    assert sum(map(size, batches)) == 10


def test_available_now_ignores_the_minimum(stream):
    stream.events[A] = [10]
    planner = planner_of(options(minEventsPerTrigger="5"), stream)
    planner.prepare_available_now()
    assert size(take(planner, planner.initial())[1]) == 10


# -- lag -----------------------------------------------------------------------------------------


def progress(planner):
    """As Spark shows it: JSON text."""
    return {"sources": [{"latestOffset": None}, {"latestOffset": json.dumps(planner.tail())}]}


def test_lag_has_bytes_and_events_by_stream_and_segment():
    one, two = FakeStream(), FakeStream(T2)
    one.events |= {A: [10] * 10, B: [10] * 4}
    two.events[A] = [20] * 5
    planner = planner_of(options(streams="s/t,s/t2", maxBytesPerTrigger="40"), one, two)
    begin = planner.initial()
    assert planner.tail() is None
    at, ranges = take(planner, begin)
    found = lag(progress(planner))
    assert found.bytes == 240 - size(ranges)
    assert found.streams[S].bytes == sum(found.streams[S].segments.values())
    assert found.streams[S].events == found.streams[S].bytes // 10
    assert found.streams[T2].events == found.streams[T2].bytes // 20
    assert found.events == found.streams[S].events + found.streams[T2].events
    drain(planner, at)
    assert lag(progress(planner)) == Lag(0, 0, {S: StreamLag(0, 0), T2: StreamLag(0, 0)})
    one.events[B] += [10] * 3
    planner.latest(planner.initial(), Limits(min_events=10**6, max_delay_ms=10**9))
    assert lag(progress(planner)).streams[S].segments == {A: 100, B: 70}


def test_lag_counts_successors_that_are_not_entered_yet(stream):
    stream.events |= {A: [10] * 10, B: [10] * 4}
    stream.split_b()
    stream.events |= {LEFT: [10] * 6, RIGHT: []}
    planner = planner_of(options(maxEventsPerTrigger="2"), stream)
    take(planner, planner.initial())
    found = lag(progress(planner))
    assert (found.bytes, found.events) == (180, 18)
    assert found.streams[S].segments.keys() == {A, B, LEFT}
    assert planner.tail()["streams"]["s/t"].keys() == {"0.#epoch.0", "2.#epoch.1", "3.#epoch.1"}


def test_progress_without_a_lag_is_refused():
    for wrong in ({}, {"sources": []}, {"sources": [{"latestOffset": "{}"}, {"latestOffset": "x"}]}):
        with pytest.raises(Invalid, match="no lag of a Sarit source"):
            lag(wrong)


# -- the tasks of a micro-batch ------------------------------------------------------------------


def ranges_of(*sizes):
    """A range of each size, all in segments of their own."""
    return [Range(S, SegmentId(number, 0), 5, 5 + length) for number, length in enumerate(sizes)]


def tasks_of(least, *sizes):
    """The sizes that each task reads."""
    return [tuple(part.end - part.start for part in task) for task in put_together(ranges_of(*sizes), least)]


BIG, MOST = SPARK_TASK_BYTES + 1, SPARK_TASK_BYTES


def test_small_ranges_share_a_task_and_large_ones_have_their_own():
    assert tasks_of(1, 10, 20, 30) == [(10, 20, 30)]
    assert tasks_of(1, MOST, BIG, MOST) == [(MOST,), (BIG,), (MOST,)]
    assert tasks_of(1, 10, BIG, 30, 40, MOST) == [(10, 30, 40), (BIG,), (MOST,)]
    assert tasks_of(1, *[MOST // 2] * 5) == [(MOST // 2, MOST // 2), (MOST // 2, MOST // 2), (MOST // 2,)]
    assert tasks_of(1, 7) == [(7,)]
    assert tasks_of(1) == []


def test_as_many_tasks_as_wanted_remain():
    assert tasks_of(3, 10, 20, 30) == [(10,), (20,), (30,)]
    assert tasks_of(2, 10, 20, 30, 40) == [(10, 40), (20, 30)]
    assert tasks_of(3, 10, BIG, 20, 30) == [(10, 20), (BIG,), (30,)]
    assert tasks_of(9, 10, 20) == [(10,), (20,)]


def test_tasks_have_every_range_once_in_order_and_balanced():
    dice = random.Random(4)
    for _ in range(300):
        parts = ranges_of(*(dice.choice((1, 1000, MOST // 3, MOST - 1, BIG)) for _ in range(dice.randrange(20))))
        least = dice.randrange(1, 8)
        tasks = put_together(parts, least)
        order = [[parts.index(part) for part in task] for task in tasks]
        assert sorted(number for task in order for number in task) == list(range(len(parts)))
        assert order == sorted(sorted(task) for task in order)
        assert len(tasks) >= min(least, len(parts))
        assert all(len(task) == 1 or sum(p.end - p.start for p in task) < 2 * MOST for task in tasks)
        assert tasks == put_together(parts, least)


def test_micro_batch_with_little_in_each_segment_is_one_task(stream):
    stream.events |= {A: [10] * 3, B: [20]}
    planner = planner_of(options(), stream)
    end = planner.latest(planner.initial(), Limits())
    assert planner.tasks(planner.initial(), end) == [(Range(S, A, 0, 30), Range(S, B, 0, 20))]
    assert planner.tasks(end, end) == []
