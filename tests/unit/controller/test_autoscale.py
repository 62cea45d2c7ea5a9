"""Streams scale by the rates that their stores report."""

from __future__ import annotations

import asyncio

from sarit.core.limits import MAX_SCALE_REQUESTS
from sarit.core.metering import Rates, ScaleAdvice
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScaleType, ScalingPolicy, StreamConfig
from tests.unit.controller.world import STREAM, World, run, segment

OLD = 100_000.0
BY_EVENTS = StreamConfig(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 4, 2))


def taking(events, age=OLD):
    return Rates((events,) * 4, (events * 10.0,) * 4, age)


async def scaling_stream(c, w, rates):
    await c.scopes.create("s")
    await c.streams.create(STREAM, BY_EVENTS)
    for number, events in enumerate(rates):
        w.segments.measured[segment(number)] = taking(events)


async def ranges(c):
    return [(s.low, s.high) for s in await c.streams.active(STREAM)]


def test_a_hot_segment_is_split_and_only_once():
    async def main():
        world = World()
        c = await world.controller()
        await scaling_stream(c, world, (250, 30))
        assert await c.autoscale.evaluate(segment(0))
        assert await ranges(c) == [(0.0, 0.5 / 3), (0.5 / 3, 1.0 / 3), (1.0 / 3, 0.5), (0.5, 1.0)]
        assert world.segments.segments[segment(2, 1)].policy == (2, 100)
        # The request comes again; the segment is not active any more.
        assert not await c.autoscale.evaluate(segment(0))
        # The new segments have not been measured yet.
        assert not await c.autoscale.evaluate(segment(2, 1))
        world.check()

    run(main())


def test_cold_segments_are_merged_down_to_the_minimum():
    async def main():
        world = World()
        c = await world.controller()
        await scaling_stream(c, world, (250, 1))
        await c.autoscale.evaluate(segment(0))
        for number in (2, 3, 4):
            world.segments.measured[segment(number, 1)] = taking(1)
        assert await c.autoscale.evaluate(segment(4, 1))
        assert await ranges(c) == [(0.0, 1.0 / 6), (1.0 / 6, 1.0)]
        world.segments.measured[segment(5, 2)] = taking(0)
        assert not await c.autoscale.evaluate(segment(5, 2))
        world.check()

    run(main())


def test_scale_requests_are_evaluated_in_the_background():
    async def main():
        world = World()
        c = await world.controller()
        await scaling_stream(c, world, (250, 30))
        await c.streams.create(StreamName("s", "u"), StreamConfig())
        running = asyncio.ensure_future(c.autoscale.run())
        for name in ("s/none/0.#epoch.0", "not a segment", "s/u/0.#epoch.0", segment(0)):
            c.autoscale.request(name, ScaleAdvice.SPLIT)
        for _ in range(2000):
            await asyncio.sleep(0)
        assert len(await ranges(c)) == 4
        running.cancel()
        for number in range(2 * MAX_SCALE_REQUESTS):
            c.autoscale.request(STREAM.segment(SegmentId(0, number)), ScaleAdvice.MERGE)
        assert len(c.autoscale._requests) == MAX_SCALE_REQUESTS

    run(main())
