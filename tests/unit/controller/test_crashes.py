"""A controller dies at every call it makes, before and after the call takes effect; another one finishes.

Each operation runs once without a fault, which gives the expected result.  Then it runs in fresh worlds, and its
controller dies at the first call, the second, and so on.  A second controller sweeps: after that nothing is half done
and all invariants hold.  The caller, which got no reply, repeats its call.  The result must be the expected one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sarit.controller import keys
from sarit.controller.limits import RESTART_LEASE_GRACE_MS
from sarit.controller.model.records import GroupRecord, State, TableRecord, TxnState
from sarit.controller.model.transactions import TooOld
from sarit.core.errors import Conflict, Exists, NotFound
from sarit.core.keyspace import KeyRange
from sarit.core.metering import Rates
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig
from tests.unit.controller.fakes import Crash, Faults, crash_at
from tests.unit.controller.world import STREAM, World, config, halves, quiet, run, segment, stream_with

LEASE = 30_000
BY_SIZE = RetentionPolicy(RetentionType.SIZE, 10)


def group(generation=0, retention=2, streams=(STREAM,)):
    starts = tuple((name, ()) for name in streams)
    return GroupRecord(State.CREATING, "id", generation, 1, 2, 3, retention, 4, starts, starts)


class Operation:
    """Make the world, then execute the operation; `again` is its repetition by the caller."""

    def __init__(self, prepare, act, tolerated=()):
        self.prepare, self.act, self.tolerated = prepare, act, tolerated


async def nothing(c, w):
    return None


async def scope(c, w):
    await c.scopes.create("s")


async def stream(c, w):
    await stream_with(c, 2, ("a", "b"))
    w.segments.append(segment(0), "x")
    w.segments.append(segment(1), "y")


async def scaled_stream(c, w):
    await stream(c, w)
    await c.streams.scale(STREAM, [1], halves(0.5, 1.0))
    w.segments.append(segment(2, 1), "z")


async def sealed_stream(c, w):
    await scaled_stream(c, w)
    await c.writers.note(STREAM, "w", 1, {0: 1})
    await c.streams.seal(STREAM)


async def full_scope(c, w):
    await scaled_stream(c, w)
    await c.groups.create("s", "g", group())
    await c.tables.create("s", "k", TableRecord(State.CREATING, 0, 2, 4, 4, 0, 0))
    await c.streams.create(StreamName("s", "u"), config(1))


async def empty_scope(c, w):
    await sealed_stream(c, w)
    await c.streams.delete(STREAM)


async def with_transaction(c, w, lease_ms=LEASE):
    await stream(c, w)
    await begin(c, w, "txn", lease_ms)


async def with_past_transaction(c, w):
    await with_transaction(c, w)
    await c.streams.scale(STREAM, [1], halves(0.5, 1.0))


async def with_many_transactions(c, w):
    """Transactions: one of a past epoch to commit, one to commit, one open."""
    await with_past_transaction(c, w)
    await begin(c, w, "decided")
    await begin(c, w, "open")
    c.transactions.schedule_completion = lambda name: None
    await c.transactions.commit(STREAM, w.txns[0], "", 1)
    await c.transactions.commit(STREAM, w.txns[1], "", 1)


async def begin(c, w, what, lease_ms=LEASE):
    txn, segments = await c.transactions.create(STREAM, lease_ms)
    for s in segments:
        part = transaction_segment(STREAM.segment(SegmentId.unpack(s.segment)), txn)
        w.segments.append(part, what)
    w.txns = [*getattr(w, "txns", []), txn]
    return txn


async def commit(c, w):
    await c.transactions.commit(STREAM, w.txns[0], "writer", 7)
    await quiet(c)


async def abort(c, w):
    await c.transactions.abort(STREAM, w.txns[0])
    await quiet(c)


async def update_group(c, w):
    other = StreamName("s", "u")
    await c.groups.update("s", "g", group(0, 1, (other,)))


async def group_and_stream(c, w):
    await stream(c, w)
    await c.streams.create(StreamName("s", "u"), config(1))
    await c.groups.create("s", "g", group())


async def truncate(c, w):
    await c.streams.truncate(STREAM, {0: 5, SegmentId(1, 2).packed: 3, SegmentId(1, 3).packed: 0})


def busy(*events):
    """Rates of segments 0, 1, ... of the first epoch, old enough for any decision."""
    return {segment(at): Rates((rate,) * 4, (rate,) * 4, 1e6) for at, rate in enumerate(events)}


async def scaling_stream(c, w, *events):
    await c.scopes.create("s")
    await c.streams.create(STREAM, StreamConfig(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 4, 1)))
    await c.streams.scale(STREAM, [0], KeyRange(0.0, 1.0).split_evenly(3))
    w.segments.measured = {segment(at + 1, 1): rates for at, rates in enumerate(busy(*events).values())}


async def kept_stream(c, w):
    """Retention has a stream to truncate, a cut to take, and cuts to remove."""
    await c.scopes.create("s")
    await c.streams.create(STREAM, StreamConfig(retention=BY_SIZE))
    for seconds in (60, 60):
        w.segments.append(segment(0), "x")
        w.pass_time(seconds)
        await c.retention.apply(STREAM)
    await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
    w.segments.append(segment(2, 1), "y")
    w.pass_time(60)


async def retain(c, w):
    """Run retention until it finds nothing to do: a round may leave cuts before the new head to the next."""
    for _ in range(3):
        await c.retention.apply(STREAM)


async def noted_stream(c, w):
    """A watermark is due, and a writer is to be removed."""
    await stream(c, w)
    for writer in ("a", "b"):
        await c.writers.note(STREAM, writer, 1, {0: 1})
    await c.watermarks.advance(STREAM)
    await c.writers.note(STREAM, "a", 2, {0: 2})
    await c.writers.remove(STREAM, "b")


OPERATIONS = {
    "split by rate": Operation(
        lambda c, w: scaling_stream(c, w, 500, 1, 60), lambda c, w: c.autoscale.evaluate(segment(1, 1))
    ),
    "merge by rate": Operation(
        lambda c, w: scaling_stream(c, w, 1, 1, 60), lambda c, w: c.autoscale.evaluate(segment(1, 1))
    ),
    "retention": Operation(kept_stream, retain),
    "give a policy": Operation(
        stream, lambda c, w: c.streams.update(STREAM, StreamConfig(ScalingPolicy(min_segments=2), BY_SIZE, ("b",)))
    ),
    "watermark": Operation(noted_stream, lambda c, w: c.watermarks.advance(STREAM)),
    "note a time": Operation(noted_stream, lambda c, w: c.writers.note(STREAM, "a", 3, {0: 3})),
    "remove a writer": Operation(noted_stream, lambda c, w: c.writers.remove(STREAM, "a")),
    "create scope": Operation(nothing, lambda c, w: c.scopes.create("s"), Exists),
    "delete scope": Operation(empty_scope, lambda c, w: c.scopes.delete("s"), NotFound),
    "delete scope with all in it": Operation(full_scope, lambda c, w: c.scopes.delete_recursive("s"), NotFound),
    "create stream": Operation(scope, lambda c, w: c.streams.create(STREAM, config(3, ("a",))), Exists),
    "create stream again": Operation(empty_scope, lambda c, w: c.streams.create(STREAM, config(3)), Exists),
    "change tags": Operation(stream, lambda c, w: c.streams.update(STREAM, config(2, ("b", "c")))),
    "change the number of segments": Operation(stream, lambda c, w: c.streams.update(STREAM, config(3))),
    "scale": Operation(stream, lambda c, w: c.streams.scale(STREAM, [0, 1], [KeyRange(0.0, 0.3), KeyRange(0.3, 1.0)])),
    "truncate": Operation(scaled_stream, truncate),
    "seal": Operation(scaled_stream, lambda c, w: c.streams.seal(STREAM)),
    "delete stream": Operation(sealed_stream, lambda c, w: c.streams.delete(STREAM), NotFound),
    "create group": Operation(stream, lambda c, w: c.groups.create("s", "g", group())),
    "update group": Operation(group_and_stream, update_group, Conflict),
    "delete group": Operation(group_and_stream, lambda c, w: c.groups.delete("s", "g", "id"), NotFound),
    "create table": Operation(
        scope, lambda c, w: c.tables.create("s", "k", TableRecord(State.CREATING, 0, 2, 4, 4, 0, 0)), Exists
    ),
    "delete table": Operation(full_scope, lambda c, w: c.tables.delete("s", "k"), NotFound),
    "commit": Operation(with_transaction, commit),
    "commit of a past epoch": Operation(with_past_transaction, commit),
    "abort": Operation(with_transaction, abort),
    "abort in a past epoch": Operation(with_past_transaction, abort),
    "seal with transactions": Operation(with_many_transactions, lambda c, w: c.streams.seal(STREAM)),
}


async def prepared(operation):
    world = World()
    controller = await world.controller()
    await operation.prepare(controller, world)
    world.arm(Faults())
    return world, controller


async def undisturbed(operation):
    world, controller = await prepared(operation)
    await operation.act(controller, world)
    calls = len(world.tables.faults.calls)
    await world.sweep(controller)
    world.check()
    assert not world.picture()["pending"]
    return calls, world.picture()


async def die_at(operation, call, after):
    world, controller = await prepared(operation)
    world.arm(crash_at(call, after=after))
    died: BaseException | None = None
    try:
        await operation.act(controller, world)
    except BaseException as error:
        died = error
    assert died is None or "Crash" in repr(died), died  # alone or in a group
    for worker in list(controller.transactions.workers._workers.values()):
        with suppress(BaseException):
            await worker.task
    world.arm(Faults())
    second = await world.controller()
    world.check()
    await world.sweep(second)
    world.check()
    assert not world.half_done(), "nobody need ask for it again"
    with suppress(*([operation.tolerated] if operation.tolerated else [])):
        await operation.act(second, world)
    await world.sweep(second)
    world.check()
    return world.picture()


@pytest.mark.parametrize("name", OPERATIONS)
def test_unfinished_work_is_completed_by_the_next_call(name):
    operation = OPERATIONS[name]

    async def main():
        calls, expected = await undisturbed(operation)
        assert calls > 1
        for call in range(1, calls + 1):
            for after in (False, True):
                got = await die_at(operation, call, after)
                assert got == expected, f"died at call {call}, {'after' if after else 'before'} it took effect"

    run(main())


def test_an_open_transaction_of_a_lost_controller_is_aborted_after_its_lease():
    async def main():
        world = World()
        first = await world.controller()
        await with_transaction(first, world)
        second = await world.controller()
        await second.recovery_sweeper.sweep()
        world.pass_time(LEASE / 1000 - 1)
        await second.recovery_sweeper.sweep()
        assert await second.transactions.state(STREAM, world.txns[0]) is TxnState.OPEN
        # A ping to any controller is visible to all.
        await first.transactions.ping(STREAM, world.txns[0], LEASE)
        world.pass_time(2)
        await second.recovery_sweeper.sweep()
        world.pass_time(LEASE / 1000 - 1)
        await second.recovery_sweeper.sweep()
        assert await second.transactions.state(STREAM, world.txns[0]) is TxnState.OPEN
        world.pass_time(1)
        await second.recovery_sweeper.sweep()
        await quiet(second)
        assert await second.transactions.state(STREAM, world.txns[0]) is TxnState.ABORTED
        world.check()

    run(main())


async def restarted(world, seconds):
    """A controller that starts after `seconds`, and sweeps once."""
    world.pass_time(seconds)
    controller = await world.controller()
    await controller.recovery_sweeper.sweep()
    await quiet(controller)
    return controller


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
def test_lease_ends_at_its_stored_deadline_however_often_the_node_restarts(set_back_ms):
    """It began again with each start: restarts every 8 s kept a lease of 10 s open for ever."""

    async def main():
        world = World()
        await with_transaction(await world.controller(), world, 10_000)
        began = world.env.clock.seconds
        world.env.clock.wall_offset_ms -= set_back_ms
        for _ in range(20):
            controller = await restarted(world, 8)
            if await controller.transactions.state(STREAM, world.txns[0]) is TxnState.ABORTED:
                break
        # A lease and one grace, to the next start; a clock that was set back costs another grace at most.
        most = 10 + RESTART_LEASE_GRACE_MS / 1000 * (2 if set_back_ms else 1) + 8
        assert world.env.clock.seconds - began <= most
        world.check()

    run(main())


@pytest.mark.parametrize("jump_ms", [0, 3_600_000, -3_600_000])
def test_writer_whose_lease_ended_while_no_controller_ran_may_still_renew_it(jump_ms):
    async def main():
        world = World()
        await with_transaction(await world.controller(), world, 10_000)
        world.env.clock.wall_offset_ms += jump_ms
        for round_ in range(3):
            controller = await restarted(world, 600)
            world.pass_time(RESTART_LEASE_GRACE_MS / 1000 - 1 if jump_ms >= 0 else 9)
            await controller.recovery_sweeper.sweep()
            renewed = await controller.transactions.ping(STREAM, world.txns[0], 10_000)
            assert renewed is TxnState.OPEN, round_
        for seconds, state in ((9, TxnState.OPEN), (1, TxnState.ABORTED)):
            # The first sweep meets the renewal.
            await controller.recovery_sweeper.sweep()
            world.pass_time(seconds)
            await controller.recovery_sweeper.sweep()
            await quiet(controller)
            assert await controller.transactions.state(STREAM, world.txns[0]) is state

    run(main())


def test_jump_of_the_wall_clock_does_not_end_a_lease_while_the_controller_runs():
    async def main():
        world = World()
        controller = await world.controller()
        await controller.recovery_sweeper.sweep()
        await with_transaction(controller, world, 10_000)
        for jump_ms in (3_600_000, -7_200_000):
            await controller.recovery_sweeper.sweep()
            world.env.clock.wall_offset_ms += jump_ms
            world.pass_time(4.9)
            await controller.recovery_sweeper.sweep()
            assert await controller.transactions.state(STREAM, world.txns[0]) is TxnState.OPEN
        world.pass_time(0.3)
        await controller.recovery_sweeper.sweep()
        await quiet(controller)
        assert await controller.transactions.state(STREAM, world.txns[0]) is TxnState.ABORTED

    run(main())


@pytest.mark.parametrize("jump_ms", [30 * 86_400_000, -30 * 86_400_000])
@pytest.mark.parametrize("restarts", [False, True])
def test_live_writer_renews_its_transaction_whatever_the_wall_clock_does(restarts, jump_ms):
    """A ping after a jump of the wall clock found that the transaction had been open too long, and it was aborted."""

    async def main():
        world = World()
        controller = await world.controller()
        await with_transaction(controller, world, 10_000)
        world.env.clock.wall_offset_ms += jump_ms
        controller = await restarted(world, 5) if restarts else controller
        for _ in range(100):
            world.pass_time(5)
            await controller.recovery_sweeper.sweep()
            assert await controller.transactions.ping(STREAM, world.txns[0], 10_000) is TxnState.OPEN
        world.pass_time(10_000)
        with pytest.raises(TooOld):
            await controller.transactions.ping(STREAM, world.txns[0], 10_000)

    run(main())


def test_the_crash_is_real():
    async def main():
        world, controller = await prepared(OPERATIONS["create stream"])
        world.arm(crash_at(2, after=True))
        with pytest.raises(Crash):
            await controller.streams.create(STREAM, config())
        with pytest.raises(Crash):
            await world.tables.get("x", [])
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize(
    ("what", "entry"),
    [
        ("scale", keys.pending_stream_key(STREAM)),
        ("seal", keys.pending_stream_key(STREAM)),
        ("update group", keys.pending_group_key("s", "g")),
        ("delete group", keys.pending_group_key("s", "g")),
        ("delete table", keys.pending_table_key("s", "k")),
        ("delete scope", keys.pending_scope_key("s")),
    ],
)
def test_entry_that_another_controller_has_written_since_is_not_removed(what, entry):
    """Its work was never completed if it died after storing it: the entry was removed whoever had written it."""

    async def main():
        last, _ = await undisturbed(OPERATIONS[what])
        world, controller = await prepared(OPERATIONS[what])
        other = await world.controller(Faults())

        async def begin_elsewhere(number):
            if number == last:
                await other.catalog.index_pending(entry)

        faults = Faults(gate=begin_elsewhere)
        world.arm(faults)
        await OPERATIONS[what].act(controller, world)
        assert faults.calls[last - 1] == f"tables.update {keys.WORK_TABLE} {entry!r}"
        assert [key for key, _ in await other.catalog.pending_work()] == [entry]
        # The sweeper removes it when its work is complete, or was never stored.
        await world.sweep(other)
        assert await other.catalog.pending_work() == []

    run(main())


def test_stale_pending_entry_is_removed():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        for scope in ("s", "gone"):
            for entry in (
                keys.pending_group_key(scope, "g"),
                keys.pending_table_key(scope, "k"),
                keys.pending_scope_key(scope),
            ):
                await c.catalog.index_pending(entry)
        await world.sweep(c)
        assert await c.catalog.pending_work() == []
        world.check()

    run(main())
