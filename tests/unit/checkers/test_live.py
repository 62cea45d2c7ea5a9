"""Operations that do not end are found."""

from __future__ import annotations

from checkers.live import Operation, check, outages, unread


def kinds(*operations: Operation) -> list[str]:
    return [found.kind for found in check(operations, healed=100.0, within=60.0, until=500.0)]


def test_stuck_and_slow_operations_are_found() -> None:
    assert kinds(Operation("a", 0, 10), Operation("b", 90, 160), Operation("c", 400, 455)) == []
    assert kinds(Operation("a", 0, 161)) == ["slow"]
    assert kinds(Operation("a", 0, None)) == ["stuck"]
    assert kinds(Operation("a", 300, 361)) == ["slow"]
    assert kinds(Operation("a", 450, None)) == [], "it has time left"


def test_reader_before_tail_is_found() -> None:
    assert not unread({"r": {1: 10, 2: 5}}, {1: 10, 2: 5, 3: 7})
    assert [found.kind for found in unread({"r": {1: 10, 2: 4}}, {1: 10, 2: 5})] == ["unread"]


def test_outage_longer_than_allowed_is_found() -> None:
    assert not outages([(0, 10), (14, 30)], 0, 30, 5)
    assert len(outages([(0, 10), (16, 30)], 0, 30, 5)) == 1
    assert len(outages([(0, 10)], 0, 30, 5)) == 1
    assert len(outages([(8, 30)], 0, 30, 5)) == 1
    assert not outages([(0, 10), (5, 30)], 0, 30, 5)
