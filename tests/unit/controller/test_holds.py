"""What links hold of streams stays, whatever the retention policy or a user's truncation says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sarit.controller import keys
from sarit.controller.hold_records import Hold, decode_hold, encode_hold, holds_of
from sarit.controller.holds import Holds
from sarit.controller.limits import MAX_HOLDS_OF_STREAM
from sarit.core.errors import Conflict, Corrupt, Invalid, NotFound
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, halves, run, segment

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller

LINK, OTHER = b"l" * 16, b"o" * 16
# Retains 100 bytes, and never more than 150.
STRICT = RetentionPolicy(RetentionType.SIZE, 100, 150)


async def started(segments: int = 1, retention: RetentionPolicy | None = None) -> tuple[World, Controller, Holds]:
    world = World()
    c = await world.controller()
    await c.scopes.create("s")
    await c.streams.create(STREAM, StreamConfig(ScalingPolicy(min_segments=segments), retention or RetentionPolicy()))
    return world, c, Holds(c.catalog, c.segments, world.env.clock)


def sid(number: int, epoch: int = 0) -> int:
    return SegmentId(epoch, number).packed


async def held(c: Controller) -> list[dict[int, int]]:
    return [hold.cut for hold in await holds_of(c.catalog, STREAM)]


async def pass_by(world: World, c: Controller, length: int, name: str = segment(0)) -> None:
    world.segments.append(name, "x", length)
    world.pass_time(60)
    await c.maintenance.run_retention_round()


def test_the_bytes_of_a_hold() -> None:
    hold = Hold("up", {0: 7}, 5)
    assert encode_hold(hold).hex() == "0100027570050100000000000000000000000000000007"
    assert decode_hold(encode_hold(hold)) == hold
    for bad in (b"", b"\2" + encode_hold(hold)[1:], encode_hold(hold)[:-1], encode_hold(hold) + b"\0"):
        with pytest.raises(Corrupt):
            decode_hold(bad)


def test_retention_waits_for_a_link_beyond_its_maximum() -> None:
    async def main() -> None:
        world, c, holds = await started(1, STRICT)
        await holds.hold(LINK, "up", "s", {STREAM: {0: 20}})
        await holds.hold(OTHER, "down", "s", {STREAM: {0: 90}})
        for _ in range(8):
            await pass_by(world, c, 50)
        assert world.segments.segments[segment(0)].start == 20
        await holds.hold(LINK, "up", "s", {STREAM: {0: 130}})
        await pass_by(world, c, 50)
        assert world.segments.segments[segment(0)].start == 90
        await holds.hold(OTHER, "down", "s", {STREAM: {}})
        await holds.drop(LINK)
        assert await held(c) == []
        await pass_by(world, c, 50)
        assert world.segments.segments[segment(0)].start >= 350
        world.check()

    run(main())


def test_retention_stops_where_a_hold_and_its_cut_overlap() -> None:
    async def main() -> None:
        world, c, holds = await started(2, STRICT)
        await holds.hold(LINK, "up", "s", {STREAM: {sid(0): 40, sid(1): 0}})
        for _ in range(4):
            await pass_by(world, c, 50)
        await c.streams.scale(STREAM, [sid(1)], halves(0.5, 1.0))
        for _ in range(8):
            await pass_by(world, c, 50, segment(2, 1))
        # What goes is of segment 0 alone: segment 1 is held from its beginning.
        assert world.segments.segments[segment(0)].start == 40
        assert segment(1) in world.segments.segments
        assert world.segments.segments[segment(2, 1)].start == 0
        world.check()

    run(main())


def test_a_truncation_beyond_a_hold_is_refused() -> None:
    async def main() -> None:
        world, c, holds = await started()
        world.segments.append(segment(0), "x", 100)
        await holds.hold(LINK, "up", "s", {STREAM: {0: 50}})
        with pytest.raises(Conflict, match="the link up has not copied"):
            await c.streams.truncate(STREAM, {0: 51})
        assert world.segments.segments[segment(0)].start == 0
        await c.streams.truncate(STREAM, {0: 50})
        assert world.segments.segments[segment(0)].start == 50
        # A hold that is no cut of the stream holds all of it.
        await holds.hold(LINK, "up", "s", {STREAM: {sid(9, 9): 0}})
        with pytest.raises(Conflict):
            await c.streams.truncate(STREAM, {0: 60})
        await holds.hold(LINK, "up", "s", {STREAM: {}})
        await c.streams.truncate(STREAM, {0: 60})

    run(main())


def test_a_truncation_that_was_decided_before_the_first_hold_asks_again() -> None:
    async def main() -> None:
        world, c, holds = await started()
        world.segments.append(segment(0), "x", 100)
        calls = []

        async def meanwhile() -> bool:
            if not calls:
                await holds.hold(LINK, "up", "s", {STREAM: {0: 10}})
            calls.append(1)
            return True

        with pytest.raises(Conflict, match="the link up"):
            await c.streams.truncate(STREAM, {0: 60}, meanwhile)
        assert len(calls) == 1
        assert world.segments.segments[segment(0)].start == 0

    run(main())


def test_a_hold_of_a_part_is_filled_from_the_head() -> None:
    async def main() -> None:
        world, c, holds = await started(2)
        for number in range(2):
            world.segments.append(segment(number), "x", 100)
        await c.streams.truncate(STREAM, {0: 0, 1: 70})
        for asked, stored in (
            ({0: 30}, {0: 30, 1: 70}),
            ({0: 30, 1: 80}, {0: 30, 1: 80}),
            ({-1: 3}, {0: 0, 1: 70}),
            ({0: -1, 1: 5}, {0: 0, 1: 70}),
            ({5: 1}, {0: 0, 1: 70}),
        ):
            await holds.hold(LINK, "up", "s", {STREAM: asked})
            assert await held(c) == [stored]

    run(main())


def test_holds_go_with_their_stream_and_are_written_in_batches() -> None:
    async def main() -> None:
        world, c, holds = await started()
        names = [StreamName("s", f"n{number}") for number in range(3)]
        for name in names:
            await c.streams.create(name, StreamConfig())
        gone = StreamName("s", "gone")
        faults = Faults()
        world.arm(faults)
        await holds.hold(LINK, "up", "s", {name: {0: 0} for name in (*names, gone)})
        assert sum(call.startswith("tables.update") for call in faults.calls) == 1
        faults.calls.clear()
        await holds.hold(LINK, "up", "s", {name: {0: 0} for name in names})
        assert not any(call.startswith("tables.update") for call in faults.calls)
        await holds.hold(LINK, "up", "nowhere", {StreamName("nowhere", "x"): {0: 0}})
        await c.streams.seal(names[0])
        await c.streams.delete(names[0])
        await c.streams.create(names[0], StreamConfig())
        assert await holds_of(c.catalog, names[0]) == []
        assert await holds_of(c.catalog, gone) == []
        world.check()
        await holds.drop(LINK)
        for name in names:
            assert await holds_of(c.catalog, name) == []

    run(main())


def test_a_stream_that_changes_meanwhile_is_held_nevertheless() -> None:
    async def main() -> None:
        world, c, holds = await started()
        other = StreamName("s", "other")
        await c.streams.create(other, StreamConfig())
        (record,) = await c.catalog.get("s", [keys.stream_key("t")])
        assert record is not None
        faults = Faults()
        changes = []

        def change(_: int, call: str) -> None:
            if call.startswith("tables.update") and len(changes) < 3:
                changes.append(call)
                table = world.tables.tables[keys.scope_table("s", incarnation)]
                now = table[keys.stream_key("t")]
                table[keys.stream_key("t")] = type(now)(now.value, now.version + 1000)

        found = await c.catalog.scope("s")
        assert found is not None
        incarnation = found[0].incarnation
        faults.before = change
        world.arm(faults)
        await holds.hold(LINK, "up", "s", {STREAM: {0: 0}, other: {0: 0}})
        assert await held(c) == [{0: 0}]
        assert len(await holds_of(c.catalog, other)) == 1

    run(main())


def test_too_many_links_cannot_hold_a_stream() -> None:
    async def main() -> None:
        _, c, holds = await started()
        for number in range(MAX_HOLDS_OF_STREAM):
            await holds.hold(bytes([number]) * 16, "up", "s", {STREAM: {0: 0}})
        with pytest.raises(Invalid, match="limit"):
            await holds.hold(b"x" * 16, "up", "s", {STREAM: {0: 0}})
        await holds.hold(bytes(16), "up", "s", {STREAM: {0: 0}})
        assert len(await held(c)) == MAX_HOLDS_OF_STREAM

    run(main())


def test_how_much_a_link_holds() -> None:
    async def main() -> None:
        world, c, holds = await started(2)
        for number in range(2):
            world.segments.append(segment(number), "x", 100)
        await c.streams.scale(STREAM, [sid(1)], halves(0.5, 1.0))
        world.segments.append(segment(2, 1), "x", 7)
        assert await holds.bytes_of(LINK) == 0
        await holds.hold(LINK, "up", "s", {STREAM: {0: 90, 1: 40}})
        assert await holds.bytes_of(LINK) == 10 + 60 + 7
        assert await holds.bytes_of(OTHER) == 0
        await holds.hold(LINK, "up", "s", {STREAM: {0: 100, sid(2, 1): 7, sid(3, 1): 0}})
        assert await holds.bytes_of(LINK) == 0
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
        assert await holds.bytes_of(LINK) == 0
        with pytest.raises(NotFound):
            await c.catalog.require(STREAM)

    run(main())
