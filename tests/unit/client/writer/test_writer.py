"""The event writer on a store with injected faults."""

import asyncio
import random

import pyarrow as pa
import pytest

from sarit.client.core.retry import RetryPolicy
from sarit.client.limits import STICKY_BYTES
from sarit.core.errors import Invalid, NotFound, Sealed, Unavailable
from sarit.core.names import SegmentId
from tests.limits import HANG_SECONDS
from tests.unit.client.world import on_loop, until

FIRST = SegmentId(0, 0)
NAME = "s/t/0.#epoch.0"


def by_key(events: list[bytes]) -> dict[bytes, list[bytes]]:
    """Events `key:number` sorted by key, each key's in the order found."""
    found: dict[bytes, list[bytes]] = {}
    for event in events:
        found.setdefault(event.partition(b":")[0], []).append(event)
    return found


@on_loop
async def test_flushed_events_are_stored_in_order(world) -> None:
    world.controller.create("s/t")
    async with world.client.writer("s/t") as writer:
        for number in range(2000):
            writer.write(f"{number}")
            if number % 100 == 0:
                await writer.drain()
        await writer.flush()
        assert world.stored(NAME) == [b"%d" % number for number in range(2000)]
        assert writer.pending_bytes() == 0


@on_loop
async def test_mixed_write_calls_keep_the_order(world) -> None:
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    writer.write("2", key="k")
    writer.write_many([b"3", "4", bytearray(b"5")])
    writer.write_many(["6", "7"], keys=["k", None])
    writer.write_many(pa.array(["8", "9"]))
    writer.write_many(pa.array([b"10"]), pa.array(["k"]))
    writer.write_many([])
    writer.write(b"11")
    await writer.close()
    assert world.stored(NAME) == [b"%d" % number for number in range(1, 12)]


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("when", ["drop_before", "drop_after"])
def test_broken_connections_lose_and_double_no_event(segments: int, when: str) -> None:
    @on_loop
    async def check(world) -> None:
        world.controller.create("s/t", segments)
        setattr(world.store, when, {3, 4, 9, 20, 21, 35})
        rng = random.Random(segments)
        writer = world.client.writer("s/t")
        for number in range(800):
            writer.write(f"{number % 7}:{number}", key=str(number % 7))
            if rng.random() < 0.1:
                await asyncio.sleep(0)
            if number % 40 == 0:
                await writer.flush()
        await writer.flush()
        found = by_key(world.everything())
        assert found == {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 800, 7)] for k in range(7)}
        assert world.store.setups > segments
        assert world.store.appends > 35
        await writer.close()

    check()


@on_loop
async def test_writer_reconnects_to_a_restarted_store(world) -> None:
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"before")
    await writer.flush()
    port = world.store.port
    await world.store.stop()
    writer.write(b"meanwhile")
    await asyncio.sleep(0.05)
    await world.store.start(world.session.env.network, port)
    await writer.flush()
    assert world.stored(NAME) == [b"before", b"meanwhile"]
    await writer.close()


@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_order_per_key_survives_scaling_up_and_down(delay: float) -> None:
    @on_loop
    async def check(world) -> None:
        stream = world.controller.create("s/t")
        world.store.ack_delay = delay
        writer = world.client.writer("s/t")
        numbers = iter(range(10_000))

        async def some(count: int) -> None:
            for number in (next(numbers) for _ in range(count)):
                writer.write(f"{number % 11}:{number}", key=str(number % 11))
                if number % 40 == 0:
                    await asyncio.sleep(delay)

        await some(300)
        low, high = world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
        await some(300)
        (middle,) = world.controller.scale(stream, [low, high], [(0.0, 1.0)])
        await some(300)
        world.controller.scale(stream, [middle], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
        await some(300)
        await writer.flush()
        assert writer.pending_bytes() == 0
        names = [FIRST, low, high, middle, *(found.segment for found in world.controller.current[stream])]
        events = [event for segment in names for event in world.stored(stream.segment(segment))]
        expected = {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 1200, 11)] for k in range(11)}
        assert by_key(events) == expected
        await writer.close()

    check()


@on_loop
async def test_keyed_batches_move_to_successors_in_order(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"x:0", key="x")
    await writer.flush()
    world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    keys = [f"k{number % 9}" for number in range(500)]
    writer.write_many(pa.array([f"{k}:{n}" for n, k in enumerate(keys)]), pa.array(keys))
    writer.write_many([f"{k}:{500 + n}" for n, k in enumerate(keys)], keys)
    writer.write_many(pa.array([f"loose:{n}" for n in range(10)]))
    await writer.flush()
    found = by_key(world.everything())
    assert len(found.pop(b"loose")) == 10
    assert found.pop(b"x") == [b"x:0"]
    assert all(events == sorted(events, key=lambda e: int(e.split(b":")[1])) for events in found.values())
    assert sum(map(len, found.values())) == 1000
    assert len({name for name in world.store.segments if world.stored(name)}) == 3
    await writer.close()


@on_loop
async def test_batch_keys_map_to_the_same_segments_as_single_keys(world) -> None:
    world.controller.create("s/t", 5)
    writer = world.client.writer("s/t")
    keys = [f"key{number}" for number in range(200)]
    for key in keys:
        writer.write(key, key)
    writer.write_many(keys, keys)
    writer.write_many(pa.array(keys), pa.array(keys))
    writer.write_many(pa.array(keys), pa.array(keys).dictionary_encode())
    await writer.flush()
    for name in world.store.segments:
        found = by_key(world.stored(name))
        assert all(len(events) == 4 for events in found.values())
    assert len(world.everything()) == 800
    assert all(world.stored(name) for name in world.store.segments)
    await writer.close()


@on_loop
async def test_events_without_keys_reach_all_segments(world) -> None:
    world.controller.create("s/t", 4)
    writer = world.client.writer("s/t")
    for _ in range(60):
        writer.write(b"x" * STICKY_BYTES)  # after so many another segment is drawn
        await writer.flush()
    assert all(world.stored(name) for name in world.store.segments)
    await writer.close()


@on_loop
async def test_sealed_stream_fails_the_writer_permanently(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()
    world.controller.seal(stream)
    writer.write(b"2")
    with pytest.raises(Sealed, match="takes no more"):
        await writer.flush()
    with pytest.raises(Sealed):
        writer.write(b"3")
    with pytest.raises(Sealed):
        await writer.drain()
    with pytest.raises(Sealed):
        await writer.flush_barrier()
    with pytest.raises(Sealed):
        await writer.close()
    assert world.stored(NAME) == [b"1"]


@on_loop
async def test_client_close_fails_its_writers(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 30.0
    writer, bytes_writer = world.client.writer("s/t"), world.client.byte_writer("s/t")
    writer.write(b"1")
    bytes_writer.write(b"1")
    flushes = [asyncio.create_task(writer.flush()), asyncio.create_task(bytes_writer.flush())]
    await until(lambda: world.store.setups == 2)
    await world.client.close()
    for flush in flushes:
        with pytest.raises(Invalid, match="client was closed"):
            await flush
    with pytest.raises(Invalid, match="client was closed"):
        writer.write(b"2")


@on_loop
async def test_idle_writer_does_not_reconnect_until_it_writes(world) -> None:
    world.controller.create("s/t")
    world.session.policy = RetryPolicy(0.05)
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()
    port = world.store.port
    await world.store.stop()
    await asyncio.sleep(0.2)
    await world.store.start(world.session.env.network, port)
    writer.write(b"2")
    await writer.flush()
    assert world.stored(NAME) == [b"1", b"2"]
    await world.store.stop()
    writer.write(b"3")
    with pytest.raises(Unavailable, match="gave up after 0.05 s of trying: segment store .* cannot be reached"):
        await writer.flush()


@on_loop
async def test_missing_stream_closed_writer_and_bad_types_raise(world) -> None:
    writer = world.client.writer("s/none")
    writer.write(b"1")
    with pytest.raises(NotFound, match="s/none does not exist"):
        await writer.flush()
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    await writer.close()
    with pytest.raises(Invalid, match="closed"):
        writer.write(b"1")
    with pytest.raises(Invalid, match="not int"):
        world.client.writer("s/t").write(1)
    with pytest.raises(Invalid, match="a key is a str, not int"):
        world.client.writer("s/t").write(b"1", 1)
    with pytest.raises(Invalid, match="a key is a str, not bytes"):
        world.client.writer("s/t").write_many([b"1"], [b"k"])
    with pytest.raises(Invalid, match="one key"):
        world.client.writer("s/t").write_many([b"1", b"2"], ["k"])


@on_loop
async def test_unavailable_controller_is_retried(world) -> None:
    world.controller.create("s/t")
    world.controller.failures = [Unavailable("away"), Unavailable("still away")]
    async with world.client.writer("s/t") as writer:
        writer.write(b"1")
    assert world.stored(NAME) == [b"1"]


@on_loop
async def test_drain_bounds_pending_bytes(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.01
    bound = 2 << 20
    writer = world.client.writer("s/t", buffer_bytes=bound)
    event = b"x" * 10_000
    most = 0
    for _ in range(1500):
        writer.write(event)
        most = max(most, writer.pending_bytes())
        await writer.drain()
        assert writer.pending_bytes() <= bound
    await writer.flush()
    assert bound <= most <= bound + 2 * len(event)
    assert len(world.stored(NAME)) == 1500
    await writer.close()


@on_loop
async def test_event_written_while_a_dispatch_turns_idle_is_sent(world) -> None:
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()
    writer.bind_foreign_thread(writer.dispatch_soon, writer._dispatch_full, lambda: None)  # as the blocking client does
    dispatch = writer._partitioner.dispatch

    def dispatch_while_another_thread_writes(urgent: bool) -> None:
        dispatch(urgent)
        if len(world.everything()) == 2 and not writer._partitioner.blocks_in_flight:
            writer._partitioner.dispatch = dispatch
            writer._intake.append(b"3")  # the other thread saw the writer busy, and schedules no dispatch

    writer._partitioner.dispatch = dispatch_while_another_thread_writes
    writer.write(b"2")
    await until(lambda: len(world.everything()) == 3)
    await writer.close()


@on_loop
async def test_ack_of_a_slow_writer_schedules_no_dispatch(world) -> None:
    world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()
    dispatched = []
    dispatch = writer._partitioner.dispatch
    writer._partitioner.dispatch = lambda urgent: (dispatched.append(urgent), dispatch(urgent))
    for number in range(5):
        writer.write(b"2")
        await writer.flush_barrier()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(dispatched) == number + 1
    assert world.stored(NAME) == [b"1", *[b"2"] * 5]
    await writer.close()


@on_loop
async def test_cancelled_barrier_is_dropped(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.01
    writer = world.client.writer("s/t")
    writer.write(b"1")
    given_up = writer.flush_barrier()
    given_up.cancel()
    await writer.flush()
    assert not writer._barriers
    await writer.close()


@on_loop
async def test_flush_after_abandon_raises_invalid(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.3
    writer = world.client.writer("s/t")
    writer.write("in flight")
    await until(lambda: world.store.appends)
    writer.abandon()
    with pytest.raises(Invalid, match="closed before everything was durable"):
        await writer.flush()


def out_of_memory(batch) -> None:
    raise MemoryError


@pytest.mark.parametrize("segments", [1, 4])
@on_loop
async def test_partition_error_fails_the_writer(world, segments) -> None:
    """`flush_barrier` raised it, the events were gone, and the next flush said that all was durable."""
    world.controller.create("s/t", segments)
    writer = world.client.writer("s/t")
    writer.write(b"before", key="a")
    await writer.flush()
    place, writer._partitioner.partition = writer._partitioner.partition, out_of_memory
    writer.write(b"lost", key="a")
    with pytest.raises(MemoryError):
        await writer.flush_barrier()
    writer._partitioner.partition = place
    for _ in range(2):
        with pytest.raises(MemoryError):
            await writer.flush()
    with pytest.raises(MemoryError):
        await writer.close()


@on_loop
async def test_partition_error_on_open_fails_the_writer(world) -> None:
    """It was logged alone: a flush never ended."""
    world.controller.create("s/t", 4)
    writer = world.client.writer("s/t")
    writer._partitioner.partition = out_of_memory
    writer.write(b"lost", key="a")
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(MemoryError):
            await writer.flush()
    writer.abandon()
