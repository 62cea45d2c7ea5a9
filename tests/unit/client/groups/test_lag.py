"""How far a group is behind in time, by records of a controller that is made of a list."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sarit.client.groups import lag
from sarit.client.groups.progress import SegmentProgress
from sarit.client.streams.recorded_cuts import RecordedCut
from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName

NAME = StreamName("s", "t")
ONE, TWO = SegmentId(0, 0), SegmentId(1, 0)
MINUTE = 60_000
NOW = 1_000_000 * MINUTE


def progress(position: int, end: int, segment: SegmentId = ONE) -> SegmentProgress:
    return SegmentProgress(NAME, segment, "assigned", "r", position, end)


def lag_of(monkeypatch, records: list[tuple[int, int]], *found: SegmentProgress) -> tuple[dict, int]:
    """The lags, and how many calls they took.  `records`: minutes ago, and the length of segment 0 then."""
    cuts = sorted(RecordedCut(NOW - ago * MINUTE, StreamCut(NAME, {ONE: at})) for ago, at in records)
    calls = 0

    async def recorded_cut(session, stream, time_ms: int):
        nonlocal calls
        calls += 1
        return next((cut for cut in reversed(cuts) if cut.time_ms <= time_ms), None)

    monkeypatch.setattr(lag, "recorded_cut", recorded_cut)
    return asyncio.run(lag.lag_ms(SimpleNamespace(), found, NOW)), calls


@pytest.fixture(autouse=True)
def _records_are_sorted_by_time(monkeypatch) -> None:
    monkeypatch.setattr(RecordedCut, "__lt__", lambda self, other: self.time_ms < other.time_ms, raising=False)


def test_what_has_nothing_unread_is_not_behind(monkeypatch) -> None:
    assert lag_of(monkeypatch, [(1, 100)], progress(100, 100)) == ({}, 0)


def test_the_age_of_the_newest_record_that_was_passed(monkeypatch) -> None:
    records = [(ago, 10_000 - 10 * ago) for ago in range(1, 600)]
    for behind in (1, 2, 3, 7, 61, 200, 333, 598):
        found, calls = lag_of(monkeypatch, records, progress(10_000 - 10 * behind, 10_001))
        assert abs(found[NAME] / MINUTE - behind) <= 1, behind
        assert calls <= 24


def test_further_than_records_reach_is_not_known(monkeypatch) -> None:
    assert lag_of(monkeypatch, [(1, 100), (2, 50)], progress(20, 200))[0] == {NAME: None}
    assert lag_of(monkeypatch, [], progress(20, 200))[0] == {NAME: None}


def test_thin_records_are_found(monkeypatch) -> None:
    found, _ = lag_of(monkeypatch, [(1, 100), (60 * 24 * 30, 10)], progress(20, 200))
    assert found == {NAME: 60 * 24 * 30 * MINUTE}


def test_a_segment_that_was_read_to_its_end_holds_nothing_back(monkeypatch) -> None:
    assert lag_of(monkeypatch, [(3, 100)], progress(5, 9, TWO))[0] == {NAME: 3 * MINUTE}
