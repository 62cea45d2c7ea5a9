"""The rate limiter of chunk writes: the rate follows the dirty bytes."""

import asyncio
from dataclasses import dataclass

from sarit.core.limits import MIB
from sarit.store.flow_control.memory_budget import DirtyBytes, MemoryBudget
from sarit.store.flow_control.write_limiter import FlushRateLimiter
from sarit.store.limits import MIN_FLUSH_BYTES_PER_SECOND


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self):
        return self.now


def report(budget, dirty_bytes):
    """Large blocks, so that memory holds about as many bytes as chunks will."""
    held = DirtyBytes()
    held.append_bytes = held.charged_bytes = dirty_bytes
    budget.report(0, held)


def grant_times(dirty_bytes, sizes, late=0.0):
    """When the limiter grants each of `sizes`, in seconds; every sleep lasts `late` longer than asked."""
    clock = Clock()
    budget = MemoryBudget(1000 * MIB, 0)
    report(budget, dirty_bytes)

    async def sleep(seconds):
        assert seconds > 0
        clock.now += seconds + late

    limiter = FlushRateLimiter(clock, budget, sleep)

    async def main():
        times = []
        for size in sizes:
            assert await limiter(size) == size
            times.append(clock.now)
        return times

    return asyncio.run(main())


def test_limiter_spreads_dirty_bytes_over_one_second():
    times = grant_times(200 * MIB, [MIB // 4] * 801)
    assert abs(times[-1] - times[0] - 1.0) < 0.05


def test_limiter_never_falls_below_minimum_rate():
    times = grant_times(1, [MIB // 4] * 129)
    assert abs(times[-1] - times[0] - 32 * MIB / MIN_FLUSH_BYTES_PER_SECOND) < 0.05


def test_limiter_never_waits_over_soft_limit():
    times = grant_times(501 * MIB, [MIB] * 1000)
    assert times[-1] == times[0]


def test_pieces_are_small_under_soft_limit_and_large_over_it():
    budget = MemoryBudget(1000 * MIB, 0)
    limiter = FlushRateLimiter(Clock(), budget)
    assert asyncio.run(limiter(32 * MIB)) == MIB // 4
    assert asyncio.run(limiter(100)) == 100
    report(budget, 501 * MIB)
    assert asyncio.run(limiter(32 * MIB)) == 4 * MIB


def test_late_timers_do_not_lower_the_rate():
    times = grant_times(200 * MIB, [MIB // 4] * 801, late=0.002)
    assert abs(times[-1] - times[0] - 1.0) < 0.05


def test_limiter_allows_no_burst_after_a_pause():
    clock = Clock()
    budget = MemoryBudget(1000 * MIB, 0)
    report(budget, 100 * MIB)
    waited = []

    async def sleep(seconds):
        waited.append(seconds)
        clock.now += seconds

    limiter = FlushRateLimiter(clock, budget, sleep)

    async def main():
        await limiter(MIB)
        clock.now = 100.0
        for _ in range(80):
            await limiter(MIB)

    asyncio.run(main())
    assert sum(waited) > 0.15, "20 MiB at 100 MiB/s, less the slack"
