"""Data truncated away under a query: it fails with an error, or continues with all that is left."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructType

from sarit.core.errors import NotFound, Truncated
from sarit.spark.formats.columns import Projection
from sarit.spark.source import batch, task
from sarit.spark.source.admission import Limits
from sarit.spark.source.batch import BatchReader
from sarit.spark.source.bounded_ranges import batch_ranges
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, A, B, FakeStream, S, planner_of, take

OPTIONS = parse_read({"stream": "s/t"})
OFFSETS = Projection(StructType().add("offset", LongType()))
LENIENT = replace(OPTIONS, fail_on_data_loss=False)


def limited(options, **limits):
    return replace(options, streaming=replace(options.streaming, limits=Limits(**limits)))


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def test_truncated_data_raises_by_default(stream):
    stream.events[A] = [10] * 4
    planner = planner_of(OPTIONS, stream)
    start = planner.initial()
    stream.starts[A] = 20
    with pytest.raises(Truncated, match="failOnDataLoss"):
        take(planner, start)
    del stream.events[A]
    with pytest.raises(NotFound, match="was deleted"):
        take(planner, start)


def test_query_and_its_repetition_continue_above_a_truncation(stream):
    stream.events[A] = [10] * 4
    planner = planner_of(LENIENT, stream)
    before, _ = take(planner, planner.initial())
    stream.events[A] += [10] * 4
    stream.starts[A] = 60
    end, ranges = take(planner, before)
    assert ranges == [Range(S, A, 60, 80)]
    stream.starts[A] = 70
    again = planner_of(LENIENT, stream)
    assert again.ranges(before, end) == [Range(S, A, 70, 80)]
    stream.starts[A] = 80
    assert again.ranges(before, end) == []


def test_query_enters_a_successor_with_truncated_head(stream):
    stream.events[B] = [10]
    planner = planner_of(LENIENT, stream)
    before, _ = take(planner, planner.initial())
    stream.split_b()
    del stream.events[B]
    stream.events[LEFT] = [8, 8, 8]
    stream.starts[LEFT] = 16
    assert take(planner, before)[1] == [Range(S, LEFT, 16, 24)]


def test_truncation_during_planning_is_left_out_or_raised(stream):
    stream.events |= {A: [10] * 4, B: [10]}
    planner = planner_of(LENIENT, stream)
    start = planner.initial()
    end = planner.latest(start, Limits())
    strict = planner_of(OPTIONS, stream)
    stream.starts[A] = 20
    with pytest.raises(Truncated, match="begins at offset 20 now: .*failOnDataLoss"):
        strict.ranges(start, end)
    del stream.events[B]
    assert planner.ranges(start, end) == [Range(S, A, 20, 40)]
    stream.starts[A] = 0
    with pytest.raises(NotFound, match="was deleted.*failOnDataLoss"):
        strict.ranges(start, end)
    assert strict.ranges(end, end) == []


def test_segment_deleted_after_its_sealed_end_is_no_loss(stream):
    stream.events[B] = [10]
    planner = planner_of(OPTIONS, stream)
    start = planner.initial()
    stream.split_b()
    at, ranges = take(planner, start)
    assert ranges == [Range(S, B, 0, 10)]
    del stream.events[B]
    stream.events[LEFT] = [8]
    again = planner_of(OPTIONS, stream)
    at, ranges = take(again, at)
    assert ranges == [Range(S, LEFT, 0, 8)]
    assert take(again, at) == (at, [])


@pytest.mark.parametrize("sealed_before", [True, False])
def test_deleted_segment_is_a_loss_when_it_may_have_had_more(stream, sealed_before):
    stream.events[B] = [10, 10]
    planner = planner_of(limited(OPTIONS, max_events=1 if sealed_before else 5), stream)
    start = planner.initial()
    if sealed_before:
        stream.split_b()
    at, _ = take(planner, start)
    if not sealed_before:
        stream.split_b()
    del stream.events[B]
    again = planner_of(OPTIONS, stream)
    with pytest.raises(NotFound, match="was deleted, with any unread events: .*failOnDataLoss"):
        take(again, at)


def test_batch_read_raises_for_a_deleted_segment(stream):
    stream.events |= {A: [10], B: [10, 10]}
    stream.split_b()
    stream.events |= {LEFT: [5]}
    del stream.events[B]
    with pytest.raises(NotFound, match="was deleted"):
        batch_ranges(OPTIONS, stream)
    assert batch_ranges(LENIENT, stream) == [Range(S, A, 0, 10), Range(S, LEFT, 0, 5)]


def only(stream, monkeypatch):
    """Let driver and tasks find this stream."""
    monkeypatch.setattr(batch, "connect", lambda *_: contextlib.nullcontext(SimpleNamespace(list_streams=None)))
    monkeypatch.setattr(batch, "ConnectedStream", lambda *_: stream)
    monkeypatch.setattr(task, "shared_stream", lambda *_: stream)


def rows(found):
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_tasks_continue_above_a_truncation_during_their_read(stream, monkeypatch):
    stream.events[A] = [10] * 12
    only(stream, monkeypatch)
    source = BatchReader(LENIENT, OFFSETS)
    (part,) = source.partitions()
    assert part.parts == (Range(S, A, 0, 120),)
    stream.starts[A] = 30
    reading = source.read(part)
    assert rows([next(reading)]) == [30, 40, 50]
    stream.starts[A] = 90
    assert rows(reading) == [90, 100, 110]
    stream.starts[A] = 120
    assert rows(source.read(part)) == []
    del stream.events[A]
    assert rows(source.read(part)) == []


def test_task_errors_name_the_option_for_truncations(stream, monkeypatch):
    stream.events[A] = [10] * 12
    only(stream, monkeypatch)
    source = BatchReader(OPTIONS, OFFSETS)
    (part,) = source.partitions()
    assert part.parts == (Range(S, A, 0, 120),)
    stream.starts[A] = 30
    with pytest.raises(Truncated, match="failOnDataLoss"):
        rows(source.read(part))
    del stream.events[A]
    with pytest.raises(NotFound, match="failOnDataLoss"):
        rows(source.read(part))


def test_truncation_while_measuring_a_limit(stream, monkeypatch):
    stream.events[A] = [10] * 12
    planner = planner_of(limited(LENIENT, max_events=5), stream)
    read_before = stream.event_ends

    def truncated_before(*arguments):
        stream.starts[A] = 30
        return read_before(*arguments)

    monkeypatch.setattr(stream, "event_ends", truncated_before)
    assert take(planner, planner.initial())[1] == [Range(S, A, 30, 80)]
