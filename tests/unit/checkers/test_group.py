"""Reader groups: each kind of violation is found, and correct histories pass."""

from __future__ import annotations

from dataclasses import replace

from checkers.group import Tenure, check_counted, check_cut, check_order, check_reset, check_tenures

# a splits into b and c; c and d merge into e
PREDECESSORS = {"b": ["a"], "c": ["a"], "e": ["c", "d"]}
RANGES = {"a": (0.0, 0.5), "b": (0.0, 0.25), "c": (0.25, 0.5), "d": (0.5, 1.0), "e": (0.25, 1.0)}
FIRST = Tenure("one", "a", 0.0, 2.0, 0, 30)
SECOND = Tenure("two", "a", 2.0, None, 30, None)


def kinds(violations) -> set[str]:
    return {violation.kind for violation in violations}


def test_two_owners_at_once_are_found() -> None:
    assert not check_tenures([SECOND, FIRST])
    assert kinds(check_tenures([FIRST, replace(SECOND, begun=1.9)])) == {"two owners"}
    assert kinds(check_tenures([replace(FIRST, ended=None), SECOND])) == {"two owners"}
    assert not check_tenures([FIRST, replace(SECOND, segment="d", begun=1.0)])


def test_next_owner_at_wrong_offset_is_found() -> None:
    assert kinds(check_tenures([FIRST, replace(SECOND, first=31)])) == {"gap"}
    assert kinds(check_tenures([FIRST, replace(SECOND, first=29)])) == {"back"}
    lost = replace(FIRST, first=20, left=None)
    assert not check_tenures([lost, replace(SECOND, first=20)], {"a": 25})
    assert kinds(check_tenures([lost, replace(SECOND, first=19)], {"a": 25})) == {"back"}


def test_event_counted_twice_or_never_is_found() -> None:
    written = [("a", 0), ("a", 10), ("b", 0)]
    assert not check_counted(written, written)
    assert kinds(check_counted(written, written[:2])) == {"never"}
    assert not check_counted(written, written[:2], ended=False)
    assert kinds(check_counted(written, [*written, ("b", 0)])) == {"twice"}


def test_event_before_end_of_predecessor_is_found() -> None:
    lengths = {"a": 20, "c": 10, "d": 10}
    right = [("a", 10), ("d", 10), ("a", 20), ("c", 10), ("b", 10), ("e", 10)]
    assert not check_order(right, PREDECESSORS, lengths)
    assert kinds(check_order([("a", 10), ("b", 10)], PREDECESSORS, lengths)) == {"order"}
    assert kinds(check_order([*right[:3], ("e", 10)], PREDECESSORS, lengths)) == {"order"}


def test_checkpoint_with_hole_or_overlap_is_found() -> None:
    assert not check_cut({"a": 5, "d": 5}, RANGES, PREDECESSORS)
    assert not check_cut({"b": 5, "e": 5}, RANGES, PREDECESSORS)
    assert not check_cut({"b": 5, "c": 5, "d": 5}, RANGES, PREDECESSORS)
    assert kinds(check_cut({"b": 5, "d": 5}, RANGES, PREDECESSORS)) == {"hole"}
    assert kinds(check_cut({"a": 5}, RANGES, PREDECESSORS)) == {"hole"}
    assert kinds(check_cut({"a": 5, "b": 5, "c": 5, "d": 5}, RANGES, PREDECESSORS)) == {"hole"}
    assert "with its ancestor" in str(check_cut({"a": 5, "e": 5}, RANGES, PREDECESSORS))


def test_reset_must_redeliver_exactly_events_after_cut() -> None:
    written = [("a", 0), ("a", 10), ("d", 0), ("d", 10), ("b", 0), ("c", 0), ("e", 0)]
    cut = {"b": 0, "c": 10, "d": 10}
    before = [("a", 0), ("a", 10), ("d", 0), ("c", 0)]
    rest = [("d", 10), ("b", 0), ("e", 0)]
    assert not check_reset(cut, written, before, rest, PREDECESSORS)
    assert kinds(check_reset(cut, written, before, rest[1:], PREDECESSORS)) == {"torn"}
    assert kinds(check_reset(cut, written, before, [*rest, ("d", 0)], PREDECESSORS)) == {"torn"}
    assert kinds(check_reset(cut, written, before, [*rest, ("a", 10)], PREDECESSORS)) == {"torn"}
    assert kinds(check_reset(cut, written, [*before, ("b", 0)], rest, PREDECESSORS)) == {"torn"}
    assert kinds(check_reset(cut, written, before, [*rest, ("e", 0)], PREDECESSORS)) == {"twice"}
