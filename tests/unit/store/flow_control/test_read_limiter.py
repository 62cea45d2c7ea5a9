"""The rate limiter of chunk reads: MIMD on the read rate, with the latency of appends as the target."""

import asyncio
from dataclasses import dataclass
from random import Random

import pytest

from sarit.core.limits import MIB
from sarit.store.flow_control.read_limiter import ReadRateLimiter
from sarit.store.limits import FAST_APPEND_SECONDS, MAX_READ_WAIT_SECONDS, MIN_READ_BYTES_PER_SECOND


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self):
        return self.now


class Machine:
    """Readers that use the whole rate, and appends whose latency depends on the rate of the reads.

    `closed`: a closed loop of one container, where an append waits for the one before; else one append every 2 ms.
    `noise`: how much the latency varies by itself from one tenth of a second to the next.
    `bursts`: all bytes of a second arrive in its first fifth."""

    def __init__(
        self,
        *,
        disk=800 * MIB,
        appends=25 * MIB,
        alone=0.0004,
        beside=lambda rate: 0.0,
        closed=False,
        noise=0.0,
        bursts=False,
    ):
        self.clock = Clock(100.0)
        self.limiter = ReadRateLimiter(self.clock, self._sleep)
        self.appends, self.alone, self.beside, self._disk, self._closed = appends, alone, beside, disk, closed
        self._noise, self._random, self._tenth, self._factor = noise, Random(1), 0, 1.0
        self._bursts = bursts
        self._began = self._next = 100.0
        self.rate = 0.0
        self.waits = []

    async def _sleep(self, seconds):
        self._advance(self.clock.now + seconds)

    def _advance(self, then):
        while self._next <= then:
            self.clock.now = self._next
            if self._noise and self._tenth != int(self._next * 10):
                self._tenth, self._factor = int(self._next * 10), self._random.lognormvariate(0, self._noise)
            latency = self.alone * self._factor + self.beside(self.rate)
            if self.appends:
                began = self._began if self._closed else self.clock.now - latency
                self.waits.append(self.clock.now - began)
                share = (5 if self.clock.now % 1 < 0.2 else 0) if self._bursts else 1
                self.limiter.observe_appends(began, int(share * self.appends * (self.clock.now - self._began)))
            self._began = self.clock.now
            self._next += max(latency, 0.001) if self._closed else 0.002
        self.clock.now = then

    def quiet(self, seconds):
        """Let time pass without reads."""
        self.rate = 0.0
        self._advance(self.clock.now + seconds)

    def read(self, seconds, readers=1, reads_per_place=0):
        """Read for `seconds`; returns bytes a second over the last half.

        `reads_per_place`: one reader that moves to the next place after this number of reads."""

        async def main():
            began, half, total, count = self.clock.now, None, 0, 0
            while self.clock.now < began + seconds:
                before = self.clock.now
                count += 1
                await self.limiter(2 * MIB, count // reads_per_place if reads_per_place else count % readers)
                self._advance(max(self.clock.now, before + 2 * MIB / self._disk))
                self.rate += 0.2 * (2 * MIB / (self.clock.now - before) - self.rate)
                if self.clock.now > began + seconds / 2:
                    if half is None:
                        half = self.clock.now
                        self.waits.clear()
                    total += 2 * MIB
            return total / (self.clock.now - half)

        return asyncio.run(main())


def always_slow(rate):
    return 1.0 if rate else 0.0


def test_reads_without_harm_are_unlimited():
    assert Machine(appends=0).read(10) > 780 * MIB
    assert Machine().read(20) > 780 * MIB


def test_reads_beside_appends_start_at_minimum_and_grow():
    """Full speed until the first evaluation would stall the appends."""
    machine = Machine()
    machine.quiet(1)
    assert machine.read(0.5) < 80 * MIB
    machine.read(9)
    assert machine.read(2) > 780 * MIB
    machine.quiet(5)
    assert machine.read(0.5) < 80 * MIB


def test_rate_does_not_grow_beyond_what_is_read():
    machine = Machine()
    machine.quiet(1)
    machine.read(60)
    assert machine.limiter.bytes_per_second < 2000 * MIB


def test_fast_reader_slows_down_when_appends_begin():
    """It does not wait until the latency shows harm."""
    machine = Machine(appends=0)
    assert machine.read(5) > 780 * MIB
    machine.appends = 25 * MIB
    machine.read(0.3)
    assert machine.read(0.5) < 80 * MIB


def test_read_rate_converges_to_latency_target():
    machine = Machine(beside=lambda rate: 0.004 * max(0, rate - 300 * MIB) / (500 * MIB))
    machine.quiet(1)
    assert 250 * MIB < machine.read(20) < 400 * MIB


def test_probing_the_limit_harms_few_appends():
    """The limiter has to probe; the appends it harms are beyond the 95th percentile."""
    machine = Machine(beside=lambda rate: 0.005 if rate > 300 * MIB else 0.0)
    machine.quiet(1)
    assert machine.read(60) > 180 * MIB
    assert percentile_95(machine.waits) < 0.001


def percentile_95(waits):
    return sorted(waits)[len(waits) * 95 // 100]


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.5])
def test_baseline_learns_variance_of_append_latency(noise):
    """A shared disk: latency that varies without reads does not limit them."""
    for beside, least in ((lambda rate: 0.0, 700 * MIB), (lambda rate: max(0, rate / MIB - 300) * 40e-6, 200 * MIB)):
        machine = Machine(alone=0.002, beside=beside, noise=noise)
        machine.quiet(20)
        alone = percentile_95(machine.waits)
        assert machine.read(60) > least
        assert percentile_95(machine.waits) < 1.5 * alone


def test_rate_recovers_within_seconds_after_harm_ends():
    machine = Machine(beside=always_slow)
    machine.quiet(1)
    assert machine.read(10) < 100 * MIB
    machine.beside = lambda rate: 0.0
    machine.read(9)
    assert machine.read(2) > 780 * MIB


@pytest.mark.parametrize("slow", [0.005, 0.02, 0.1, 0.5])
def test_rate_falls_with_harm_of_reads(slow):
    """Also where appends become so slow that few of them complete in an interval."""
    machine = Machine(beside=lambda rate: slow * rate / (800 * MIB), closed=True)
    machine.quiet(1)
    assert machine.read(30) < 250 * MIB
    assert sum(machine.waits) / len(machine.waits) < max(0.002, slow / 5)


@pytest.mark.parametrize("readers", [1, 5])
def test_minimum_rate_lets_every_reader_catch_up(readers):
    for appends, least in ((10 * MIB, MIN_READ_BYTES_PER_SECOND), (60 * MIB, 120 * MIB)):
        machine = Machine(appends=appends, beside=always_slow)
        machine.quiet(1)
        assert 0.95 * least * readers < machine.read(20, readers) < 1.3 * least * readers


def test_reader_that_moves_between_chunks_counts_once():
    machine = Machine(appends=60 * MIB, beside=always_slow)
    machine.quiet(1)
    assert machine.read(20, reads_per_place=20) < 1.1 * 120 * MIB


def test_minimum_rate_follows_append_rate_over_seconds():
    machine = Machine(appends=60 * MIB, beside=always_slow, bursts=True)
    machine.quiet(5)
    assert 0.95 * 120 * MIB < machine.read(20) < 1.6 * 120 * MIB


def test_slow_log_without_reads_does_not_limit_reads():
    machine = Machine(alone=0.008)
    machine.quiet(10)
    assert machine.read(20) > 780 * MIB


def test_baseline_ignores_latency_beside_reads():
    machine = Machine(appends=10 * MIB, beside=always_slow)
    machine.quiet(1)
    assert machine.read(100) < 100 * MIB


def test_reads_are_unlimited_after_appends_end():
    machine = Machine(beside=always_slow)
    machine.quiet(1)
    assert machine.read(10) < 100 * MIB
    machine.appends = 0
    assert machine.read(4) > 780 * MIB


def test_no_read_waits_longer_than_the_bound():
    machine = Machine(beside=always_slow)
    machine.quiet(1)
    machine.read(5)
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    machine.limiter._sleep = sleep

    async def main():
        for _ in range(1000):
            await machine.limiter(2 * MIB, 0)

    asyncio.run(main())
    assert FAST_APPEND_SECONDS < max(waits) <= MAX_READ_WAIT_SECONDS


def test_baseline_ignores_latency_beside_reads_granted_earlier():
    clock = Clock()

    async def sleep(seconds):
        """The granted reads lie in the future of everything that is observed here."""

    limiter = ReadRateLimiter(clock, sleep)

    def observe(latency):
        for _ in range(20):
            limiter.observe_appends(clock.now - latency, MIB)
        clock.now += 0.11

    async def main():
        for _ in range(20):
            observe(0.001)
        learned = limiter._baseline
        for _ in range(150):
            await limiter(2 * MIB, "a reader")
        observe(0.05)
        for _ in range(3):
            observe(0.05)
        assert limiter._baseline == pytest.approx(learned)

    asyncio.run(main())
