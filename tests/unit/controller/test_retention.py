"""Retention: cuts taken, streams truncated, on fakes with a clock that the test advances."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from sarit.controller import keys
from sarit.controller.jobs import JobKey
from sarit.controller.limits import RECOVERY_GRACE_SECONDS
from sarit.controller.model.codec import decode_cut
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.unit.controller.fakes import Faults
from tests.unit.controller.test_crashes import group
from tests.unit.controller.test_stale_controllers import DelayedCall
from tests.unit.controller.world import STREAM, World, halves, run, segment


def keeping(kind, limit, maximum=0, segments=1):
    return StreamConfig(ScalingPolicy(min_segments=segments), RetentionPolicy(kind, limit, maximum))


BY_TIME = keeping(RetentionType.TIME, 100_000)
BY_SIZE = keeping(RetentionType.SIZE, 100)


async def kept_stream(c, config=BY_TIME):
    await c.scopes.create("s")
    await c.streams.create(STREAM, config)


async def cuts(c):
    return [decode_cut(value.value) for _, value in await c.catalog.stream_records(STREAM, keys.CUTS)]


async def pass_by(world, c, seconds, length=10, name=None):
    """An event is written, time passes, the maintenance loop runs."""
    if length:
        world.segments.append(name or segment(0), "x", length)
    world.pass_time(seconds)
    await c.maintenance.run_retention_round()


def test_by_time():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        for _ in range(5):
            await pass_by(world, c, 60)
        # Cuts at 60, 120, 180, 240 and 300 s; at 300 s the one at 180 s is the latest that leaves 100 s.
        assert world.segments.segments[segment(0)].start == 30
        assert [cut.size for cut in await cuts(c)] == [20, 30, 40, 50]
        await pass_by(world, c, 60, 0)
        assert [cut.size for cut in await cuts(c)] == [30, 40, 50]
        assert world.segments.segments[segment(0)].start == 40
        await pass_by(world, c, 600, 0)
        assert world.segments.segments[segment(0)].start == 50
        world.check()

    run(main())


def test_by_size_across_a_scale():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, BY_SIZE)
        for _ in range(4):
            await pass_by(world, c, 60, 30)
        assert world.segments.segments[segment(0)].start == 0  # 120 bytes in all: a cut at 20 or less would do
        await pass_by(world, c, 60, 30)
        assert world.segments.segments[segment(0)].start == 30
        await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
        for number in (1, 2):
            await pass_by(world, c, 60, 60, segment(number, 1))
        assert world.segments.segments[segment(0)].start == 150
        await pass_by(world, c, 60, 100, segment(1, 1))
        await pass_by(world, c, 60, 100, segment(2, 1))
        assert segment(0) not in world.segments.segments
        sizes = [cut.size for cut in await cuts(c)]
        assert sizes == sorted(sizes)
        assert sizes[-1] == 150 + 60 + 60 + 100 + 100
        world.check()

    run(main())


def test_subscribers_protect_data_up_to_the_maximum():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.SIZE, 20, 200))
        await c.groups.create("s", "g", group(streams=(STREAM,)))
        for _ in range(5):
            await pass_by(world, c, 60, 30)
        assert world.segments.segments[segment(0)].start == 0  # nothing released yet
        await c.groups.record_cut(STREAM, "s/g", 0, "id", {0: 45})
        await pass_by(world, c, 60, 0)
        assert world.segments.segments[segment(0)].start == 45
        for _ in range(3):
            await pass_by(world, c, 60, 30)
        assert world.segments.segments[segment(0)].start == 45
        for _ in range(4):
            await pass_by(world, c, 60, 30)
        start = world.segments.segments[segment(0)].start
        assert start > 45
        assert world.segments.segments[segment(0)].length - start <= 200 + 30
        world.check()

    run(main())


@pytest.mark.parametrize("with_group", [False, True])
def test_jobs_that_hold_data_protect_it_up_to_the_maximum(with_group):
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.SIZE, 20, 200))
        if with_group:
            await c.groups.create("s", "g", group(streams=(STREAM,)))
            await c.groups.record_cut(STREAM, "s/g", 0, "id", {0: 120})
        claims = {}
        for name in ("slow", "free", "ends"):
            await c.jobs.create(key := JobKey("copy", STREAM, name))
            claims[name] = await c.jobs.claim(await c.jobs.find(key), "w:1")
        await claims["slow"].save(b"", cut_at(0))
        await claims["free"].save(b"")
        await claims["ends"].save(b"", cut_at(15))

        async def start_after(length, count=1):
            for _ in range(count):
                await pass_by(world, c, 60, length)
            return world.segments.segments[segment(0)].start

        assert await start_after(30, 5) == 0
        await claims["slow"].save(b"", cut_at(45))
        assert await start_after(0) == 15  # the other one holds more
        await claims["ends"].finish()
        assert await start_after(0) == 45
        await claims["slow"].save(b"", cut_at(50))
        other = await world.controller()
        await other.retention.apply(STREAM)
        assert world.segments.segments[segment(0)].start == 50
        start = await start_after(30, 7)
        assert start > 50
        assert world.segments.segments[segment(0)].length - start <= 200 + 30
        await c.jobs.delete(claims["slow"].job.key)
        start = await start_after(0)
        # As if there were no job: up to the last recorded cut that leaves enough, or to the reader's release.
        assert start >= (120 if with_group else world.segments.segments[segment(0)].length - 60)
        world.check()

    run(main())


def cut_at(offset):
    return StreamCut(STREAM, {SegmentId(0, 0): offset})


def test_job_that_begins_to_hold_data_during_an_evaluation_stops_the_truncation():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.SIZE, 20, 2000))
        await pass_by(world, c, 60, 0)
        await pass_by(world, c, 60, 100)
        await pass_by(world, c, 60, 0)
        start = world.segments.segments[segment(0)].start
        await c.jobs.create(key := JobKey("copy", STREAM, "a"))
        claim = await c.jobs.claim(await c.jobs.find(key), "w:1")
        right = c.retention._released
        seen = []

        async def released(name):
            found = await right(name)
            seen.append(found)
            if len(seen) == 2:  # of the precondition: the truncation is decided, and not made yet
                await claim.save(b"", cut_at(start))
            return found

        c.retention._released = released
        world.segments.append(segment(0), "x", 100)
        world.pass_time(60)
        with pytest.raises(Conflict):
            await c.retention.apply(STREAM)
        assert seen == [[], [], [{0: start}]]
        await pass_by(world, c, 60, 0)
        assert world.segments.segments[segment(0)].start == start
        world.check()

    run(main())


def test_by_size_stream_begins_where_its_readers_released():
    """Two events of 17 bytes come between two evaluations: the readers release the first, and no cut was recorded."""

    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.SIZE, 10, (1 << 63) - 1))
        await c.groups.create("s", "g", group(streams=(STREAM,)))
        await pass_by(world, c, 60, 0)
        await pass_by(world, c, 60, 34)
        assert world.segments.segments[segment(0)].start == 0
        await c.groups.record_cut(STREAM, "s/g", 0, "id", {0: 17})
        await pass_by(world, c, 60, 0)
        assert world.segments.segments[segment(0)].start == 17
        await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
        first, second = (SegmentId(1, number).packed for number in (1, 2))
        for number in (1, 2):
            world.segments.append(segment(number, 1), "x", 20)
        await c.groups.record_cut(STREAM, "s/g", 0, "id", {first: 12, second: 17})
        await pass_by(world, c, 60, 0)
        assert [world.segments.segments[segment(number, 1)].start for number in (1, 2)] == [12, 17]
        assert segment(0) not in world.segments.segments
        await c.groups.record_cut(STREAM, "s/g", 0, "id", {first: 14, second: 17})
        await pass_by(world, c, 60, 0)
        # 9 bytes would be left.
        assert [world.segments.segments[segment(number, 1)].start for number in (1, 2)] == [12, 17]
        world.check()

    run(main())


def test_a_wall_clock_that_jumps_truncates_nothing():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        await pass_by(world, c, 60)
        world.env.clock.wall_offset_ms += 3_600_000
        await pass_by(world, c, 60)
        assert world.segments.segments[segment(0)].start == 0
        world.env.clock.wall_offset_ms -= 7_200_000
        second = await world.controller()  # it starts in the past
        for _ in range(3):
            world.segments.append(segment(0), "x")
            world.pass_time(60)
            await second.maintenance.run_retention_round()
        assert world.segments.segments[segment(0)].start == 0
        times = [cut.time_ms for cut in await cuts(second)]
        assert times == sorted(times)

    run(main())


def test_time_of_a_stream_is_forgotten_when_another_controller_has_removed_its_policy():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        await pass_by(world, c, 60)
        assert repr(c.retention) == "<Retention, times of 1 streams>"
        other = await world.controller()
        await other.streams.update(STREAM, keeping(RetentionType.NONE, 0))
        for _ in range(2):
            await other.maintenance.run_retention_round()
            world.pass_time(60 + RECOVERY_GRACE_SECONDS)
        assert await c.catalog.maintained_streams(keys.RETENTION_INDEX) == []
        await c.maintenance.run_retention_round()
        assert repr(c.retention) == "<Retention, times of 0 streams>"

    run(main())


YEARS_MS = 10 * 365 * 86_400_000


def test_retention_by_time_goes_on_after_a_start_years_ahead():
    """Each new cut followed the last one by a millisecond: nothing was dropped for ten years."""

    async def main():
        world = World()
        world.env.clock.wall_offset_ms += YEARS_MS
        c = await world.controller()
        await kept_stream(c)
        await pass_by(world, c, 60)
        world.env.clock.wall_offset_ms -= YEARS_MS
        second = await world.controller()
        for _ in range(4):
            await pass_by(world, second, 60)
        assert world.segments.segments[segment(0)].start == 30
        world.check()

    run(main())


@pytest.mark.parametrize("correct", [True, False])
def test_start_ahead_of_the_newest_cut_truncates_nothing_for_an_hour(caplog, correct):
    """What was seconds old was dropped by the first evaluation."""
    ahead_ms = 30 * 86_400_000

    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.TIME, 86_400_000))
        for _ in range(2):
            await pass_by(world, c, 900)
        world.env.clock.wall_offset_ms += ahead_ms
        second = await world.controller()
        for _ in range(4):
            await pass_by(world, second, 900)
            assert world.segments.segments[segment(0)].start == 0
        assert len([line for line in caplog.messages if "720.2 hours old" in line]) == 1
        if correct:
            world.env.clock.wall_offset_ms -= ahead_ms
        for _ in range(3):
            await pass_by(world, second, 900)
        # A clock that was set right makes nothing old; one that stays is believed.
        assert (world.segments.segments[segment(0)].start == 0) is correct
        world.check()

    run(main())


def test_failed_retention_is_retried_in_the_next_round():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c, keeping(RetentionType.TIME, 10**9))  # so long that half an hour passes between two rounds
        truncate, refusals = c.streams.truncate, ["500 calls wait for it"]

        async def busy_once(*arguments):
            if refusals:
                raise Unavailable(refusals.pop())
            await truncate(*arguments)

        c.streams.truncate = busy_once
        await pass_by(world, c, 60)
        await pass_by(world, c, 10**6)
        assert not refusals
        assert world.segments.segments[segment(0)].start == 0
        await pass_by(world, c, 60)
        assert world.segments.segments[segment(0)].start > 0
        world.check()

    run(main())


def test_retention_continues_after_manual_truncation():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        for _ in range(3):
            await pass_by(world, c, 60)
        await c.streams.truncate(STREAM, {0: 25})
        await pass_by(world, c, 60)
        assert [cut.cut[0] for cut in await cuts(c)] == [30, 40]
        assert world.segments.segments[segment(0)].start == 25
        world.check()

    run(main())


def test_stream_with_policy_stays_in_maintenance_index():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        await c.streams.create(StreamName("s", "u"), StreamConfig())
        maintained = await c.catalog.maintained_streams(keys.RETENTION_INDEX)
        assert [name for name, _ in maintained] == [STREAM]
        await c.streams.update(StreamName("s", "u"), BY_SIZE)
        assert len(await c.catalog.maintained_streams(keys.RETENTION_INDEX)) == 2
        await c.streams.update(StreamName("s", "u"), dataclasses.replace(BY_SIZE, retention=RetentionPolicy()))
        await c.streams.seal(STREAM)
        await pass_by(world, c, 60, 0)
        await c.streams.delete(STREAM)
        await pass_by(world, c, 60, 0)
        maintained = await c.catalog.maintained_streams(keys.RETENTION_INDEX)
        assert [name for name, _ in maintained] == [STREAM]  # it may be being created again
        for _ in range(3):
            await pass_by(world, c, 60, 0)
        assert await c.catalog.maintained_streams(keys.RETENTION_INDEX) == []
        assert not [key for key in world.scopes()["s"] if b"/t/" in key]
        world.check()

    run(main())


def test_recreated_stream_is_not_truncated_at_old_cuts():
    async def main():
        world = World()
        c = await world.controller()
        await kept_stream(c)
        for _ in range(5):
            await pass_by(world, c, 60)
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
        await c.streams.create(STREAM, BY_TIME)
        (active,) = await c.streams.active(STREAM)
        new = STREAM.segment(SegmentId.unpack(active.segment))
        await pass_by(world, c, 60, 10, new)
        await pass_by(world, c, 60, 10, new)
        assert world.segments.segments[new].start == 0
        assert [cut.size for cut in await cuts(c)] == [10, 20]

    run(main())


def test_delayed_update_leaves_stream_in_maintenance_index():
    """The entry is added, then removed because the stream has no policy, and only then the stream gets one."""

    async def main():
        for call in range(1, 100):
            world = World()
            delayed, faults = DelayedCall(call), Faults()
            first = await world.controller(faults)
            await first.scopes.create("s")
            await first.streams.create(STREAM, keeping(RetentionType.NONE, 0))
            faults.calls.clear()
            faults.gate = delayed.gate
            update = asyncio.ensure_future(first.streams.update(STREAM, BY_TIME))
            waiter = asyncio.ensure_future(delayed.reached.wait())
            await asyncio.wait([update, waiter], return_when=asyncio.FIRST_COMPLETED)
            if not delayed.reached.is_set():
                waiter.cancel()
                assert call > 3
                return
            second = await world.controller()
            for _ in range(3):
                await pass_by(world, second, 60, 0)
            delayed.released.set()
            await update
            assert [name for name, _ in await second.catalog.maintained_streams(keys.RETENTION_INDEX)] == [STREAM], call

    run(main())
