"""Epochs tile the key space, numbers rise, and successors and predecessors are one acyclic graph."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given

from sarit.controller.limits import MAX_EPOCH
from sarit.controller.model.epochs import (
    Epoch,
    SegmentRange,
    check_epoch,
    created_in,
    creation_epoch,
    even_replacement,
    first_epoch,
    known_segments,
    next_epoch,
    place_of,
    promoted_epoch,
    replaced_by,
    rolled_epochs,
    successors,
)
from sarit.core.errors import Conflict, Invalid
from sarit.core.keyspace import KeyRange, split_evenly
from sarit.core.names import SegmentId
from tests.unit.controller.model.histories import histories


def ids(segments):
    return [str(SegmentId.unpack(s.segment).number) + "@" + str(creation_epoch(s.segment)) for s in segments]


def since(epochs, segment):
    return [epoch for epoch in epochs if epoch.number >= creation_epoch(segment)]


@given(histories())
def test_every_epoch_tiles_the_key_space_and_follows_the_one_before(epochs):
    for epoch in epochs:
        check_epoch(epoch)
    assert epochs[0].number == 0
    for before, after in itertools.pairwise(epochs):
        # The next number, but for promotions, which replace all.
        assert after.number == before.number + 1 or (after.number > before.number and not before.ids & after.ids)
        assert created_in(after), "an epoch without segments of its own"


@given(histories())
def test_no_id_comes_back_and_ids_name_their_epoch(epochs):
    for before, after in itertools.pairwise(epochs):
        assert {creation_epoch(s.segment) for s in after.segments if s.segment not in before.ids} <= {after.number}
    gone: set[int] = set()
    for before, after in itertools.pairwise(epochs):
        gone |= before.ids - after.ids
        assert not gone & after.ids


@given(histories())
def test_overlapping_segments_are_ordered_by_their_creation_epochs(epochs):
    known = known_segments(epochs)
    last_seen = {s: max(e.number for e in epochs if s in e.ids) for s in known}
    for a, b in itertools.permutations(known.values(), 2):
        if a.overlaps(b) and creation_epoch(a.segment) < creation_epoch(b.segment):
            assert last_seen[a.segment] < creation_epoch(b.segment)
        if a.overlaps(b):
            assert creation_epoch(a.segment) != creation_epoch(b.segment)


@given(histories())
def test_successors_and_predecessors_are_mutual_and_acyclic(epochs):
    known = known_segments(epochs)
    follows = {s: successors(since(epochs, s), s) for s in known}
    for segment, followers in follows.items():
        for follower, predecessors in followers:
            assert segment in predecessors
            assert creation_epoch(follower.segment) > creation_epoch(segment)
            for predecessor in predecessors:
                assert follower.segment in [f.segment for f, _ in follows[predecessor]]
    # An inactive segment has successors that cover it, and only overlapping ones.
    for segment, followers in follows.items():
        if segment in epochs[-1].ids:
            assert followers == []
            continue
        mine = known[segment]
        assert min(f.low for f, _ in followers) <= mine.low
        assert max(f.high for f, _ in followers) >= mine.high
        assert all(f.overlaps(mine) for f, _ in followers)


@given(histories())
def test_an_epoch_finds_whatever_overlaps_a_range(epochs):
    for a, b in itertools.product(epochs, repeat=2):
        for part in b.segments:
            assert list(a.overlapping(part)) == [s for s in a.segments if s.overlaps(part)]


def test_new_segments_are_numbered_on_in_the_order_of_their_ranges():
    epoch = next_epoch(first_epoch(2, 0, 0), [1], [KeyRange(0.75, 1.0), KeyRange(0.5, 0.75)], 7)
    assert ids(epoch.segments) == ["0@0", "3@1", "2@1"]
    assert epoch.created_ms == 7
    assert ids(even_replacement(epoch, 1, 0).segments) == ["4@2"]


def test_a_rolled_in_epoch_copies_what_is_gone_and_then_what_there_is():
    past = first_epoch(2, 0, 0)
    current = next_epoch(past, [1], KeyRange(0.5, 1.0).split_evenly(2), 0)
    first, second = rolled_epochs(current, past, 0)
    assert ids(first.segments) == ["0@0", "1@2"]
    assert ids(second.segments) == ["0@0", "2@3", "3@3"]
    assert ids(created_in(second)) == ["2@3", "3@3"]
    assert [SegmentId.unpack(s).number for s in replaced_by(current, second)] == [2, 3]


@pytest.mark.parametrize(
    ("replaced", "ranges"),
    [
        ([], [KeyRange(0.0, 0.5)]),
        ([0, 0], [KeyRange(0.0, 0.5)]),
        ([7], [KeyRange(0.0, 0.5)]),
        ([0], []),
        ([0], [KeyRange(0.0, 0.4)]),
        ([0], [KeyRange(0.0, 0.6)]),
        ([0], [KeyRange(0.0, 0.3), KeyRange(0.2, 0.5)]),
        ([0], [KeyRange(0.0, 0.3), KeyRange(0.3000000001, 0.5)]),
        ([0, 1], [KeyRange(0.0, 0.5)]),
    ],
)
def test_a_scale_that_does_not_fit_is_refused(replaced, ranges):
    # Which segments are active changes; ranges that do not fit never will.
    with pytest.raises(Conflict if replaced in ([], [0, 0], [7]) else Invalid):
        next_epoch(first_epoch(2, 0, 0), replaced, ranges, 0)


def test_an_unknown_segment_has_no_successors():
    with pytest.raises(KeyError):
        successors([first_epoch(2, 0, 0)], 5)


def test_the_check_sees_a_gap_a_double_id_and_disorder():
    good = first_epoch(2, 0, 0).segments
    for bad in (
        (SegmentRange(0.0, 0.4, 0), good[1]),
        (good[0], SegmentRange(0.5, 1.0, 0)),
        (good[1], good[0]),
        (good[0], SegmentRange(0.5, 1.0, SegmentId(1, 0).packed)),
    ):
        with pytest.raises(AssertionError):
            check_epoch(Epoch(0, bad, 0))


def test_many_segments():
    assert len(first_epoch(10_000, 0, 0).segments) == 10_000
    assert [s.high for s in first_epoch(3, 0, 0).segments] == [r.high for r in split_evenly(3)]


def test_a_promoted_stream_goes_on_with_the_same_ranges_and_new_numbers() -> None:
    current = next_epoch(first_epoch(2, 7, 0), [7], KeyRange(0.0, 0.5).split_evenly(2), 0)
    after = promoted_epoch(current, 1000, 5)
    assert (after.number, after.created_ms) == (1001, 5)
    assert [(s.low, s.high) for s in after.segments] == [(s.low, s.high) for s in current.segments]
    assert [SegmentId.unpack(s.segment) for s in after.segments] == [SegmentId(1001, n) for n in (11, 12, 13)]
    for old in current.segments:
        (successor,) = successors([current, after], old.segment)
        assert (successor[0].low, successor[0].high, successor[1]) == (old.low, old.high, [old.segment])


def test_an_epoch_that_no_record_can_hold_is_refused() -> None:
    last = replace(first_epoch(1, 0, 0), number=MAX_EPOCH - 1)
    assert promoted_epoch(last, 1, 0).number == MAX_EPOCH
    with pytest.raises(Invalid, match="promoted too often"):
        promoted_epoch(last, 2, 0)


def test_the_place_of_an_epoch_in_a_gap_is_that_of_the_next_one() -> None:
    first = first_epoch(1, 0, 0)
    epochs = [first, promoted_epoch(first, 10, 0)]
    assert [place_of(epochs, number) for number in (0, 1, 9, 10, 11)] == [0, 1, 1, 1, 2]
