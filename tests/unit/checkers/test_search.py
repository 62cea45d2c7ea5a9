"""The checker of indexes and of continuous queries accepts what is right, and names each kind of what is wrong."""

from __future__ import annotations

from typing import Any

from checkers.search import Held, IndexHistory, IndexView, MatchHistory, check_index, check_matches

# Segment 0 is split into two of epoch 1; its neighbour 1 stays.
LEFT, RIGHT, LATER = (1 << 32) + 2, (1 << 32) + 3, (2 << 32) + 4
RANGES = {0: (0.0, 0.5), 1: (0.5, 1.0), LEFT: (0.0, 0.25), RIGHT: (0.25, 0.5), LATER: (0.0, 0.25)}
EVENTS = frozenset({(0, 0), (0, 10), (1, 0), (LEFT, 0), (LATER, 0)})
FIRST = IndexView({0: 10, 1: 0}, [(0, 0)])
SECOND = IndexView({LEFT: 0, RIGHT: 0, 1: 0}, [(0, 0), (0, 10)])
WHOLE = IndexView({LATER: 10, RIGHT: 0, 1: 10}, sorted(EVENTS))


def kinds(*views: IndexView) -> set[str]:
    return {found.kind for found in check_index(IndexHistory(EVENTS, RANGES, list(views)))}


def test_an_index_that_grows_as_the_stream_does() -> None:
    assert kinds(FIRST, FIRST, SECOND, WHOLE) == set()


def test_events_that_are_missing_or_twice() -> None:
    assert kinds(IndexView(SECOND.cut, [(0, 0)])) == {"index-lost"}
    assert kinds(IndexView(SECOND.cut, [*SECOND.places, (0, 10)])) == {"index-double"}


def test_events_of_a_segment_that_was_split() -> None:
    assert kinds(IndexView({LEFT: 0, RIGHT: 0, 1: 10}, [(0, 0), (1, 0)])) == {"index-lost"}
    assert kinds(IndexView({0: 10, 1: 0}, [(0, 0), (LEFT, 0)])) == {"index-early"}


def test_events_behind_the_cut_and_places_of_no_event() -> None:
    assert kinds(IndexView(FIRST.cut, [(0, 0), (0, 10)])) == {"index-early"}
    assert kinds(IndexView(FIRST.cut, [(0, 0), (0, 5)])) == {"index-foreign"}


def test_a_commit_that_goes_back() -> None:
    assert kinds(IndexView({0: 20, 1: 0}, [(0, 0), (0, 10)]), FIRST) == {"index-back"}
    assert kinds(IndexView({LEFT: 10, RIGHT: 0, 1: 0}, [(0, 0), (0, 10), (LEFT, 0)]), FIRST) == {"index-back"}
    assert kinds(WHOLE, IndexView({LEFT: 10, RIGHT: 0, 1: 10}, sorted(EVENTS - {(LATER, 0)}))) == {"index-back"}


def test_a_cut_that_names_nothing_of_a_part_of_the_keys() -> None:
    assert kinds(IndexView({1: 10}, [(1, 0)])) == set()
    assert kinds(IndexView({1: 10}, [(0, 0), (1, 0)])) == {"index-early"}


MATCHED = frozenset({(0, 0), (0, 10), (LEFT, 0)})
FROM_10 = Held(MATCHED, {0: 10, 1: 0}, WHOLE.cut)


def matches(found: Any, *held: Held) -> set[str]:
    history = MatchHistory("q", held or [FROM_10], found, RANGES)
    return {violation.kind for violation in check_matches(history)}


def test_matches_from_the_cut_from_which_a_query_holds() -> None:
    assert matches([(0, 10), (LEFT, 0)]) == set()


def test_matches_that_are_missing_or_twice_or_of_other_events() -> None:
    assert matches([(0, 10)]) == {"match-lost"}
    assert matches([(0, 10), (0, 10), (LEFT, 0)]) == {"match-double"}
    assert matches([(0, 0), (0, 10), (LEFT, 0)]) == {"match-foreign"}
    assert matches([(1, 0), (0, 10), (LEFT, 0)]) == {"match-foreign"}


def test_matches_of_a_query_that_was_changed() -> None:
    whole, split = Held(MATCHED, {0: 0, 1: 0}, {0: 10, 1: 0}), {LEFT: 0, RIGHT: 0, 1: 0}
    other = Held(frozenset({(1, 0)}), {0: 10, 1: 0}, WHOLE.cut)
    assert matches([(0, 0), (1, 0)], whole, other) == set()
    assert matches([(0, 0)], whole, other) == matches([(1, 0)], whole, other) == {"match-lost"}
    assert matches([(0, 0), (0, 10), (1, 0)], whole, other) == {"match-foreign"}
    assert matches([(0, 10)], Held(MATCHED, {0: 10, 1: 0}, split)) == set()
    assert matches([(0, 10), (LEFT, 0)], Held(MATCHED, {0: 10, 1: 0}, split)) == {"match-foreign"}


def test_matches_of_a_time_in_which_a_query_may_have_held() -> None:
    loose = Held(MATCHED, {0: 0, 1: 0}, {0: 10, 1: 0}, loose=True)
    assert matches([(0, 10), (LEFT, 0)], loose, FROM_10) == set()
    assert matches([(0, 0), (0, 10), (LEFT, 0)], loose, FROM_10) == set()
    assert matches([(0, 0), (0, 0), (0, 10), (LEFT, 0)], loose, FROM_10) == {"match-double"}


def test_matches_of_a_time_whose_end_nobody_knows() -> None:
    held = Held(MATCHED, {0: 0, 1: 0}, {0: 10, 1: 0}, latest=WHOLE.cut)
    assert matches([(0, 0)], held) == set()
    assert matches([(0, 0), (0, 10)], held) == set()
    assert matches([(0, 10)], held) == {"match-lost"}


def test_matches_that_may_be_lost_with_their_output() -> None:
    held = Held(MATCHED, {0: 0, 1: 0}, WHOLE.cut, gap=({0: 0, 1: 0}, {0: 10, 1: 0}))
    assert matches([(0, 0), (0, 10), (LEFT, 0)], held) == set()
    assert matches([(0, 10), (LEFT, 0)], held) == set()
    assert matches([(0, 0), (LEFT, 0)], held) == {"match-lost"}
    assert matches([(0, 0), (0, 0), (0, 10), (LEFT, 0)], held) == {"match-double"}


def test_matches_in_another_order_than_their_events() -> None:
    assert matches([(0, 10), (0, 0), (LEFT, 0)], Held(MATCHED, {0: 0, 1: 0}, WHOLE.cut)) == {"match-order"}
