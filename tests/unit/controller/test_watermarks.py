"""Watermarks: from writers' notes to the mark stream, on fakes with a clock that the test advances."""

from __future__ import annotations

import asyncio

import pytest

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import WriterRecord
from sarit.controller.model.watermarks import MARK_ATTRIBUTE, decode, last_entry
from sarit.controller.writers import UnknownWriter
from sarit.core.errors import NotFound
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import ScalingPolicy, StreamConfig
from tests.unit.controller.world import STREAM, World, halves, quiet, run, segment, stream_with

MARKS = StreamName("s", "_MARKt")
MARK_SEGMENT = segment(0, name=MARKS)


def marks(world):
    """(lower, upper, cut) of every mark written."""
    out = []
    for what, _ in world.segments.segments[MARK_SEGMENT].parts:
        mark = decode(bytes.fromhex(what)[8:])
        out.append((mark.lower, mark.upper, {s.segment: offset for s, offset in mark.cut}))
    return out


async def run_round(world, c, seconds=10.0):
    world.pass_time(seconds)
    await c.maintenance.run_watermark_round()


def test_watermark_follows_the_slowest_writer():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 1)
        await run_round(world, c)
        await c.writers.note(STREAM, "a", 10, {0: 5})
        await c.writers.note(STREAM, "b", 7, {0: 9})
        await run_round(world, c)
        assert marks(world) == [(7, 10, {0: 9})]
        await c.writers.note(STREAM, "a", 20, {0: 50})
        await run_round(world, c)
        assert len(marks(world)) == 1
        await c.writers.note(STREAM, "b", 15, {0: 40})
        await run_round(world, c)
        await run_round(world, c)
        assert marks(world)[1:] == [(15, 20, {0: 50})]
        world.check()

    run(main())


def test_idle_writer_is_removed_after_timeout():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        await c.streams.create(STREAM, StreamConfig(ScalingPolicy(), timestamp_aggregation_ms=25_000))
        await c.writers.note(STREAM, "a", 1, {0: 1})
        await c.writers.note(STREAM, "b", 1, {0: 1})
        await run_round(world, c)
        for time in (2, 3, 4, 5):
            await c.writers.note(STREAM, "a", time, {0: time})
            await run_round(world, c)
        # b was found first at 10 s: at the round at 40 s it was idle for 30 s.
        assert [mark[0] for mark in marks(world)] == [1, 4, 5]
        rows = await c.catalog.stream_records(STREAM, keys.WRITERS)
        assert [key[-1:] for key, _ in rows] == [b"a"]
        await c.writers.note(STREAM, "b", 1, {0: 1})  # it is back with an earlier time: watermarks wait for it again
        await c.writers.note(STREAM, "a", 6, {0: 6})
        await run_round(world, c)
        assert len(marks(world)) == 3

    run(main())


def test_writer_that_repeats_its_note_is_not_idle():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        await c.streams.create(STREAM, StreamConfig(ScalingPolicy(), timestamp_aggregation_ms=25_000))
        for time in (1, 2, 3, 4, 5):
            await c.writers.note(STREAM, "a", time, {0: time})
            await c.writers.note(STREAM, "b", 1, {0: 1})
            await run_round(world, c)
        assert [mark[0] for mark in marks(world)] == [1]

    run(main())


def test_the_attribute_names_where_the_newest_begins():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 1)
        for time in (1, 2, 3):
            await c.writers.note(STREAM, "a", time, {0: time})
            await run_round(world, c)
        stored = world.segments.segments[MARK_SEGMENT]
        raw = b"".join(bytes.fromhex(what) for what, _ in stored.parts)
        begin = stored.attributes[MARK_ATTRIBUTE]
        assert begin == sum(length for _, length in stored.parts[:2])
        at, newest = last_entry(raw[begin:])
        assert (at, newest.lower) == (0, 3)
        # A controller died before it moved the attribute: the next one continues to read, in small pieces too.
        stored.attributes.clear()
        world.segments.read_bytes = 11
        second = await world.controller()
        await second.writers.note(STREAM, "a", 4, {0: 4})
        await run_round(world, second)
        assert [mark[0] for mark in marks(world)] == [1, 2, 3, 4]

    run(main())


def test_removed_writer_counts_once_more_and_may_return():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 1)
        await c.writers.note(STREAM, "a", 10, {0: 5})
        await c.writers.note(STREAM, "b", 12, {0: 90})
        await c.writers.remove(STREAM, "b")
        await c.writers.remove(STREAM, "b")
        with pytest.raises(UnknownWriter):
            await c.writers.remove(STREAM, "never")
        await run_round(world, c)
        assert marks(world) == [(10, 12, {0: 90})]
        await c.writers.note(STREAM, "a", 20, {0: 95})
        await run_round(world, c)
        await c.writers.note(STREAM, "a", 30, {0: 99})
        await run_round(world, c)
        assert [mark[:2] for mark in marks(world)] == [(10, 12), (12, 20), (30, 30)]
        assert len(await c.catalog.stream_records(STREAM, keys.WRITERS)) == 1
        await c.writers.note(STREAM, "b", 31, {0: 100})
        await c.writers.note(STREAM, "a", 31, {0: 100})
        await run_round(world, c)
        assert marks(world)[-1] == (31, 31, {0: 100})

    run(main())


def test_earlier_position_of_a_returning_writer_counts():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 2)
        await c.writers.note(STREAM, "a", 10, {0: 5, 1: 70})
        await c.writers.remove(STREAM, "a")
        await c.writers.note(STREAM, "a", 11, {0: 8})
        await run_round(world, c)
        assert marks(world) == [(11, 11, {0: 8, 1: 70})]

    run(main())


def test_across_a_scale_and_for_transactions():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 2)
        await c.writers.note(STREAM, "a", 1, {0: 5, 1: 6})
        await run_round(world, c)
        await c.streams.scale(STREAM, [1], halves(0.5, 1.0))
        txn, _ = await c.transactions.create(STREAM, 30_000)
        await c.transactions.commit(STREAM, txn, "b", 9)
        await quiet(c)
        await c.writers.note(STREAM, "a", 8, {0: 7})
        await run_round(world, c)
        lower, upper, cut = marks(world)[-1]
        assert (lower, upper) == (8, 9)
        assert cut == {0: 7, (1 << 32) + 2: 0, (1 << 32) + 3: 0}
        world.check()

    run(main())


def test_the_times_of_transactions_that_span_a_scale():
    """Two transactions of one writer and one of another are rolled in together; others write after them before the
    watermark."""

    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 2)
        await c.writers.note(STREAM, "a", 5, {1: 0})
        txns = []
        for length in (10, 20, 40):
            txn, _ = await c.transactions.create(STREAM, 30_000)
            for number in (0, 1):
                world.segments.append(transaction_segment(segment(number), txn), "x", length)
            txns.append(txn)
        await c.streams.scale(STREAM, [1], halves(0.5, 1.0))
        finish, c.transactions.schedule_completion = c.transactions.schedule_completion, lambda name: None
        for txn, writer, time in zip(txns, ("a", "b", "a"), (7, 9, 8), strict=True):
            await c.transactions.commit(STREAM, txn, writer, time)
        finish(STREAM)
        await quiet(c)
        world.segments.append(segment(0), "later", 500)
        notes = {
            key[-1:]: codec.decode_writer(value.value) for key, value in await c.catalog.stream_records(STREAM, b"w/")
        }
        copy = SegmentId(2, 1).packed
        assert notes == {b"a": WriterRecord(8, {0: 70, copy: 70}), b"b": WriterRecord(9, {0: 30, copy: 30})}
        await run_round(world, c)
        assert [mark[:2] for mark in marks(world)] == [(8, 9)]
        await c.writers.note(STREAM, "a", 10, {0: 70, SegmentId(3, 2).packed: 0, SegmentId(3, 3).packed: 0})
        world.check()

    run(main())


def test_stream_with_notes_stays_in_maintenance_index():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c, 1)
        assert await c.catalog.maintained_streams(keys.WATERMARK_INDEX) == []
        await c.writers.note(STREAM, "a", 1, {0: 1})
        await run_round(world, c)
        await c.writers.remove(STREAM, "a")
        for _ in range(2):
            await run_round(world, c)
        assert len(await c.catalog.maintained_streams(keys.WATERMARK_INDEX)) == 1
        await run_round(world, c)
        assert await c.catalog.maintained_streams(keys.WATERMARK_INDEX) == []
        await c.writers.note(STREAM, "a", 2, {0: 1})
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
        for _ in range(3):
            await run_round(world, c)
        assert await c.catalog.maintained_streams(keys.WATERMARK_INDEX) == []
        with pytest.raises(NotFound):
            await c.writers.note(STREAM, "a", 3, {0: 1})
        assert not [key for key in world.scopes()["s"] if b"/t/" in key]

    run(main())


def test_two_controllers_write_each_mark_once():
    async def main():
        world = World()
        first, second = await world.controller(), await world.controller()
        await stream_with(first, 1)
        for time in range(1, 20):
            await first.writers.note(STREAM, "a", time, {0: time})
            world.pass_time(10)
            await asyncio.gather(first.maintenance.run_watermark_round(), second.maintenance.run_watermark_round())
        lowers = [mark[0] for mark in marks(world)]
        assert lowers == sorted(set(lowers))
        assert lowers[-1] == 19

    run(main())
