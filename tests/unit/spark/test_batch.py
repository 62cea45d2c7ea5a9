"""Which ranges a batch read plans."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sarit.core.cuts import from_text
from sarit.core.errors import Invalid
from sarit.core.keyspace import hash_key
from sarit.core.names import SegmentId
from sarit.spark.source import bounded_ranges as bounded
from sarit.spark.source.batch import plan
from sarit.spark.source.bounded_ranges import MIN_JOINED_TASKS, batch_ranges, joined, successors_by_epochs
from sarit.spark.source.filters import EVERYTHING, Comparison, wanted
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S

NOW = 1_769_860_800_000
OPTIONS = parse_read({"stream": "s/t"})


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def test_a_batch_reads_across_a_scale(stream):
    stream.events |= {A: [10], B: [10, 10]}
    stream.split_b()
    stream.events |= {LEFT: [5], RIGHT: []}
    assert batch_ranges(OPTIONS, stream) == [Range(S, A, 0, 10), Range(S, B, 0, 20), Range(S, LEFT, 0, 5)]
    with pytest.raises(Invalid, match="end of the read of s/t lies before its start"):
        batch_ranges(replace(OPTIONS, start="tail", end="head"), stream)


def test_a_batch_asks_for_epochs_and_not_for_each_segment(stream, monkeypatch):
    stream.events |= {A: [10], B: [10, 10]}
    stream.split_b()
    stream.events |= {LEFT: [5], RIGHT: [5]}
    expected = batch_ranges(OPTIONS, stream)
    assert successors_by_epochs(stream.history) == {B: [LEFT, RIGHT]}
    asked = []
    monkeypatch.setattr(stream, "successors", lambda segment: asked.append(segment) or stream.next[segment])
    assert batch_ranges(OPTIONS, stream) == expected
    assert asked == []
    # An epoch before the head is not known.
    del stream.history[0]
    assert batch_ranges(OPTIONS, stream) == expected
    assert asked == [B]


def between(stream, start, end):
    """The ranges of a batch read between two cuts."""
    stream.cut = {"head": start, "tail": end}.get
    return batch_ranges(OPTIONS, stream)


def test_invalid_cuts_are_refused_by_the_planner(stream):
    stream.events |= {A: [10] * 4, B: [10]}
    assert between(stream, {A: 10, B: 0}, {A: 40, B: 0}) == [Range(S, A, 10, 40)]
    with pytest.raises(Invalid, match="beyond the end of segment 0.#epoch.0, which is at 40"):
        between(stream, {A: 0, B: 0}, {A: 50, B: 10})
    with pytest.raises(Invalid, match="beyond the end of segment 0.#epoch.0, which is at 40"):
        between(stream, {A: 50, B: 0}, {A: 60, B: 10})
    with pytest.raises(Invalid, match="begin at offset 30 of segment 0.#epoch.0, and end before it, at 20"):
        between(stream, {A: 30, B: 0}, {A: 20, B: 10})
    stream.split_b()
    with pytest.raises(Invalid, match="beyond the end of segment 1.#epoch.0, which is at 10"):
        between(stream, {A: 0, B: 20}, {A: 40, LEFT: 0, RIGHT: 0})


def planned(stream, filters=(), **options):
    """What each task of a batch read reads."""
    given = parse_read({"stream": "s/t", **options})
    return plan(given, [stream], wanted(filters, key_is_routing_key=given.key_is_routing_key), NOW)


def covers_everything(stream, tasks):
    """Whether every byte of the stream is in one range, and every range lies between event boundaries."""
    ranges = sorted((part for task in tasks for part in task), key=lambda part: (part.segment, part.start))
    for segment, sizes in stream.events.items():
        mine = [part for part in ranges if part.segment == segment]
        bounds = {0, *itertools.accumulate(sizes)}
        assert {part.start for part in mine} <= bounds
        assert [part.start for part in mine[1:]] == [part.end for part in mine[:-1]]
        assert sum(part.end - part.start for part in mine) == sum(sizes)
    return True


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_minimum_of_partitions_is_met_without_reading(stream, count):
    stream.events |= {A: [7, 100, 3, 9, 11, 5] * 4, B: [13]}
    tasks = planned(stream, minPartitions=str(count))
    assert covers_everything(stream, tasks)
    assert len(tasks) >= min(count, len([7, 100, 3, 9, 11, 5] * 4) // 2)
    assert stream.read_bytes == 0


def test_segments_are_cut_to_the_partition_limit(stream):
    stream.events |= {A: [10] * 100, B: [10] * 5}
    tasks = planned(stream, maxBytesPerPartition="250")
    assert covers_everything(stream, tasks)
    assert [part.end - part.start for (part,) in tasks] == [250, 250, 250, 250, 50]
    assert len(planned(stream)) == 2


def test_many_small_segments_share_tasks_in_their_order():
    pieces = [Range(S, SegmentId(n % 3, n), 0, 10 + n) for n in range(512)]
    tasks = joined(pieces, None, 1 << 30)
    assert len(tasks) == MIN_JOINED_TASKS
    assert sorted(part.segment for task in tasks for part in task) == sorted(part.segment for part in pieces)
    assert all(list(task) == sorted(task, key=lambda part: part.segment) for task in tasks)
    sizes = [sum(part.end - part.start for part in task) for task in tasks]
    assert max(sizes) < 1.2 * min(sizes)
    assert len(joined(pieces, 200, 1 << 30)) == 200
    # Not far more than the minimum: each its own.
    assert joined(pieces, 300, 1 << 30) == [(part,) for part in pieces]


def test_filters_of_stream_and_segment_leave_fewer_ranges(stream):
    stream.events |= {A: [10], B: [10]}
    everything = planned(stream)
    assert planned(stream, [Comparison("segment_id", "=", (A.packed,))]) == [(Range(S, A, 0, 10),)]
    assert planned(stream, [Comparison("segment_id", "in", (B.packed, 77))]) == [(Range(S, B, 0, 10),)]
    assert planned(stream, [Comparison("segment_id", ">", (A.packed,))]) == [(Range(S, B, 0, 10),)]
    assert planned(stream, [Comparison("segment_id", "<", (A.packed,))]) == []
    # What is not understood leaves everything.
    assert planned(stream, [Comparison("event", "=", (b"x",)), Comparison("offset", "=", ("7",))]) == everything


def test_filters_of_offsets_leave_the_bytes_around_them(stream, monkeypatch):
    monkeypatch.setattr(bounded, "SPARK_FILTER_STEP_BYTES", 50)
    stream.events |= {A: [10] * 100, B: [10] * 100}
    on_a = Comparison("segment_id", "=", (A.packed,))
    for offset in (0, 10, 49, 50, 333, 500, 985, 990, 999):
        (task,) = planned(stream, [on_a, Comparison("offset", "=", (offset,))])
        assert task[0].start <= offset < task[0].end
        assert task[0].end - task[0].start <= 200
    (task,) = planned(stream, [on_a, Comparison("offset", ">=", (400,)), Comparison("offset", "<", (600,))])
    assert 300 <= task[0].start <= 400
    assert 600 <= task[0].end <= 700
    # An offset inside an event.
    (task,) = planned(stream, [on_a, Comparison("offset", ">=", (405,))])
    assert 300 <= task[0].start <= 400
    assert task[0].start % 10 == 0
    assert wanted([Comparison("offset", ">=", (7,))]).low == 7
    assert wanted([Comparison("offset", ">", (7,))]).low == 8
    assert planned(stream, [Comparison("offset", ">", (1000,))]) == []
    assert stream.read_bytes == 0


def test_filter_of_routing_key_leaves_its_segment_of_each_epoch(stream):
    stream.events |= {A: [10], B: [10]}
    stream.split_b()
    stream.events |= {LEFT: [5], RIGHT: [5]}
    for key in ("a", "b", "c", "d", "e", "f"):
        place = hash_key(key)
        expected = [A] if place <= 0.5 else [B, LEFT if place <= 0.75 else RIGHT]
        tasks = planned(stream, [Comparison("key", "=", (key,))], keyIsRoutingKey="true")
        assert [part.segment for (part,) in tasks] == expected
        assert len(planned(stream, [Comparison("key", "=", (key,))])) == 4


def test_cut_of_the_end_goes_with_each_range(stream):
    stream.events |= {A: [10], B: [10, 10]}
    tasks = plan(OPTIONS, [stream], EVERYTHING, NOW, with_cut=True)
    cuts = {part.cut for task in tasks for part in task}
    assert [dict(from_text(cut).positions) for cut in cuts] == [{A: 10, B: 20}]
    stream.events[A] += [10]
    (text,) = cuts
    assert plan(replace(OPTIONS, end=text), [stream], EVERYTHING, NOW, with_cut=True) == tasks
