"""Which streams of a scope have grown or changed since a link asked last, on fakes."""

from __future__ import annotations

import asyncio

import pytest

from sarit.controller.growth import Growth
from sarit.core.errors import Unavailable
from sarit.core.names import StreamName
from sarit.core.policies import StreamConfig
from sarit.mirror import growth as module
from sarit.mirror.source import LocalSource
from sarit.mirror.values import LinkIdentity
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, config, halves, run, segment, stream_with

LINK = LinkIdentity(b"l" * 16, "up", "here")
OTHER = LinkIdentity(b"o" * 16, "other", "here")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock that tests advance would make the pauses long."""
    monkeypatch.setattr(module, "GROWN_INTERVAL_SECONDS", 0.002)
    monkeypatch.setattr(module, "GROWN_PAUSE_FACTOR", 0)


async def started() -> tuple[World, LocalSource]:
    world = World()
    c = await world.controller()
    await stream_with(c, 1)
    return world, LocalSource(c.catalog, c.streams, c.segments, world.env, "here", c.growth)


async def asked(world: World, source: LocalSource, link: LinkIdentity = LINK) -> list[str] | None:
    """One call, during which time passes until it is answered."""
    call = asyncio.ensure_future(source.grown(link, "s", 0.25))
    while not call.done():
        world.pass_time(1.5)
        await asyncio.sleep(0.001)
    return None if (found := call.result()) is None else sorted(name.stream for name in found)


def test_each_link_learns_once_what_has_grown() -> None:
    async def main() -> None:
        world, source = await started()
        assert await asked(world, source) is None
        assert await asked(world, source) == []
        world.segments.append(segment(0), "aa")
        assert await asked(world, source) == ["t"]
        assert await asked(world, source) == []
        assert await asked(world, source, OTHER) is None
        world.segments.append(segment(0), "aa")
        assert await asked(world, source, OTHER) == ["t"]
        assert await asked(world, source) == ["t"]

    run(main())


def test_the_timeline_and_links_learn_of_the_same_growth() -> None:
    async def main() -> None:
        world, source = await started()
        (c,) = world.controllers
        assert await asked(world, source) is None
        world.segments.append(segment(0), "aa")
        await c.timeline.run_round()
        assert await asked(world, source) == ["t"]
        world.segments.append(segment(0), "aa")
        assert await asked(world, source) == ["t"]
        await c.timeline.run_round()
        time = world.env.clock.wall_ms() + 1
        assert (await c.timeline.at(STREAM, time))[0] == {0: 20}

    run(main())


def test_a_link_learns_of_streams_that_changed_otherwise() -> None:
    async def main() -> None:
        world, source = await started()
        (c,) = world.controllers
        assert await asked(world, source) is None
        new = StreamName("s", "new")
        await c.streams.create(new, StreamConfig())
        await c.streams.create(StreamName("s", "_RGgroup"), StreamConfig())
        assert await asked(world, source) == ["_MARKnew", "new"]
        await c.streams.update(STREAM, config(1, ("red",)))
        assert await asked(world, source) == ["t"]
        await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
        assert await asked(world, source) == ["t"]
        await c.streams.seal(new)
        assert await asked(world, source) == ["new"]
        await c.streams.delete(new)
        assert await asked(world, source) == ["_MARKnew", "new"]
        assert await asked(world, source) == []

    run(main())


def test_nothing_is_asked_while_no_link_waits() -> None:
    async def main() -> None:
        world, source = await started()
        assert await asked(world, source) is None
        assert await asked(world, source) == []
        await asyncio.sleep(0.15)
        faults = Faults()
        world.arm(faults)
        await asyncio.sleep(0.3)
        assert faults.calls == []

    run(main())


def test_too_many_streams_are_not_named_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROWN_STREAMS", 3)
    monkeypatch.setattr(module, "MAX_GROWN_STREAMS_PER_REPLY", 2)

    async def main() -> None:
        world, source = await started()
        (c,) = world.controllers
        names = [StreamName("s", f"n{number}") for number in range(4)]
        for name in names:
            await c.streams.create(name, StreamConfig())
        assert await asked(world, source) is None
        for name in names[:3]:
            world.segments.append(segment(0, name=name), "aa")
        named = await asked(world, source) or []
        named += await asked(world, source) or []
        assert sorted(named) == ["n0", "n1", "n2"]
        for name in names:
            world.segments.append(segment(0, name=name), "aa")
        assert await asked(world, source) is None

    run(main())


def test_a_listener_that_overflows_says_so() -> None:
    async def main() -> None:
        world, _ = await started()
        growth = Growth(world.segments)
        small, large = growth.listen(1), growth.listen(10)
        for number in range(3):
            await world.segments.create(f"s/x/{number}.#epoch.0")
            world.segments.append(f"s/x/{number}.#epoch.0", "aa")
        assert len(await small.grown()) == 1
        assert small.overflowed
        assert await small.grown() == []
        assert not small.overflowed
        assert len(await large.grown()) == 3
        assert not large.overflowed

    run(main())


def test_growth_that_a_cancelled_call_asked_for_is_not_lost() -> None:
    async def main() -> None:
        world, _ = await started()
        growth = Growth(world.segments)
        listener = growth.listen(10)
        world.segments.append(segment(0), "aa")
        gate = asyncio.Event()

        async def closed(_: int) -> None:
            await gate.wait()

        world.arm(Faults(gate=closed))
        call = asyncio.ensure_future(listener.grown())
        await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await listener.grown() == [segment(0)]

    run(main())


def test_after_an_error_any_stream_may_have_grown() -> None:
    async def main() -> None:
        world, source = await started()
        assert await asked(world, source) is None

        def fail(_: int, call: str) -> None:
            raise Unavailable(f"injected: {call}")

        world.arm(Faults(fail))
        assert await asked(world, source) is None

    run(main())
