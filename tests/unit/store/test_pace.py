"""How fast chunks are written and read: as fast as bytes come, and as fast as appends bear it."""

import asyncio
from dataclasses import dataclass
from random import Random

import pytest

from sarit.core.limits import MIB
from sarit.store.container.dirty_bytes import DirtyBytes
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.flow_control.rate_limiter import (
    FAST_APPEND_SECONDS,
    MAX_READ_WAIT_SECONDS,
    MIN_BYTES_PER_SECOND,
    MIN_READ_BYTES_PER_SECOND,
    FlushRateLimiter,
    ReadRateLimiter,
)


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self):
        return self.now


def report(budget, dirty_bytes):
    """Large blocks: memory holds what chunks will."""
    held = DirtyBytes()
    held.append_bytes = dirty_bytes
    budget.report(0, held)


def paced(monkeypatch, unflushed, sizes, late=0.0):
    """When each of `sizes` may be written, in seconds."""
    clock = Clock()
    budget = MemoryBudget(1000 * MIB, 0)
    report(budget, unflushed)
    limiter = FlushRateLimiter(clock, budget)

    async def sleep(seconds):
        assert seconds > 0
        clock.now += seconds + late

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main():
        turns = []
        for size in sizes:
            assert await limiter(size) == size
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
    budget = MemoryBudget(1000 * MIB, 0)
    limiter = FlushRateLimiter(Clock(), budget)
    assert asyncio.run(limiter(32 * MIB)) == MIB // 4
    assert asyncio.run(limiter(100)) == 100
    report(budget, 501 * MIB)
    assert asyncio.run(limiter(32 * MIB)) == 4 * MIB


def test_late_timers_do_not_slow_it_down(monkeypatch):
    turns = paced(monkeypatch, 200 * MIB, [MIB // 4] * 801, late=0.002)
    assert abs(turns[-1] - turns[0] - 1.0) < 0.05


def test_after_a_pause_there_is_no_burst(monkeypatch):
    clock = Clock()
    budget = MemoryBudget(1000 * MIB, 0)
    report(budget, 100 * MIB)
    limiter = FlushRateLimiter(clock, budget)
    waited = []

    async def sleep(seconds):
        waited.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main():
        await limiter(MIB)
        clock.now = 100.0
        for _ in range(80):
            await limiter(MIB)

    asyncio.run(main())
    assert sum(waited) > 0.15, "20 MiB at 100 MiB/s, less the slack"


class Machine:
    """Readers that take what they get, and appends that take longer the faster those read.

    `closed`: one container, whose appends wait for those before them; else one every 2 ms, however long they take.
    `strays`: how much that differs by itself from one tenth of a second to the next.
    `bursts`: all the bytes of a second come in the first fifth of it."""

    def __init__(
        self,
        monkeypatch,
        *,
        disk=800 * MIB,
        appends=25 * MIB,
        alone=0.0004,
        beside=lambda rate: 0.0,
        closed=False,
        strays=0.0,
        bursts=False,
    ):
        self.clock = Clock(100.0)
        self.limiter = ReadRateLimiter(self.clock)
        self.appends, self.alone, self.beside, self._disk, self._closed = appends, alone, beside, disk, closed
        self._strays, self._random, self._tenth, self._factor = strays, Random(1), 0, 1.0
        self._bursts = bursts
        self._began = self._next = 100.0
        self.rate = 0.0
        self.waits = []
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds):
        self._until(self.clock.now + seconds)

    def _until(self, then):
        while self._next <= then:
            self.clock.now = self._next
            if self._strays and self._tenth != int(self._next * 10):
                self._tenth, self._factor = int(self._next * 10), self._random.lognormvariate(0, self._strays)
            taken = self.alone * self._factor + self.beside(self.rate)
            if self.appends:
                began = self._began if self._closed else self.clock.now - taken
                self.waits.append(self.clock.now - began)
                share = (5 if self.clock.now % 1 < 0.2 else 0) if self._bursts else 1
                self.limiter.appended(began, int(share * self.appends * (self.clock.now - self._began)))
            self._began = self.clock.now
            self._next += max(taken, 0.001) if self._closed else 0.002
        self.clock.now = then

    def quiet(self, seconds):
        """Nobody reads."""
        self.rate = 0.0
        self._until(self.clock.now + seconds)

    def read(self, seconds, readers=1, turns_in_place=0):
        """Read for so long; the bytes a second, of the last half of it.

        `turns_in_place`: one reader, that passes to the next place after so many."""

        async def main():
            began, half, taken, turn = self.clock.now, None, 0, 0
            while self.clock.now < began + seconds:
                before = self.clock.now
                turn += 1
                await self.limiter(2 * MIB, turn // turns_in_place if turns_in_place else turn % readers)
                self._until(max(self.clock.now, before + 2 * MIB / self._disk))
                self.rate += 0.2 * (2 * MIB / (self.clock.now - before) - self.rate)
                if self.clock.now > began + seconds / 2:
                    if half is None:
                        half = self.clock.now
                        self.waits.clear()
                    taken += 2 * MIB
            return taken / (self.clock.now - half)

        return asyncio.run(main())


def always_slow(rate):
    return 1.0 if rate else 0.0


def test_reads_that_harm_nobody_are_not_held_back(monkeypatch):
    assert Machine(monkeypatch, appends=0).read(10) > 780 * MIB
    assert Machine(monkeypatch).read(20) > 780 * MIB


def test_while_appends_come_reads_begin_slowly_and_get_fast(monkeypatch):
    """Full speed for a moment only, until it was seen what that does, is a stall of the appends."""
    machine = Machine(monkeypatch)
    machine.quiet(1)
    assert machine.read(0.5) < 80 * MIB
    machine.read(9)
    assert machine.read(2) > 780 * MIB
    machine.quiet(5)
    assert machine.read(0.5) < 80 * MIB


def test_the_rate_does_not_leave_what_is_read_behind(monkeypatch):
    machine = Machine(monkeypatch)
    machine.quiet(1)
    machine.read(60)
    assert machine.limiter.bytes_per_second < 2000 * MIB


def test_a_reader_at_full_speed_is_slow_at_once_when_appends_begin(monkeypatch):
    """Before anything shows."""
    machine = Machine(monkeypatch, appends=0)
    assert machine.read(5) > 780 * MIB
    machine.appends = 25 * MIB
    machine.read(0.3)
    assert machine.read(0.5) < 80 * MIB


def test_reads_slow_down_to_what_appends_bear(monkeypatch):
    machine = Machine(monkeypatch, beside=lambda rate: 0.004 * max(0, rate - 300 * MIB) / (500 * MIB))
    machine.quiet(1)
    assert 250 * MIB < machine.read(20) < 400 * MIB


def test_where_reads_begin_to_harm_few_appends_suffer(monkeypatch):
    """The pace has to try: but what it does harm is beyond the 95th percentile."""
    machine = Machine(monkeypatch, beside=lambda rate: 0.005 if rate > 300 * MIB else 0.0)
    machine.quiet(1)
    assert machine.read(60) > 180 * MIB
    assert percentile_95(machine.waits) < 0.001


def percentile_95(waits):
    return sorted(waits)[len(waits) * 95 // 100]


@pytest.mark.parametrize("strays", [0.1, 0.3, 0.5])
def test_how_much_appends_stray_by_themselves_is_learned(monkeypatch, strays):
    """A disk shared with others: what is slow now and then without reads does not hold them back."""
    for beside, least in ((lambda rate: 0.0, 700 * MIB), (lambda rate: max(0, rate / MIB - 300) * 40e-6, 200 * MIB)):
        machine = Machine(monkeypatch, alone=0.002, beside=beside, strays=strays)
        machine.quiet(20)
        alone = percentile_95(machine.waits)
        assert machine.read(60) > least
        assert percentile_95(machine.waits) < 1.5 * alone


def test_reads_are_fast_within_seconds_when_they_harm_no_more(monkeypatch):
    machine = Machine(monkeypatch, beside=always_slow)
    machine.quiet(1)
    assert machine.read(10) < 100 * MIB
    machine.beside = lambda rate: 0.0
    machine.read(9)
    assert machine.read(2) > 780 * MIB


@pytest.mark.parametrize("slow", [0.005, 0.02, 0.1, 0.5])
def test_the_more_reads_harm_the_more_they_are_held_back(monkeypatch, slow):
    """Also where appends get so slow beside them that there are but a few."""
    machine = Machine(monkeypatch, beside=lambda rate: slow * rate / (800 * MIB), closed=True)
    machine.quiet(1)
    assert machine.read(30) < 250 * MIB
    assert sum(machine.waits) / len(machine.waits) < max(0.002, slow / 5)


@pytest.mark.parametrize("readers", [1, 5])
def test_readers_gain_on_appends_however_slow_those_get(monkeypatch, readers):
    for appends, least in ((10 * MIB, MIN_READ_BYTES_PER_SECOND), (60 * MIB, 120 * MIB)):
        machine = Machine(monkeypatch, appends=appends, beside=always_slow)
        machine.quiet(1)
        assert 0.95 * least * readers < machine.read(20, readers) < 1.3 * least * readers


def test_a_reader_that_passes_from_place_to_place_is_one(monkeypatch):
    machine = Machine(monkeypatch, appends=60 * MIB, beside=always_slow)
    machine.quiet(1)
    assert machine.read(20, turns_in_place=20) < 1.1 * 120 * MIB


def test_what_readers_gain_on_are_the_appends_of_seconds(monkeypatch):
    machine = Machine(monkeypatch, appends=60 * MIB, beside=always_slow, bursts=True)
    machine.quiet(5)
    assert 0.95 * 120 * MIB < machine.read(20) < 1.6 * 120 * MIB


def test_a_log_that_is_slow_by_itself_holds_no_reads_back(monkeypatch):
    machine = Machine(monkeypatch, alone=0.008)
    machine.quiet(10)
    assert machine.read(20) > 780 * MIB


def test_what_appends_take_beside_reads_is_not_learned(monkeypatch):
    machine = Machine(monkeypatch, appends=10 * MIB, beside=always_slow)
    machine.quiet(1)
    assert machine.read(100) < 100 * MIB


def test_reads_are_fast_again_when_the_appends_end(monkeypatch):
    machine = Machine(monkeypatch, beside=always_slow)
    machine.quiet(1)
    assert machine.read(10) < 100 * MIB
    machine.appends = 0
    assert machine.read(4) > 780 * MIB


def test_no_read_waits_longer_than_the_bound_however_many_there_are(monkeypatch):
    machine = Machine(monkeypatch, beside=always_slow)
    machine.quiet(1)
    machine.read(5)
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main():
        for _ in range(1000):
            await machine.limiter(2 * MIB, 0)

    asyncio.run(main())
    assert FAST_APPEND_SECONDS < max(waits) <= MAX_READ_WAIT_SECONDS


def test_what_appends_take_beside_reads_asked_for_before_is_not_learned(monkeypatch):
    clock = Clock()
    limiter = ReadRateLimiter(clock)

    async def sleep(seconds):
        """The reads' turns come later than all that is looked at here."""

    def look(took):
        for _ in range(20):
            limiter.appended(clock.now - took, MIB)
        clock.now += 0.11

    async def main():
        for _ in range(20):
            look(0.001)
        learned = limiter._undisturbed
        for _ in range(150):
            await limiter(2 * MIB, "a reader")
        look(0.05)
        for _ in range(3):
            look(0.05)
        assert limiter._undisturbed == pytest.approx(learned)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(main())
