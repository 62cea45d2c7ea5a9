"""A controller is suspended for long before one of its calls, and then goes on.

Meanwhile another controller finished its work, deleted the stream, created it again and accepted data for it.
Nothing that the suspended controller still does may harm the new stream: its segments, data, transactions and records.
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress

import pytest

from sarit.controller.model.records import State, TxnState
from sarit.core.errors import Exists, NotFound, SaritError
from sarit.core.names import SegmentId, StreamName, transaction_segment
from tests.unit.controller.fakes import Faults
from tests.unit.controller.test_crashes import (
    LEASE,
    OPERATIONS,
    abort,
    commit,
    empty_scope,
    group,
    group_and_stream,
    scaled_stream,
    scope,
    sealed_stream,
    stream,
    truncate,
    with_past_transaction,
    with_transaction,
)
from tests.unit.controller.world import STREAM, World, config, halves, quiet, run


async def stream_seen(c, world) -> None:
    await stream(c, world)
    assert (await c.catalog.find(STREAM)).record == c.catalog.seen.last(STREAM)


DELAYED = {
    "create": (scope, lambda c, w: c.streams.create(STREAM, config(3, ("a",)))),
    "create again": (empty_scope, lambda c, w: c.streams.create(STREAM, config(3, ("a",)))),
    "update": (stream, lambda c, w: c.streams.update(STREAM, config(3, ("b",)))),
    "scale": (stream, lambda c, w: c.streams.scale(STREAM, [1], halves(0.5, 1.0))),
    "truncate": (scaled_stream, truncate),
    "seal": (scaled_stream, lambda c, w: c.streams.seal(STREAM)),
    "delete": (sealed_stream, lambda c, w: c.streams.delete(STREAM)),
    "commit": (with_transaction, commit),
    "commit of a past epoch": (with_past_transaction, commit),
    "abort": (with_past_transaction, abort),
    "begin": (stream, lambda c, w: c.transactions.create(STREAM, LEASE)),
    "begin by what was read before": (stream_seen, lambda c, w: c.transactions.create(STREAM, LEASE)),
    **{
        name: (OPERATIONS[name].prepare, OPERATIONS[name].act)
        for name in (
            "split by rate",
            "merge by rate",
            "retention",
            "give a policy",
            "watermark",
            "note a time",
            "remove a writer",
        )
    },
    "delete scope": (empty_scope, lambda c, w: c.scopes.delete("s")),
}


class DelayedCall:
    """Delays one call until it is released."""

    def __init__(self, call: int) -> None:
        self.call = call
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    async def gate(self, number: int) -> None:
        if number == self.call:
            self.reached.set()
            await self.released.wait()


async def recreate_stream(c, world) -> int:
    """Delete the stream and create it again, as users do; a transaction is open on the new one."""
    with suppress(SaritError):
        await c.scopes.create("s")
    await world.sweep(c, LEASE / 1000)
    with suppress(NotFound):
        await c.streams.seal(STREAM)
        await c.streams.delete(STREAM)
    await c.streams.create(STREAM, config(2, ("new",)))
    for s in await c.streams.active(STREAM):
        world.segments.append(STREAM.segment(SegmentId.unpack(s.segment)), "precious")
    txn, segments = await c.transactions.create(STREAM, LEASE)
    for s in segments:
        part = transaction_segment(STREAM.segment(SegmentId.unpack(s.segment)), txn)
        world.segments.append(part, "precious too")
    return txn


async def run_delayed_at(name: str, call: int) -> bool:
    """One run; False when the operation has no such call."""
    prepare, act = DELAYED[name]
    world = World()
    delay, faults = DelayedCall(call), Faults()
    first = await world.controller(faults)
    await prepare(first, world)
    faults.calls.clear()
    faults.gate = delay.gate
    delayed = asyncio.ensure_future(act(first, world))
    waiter = asyncio.ensure_future(delay.reached.wait())
    await asyncio.wait([delayed, waiter], return_when=asyncio.FIRST_COMPLETED)
    if not delay.reached.is_set():
        waiter.cancel()
        return False
    second = await world.controller()
    txn = await recreate_stream(second, world)
    delay.released.set()
    with suppress(SaritError):
        outcome = await delayed
        if name.startswith("begin"):  # a caller that got a transaction can use it
            assert {s.segment for s in outcome[1]} <= (await second.streams.epoch(STREAM, 0)).ids
    await quiet(first)
    for controller in (first, second):
        await controller.recovery_sweeper.sweep()
    await check_the_new(second, world, txn)
    return True


async def check_the_new(c, world, txn) -> None:
    record = (await c.catalog.require(STREAM)).record
    if record.state is State.SEALED:  # the suspended controller was asked to, and had not read the stream yet
        world.check(orphans=True)
        return
    assert len(await c.streams.active(StreamName("s", "_MARKt"))) == 1
    tagged = await c.catalog.page("s", b"t/" + record.config.tags[0].encode() + b"\0", "")
    assert tagged == [STREAM.stream]
    everything = [what for s in world.segments.segments.values() for what, _ in s.parts]
    epoch = await c.streams.epoch(STREAM, 0)
    assert everything.count("precious") == everything.count("precious too") == len(epoch.segments)
    assert await c.transactions.state(STREAM, txn) is TxnState.OPEN
    await c.transactions.commit(STREAM, txn, "", 1)
    await quiet(c)
    assert await c.transactions.state(STREAM, txn) is TxnState.COMMITTED
    world.check(orphans=True)


@pytest.mark.parametrize("name", DELAYED)
def test_delayed_controller_does_no_harm_when_it_resumes(name):
    async def main():
        call = 1
        while await run_delayed_at(name, call):
            call += 1
        assert call > 2

    run(main())


def test_every_operation_is_tested_with_a_delayed_controller():
    assert len(DELAYED) >= len([name for name in OPERATIONS if "group" not in name and "table" not in name]) - 5


def test_recreated_group_keeps_its_stream():
    """It holds the state of the group: a controller suspended during its deletion must not delete that of the next
    group."""

    async def main():
        state = StreamName("s", "_RGg")
        for call in range(1, 30):
            world = World()
            delay, faults = DelayedCall(call), Faults()
            first = await world.controller(faults)
            await group_and_stream(first, world)
            faults.calls.clear()
            faults.gate = delay.gate
            delayed = asyncio.ensure_future(first.groups.delete("s", "g", "id"))
            waiter = asyncio.ensure_future(delay.reached.wait())
            await asyncio.wait([delayed, waiter], return_when=asyncio.FIRST_COMPLETED)
            if not delay.reached.is_set():
                waiter.cancel()
                assert call > 5
                return
            second = await world.controller()
            with suppress(NotFound):
                await second.groups.delete("s", "g", "id")
            await second.groups.create("s", "g", dataclasses.replace(group(), group_id="new"))
            (s,) = await second.streams.active(state)
            world.segments.append(state.segment(SegmentId.unpack(s.segment)), "state")
            delay.released.set()
            with suppress(SaritError):
                await delayed
            assert (await second.groups.find("s", "g")).group_id == "new"
            (same,) = await second.streams.active(state)
            assert same == s
            assert world.segments.segments[state.segment(SegmentId.unpack(s.segment))].parts
            world.check(orphans=True)

    run(main())


def test_segment_numbers_continue_after_a_stale_read():
    """It read that the stream never existed.  Meanwhile one was created and deleted."""

    async def main():
        world = World()
        delay, faults = DelayedCall(3), Faults()  # before the batch that makes the stream
        first = await world.controller(faults)
        await scope(first, world)
        faults.calls.clear()
        faults.gate = delay.gate
        delayed = asyncio.ensure_future(first.streams.create(STREAM, config(1)))
        await delay.reached.wait()
        assert [call.split()[0] for call in faults.calls] == ["tables.get", "tables.get"]
        second = await world.controller()
        await second.streams.create(STREAM, config(3))
        await second.streams.seal(STREAM)
        await second.streams.delete(STREAM)
        delay.released.set()
        await delayed
        assert [s.segment for s in await first.streams.active(STREAM)] == [3]

    run(main())


def test_scope_with_concurrent_creation_keeps_its_numbers():
    """At any call of the deletion: it is refused, and a stream created again reuses no segment name."""

    async def main():
        refused = 0
        for call in range(1, 100):
            world = World()
            delay, faults = DelayedCall(call), Faults()
            first = await world.controller(faults)
            await empty_scope(first, world)
            faults.calls.clear()
            faults.gate = delay.gate
            delayed = asyncio.ensure_future(first.scopes.delete("s"))
            waiter = asyncio.ensure_future(delay.reached.wait())
            await asyncio.wait([delayed, waiter], return_when=asyncio.FIRST_COMPLETED)
            if not delay.reached.is_set():
                waiter.cancel()
                assert refused > 3
                return
            second = await world.controller()
            with suppress(NotFound):
                await second.streams.create(StreamName("s", "u"), config(1))
            delay.released.set()
            if not world.scopes().get("s"):
                await delayed
                continue
            with pytest.raises(Exists):
                await delayed
            refused += 1
            await second.streams.create(STREAM, config(2))
            made = {STREAM.segment(SegmentId.unpack(s.segment)) for s in await second.streams.active(STREAM)}
            assert not made & world.segments.deleted, f"suspended at call {call}"
            world.check()

    run(main())


@pytest.mark.parametrize("name", ["note a time", "remove a writer", "watermark", "retention"])
def test_delayed_controller_leaves_no_records_of_a_deleted_stream(name):
    async def main():
        for call in range(1, 100):
            world = World()
            delay, faults = DelayedCall(call), Faults()
            first = await world.controller(faults)
            await OPERATIONS[name].prepare(first, world)
            faults.calls.clear()
            faults.gate = delay.gate
            delayed = asyncio.ensure_future(OPERATIONS[name].act(first, world))
            waiter = asyncio.ensure_future(delay.reached.wait())
            await asyncio.wait([delayed, waiter], return_when=asyncio.FIRST_COMPLETED)
            if not delay.reached.is_set():
                waiter.cancel()
                assert call > 3
                return
            second = await world.controller()
            await second.streams.seal(STREAM)
            await second.streams.delete(STREAM)
            delay.released.set()
            with suppress(SaritError):
                await delayed
            assert not [key for key in world.scopes()["s"] if key.startswith(b"o/")], f"suspended at call {call}"
            await second.scopes.delete("s")
            assert world.segments.segments == {}

    run(main())
