"""A stream that is deleted and made again under a query: one clear error, or a new begin at its head."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from sarit.core.errors import NotFound
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import A, B, FakeStream, S, planner_of, take

OPTIONS = parse_read({"stream": "s/t"})
LENIENT = replace(OPTIONS, fail_on_data_loss=False)
C = SegmentId(0, 2)


def remade(*, numbers_go_on: bool = True, ids: bool = True) -> FakeStream:
    """The next stream of the name, with events of 5 bytes: of one segment, or of the numbers of before."""
    stream = FakeStream()
    stream.creation = bytes([1] * 16) if ids else None
    if numbers_go_on:
        stream.events, stream.head, stream.history = {C: [5] * 4}, [C], [{C: KeyRange(0.0, 1.0)}]
        stream.unknown = {A, B}
    else:
        stream.events[A] = [5] * 4
    return stream


def read_some(options, ids=True):
    stream = FakeStream()
    stream.creation = bytes(16) if ids else None
    stream.events[A] = [10] * 2
    planner = planner_of(options, stream)
    at, ranges = take(planner, planner.initial())
    assert ranges == [Range(S, A, 0, 20)]
    return planner, at


@pytest.mark.parametrize("numbers_go_on", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_query_continues_at_the_head_of_the_new_stream_with_a_warning(numbers_go_on, restarted, caplog):
    planner, at = read_some(LENIENT)
    new = remade(numbers_go_on=numbers_go_on)
    where = C if numbers_go_on else A
    if restarted:
        planner = planner_of(LENIENT, new)
    elif numbers_go_on:
        planner._source.streams[S] = new
        planner.follower(S).access.__init__(new, fail=False)
    else:
        return  # no release makes such a stream under a running query
    with caplog.at_level(logging.WARNING):
        at, ranges = take(planner, at)
    assert ranges == [Range(S, where, 0, 20)]
    assert caplog.text.count("deleted and made again") == 1
    caplog.clear()
    new.events[where].append(5)
    at, ranges = take(planner, at)
    assert ranges == [Range(S, where, 20, 25)]
    # And again, after a restart.
    new.events[where].append(5)
    assert take(planner_of(OPTIONS, new), at)[1] == [Range(S, where, 25, 30)]
    assert not caplog.text


@pytest.mark.parametrize("numbers_go_on", [True, False])
def test_query_fails_with_one_clear_error_by_default(numbers_go_on):
    _, at = read_some(OPTIONS)
    planner = planner_of(OPTIONS, remade(numbers_go_on=numbers_go_on))
    for _ in range(2):
        with pytest.raises(NotFound, match="deleted and made again, with any unread events.*failOnDataLoss"):
            take(planner, at)


def test_micro_batch_of_the_earlier_stream_that_runs_again_reads_nothing_of_the_new_one():
    stream = FakeStream()
    stream.events[A] = [10] * 2
    planner = planner_of(OPTIONS, stream)
    begin = planner.initial()
    end, ranges = take(planner, begin)
    assert ranges
    new = remade(numbers_go_on=False)
    assert planner_of(LENIENT, new).ranges(begin, end) == []
    with pytest.raises(NotFound, match="made again"):
        planner_of(OPTIONS, new).ranges(begin, end)


def test_micro_batch_that_enters_the_new_stream_runs_again_as_it_was():
    _, at = read_some(LENIENT)
    new = remade()
    end, ranges = take(planner_of(LENIENT, new), at)
    new.events[C].append(5)
    assert planner_of(LENIENT, new).ranges(at, end) == ranges


@pytest.mark.parametrize("ids", [True, False])
def test_checkpoint_without_ids_shows_by_its_segments(ids, caplog):
    _, at = read_some(LENIENT, ids=False)
    assert "created" not in at
    new = remade(ids=ids)
    planner = planner_of(LENIENT, new)
    with caplog.at_level(logging.WARNING):
        at, ranges = take(planner, at)
    assert ranges == [Range(S, C, 0, 20)]
    assert caplog.text.count("made again") == 1
    assert take(planner, at) == (at, [])
    with pytest.raises(NotFound, match="deleted"):
        take(planner_of(OPTIONS, remade(ids=ids)), read_some(OPTIONS, ids=False)[1])


def test_empty_stream_that_was_made_again_is_entered_once(caplog):
    _, at = read_some(LENIENT)
    new = remade(numbers_go_on=False)
    new.events[A] = []
    planner = planner_of(LENIENT, new)
    with caplog.at_level(logging.WARNING):
        at, _ = take(planner, at)
        for _ in range(3):
            assert take(planner, at) == (at, [])
    assert caplog.text.count("made again") == 1
    new.events[A] = [5]
    assert take(planner, at)[1] == [Range(S, A, 0, 5)]


def test_checkpoint_without_ids_goes_on_and_gets_them(caplog):
    _, at = read_some(OPTIONS, ids=False)
    stream = FakeStream()
    stream.events[A] = [10] * 3
    planner = planner_of(OPTIONS, stream)
    at, ranges = take(planner, at)
    assert ranges == [Range(S, A, 20, 30)]
    assert at["created"] == {"s/t": "00" * 16}
    assert not caplog.text


def test_truncated_segments_of_the_same_stream_are_no_other_stream(caplog):
    planner, at = read_some(LENIENT)
    stream = planner._source.streams[S]
    stream.split_b()
    at, _ = take(planner, at)
    del stream.events[B]
    with caplog.at_level(logging.WARNING):
        at, _ = take(planner, at)
    assert "made again" not in caplog.text
    assert json.loads(json.dumps(at)) == at
