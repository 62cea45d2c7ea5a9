"""Load meters on a virtual clock: averages and scale requests."""

from __future__ import annotations

import asyncio
from math import exp

import pytest

from sarit.core.metering import ScaleAdvice, ScalingTimes
from sarit.core.names import transaction_segment
from sarit.store.metering.load_meters import LoadMeters
from sarit.store.metering.scale_requests import ScaleRequests
from sarit.wire.frames import Append
from tests.unit.store.harness import World, Writer

TIMES = ScalingTimes()
SEGMENT = "s/t/0.#epoch.0"
EVENTS = 2  # the policy's type, on the wire


class Clock:
    def __init__(self) -> None:
        self.seconds = 50.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return 0


class Rig:
    """A store whose meters measure when the test calls them."""

    def __init__(self, store) -> None:
        self.store = store
        self.clock = Clock()
        self.asked: list[tuple[str, ScaleAdvice]] = []
        requests = ScaleRequests()
        requests.listen(lambda segment, advice: self.asked.append((segment, advice)))
        self.meters = LoadMeters(store, self.clock, TIMES, requests)
        self.numbers: dict[str, int] = {}
        self.writers: dict[str, Writer] = {}

    async def create(self, name=SEGMENT, scale_type=EVENTS, target=100) -> None:
        await self.store.container(name).create(name, scale_type=scale_type, target_rate=target)

    async def write(self, events: int, name=SEGMENT, size=10) -> None:
        if name not in self.writers:
            self.writers[name] = Writer(self.store, name, name.encode()[-16:].rjust(16, b"w"))
            await self.writers[name].set_up()
        writer = self.writers[name]
        number = self.numbers[name] = self.numbers.get(name, 0) + events
        data = b"x" * (size * events)
        writer.session.append(Append(writer.writer, [data], len(data), events, number, 0), None)
        await writer.wait_for_replies()

    async def minutes(self, count: float, rate: float, name=SEGMENT) -> None:
        """Run for `count` minutes at `rate` events a second."""
        for _ in range(round(count * 60 / TIMES.interval)):
            if rate:
                await self.write(round(rate * TIMES.interval), name)
            self.clock.seconds += TIMES.interval
            await self.meters.measure()


def rigged(test):
    async def main():
        world = World()
        store = await world.start()
        try:
            await test(Rig(store))
        finally:
            await store.stop()

    asyncio.run(main())


def test_steady_rate_is_exact_from_start():
    async def main(rig):
        await rig.create()
        await rig.meters.measure()
        rig.clock.seconds += TIMES.interval
        await rig.meters.measure()
        for _ in range(12):
            await rig.minutes(1 / 12, 40)
            rates = rig.meters.rates(SEGMENT)
        assert rates.events == pytest.approx((40, 40, 40, 40))
        assert rates.bytes == pytest.approx((400, 400, 400, 400))
        assert rates.age == pytest.approx(60)

    rigged(main)


def test_average_decays_with_each_window():
    async def main(rig):
        await rig.create(target=1_000_000)
        rig.clock.seconds += 1
        await rig.meters.measure()
        await rig.minutes(120, 100)
        full = rig.meters.rates(SEGMENT).events
        await rig.minutes(2, 0)
        after = rig.meters.rates(SEGMENT).events
        for was, now, window in zip(full, after, TIMES.windows, strict=True):
            assert now / was == pytest.approx(exp(-120 / window), rel=0.01)
        await rig.minutes(8 * 60, 0)
        assert max(rig.meters.rates(SEGMENT).events) < 1e-6

    rigged(main)


def test_hot_segment_requests_split_once_per_mute_period():
    async def main(rig):
        await rig.create()
        rig.clock.seconds += 1
        await rig.meters.measure()
        await rig.minutes(9.9, 600)
        assert rig.asked == []  # within the cool-down
        await rig.minutes(1, 600)
        assert rig.asked == [(SEGMENT, ScaleAdvice.SPLIT)]
        await rig.minutes(8, 600)
        assert len(rig.asked) == 1
        await rig.minutes(2, 600)
        assert len(rig.asked) == 2

    rigged(main)


def test_cold_segment_requests_merge_after_longest_window():
    async def main(rig):
        await rig.create()
        await rig.create("s/fixed/0.#epoch.0", scale_type=0)
        rig.clock.seconds += 1
        await rig.meters.measure()
        await rig.minutes(19.9, 0)
        assert rig.asked == []
        await rig.minutes(0.2, 0)
        assert rig.asked == [(SEGMENT, ScaleAdvice.MERGE)]

    rigged(main)


def test_transaction_counts_on_merge():
    async def main(rig):
        shadow = transaction_segment(SEGMENT, 7)
        await rig.create()
        await rig.create(shadow, scale_type=0)
        rig.clock.seconds += 1
        await rig.meters.measure()
        await rig.write(100, shadow)
        rig.clock.seconds += TIMES.interval
        await rig.meters.measure()
        assert rig.meters.rates(SEGMENT).events[0] == 0
        await rig.store.container(SEGMENT).merge(SEGMENT, shadow)
        rig.clock.seconds += TIMES.interval
        await rig.meters.measure()
        assert rig.meters.rates(SEGMENT).events[0] > 0
        assert rig.meters.rates(SEGMENT).bytes[0] == pytest.approx(10 * rig.meters.rates(SEGMENT).events[0])

    rigged(main)


def test_sealed_segments_and_tables_are_not_metered():
    async def main(rig):
        await rig.create()
        await rig.store.tables("s/k_kvtable/0.#epoch.0").create("s/k_kvtable/0.#epoch.0", 0)
        rig.clock.seconds += 1
        await rig.meters.measure()
        assert "1 segments" in repr(rig.meters)
        await rig.store.container(SEGMENT).seal(SEGMENT)
        await rig.minutes(40, 0)
        assert rig.asked == []
        assert "0 segments" in repr(rig.meters)

    rigged(main)


def test_segment_not_in_memory_has_no_load():
    async def main(rig):
        rig.clock.seconds += 77
        rates = rig.meters.rates("s/other/0.#epoch.0")
        assert (rates.events, rates.age) == ((0, 0, 0, 0), 77)

    rigged(main)
