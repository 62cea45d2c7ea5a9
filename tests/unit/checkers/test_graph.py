"""Positions in a stream that splits and merges."""

from __future__ import annotations

from checkers.graph import Graph


def graph() -> Graph:
    """0 splits into 1 and 2; these merge into 3, which splits into 4 and 5."""
    made = Graph()
    for segment, predecessors in ((1, [0]), (2, [0]), (3, [1, 2]), (4, [3]), (5, [3])):
        made.follows(segment, predecessors)
    return made


def test_before_returns_all_ancestors() -> None:
    assert graph().before(4) == {0, 1, 2, 3}
    assert graph().before(1) == {0}
    assert graph().before(0) == frozenset()


def test_predecessors_added_later_count() -> None:
    made = Graph()
    made.follows(2, [1])
    assert made.before(2) == {1}
    made.follows(1, [0])
    assert made.before(2) == {0, 1}


def test_is_before_compares_byte_with_cut() -> None:
    cut = {1: 10, 2: 0}
    assert graph().is_before((1, 9), cut)
    assert not graph().is_before((1, 10), cut)
    assert graph().is_before((0, 1000), cut)
    assert not graph().is_before((3, 0), cut)
    assert not graph().is_before((2, 0), cut)


def test_goes_back_detects_earlier_cut() -> None:
    for earlier, later in (
        ({0: 5}, {0: 5}),
        ({0: 5}, {1: 0, 2: 0}),
        ({1: 5, 2: 5}, {3: 0}),
        ({1: 5, 2: 5}, {4: 0, 5: 1}),
    ):
        assert not graph().goes_back(earlier, later), (earlier, later)
    for earlier, later in (
        ({0: 5}, {0: 4}),
        ({1: 0, 2: 0}, {0: 9}),
        ({1: 5, 2: 5}, {1: 6, 2: 4}),
        ({3: 0}, {1: 9, 2: 9}),
    ):
        assert graph().goes_back(earlier, later), (earlier, later)
