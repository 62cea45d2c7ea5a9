"""How a committer's next cut is divided among segments, how cuts are compared, and how the time of one is found."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from unittest.mock import Mock

import pytest

from sarit.client.core.values import SegmentInfo, SegmentRange
from sarit.client.streams import history
from sarit.client.streams.history import Epoch
from sarit.client.streams.recorded_cuts import RecordedCut
from sarit.core.cuts import StreamCut
from sarit.core.errors import NotFound
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env
from sarit.process.jobs.cut_times import CutTimes
from sarit.process.jobs.stream_source import StreamSource, lost_between, quotas
from tests.limits import examples

STREAM = StreamName("shop", "orders")
NOW_MS = 1_800_000_000_000


def of(*lengths: int) -> dict[SegmentId, int]:
    return {SegmentId(0, number): length for number, length in enumerate(lengths)}


def test_segment_with_most_bytes_gets_what_others_do_not_have() -> None:
    assert quotas(of(10, 1000, 20), 100) == of(10, 70, 20)
    assert quotas(of(10, 10, 10), 100) == of(10, 10, 10)
    assert quotas(of(1000, 1000), 101) == of(50, 51)
    assert quotas({}, 100) == {}


def test_cut_moves_on_however_many_segments_there_are() -> None:
    found = quotas(of(*[1000] * 50), 10)
    assert min(found.values()) == 1


def info(segment: SegmentId, start: int, end: int) -> SegmentInfo:
    return SegmentInfo(segment, start, end, True, 0)


def test_lost_bytes_are_counted_as_far_as_they_are_known() -> None:
    first, second, third = (SegmentId(epoch, 0) for epoch in range(3))
    there = {first: info(first, 0, 100), second: info(second, 0, 50)}
    assert lost_between({first: 10}, {second: 50}, there, {}) == 0
    truncated = {first: info(first, 30, 100), second: info(second, 0, 50)}
    assert lost_between({first: 10}, {second: 50}, truncated, {}) == 20
    # Truncated behind the end of what is read.
    assert lost_between({first: 10}, {first: 20}, truncated, {}) == 10
    gone = {first: None, second: info(second, 5, 50)}
    assert lost_between({first: 10}, {second: 50}, gone, {first: (100, True)}) == 95
    assert lost_between({first: 10}, {second: 50}, gone, {first: (60, False)}) == 55
    assert lost_between({first: 100}, {second: 50}, gone, {first: (100, True)}) == 5
    # Never seen, or seen with nothing more: at least something may be missing.
    assert lost_between({first: 10}, {second: 50}, gone, {}) == 6
    assert lost_between({first: 10}, {third: 9}, {first: None, second: None, third: None}, {}) == 1 + 1 + 9


@dataclass
class Records:
    """Recorded cuts of a stream of one segment: (time, offset)."""

    records: list[tuple[int, int]]
    asked: int = 0

    async def at(self, time_ms: int) -> RecordedCut | None:
        self.asked += 1
        before = [record for record in self.records if record[0] <= time_ms]
        return RecordedCut(before[-1][0], cut(before[-1][1])) if before else None

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        return earlier.positions[SegmentId(0, 0)] <= later.positions[SegmentId(0, 0)]

    def times(self) -> CutTimes:
        class Clock:
            def wall_ms(self) -> int:
                return NOW_MS

            def monotonic(self) -> float:
                raise AssertionError

        return CutTimes(self.at, self.is_before, Clock())


def cut(offset: int) -> StreamCut:
    return StreamCut(STREAM, {SegmentId(0, 0): offset})


@pytest.mark.parametrize("seed", range(examples(40)))
def test_time_of_a_position_is_that_of_the_newest_record_before_it(seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(NOW_MS - chance.choice((10**7, 10**10)), NOW_MS, 60_000), 40))
    records = Records([(time, 100 * number) for number, time in enumerate(times)])
    found = records.times()
    positions = sorted(chance.randrange(4200) for _ in range(10))
    for position in positions:
        before = [time for time, offset in records.records if offset <= position]
        assert asyncio.run(found.of(cut(position))) == before[-1]
    assert records.asked < 60 * len(positions)


def test_position_before_all_records_has_the_time_of_the_oldest() -> None:
    records = Records([(NOW_MS - 500_000, 100), (NOW_MS - 60_000, 200)])
    assert abs(asyncio.run(records.times().of(cut(50))) - (NOW_MS - 500_000)) <= 1000


def test_position_in_a_stream_without_records_has_the_present_time() -> None:
    assert asyncio.run(Records([]).times().of(cut(50))) == NOW_MS


class Epochs:
    """The epochs of a stream that was scaled from one segment to two, and back: three, as its controller has them."""

    SEGMENTS = (SegmentId(0, 0),), (SegmentId(1, 1), SegmentId(1, 2)), (SegmentId(2, 3),)

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.truncated_before = 0

    async def epoch(self, session: object, stream: StreamName, number: int) -> Epoch:
        self.asked.append(number)
        if number < self.truncated_before:
            raise NotFound(f"epoch {number} of {stream}")
        segments = self.SEGMENTS[number]
        width = 1 / len(segments)
        return Epoch(number, tuple(SegmentRange(s, i * width, (i + 1) * width) for i, s in enumerate(segments)))

    def cut(self, number: int) -> StreamCut:
        return StreamCut(STREAM, dict.fromkeys(self.SEGMENTS[number], 8))


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> Epochs:
    found = Epochs()
    monkeypatch.setattr(history, "epoch", found.epoch)
    return found


def test_each_epoch_is_asked_for_once_while_cuts_have_it(epochs: Epochs) -> None:
    async def main() -> None:
        source = StreamSource(Mock(), STREAM, real_env().clock)
        old, middle, new = (epochs.cut(number) for number in range(3))
        for _ in range(3):
            assert await source.is_before(old, middle)
            assert not await source.is_before(middle, old)
        assert epochs.asked == [0, 1]
        # A scale makes another epoch, and no other ranges of those that were there.
        assert await source.is_before(middle, new)
        assert await source.is_before(middle, new)
        assert epochs.asked == [0, 1, 2]

    asyncio.run(main())


def test_truncated_epoch_is_known_as_long_as_cuts_have_it_and_then_not_before(epochs: Epochs) -> None:
    async def main() -> None:
        source = StreamSource(Mock(), STREAM, real_env().clock)
        old, middle, new = (epochs.cut(number) for number in range(3))
        assert await source.is_before(old, middle)
        epochs.truncated_before = 1
        assert await source.is_before(old, new)
        assert await source.is_before(middle, new)
        assert not await source.is_before(old, new)  # the controller knows nothing of it
        assert await source.is_before(middle, new)
        assert epochs.asked == [0, 1, 2, 1, 0]

    asyncio.run(main())
