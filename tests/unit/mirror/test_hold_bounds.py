"""The bound of what a source holds for a link: writers wait, or the oldest bytes are given up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.hold_records import holds_of
from sarit.controller.holds import Holds
from sarit.core.errors import Invalid
from sarit.core.links import HoldOverflow, Link, LinkDirection, LinkRole, LinkSettings, LinkState
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from sarit.mirror.hold_bounds import HoldBound, is_before, to_give_up
from sarit.mirror.limits import HOLD_MEASURE_SECONDS, MIN_HOLD_BYTES
from sarit.mirror.link_checks import check_settings
from tests.unit.controller.world import STREAM, World, halves, run, segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.assembly import Controller

LINK, OTHER = b"l" * 16, b"o" * 16
SMALL = RetentionPolicy(RetentionType.SIZE, 100)


@dataclass
class Scene:
    world: World
    c: Controller
    holds: Holds
    bound: HoldBound

    async def check(self) -> None:
        self.world.pass_time(HOLD_MEASURE_SECONDS)
        await self.bound.check()

    async def held(self, name: StreamName = STREAM) -> list[dict[int, int]]:
        return [hold.cut for hold in await holds_of(self.c.catalog, name)]


def link(overflow: HoldOverflow, most: int, direction: LinkDirection = LinkDirection.PUSH) -> Link:
    settings = LinkSettings(direction, "core.example:9090", hold_bytes=most, overflow=overflow)
    return Link("up", LINK, 0, LinkRole.ACTIVE, LinkState.ACTIVE, settings)


async def started(overflow: HoldOverflow, most: int = 1000, segments: int = 1) -> Scene:
    world = World()
    c = await world.controller()
    await c.scopes.create("s")
    await c.streams.create(STREAM, StreamConfig(ScalingPolicy(min_segments=segments), SMALL))
    holds = Holds(c.catalog, c.segments, world.env.clock)
    return Scene(world, c, holds, HoldBound(link(overflow, most), holds, c.quotas, world.env.clock))


def with_scene(overflow: HoldOverflow, main: Callable[[Scene], Awaitable[None]], segments: int = 1) -> None:
    async def body() -> None:
        await main(await started(overflow, segments=segments))

    run(body())


def test_writers_wait_while_too_much_is_held(caplog: pytest.LogCaptureFixture) -> None:
    async def main(scene: Scene) -> None:
        c, holds = scene.c, scene.holds
        await holds.hold(LINK, "up", "s", {STREAM: {0: 0}})
        scene.world.segments.append(segment(0), "x", 1000)
        await scene.check()
        assert (scene.bound.is_full, bool(c.quotas.quotas), c.quotas.quotas.full) == (False, False, frozenset())
        scene.world.segments.append(segment(0), "y", 1)
        await scene.check()
        assert scene.bound.is_full
        assert c.quotas.quotas.full == {"s"}
        assert bool(c.quotas.quotas)  # so that stores apply it, though nobody has a quota
        other = await scene.world.controller()
        await other.quotas.refresh()
        assert other.quotas.quotas.full == {"s"}
        await other.quotas.measure()  # no storage quota lets them go
        assert other.quotas.quotas.full == {"s"}
        await other.quotas.admit("s", 1, 1)  # streams can be created
        # It copies: writers go on when a part is free again, not at every byte.
        await holds.hold(LINK, "up", "s", {STREAM: {0: 50}})
        await scene.check()
        assert c.quotas.quotas.full == {"s"}
        await holds.hold(LINK, "up", "s", {STREAM: {0: 102}})
        await scene.check()
        assert not scene.bound.is_full
        assert not c.quotas.quotas
        await other.quotas.refresh()
        assert not other.quotas.quotas

    with caplog.at_level(logging.WARNING):
        with_scene(HoldOverflow.THROTTLE, main)
    assert sum("may be: appends to what it copies wait" in one.getMessage() for one in caplog.records) == 1


def test_writers_wait_for_the_last_of_several_links() -> None:
    async def main(scene: Scene) -> None:
        c = scene.c
        await c.quotas.hold_back(LINK, ["s", "a"])
        await c.quotas.hold_back(OTHER, ["s"])
        assert c.quotas.quotas.full == {"a", "s"}
        await scene.bound.let_go()
        assert c.quotas.quotas.full == {"s"}
        await c.quotas.hold_back(OTHER, ())
        assert not c.quotas.quotas

    with_scene(HoldOverflow.THROTTLE, main)


def test_writers_are_let_go_when_the_link_holds_nothing_any_more() -> None:
    async def main(scene: Scene) -> None:
        await scene.c.quotas.hold_back(LINK, ["s"])
        changed = HoldBound(link(HoldOverflow.THROTTLE, 0), scene.holds, scene.c.quotas, scene.world.env.clock)
        await changed.check()
        assert not scene.c.quotas.quotas

    with_scene(HoldOverflow.THROTTLE, main)


def test_the_oldest_bytes_are_given_up_and_retention_takes_them(caplog: pytest.LogCaptureFixture) -> None:
    async def main(scene: Scene) -> None:
        world, c = scene.world, scene.c
        small = StreamName("s", "small")
        await c.streams.create(small, StreamConfig(ScalingPolicy(min_segments=1), SMALL))
        await scene.holds.hold(LINK, "up", "s", {STREAM: {0: 0}, small: {0: 0}})
        world.segments.append(small.segment(SegmentId(0, 0)), "x", 300)
        for _ in range(20):
            world.segments.append(segment(0), "x", 100)
            world.pass_time(60)
            await c.maintenance.run_retention_round()
        assert world.segments.segments[segment(0)].start == 0
        await scene.check()
        assert not c.quotas.quotas  # nobody waits
        assert await scene.held(small) == [{0: 0}]
        assert await scene.held() == [{0: 1400}]  # 300 + 600 are left of 1000
        assert await scene.holds.bytes_of(LINK) == 900
        world.pass_time(60)
        await c.maintenance.run_retention_round()
        assert 0 < world.segments.segments[segment(0)].start <= 1400
        # The copier does not hold again what was given up, before it is past it.
        assert scene.bound.is_given_up(STREAM, {0: 700})
        assert not scene.bound.is_given_up(small, {0: 0})
        assert not scene.bound.is_given_up(STREAM, {0: 1400})
        assert not scene.bound.is_given_up(STREAM, {0: 1300})
        for _ in range(3):
            world.segments.append(segment(0), "x", 500)
            await scene.check()
        assert await scene.holds.bytes_of(LINK) <= 1000

    with caplog.at_level(logging.WARNING):
        with_scene(HoldOverflow.DROP, main)
    assert sum("bytes are held for it" in one.getMessage() for one in caplog.records) == 1


def test_earlier_epochs_are_given_up_first() -> None:
    async def main(scene: Scene) -> None:
        ids = [SegmentId(0, 0).packed, SegmentId(0, 1).packed]
        await scene.holds.hold(LINK, "up", "s", {STREAM: {ids[0]: 0, ids[1]: 0}})
        scene.world.segments.append(segment(0), "x", 800)
        scene.world.segments.append(segment(1), "x", 800)
        await scene.c.streams.scale(STREAM, [ids[1]], halves(0.5, 1.0))
        scene.world.segments.append(segment(2, 1), "x", 400)
        await scene.check()
        (cut,) = await scene.held()
        new = [
            s.segment for s in (await scene.c.catalog.require(STREAM)).record.current.segments if s.segment not in ids
        ]
        assert cut == {ids[0]: 0, **dict.fromkeys(new, 0)}
        await scene.check()
        assert await scene.holds.bytes_of(LINK) <= 901
        assert is_before({ids[0]: 0, ids[1]: 0}, {s: 0 for s in new})

    with_scene(HoldOverflow.DROP, main, segments=2)


def test_a_pull_has_no_bound_of_what_its_source_holds() -> None:
    check_settings(link(HoldOverflow.DROP, MIN_HOLD_BYTES).settings)
    check_settings(link(HoldOverflow.THROTTLE, MIN_HOLD_BYTES, LinkDirection.PULL).settings)
    with pytest.raises(Invalid, match="is kept by the source of a link that pushes"):
        check_settings(link(HoldOverflow.DROP, MIN_HOLD_BYTES, LinkDirection.PULL).settings)


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 10_000), max_size=20), st.integers(0, 50_000))
def test_what_goes_is_of_the_largest_streams_and_no_more_than_needed(sizes: dict[str, int], keep: int) -> None:
    names = {StreamName("s", f"n{name}"): size for name, size in sizes.items()}
    gone = to_give_up(names, keep)
    left = {name: size - gone.get(name, 0) for name, size in names.items()}
    assert all(0 < gone[name] <= names[name] for name in gone)
    assert sum(left.values()) <= keep or not gone
    assert sum(left.values()) > keep - max(1, len(gone)) or not gone
    if gone:
        level = max(left.values())
        assert {left[name] for name in gone} == {level}
