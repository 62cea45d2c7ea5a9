"""How fast chunks are written: as fast as bytes come, without bound when memory runs short."""

import asyncio
from dataclasses import dataclass

from sarit.core.limits import MIB
from sarit.store.budget import Budget
from sarit.store.pace import MIN_BYTES_PER_SECOND, FlushPace


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self):
        return self.now


def paced(monkeypatch, unflushed, sizes, late=0.0):
    """When each of `sizes` may be written, in seconds."""
    clock = Clock()
    budget = Budget(1000 * MIB, 0)
    budget.report(0, unflushed)
    pace = FlushPace(clock, budget)

    async def sleep(seconds):
        assert seconds > 0
        clock.now += seconds + late

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main():
        turns = []
        for size in sizes:
            assert await pace(size) == size
            turns.append(clock.now)
        return turns

    return asyncio.run(main())


def test_what_is_not_flushed_is_written_within_a_second(monkeypatch):
    turns = paced(monkeypatch, 200 * MIB, [MIB // 4] * 801)
    assert abs(turns[-1] - turns[0] - 1.0) < 0.05


def test_a_little_is_written_at_the_least_rate(monkeypatch):
    turns = paced(monkeypatch, 1, [MIB // 4] * 129)
    assert abs(turns[-1] - turns[0] - 32 * MIB / MIN_BYTES_PER_SECOND) < 0.05


def test_above_half_of_the_bound_nothing_waits(monkeypatch):
    turns = paced(monkeypatch, 501 * MIB, [MIB] * 1000)
    assert turns[-1] == turns[0]


def test_pieces_are_small_while_paced_and_never_more_than_is_left():
    budget = Budget(1000 * MIB, 0)
    pace = FlushPace(Clock(), budget)
    assert asyncio.run(pace(32 * MIB)) == MIB // 4
    assert asyncio.run(pace(100)) == 100
    budget.report(0, 501 * MIB)
    assert asyncio.run(pace(32 * MIB)) == 4 * MIB


def test_late_timers_do_not_slow_it_down(monkeypatch):
    turns = paced(monkeypatch, 200 * MIB, [MIB // 4] * 801, late=0.002)
    assert abs(turns[-1] - turns[0] - 1.0) < 0.05


def test_after_a_pause_there_is_no_burst(monkeypatch):
    clock = Clock()
    budget = Budget(1000 * MIB, 0)
    budget.report(0, 100 * MIB)
    pace = FlushPace(clock, budget)
    waited = []

    async def sleep(seconds):
        waited.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main():
        await pace(MIB)
        clock.now = 100.0
        for _ in range(80):
            await pace(MIB)

    asyncio.run(main())
    assert sum(waited) > 0.15, "20 MiB at 100 MiB/s, less the slack"
