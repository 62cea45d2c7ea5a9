"""Streams on fakes: long histories, successors before seals, truncation, tags, the state after a failed call."""

from __future__ import annotations

import pytest

from sarit.controller import keys
from sarit.controller.model import codec, streams
from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScaleType, ScalingPolicy, StreamConfig
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, config, halves, run, segment, stream_with

EPOCHS = 150


def packed(number, epoch=0):
    return SegmentId(epoch, number).packed


async def scaled_often(page=5):
    """Split and merge the upper half, in turns, more often than one record holds."""
    world = World(page)
    c = await world.controller()
    await stream_with(c)
    everything = {s.segment: s for s in await c.streams.active(STREAM)}
    for at in range(EPOCHS):
        active = await c.streams.active(STREAM)
        upper = [s.segment for s in active if s.low >= 0.5]
        await c.streams.scale(STREAM, upper, halves(0.5, 1.0) if at % 2 == 0 else [KeyRange(0.5, 1.0)])
        everything |= {s.segment: s for s in await c.streams.active(STREAM)}
    return world, c, everything


def test_queries_cross_chunks_of_a_long_history():
    async def main():
        world, c, everything = await scaled_often()
        record = (await c.catalog.require(STREAM)).record
        assert len(record.epochs) <= streams.EPOCHS_PER_CHUNK
        assert record.epochs[0].number > 64
        for number in (0, 1, 63, 64, 65, 100, EPOCHS):
            assert (await c.streams.epoch(STREAM, number)).number == number
        with pytest.raises(NotFound):
            await c.streams.epoch(STREAM, EPOCHS + 1)
        for s in list(everything.values())[1 : 2 * EPOCHS : 7]:
            followers = await c.streams.successors_of(STREAM, s.segment)
            if s not in await c.streams.active(STREAM):
                assert all(s.segment in before for _, before in followers)
                assert {creation_epoch(f.segment) for f, _ in followers} == {creation_epoch(s.segment) + 1}
        # The head is still epoch 0, which is not in the record any more.
        assert streams.head(record) == {packed(0): 0, packed(1): 0}
        tail = {s.segment: 0 for s in record.current.segments}
        assert await c.streams.segments_between(STREAM, {}, tail) == sorted(everything)
        middle = {s.segment: 0 for s in (await c.streams.epoch(STREAM, 70)).segments}
        assert await c.streams.is_cut(STREAM, middle)
        await c.streams.truncate(STREAM, middle)
        expected = {name for s, name in ((s, STREAM.segment(SegmentId.unpack(s))) for s in everything)}
        gone = {STREAM.segment(SegmentId.unpack(s)) for s in everything if creation_epoch(s) < 70 and s not in middle}
        assert set(world.segments.segments) - {segment(0, 0, streams.mark_of(STREAM))} == expected - gone
        with pytest.raises(Invalid):
            await c.streams.truncate(STREAM, {packed(0): 0, packed(1): 0})
        world.check()
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
        assert world.segments.segments == {}
        assert [key for key in world.scopes()["s"] if not key.startswith(keys.NUMBERS)] == []
        highest = max(SegmentId.unpack(s).number for s in everything)
        await c.streams.create(STREAM, config(1))
        assert [SegmentId.unpack(s.segment) for s in await c.streams.active(STREAM)] == [SegmentId(0, highest + 1)]

    run(main())


def test_successors_are_known_before_any_segment_is_sealed():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        other = await world.controller(Faults())
        sealed = []

        def scan_once(number, call):
            if call.startswith("segments.seal"):
                sealed.append(call.split()[1])
                record = codec.decode_stream(world.scopes()["s"][b"s/t"])
                assert packed(2, 1) in known_segments(record.epochs)

        world.arm(Faults(before=scan_once))
        c = await world.controller()
        await c.streams.scale(STREAM, [packed(1)], halves(0.5, 1.0))
        assert sealed == [segment(1)]
        followers = await other.streams.successors_of(STREAM, packed(1))
        assert [f.segment for f, _ in followers] == [packed(2, 1), packed(3, 1)]

    run(main())


def test_repeated_scale_gets_the_same_reply():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        first = await c.streams.scale(STREAM, [packed(1)], halves(0.5, 1.0))
        assert await c.streams.scale(STREAM, [packed(1)], halves(0.5, 1.0)) == first == (0, first[1])
        with pytest.raises(Conflict):
            await c.streams.scale(STREAM, [packed(1)], [KeyRange(0.5, 1.0)])
        assert (await c.catalog.require(STREAM)).record.current.number == 1

    run(main())


def test_update_changes_segments_or_policy():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 2, ("a", "b"))

        async def epoch_after(new):
            await c.streams.update(STREAM, new)
            record = (await c.catalog.require(STREAM)).record
            assert record.config == new
            world.check()
            return record.current.number, len(record.current.segments)

        assert await epoch_after(config(2, ("b", "c"))) == (0, 2)
        assert await c.catalog.page("s", keys.tag_prefix("a"), "") == []
        assert await c.catalog.page("s", keys.tag_prefix("c"), "") == ["t"]
        by_rate = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 1)
        assert await epoch_after(StreamConfig(by_rate)) == (0, 2)
        assert world.segments.segments[segment(0)].policy == (2, 100)
        assert await epoch_after(StreamConfig(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 3))) == (1, 3)
        assert world.segments.segments[segment(2, 1)].policy == (2, 100)
        assert await epoch_after(config(1)) == (2, 1)
        with pytest.raises(Invalid):
            await c.streams.update(STREAM, config(1, ("no\0",)))
        with pytest.raises(Invalid):
            await c.streams.update(STREAM, config(0))
        await c.streams.seal(STREAM)
        with pytest.raises(Sealed):
            await c.streams.update(STREAM, config(1))

    run(main())


def test_a_truncation_says_what_is_wrong():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        world.segments.append(segment(0), "x", 100)
        for cut in ({}, {0: 1}, {0: 101, 1: 0}, {0: -1, 1: 0}, {0: 0, 1: 0, 7: 0}):
            with pytest.raises(Invalid):
                await c.streams.truncate(STREAM, cut)
        await c.streams.truncate(STREAM, {0: 100, 1: 0})
        await c.streams.truncate(STREAM, {0: 100, 1: 0})
        assert world.segments.segments[segment(0)].start == 100
        with pytest.raises(Invalid):
            await c.streams.truncate(STREAM, {0: 99, 1: 0})
        with pytest.raises(NotFound):
            await c.streams.truncate(StreamName("s", "none"), {0: 0})

    run(main())


def test_incomplete_creation_is_completed_by_segment_query():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")

        def refuse(number, call):
            if call.startswith("segments.create"):
                raise Unavailable("not now")

        world.arm(Faults(before=refuse))
        c = await world.controller()
        with pytest.raises(Unavailable):
            await c.streams.create(STREAM, config(2))
        world.arm(Faults())
        c = await world.controller()
        assert await c.catalog.page("s", keys.STREAMS, "") == ["_MARKt", "t"]
        assert len(await c.streams.active(STREAM)) == 2
        world.check()
        with pytest.raises(Exists):
            await c.streams.create(STREAM, config(2))

    run(main())


def test_watermark_stream_gets_its_segment_on_first_query():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        mark = streams.mark_of(STREAM)
        assert not [name for name in world.segments.segments if "_MARK" in name]
        assert len(await c.streams.active(mark)) == 1
        assert segment(0, 0, mark) in world.segments.segments
        # A client that clears a scope seals and deletes it like any other.
        await c.streams.seal(mark)
        await c.streams.delete(mark)
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
        await c.scopes.delete("s")
        assert world.segments.segments == {}

    run(main())


def test_a_stream_that_is_not_sealed_is_not_deleted():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        with pytest.raises(Conflict):
            await c.streams.delete(STREAM)
        with pytest.raises(Exists):
            await c.scopes.delete("s")
        with pytest.raises(NotFound):
            await c.streams.active(StreamName("s", "none"))
        with pytest.raises(NotFound):
            await c.streams.create(StreamName("none", "t"), config())
        with pytest.raises(NotFound):
            await c.streams.successors_of(STREAM, packed(99))

    run(main())


def test_completed_calls_leave_no_memory_per_stream():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        for at in range(300):
            await c.streams.create(StreamName("s", f"t{at}"), config(1))
        assert len(c.catalog.seen._decoded) <= 300
        assert len(c.streams.locks._held) == 0
        c.catalog.seen._decoded.clear()
        assert await c.streams.active(StreamName("s", "t7"))

    run(main())
