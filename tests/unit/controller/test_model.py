"""Epochs tile the key space, successors and predecessors agree, cuts are judged right."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.controller import model
from sarit.controller.records import EpochRecord, SegmentRange
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId


def grow(choices):
    """A history by random splits and merges of neighbours."""
    history = [model.first_epoch(2, 0, 0)]
    for pick, split in choices:
        segments = history[-1].segments
        at = pick % len(segments)
        if split or at + 1 == len(segments):
            s = segments[at]
            middle = (s.low + s.high) / 2
            history.append(model.next_epoch(history[-1], [s.segment], [(s.low, middle), (middle, s.high)], 0))
        else:
            a, b = segments[at], segments[at + 1]
            history.append(model.next_epoch(history[-1], [a.segment, b.segment], [(a.low, b.high)], 0))
    return history


histories = st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=8).map(grow)


@given(histories)
@settings(max_examples=60)
def test_every_epoch_tiles_and_numbers_rise(history):
    seen = set()
    for epoch in history:
        assert model.tiles([(s.low, s.high) for s in epoch.segments])
        new = {s.segment for s in epoch.segments} - seen
        assert all(model.creation_epoch(segment) == epoch.epoch for segment in new)
        seen |= new
    assert EpochRecord.decode(history[-1].encode()) == history[-1]


@given(histories)
@settings(max_examples=60)
def test_successors_and_predecessors_are_mutual(history):
    for before, after in itertools.pairwise(history):
        gone = {s.segment for s in before.segments} - {s.segment for s in after.segments}
        for segment in gone:
            first = next(i for i, e in enumerate(history) if any(s.segment == segment for s in e.segments))
            followers = model.successors(history[first:], segment)
            assert followers
            mine = next(s for s in before.segments if s.segment == segment)
            low = min(s.low for s, _ in followers)
            high = max(s.high for s, _ in followers)
            assert low <= mine.low < mine.high <= high
            for follower, predecessors in followers:
                assert segment in predecessors
                assert set(predecessors) == {s.segment for s in before.segments if s.overlaps(follower)}
    assert all(model.successors(history, s.segment) == [] for s in history[-1].segments)


@given(histories)
@settings(max_examples=60)
def test_head_and_tail_are_cuts_and_all_lies_between_them(history):
    head = {s.segment: 0 for s in history[0].segments}
    tail = {s.segment: 10 for s in history[-1].segments}
    assert model.is_cut(history, head)
    assert model.is_cut(history, tail)
    assert model.precedes(history, head, tail)
    assert set(model.segments_between(history, head, tail)) == set(model.ranges_of(history))
    assert set(model.segments_before(history, tail)) == set(model.ranges_of(history)) - set(tail)
    if len(history) > 1:
        assert not model.precedes(history, tail, head)
    incomplete = dict(list(tail.items())[1:])
    assert not model.is_cut(history, incomplete)


def test_a_cut_behind_another_on_the_same_segment():
    history = [model.first_epoch(1, 0, 0)]
    assert model.precedes(history, {0: 5}, {0: 5})
    assert not model.precedes(history, {0: 5}, {0: 4})


def test_numbers_go_on_where_a_deleted_stream_stopped():
    assert [s.segment for s in model.first_epoch(2, 7, 0).segments] == [7, 8]


@pytest.mark.parametrize(
    ("replaced", "ranges"),
    [
        ([], [(0.0, 0.5)]),
        ([9], [(0.0, 0.5)]),
        ([0, 0], [(0.0, 0.5)]),
        ([0], [(0.0, 0.4)]),
        ([0], [(0.0, 0.3), (0.2, 0.5)]),
        ([0, 1], [(0.0, 0.5)]),
    ],
)
def test_a_scale_must_cover_exactly_what_it_replaces(replaced, ranges):
    with pytest.raises(Invalid):
        model.next_epoch(model.first_epoch(2, 0, 0), replaced, ranges, 0)


def test_new_segments_are_numbered_in_the_order_given():
    epoch = model.next_epoch(model.first_epoch(2, 0, 0), [1], [(0.75, 1.0), (0.5, 0.75)], 5)
    assert epoch.segments == (
        SegmentRange(0.0, 0.5, 0),
        SegmentRange(0.5, 0.75, SegmentId(1, 3).packed),
        SegmentRange(0.75, 1.0, SegmentId(1, 2).packed),
    )
