"""Flush barriers (everything so far is durable) and acks (what came since the last one is)."""

import asyncio

import pytest

from sarit.client.limits import SMALL_BLOCK_BYTES
from sarit.core.errors import Invalid
from sarit.core.keyspace import hash_key
from sarit.core.names import SegmentId
from tests.unit.client.world import on_loop, until

FIRST = SegmentId(0, 0)
NAME = "s/t/0.#epoch.0"


@on_loop
async def test_barriers_complete_in_order_once_durable(world) -> None:
    world.controller.create("s/t", 3)
    world.store.ack_delay = 0.005
    writer = world.client.writer("s/t")
    done: list[tuple[int, int]] = []
    for number in range(50):
        writer.write(f"{number}", key=f"{number}")
        barrier = writer.flush_barrier()
        barrier.add_done_callback(lambda _, number=number: done.append((number, len(world.everything()))))
        await asyncio.sleep(0.0005)
    await writer.flush()
    await until(lambda: len(done) == 50)
    assert [number for number, _ in done] == list(range(50))
    assert all(stored > number for number, stored in done)
    await writer.close()


@on_loop
async def test_ack_waits_only_for_its_own_events(world) -> None:
    world.controller.create("s/t", 2)
    writer = world.client.writer("s/t")
    low, high = (next(k for k in map(str, range(100)) if (hash_key(k) < 0.5) is left) for left in (True, False))
    writer.write(b"0", high)
    await writer.flush()
    world.store.mute.add(NAME)
    writer.write(b"1", low)
    first = writer.ack()
    writer.write(b"2", high)
    second, whole = writer.ack(), writer.flush_barrier()
    await second
    assert not first.done()
    assert not whole.done()
    writer.write(b"3", low)
    writer.write(b"4", high)
    both, nothing = writer.ack(), writer.ack()
    await nothing
    await until(lambda: b"4" in world.everything())
    assert not both.done(), "one of its events is not acknowledged"
    world.store.speak()
    await asyncio.gather(first, whole, both)
    await writer.close()


@pytest.mark.parametrize("segments", [1, 2])
@on_loop
async def test_acks_complete_through_a_scale(world, segments) -> None:
    """An ack waits for its events when they are placed again."""
    stream = world.controller.create("s/t", segments)
    middle, end = 0.5 / segments, 1 / segments
    writer = world.client.writer("s/t")
    world.store.ack_delay = 0.002
    done: list[tuple[int, bool]] = []
    for number in range(60):
        writer.write(f"{number}", f"{number}")
        event = b"%d" % number
        writer.ack().add_done_callback(lambda _, n=number, e=event: done.append((n, e in world.everything())))
        if number == 30:
            world.controller.scale(stream, [FIRST], [(0.0, middle), (middle, end)])
        await asyncio.sleep(0.0005)
    await writer.flush()
    await until(lambda: len(done) == 60)
    assert all(stored for _, stored in done)
    await writer.close()


@on_loop
async def test_barrier_schedules_no_dispatch_while_acknowledgements_are_due(world) -> None:
    """A turn of the loop for each was a fifth of the cost of a barrier for a busy writer."""
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"warm")
    await writer.flush()
    world.store.mute.add(NAME)
    before = world.store.appends
    barriers = []
    for number in range(10):
        writer.write(b"%d" % number)
        barriers.append(writer.flush_barrier())
        assert writer._dispatch_due == (number < 2), number
        while writer._dispatch_due:
            await asyncio.sleep(0)
    await until(lambda: world.store.appends >= before + 2)
    writer.write(bytes(SMALL_BLOCK_BYTES))
    barriers.append(writer.flush_barrier())
    assert writer._dispatch_due, "a good block waits for nobody"
    await until(lambda: world.store.appends == before + 3)
    writer.write(b"last")
    barriers.append(writer.flush_barrier())
    assert not writer._dispatch_due
    assert not any(barrier.done() for barrier in barriers)
    world.store.speak()
    await asyncio.gather(*barriers)
    assert world.everything()[-1] == b"last"
    await writer.close()


@on_loop
async def test_barriers_on_one_segment_are_placed_with_their_batch(world) -> None:
    """Framing each part between two barriers by itself took a busy writer a fifth of its time."""
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"warm")
    await writer.flush()
    world.store.mute.add(NAME)
    for _ in range(2):
        writer.write(b"in flight")
        await until(lambda: not writer._dispatch_due)
    barriers = []
    for number in range(5):
        writer.write(b"%d" % number)
        barriers.append(writer.flush_barrier() if number % 2 else writer.ack())
    nothing_more = writer.flush_barrier()
    assert writer._intake == [b"%d" % number for number in range(5)], "taken by a barrier, not by a dispatch"
    assert not any(barrier.done() for barrier in (*barriers, nothing_more))
    world.store.speak()
    order: list[tuple[int, int]] = []
    for number, barrier in enumerate((*barriers, nothing_more)):
        barrier.add_done_callback(lambda _, number=number: order.append((number, len(world.everything()))))
    await asyncio.gather(*barriers, nothing_more)
    await asyncio.sleep(0)
    assert order == [(number, 8) for number in range(6)]
    appender = next(iter(writer._partitioner._drivers.values())).appender
    assert not appender.barriers
    await writer.close()


@on_loop
async def test_unplaced_barriers_fail_with_the_writer(world) -> None:
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    early = writer.flush_barrier()
    await writer.flush()
    assert early.done()
    writer.write(b"2")
    barrier, ack = writer.flush_barrier(), writer.ack()
    writer.abandon()
    for future in (barrier, ack):
        with pytest.raises(Invalid, match="closed before everything was durable"):
            await future


@on_loop
async def test_replaced_appender_is_dropped_from_acks(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.ack()
    world.controller.scale(stream, [FIRST], [(0.0, 1.0)])
    writer.write(b"2")
    await writer.ack()
    assert list(writer._partitioner._since_barrier) == list(writer._partitioner._drivers.values())
    assert world.everything() == [b"1", b"2"]
    await writer.close()
