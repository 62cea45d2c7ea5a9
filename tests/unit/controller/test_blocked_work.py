"""Background work that waits for free space, or for a store, does not block the work that frees space."""

from __future__ import annotations

import asyncio

import pytest

from sarit.controller import keys, runner
from sarit.controller.background import maintenance, recovery_sweeper
from sarit.controller.limits import RESTART_LEASE_GRACE_MS
from sarit.controller.model.records import TxnState
from sarit.controller.transactions import transactions
from sarit.core.errors import Unavailable
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.limits import HANG_SECONDS
from tests.unit.controller.world import STREAM, World, config, quiet, run

LEASE = 10_000
NAMES = [StreamName("s", f"a{number}") for number in range(5)]
STUCK, BROKEN = NAMES[0], NAMES[1]


def waiting(owner, name, done):
    """A method that waits for ever for STUCK, fails for BROKEN, and records the others."""

    async def call(stream):
        if stream == STUCK:
            await asyncio.Event().wait()
        if stream == BROKEN:
            raise Unavailable("no free space")
        done.append(stream)
        return True

    setattr(owner, name, call)


async def turns(count=300):
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_pending_entries_complete_despite_blocked_and_failing_ones():
    async def main():
        world = World()
        c = await world.controller()
        for name in NAMES:
            await c.catalog.index_pending(keys.pending_stream_key(name))
        await c.recovery_sweeper.sweep()
        world.pass_time(recovery_sweeper.RECOVERY_GRACE_SECONDS)
        done = []
        waiting(c.streams, "recover", done)
        sweep = asyncio.ensure_future(c.recovery_sweeper.sweep())
        await turns()
        assert done == NAMES[2:], "in their order"
        assert [key for key, _ in await c.catalog.pending_work()] == [
            keys.pending_stream_key(STUCK),
            keys.pending_stream_key(BROKEN),
        ]
        await cancelled(sweep)

    run(main())


def test_transactions_expire_while_other_pending_work_is_blocked(monkeypatch):
    """The first sweep is stuck when the lease of the transaction is over."""
    monkeypatch.setattr(recovery_sweeper, "RECOVERY_SWEEP_SECONDS", 0)

    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        await c.streams.create(STREAM, config(1))
        txn, _ = await c.transactions.create(STREAM, LEASE)
        await c.catalog.index_pending(keys.pending_stream_key(STUCK))
        done = []
        waiting(c.streams, "recover", done)
        sweeping = asyncio.ensure_future(c.recovery_sweeper.run())
        await turns()
        world.pass_time(recovery_sweeper.RECOVERY_GRACE_SECONDS)
        await turns()
        assert await c.transactions.state(STREAM, txn) is TxnState.OPEN
        world.pass_time(RESTART_LEASE_GRACE_MS / 1000)
        await turns()
        await quiet(c)
        assert await c.transactions.state(STREAM, txn) is TxnState.ABORTED
        await cancelled(sweeping)

    run(main())


def test_retention_continues_despite_blocked_and_failing_streams():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        retention = RetentionPolicy(RetentionType.TIME, 100_000, 0)
        for name in NAMES:
            await c.streams.create(name, StreamConfig(ScalingPolicy(min_segments=1), retention=retention))
        done = []
        waiting(c.retention, "apply", done)
        find = c.catalog.find

        async def finding(name):
            if name == NAMES[2]:
                raise Unavailable("its container recovers")
            return await find(name)

        c.catalog.find = finding
        world.pass_time(maintenance.RECOVERY_GRACE_SECONDS)
        round_ = asyncio.ensure_future(c.maintenance.run_retention_round())
        await turns()
        assert done == NAMES[3:], "in their order"
        await cancelled(round_)

    run(main())


def test_blocked_stream_does_not_block_calls_on_others(monkeypatch):
    monkeypatch.setattr(transactions, "MAX_CALLS_PER_NAME", 2)

    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        await c.streams.create(STREAM, config(1))
        txn, _ = await c.transactions.create(STREAM, LEASE)
        there, right = asyncio.Event(), c.transactions.workers._complete_batch

        async def stuck(*arguments):
            await there.wait()
            return await right(*arguments)

        c.transactions.workers._complete_batch = stuck
        await c.transactions.commit(STREAM, txn, "", 1)
        asked = [asyncio.ensure_future(c.transactions.outcome(STREAM, txn, 30)) for _ in range(2)]
        await turns()
        async with asyncio.timeout(HANG_SECONDS):
            assert await c.transactions.outcome(STREAM, txn, 30) is TxnState.COMMITTING
            there.set()
            assert await asyncio.gather(*asked) == [TxnState.COMMITTED] * 2
        await quiet(c)

    run(main())


def test_calls_waiting_for_one_name_are_bounded(monkeypatch):
    monkeypatch.setattr(runner, "MAX_CALLS_PER_NAME", 2)

    async def main():
        held = runner.KeyedLocks()
        got = []

        async def call():
            async with held.hold(STREAM):
                got.append(STREAM)

        async with held.hold(STREAM):
            second = asyncio.ensure_future(call())
            await turns(1)
            with pytest.raises(Unavailable, match="try again"):
                await call()
            async with held.hold(STUCK):
                pass
        await second
        await call()
        assert len(got) == 2
        assert repr(held) == "<KeyedLocks 0 held>"

    run(main())
