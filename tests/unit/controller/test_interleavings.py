"""Changes between two reads of the records by one workflow: the second read must not rely on the first."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import GroupRecord, State, TxnState
from sarit.controller.model.watermarks import decode
from sarit.core.errors import Invalid, SaritError
from sarit.core.names import SegmentId, transaction_segment
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.limits import HANG_SECONDS
from tests.unit.controller.world import STREAM, World, halves, quiet, run, segment, stream_with

LEASE = 10_000


async def prepared(**options):
    world = World(**options)
    c = await world.controller()
    await stream_with(c, 1)
    return world, c


async def retaining():
    world = World()
    c = await world.controller()
    await c.scopes.create("s")
    retention = RetentionPolicy(RetentionType.TIME, 100_000, 0)
    await c.streams.create(STREAM, StreamConfig(ScalingPolicy(min_segments=1), retention=retention))
    return world, c


async def five_rounds(world, c):
    """Cuts a minute apart, with 10 bytes more at each."""
    for number in range(5):
        world.segments.append(segment(0), f"{number}", 10)
        await c.retention.apply(STREAM)
        world.pass_time(60)


def between(owner, name, meanwhile, *, after=False):
    """`meanwhile()` runs before (after) the next call of a method, once."""
    right = getattr(owner, name)

    async def call(*arguments, **options):
        setattr(owner, name, right)
        if after:
            result = await right(*arguments, **options)
            await meanwhile()
            return result
        await meanwhile()
        return await right(*arguments, **options)

    setattr(owner, name, call)


@pytest.mark.parametrize("call", ["stream_records", "find"])
def test_watermark_contains_segments_of_concurrent_notes(call):
    async def main():
        world, c = await prepared()
        world.segments.append(segment(0), "a", 10)
        await c.writers.note(STREAM, "w", 100, {0: 10})
        await c.watermarks.advance(STREAM)

        async def meanwhile():
            world.segments.append(segment(0), "b", 40)
            await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
            world.segments.append(segment(1, 1), "c", 70)
            await c.writers.note(STREAM, "w", 200, {SegmentId(1, 1).packed: 70})

        between(c.catalog, call, meanwhile)
        await c.watermarks.advance(STREAM)
        await c.watermarks.advance(STREAM)
        parts = world.segments.segments["s/_MARKt/0.#epoch.0"].parts
        marks = [decode(bytes.fromhex(what)[8:]) for what, _ in parts]
        assert [mark.lower for mark in marks] == [100, 200]
        cut = {SegmentId.unpack(part.segment): offset for part, offset in marks[1].cut}
        assert cut == {SegmentId(1, 1): 70, SegmentId(1, 2): 0}

    run(main())


def test_reset_group_protects_its_start_from_retention():
    async def main():
        world, c = await retaining()

        def group(start):
            return GroupRecord(State.ACTIVE, "id", 0, 3000, 30_000, 3, 1, 0, ((STREAM, start),), ((STREAM, ()),))

        await c.groups.create("s", "g", group(()))
        await five_rounds(world, c)
        await c.groups.record_cut(STREAM, "s/g", 0, "id", {0: 50})
        assert await c.groups.update("s", "g", group(((0, 20),))) == 1
        world.pass_time(3600)
        world.segments.append(segment(0), "last", 10)
        await c.retention.apply(STREAM)
        assert world.segments.segments[segment(0)].start <= 20
        await c.groups.record_cut(STREAM, "s/g", 1, "id", {0: 40})
        world.pass_time(3600)
        await c.retention.apply(STREAM)
        assert world.segments.segments[segment(0)].start == 40, "what it has released since may go"

    run(main())


@pytest.mark.parametrize("early", [True, False])
def test_group_created_during_retention_keeps_its_start(early):
    """Before it reads the subscribers again, or (with the pending-work entry, written just before the record) after
    that."""

    async def main():
        world, c = await retaining()
        await five_rounds(world, c)
        record = GroupRecord(State.ACTIVE, "id", 0, 3000, 30_000, 3, 1, 0, ((STREAM, ()),), ((STREAM, ()),))
        promised = []

        async def begins():
            await c.groups.create("s", "g", record)
            promised.append(world.segments.segments[segment(0)].start)

        between(*((c.retention, "_tail") if early else (c.catalog, "index_pending")), begins, after=True)
        world.pass_time(3600)
        with suppress(SaritError):
            await c.retention.apply(STREAM)
        await c.retention.apply(STREAM)
        assert promised == [world.segments.segments[segment(0)].start]

    run(main())


def test_commits_do_not_starve_retention():
    async def main():
        world, c = await retaining()
        await five_rounds(world, c)

        async def commits():
            txn, _ = await c.transactions.create(STREAM, LEASE)
            await c.transactions.commit(STREAM, txn, "", 1)
            await quiet(c)

        between(c.retention, "_tail", commits, after=True)
        world.pass_time(3600)
        await c.retention.apply(STREAM)
        assert world.segments.segments[segment(0)].start > 0

    run(main())


def test_transaction_is_not_aborted_after_successful_ping():
    async def main():
        world, c = await prepared()
        txn, _ = await c.transactions.create(STREAM, LEASE)
        await c.recovery_sweeper.sweep()
        world.pass_time(LEASE / 1000)
        outcome = []

        async def ping():
            outcome.append(await c.transactions.ping(STREAM, txn, LEASE))

        between(c.recovery_sweeper, "_find", ping, after=True)
        await c.recovery_sweeper.sweep()
        await quiet(c)
        assert outcome == [TxnState.OPEN]
        assert await c.transactions.state(STREAM, txn) is TxnState.OPEN
        await c.recovery_sweeper.sweep()
        world.pass_time(LEASE / 1000)
        await c.recovery_sweeper.sweep()
        await quiet(c)
        assert await c.transactions.state(STREAM, txn) is TxnState.ABORTED

    run(main())


def test_truncation_at_segments_created_concurrently_is_refused():
    async def main():
        world, c = await prepared()
        world.segments.append(segment(0), "x", 10)
        cut = {SegmentId(1, 1).packed: 100, SegmentId(1, 2).packed: 0}
        between(c.streams, "_check_offsets", lambda: c.streams.scale(STREAM, [0], halves(0.0, 1.0)), after=True)
        with pytest.raises(Invalid):
            await c.streams.truncate(STREAM, cut)
        assert segment(0) in world.segments.segments
        if (await c.streams.epoch(STREAM, 0)).number == 0:
            await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
        await c.streams.truncate(STREAM, {SegmentId(1, 1).packed: 0, SegmentId(1, 2).packed: 0})
        await c.streams.seal(STREAM)
        world.check(orphans=True)

    run(main())


def test_times_of_commits_do_not_go_back():
    async def main():
        world, c = await prepared()
        txns = [(await c.transactions.create(STREAM, LEASE))[0] for _ in range(4)]
        later = c.transactions.schedule_completion
        for txn, time in zip(txns[:2], (50, 40), strict=True):
            await c.transactions.commit(STREAM, txn, "w", time)
            await quiet(c)
        c.transactions.schedule_completion = lambda name: None
        for txn, time in zip(txns[2:], (70, 60), strict=True):  # in one batch
            await c.transactions.commit(STREAM, txn, "w", time)
        (note,) = [
            codec.decode_writer(value.value) for _, value in await c.catalog.stream_records(STREAM, keys.WRITERS)
        ]
        assert note.time == 50
        later(STREAM)
        await quiet(c)
        (note,) = [
            codec.decode_writer(value.value) for _, value in await c.catalog.stream_records(STREAM, keys.WRITERS)
        ]
        assert note.time == 70
        assert world.segments.segments[segment(0)].start == 0

    run(main())


def test_pings_do_not_starve_commits():
    """More transactions than one page holds, one of them pinged between any two pages."""

    async def main():
        world, c = await prepared(page=4)
        txns = [(await c.transactions.create(STREAM, 60_000))[0] for _ in range(6)]
        mine, _ = await c.transactions.create(STREAM, 60_000)
        world.segments.append(transaction_segment(segment(0), mine), "mine")
        right, pinging = c.catalog.tables.scan, False

        async def scan(*arguments):
            nonlocal pinging
            if not pinging:
                pinging = True
                for txn in txns:
                    with suppress(SaritError):
                        await c.transactions.ping(STREAM, txn, 60_000)
                pinging = False
            return await right(*arguments)

        c.catalog.tables.scan = scan
        await c.transactions.commit(STREAM, mine, "", 1)
        await asyncio.wait_for(quiet(c), HANG_SECONDS)
        assert await c.transactions.state(STREAM, mine) is TxnState.COMMITTED
        assert [what for what, _ in world.segments.segments[segment(0)].parts] == ["mine"]

    run(main())


def test_work_that_begins_while_its_entry_is_removed_is_completed():
    async def main():
        world, c = await prepared()
        await c.catalog.index_pending(keys.pending_stream_key(STREAM))  # points at nothing
        await c.recovery_sweeper.sweep()
        world.pass_time(10)

        async def cut_short():
            stuck, right = asyncio.Event(), world.segments.create

            async def create(*_, **__):
                stuck.set()
                await asyncio.sleep(3600)

            world.segments.create = create
            scaling = asyncio.ensure_future(c.streams.scale(STREAM, [0], halves(0.0, 1.0)))
            await stuck.wait()
            scaling.cancel()
            await asyncio.wait([scaling])
            world.segments.create = right

        between(c.streams, "recover", cut_short, after=True)
        await c.recovery_sweeper.sweep()
        assert (await c.catalog.find(STREAM)).record.pending
        for _ in range(2):
            await world.sweep(c)
        assert not (await c.catalog.find(STREAM)).record.pending
        assert len(await c.streams.active(STREAM)) == 2
        assert await c.catalog.pending_work() == []
        world.check(orphans=True)

    run(main())
