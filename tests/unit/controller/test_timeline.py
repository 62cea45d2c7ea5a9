"""Cuts recorded as streams grow, and the cut of a time, on fakes with a clock that the test advances."""

from __future__ import annotations

import random

import pytest

from sarit.controller import keys
from sarit.controller.limits import MAX_TIMELINE_CUTS
from sarit.controller.model import timeline
from sarit.controller.model.codec import decode_cut
from sarit.core.errors import NotFound, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, halves, run, segment

MINUTE = 60.0


async def started(segments: int = 1, config: StreamConfig | None = None):
    world = World()
    c = await world.controller()
    await c.scopes.create("s")
    await c.streams.create(STREAM, config or StreamConfig(ScalingPolicy(min_segments=segments)))
    return world, c


async def records(c, name: StreamName = STREAM):
    return [decode_cut(value.value) for _, value in await c.catalog.stream_records(name, keys.TIMELINE)]


def now(world) -> int:
    return world.env.clock.wall_ms()


def test_a_stream_that_grows_is_recorded_and_an_idle_one_costs_nothing() -> None:
    async def main() -> None:
        world, c = await started(2)
        idle = StreamName("s", "idle")
        await c.streams.create(idle, StreamConfig())
        await c.timeline.run_round()
        assert await records(c) == []
        for count in range(1, 4):
            world.segments.append(segment(0), "x", 10)
            world.pass_time(MINUTE)
            await c.timeline.run_round()
            assert [one.cut for one in await records(c)] == [
                {segment_id(0): 10 * n, segment_id(1): 0} for n in range(1, count + 1)
            ]
        faults = Faults()
        world.arm(faults)
        for _ in range(5):
            world.pass_time(MINUTE)
            await c.timeline.run_round()
        assert faults.calls == ["segments.grown"] * 5
        assert await records(c, idle) == []

    run(main())


def segment_id(number: int, epoch: int = 0) -> int:
    return SegmentId(epoch, number).packed


def test_every_event_at_or_after_a_time_is_behind_its_cut() -> None:
    async def main() -> None:
        world, c = await started()
        rng = random.Random(3)
        appended: list[tuple[int, int]] = []
        length = 0
        for _ in range(150):
            if rng.random() < 0.5:
                size = rng.randrange(1, 100)
                appended.append((now(world), length))
                world.segments.append(segment(0), "x", size)
                length += size
            if rng.random() < 0.3:
                await c.timeline.run_round()
            world.pass_time(rng.choice((0.0, 0.001, 5.0, 500.0)))
        times = [when + more for when, _ in appended for more in (-1, 0, 1)]
        for time in (*times, *(rng.randrange(times[0] - 5, now(world) + 2000) for _ in range(100))):
            cut, recorded = await c.timeline.at(STREAM, time)
            assert recorded is None or recorded <= time
            assert all(offset >= cut[segment_id(0)] for when, offset in appended if when >= time)
        assert (await c.timeline.at(STREAM, appended[0][0] - 5)) == ({segment_id(0): 0}, None)
        world.pass_time(1)
        await c.timeline.run_round()
        cut, _ = await c.timeline.at(STREAM, now(world) + 10**9)
        assert cut == {segment_id(0): length}

    run(main())


def test_cuts_of_a_scaled_and_truncated_stream() -> None:
    async def main() -> None:
        world, c = await started()
        times = []
        for round_ in range(4):
            if round_ == 2:
                await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
            world.segments.append(segment(0) if round_ < 2 else segment(round_ - 1, 1), "x", 10)
            world.pass_time(MINUTE)
            await c.timeline.run_round()
            times.append(now(world) + 1)
        wanted = [
            {0: 10},
            {0: 20},
            {segment_id(1, 1): 10, segment_id(2, 1): 0},
            {segment_id(1, 1): 10, segment_id(2, 1): 10},
        ]
        assert [await c.timeline.at(STREAM, time) for time in times] == list(zip(wanted, times, strict=True))
        await c.streams.truncate(STREAM, {0: 15})
        assert [(await c.timeline.at(STREAM, time))[0] for time in times] == [{0: 15}, *wanted[1:]]
        await c.streams.truncate(STREAM, {segment_id(1, 1): 5, segment_id(2, 1): 5})
        head = {segment_id(1, 1): 5, segment_id(2, 1): 5}
        assert [await c.timeline.at(STREAM, time) for time in times] == [*[(head, None)] * 3, (wanted[3], times[3])]
        world.check()

    run(main())


def test_a_new_stream_of_the_name_has_no_records() -> None:
    async def main() -> None:
        world, c = await started()
        world.segments.append(segment(0), "x", 10)
        await c.timeline.run_round()
        assert len(await records(c)) == 1
        await c.streams.seal(STREAM)
        await c.timeline.run_round()
        await c.streams.delete(STREAM)
        with pytest.raises(NotFound):
            await c.timeline.at(STREAM, now(world))
        await c.timeline.record(STREAM)
        await c.streams.create(STREAM, StreamConfig())
        cut, recorded = await c.timeline.at(STREAM, now(world) + 10)
        assert (list(cut.values()), recorded) == ([0], None)
        world.check()

    run(main())


def test_what_cannot_be_recorded_stays_due() -> None:
    async def main() -> None:
        world, c = await started()
        world.segments.append(segment(0), "x", 10)

        def away(number: int, call: str) -> None:
            if call.startswith("segments.info"):
                raise Unavailable("away")

        world.arm(Faults(before=away))
        await c.timeline.run_round()
        world.arm(Faults())
        assert await records(c) == []
        world.pass_time(MINUTE)
        await c.timeline.run_round()
        assert [one.cut for one in await records(c)] == [{0: 10}]

    run(main())


def test_records_are_thinned_and_bounded() -> None:
    async def main() -> None:
        world, c = await started()
        most = 0
        for number in range(1000):
            world.segments.append(segment(0), "x", 1)
            world.pass_time(MINUTE if number < 700 else 60 * MINUTE)
            await c.timeline.run_round()
            if number % 50 == 0:
                most = max(most, len(await records(c)))
        assert most < MAX_TIMELINE_CUTS
        found = await records(c)
        assert [one.time_ms for one in found] == sorted(one.time_ms for one in found)
        assert found[-1].cut == {0: 1000}
        surplus = timeline.surplus([one.time_ms for one in found], now(world))
        assert len(surplus) <= 1, "what aged since the last thinning"

    run(main())


def test_retention_decides_the_same_with_and_without_the_timeline() -> None:
    async def lives(recorded: bool) -> list[int]:
        world, c = await started(config=StreamConfig(retention=RetentionPolicy(RetentionType.TIME, 600_000)))
        starts = []
        for _ in range(60):
            world.segments.append(segment(0), "x", 10)
            world.pass_time(MINUTE)
            if recorded:
                await c.timeline.run_round()
            await c.maintenance.run_retention_round()
            starts.append(world.segments.segments[segment(0)].start)
        return starts

    async def main() -> None:
        without = await lives(False)
        assert max(without) > 0
        assert await lives(True) == without

    run(main())
