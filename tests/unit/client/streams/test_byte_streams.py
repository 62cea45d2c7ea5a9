"""Byte streams on the fake store."""

import asyncio

import pytest

from sarit.core.errors import Invalid, NotFound, Sealed, Truncated
from tests.unit.client.world import on_loop, until

NAME = "s/t/0.#epoch.0"


@on_loop
async def test_bytes_read_back_as_one_sequence(world) -> None:
    world.controller.create("s/t")
    world.store.max_read = 1000
    data = bytes(range(256)) * 10_000
    async with world.client.byte_writer("s/t") as writer:
        assert writer.write(data[:100]) == 100
        assert await writer.tell() == 100
        assert writer.write(memoryview(data)[100:]) == len(data) - 100
        assert writer.write(b"") == 0
        await writer.flush()
        assert bytes(world.store.segments[NAME].data) == data
        assert await writer.tell() == len(data)
    async with world.client.byte_reader("s/t") as reader:
        assert await reader.read_exactly(5000) == data[:5000]
        assert reader.tell() == 5000
        reader.seek(300)
        assert await reader.read(10) == data[300:310]
        reader.seek(315)
        assert await reader.read_exactly(2000) == data[315:2315]
        assert await reader.tail_offset() == len(data)
        reader.seek(len(data))
        assert await reader.read(10, timeout=0.02) == b""
        with pytest.raises(Invalid):
            reader.seek(-1)


@on_loop
async def test_byte_reader_waits_at_the_tail_and_ends_with_the_seal(world) -> None:
    stream = world.controller.create("s/t")
    writer, reader = world.client.byte_writer("s/t"), world.client.byte_reader("s/t")
    waiting = asyncio.create_task(reader.read(100))
    await asyncio.sleep(0.01)
    writer.write(b"hello")
    assert await waiting == b"hello"
    world.controller.seal(stream)
    assert await reader.read(100) == b""
    assert await reader.read_exactly(5) == b""
    writer.write(b"more")
    with pytest.raises(Sealed):
        await writer.flush()
    with pytest.raises(Sealed):
        writer.write(b"again")


@on_loop
async def test_broken_connections_lose_and_double_no_byte(world) -> None:
    world.controller.create("s/t")
    world.store.drop_before = {2, 5}
    world.store.drop_after = {3, 6, 9}
    async with world.client.byte_writer("s/t") as writer:
        for number in range(300):
            writer.write(b"%d," % number)
            if number % 20 == 0:
                await writer.flush()
        await writer.flush()
    assert bytes(world.store.segments[NAME].data) == b"".join(b"%d," % number for number in range(300))
    assert world.store.setups > 3


@on_loop
async def test_truncated_bytes_raise_or_are_skipped(world) -> None:
    world.controller.create("s/t")
    async with world.client.byte_writer("s/t") as writer:
        writer.write(b"0123456789")
        await writer.flush()
        await writer.truncate(4)
        assert await writer.head_offset() == 4
    reader = world.client.byte_reader("s/t")
    with pytest.raises(Truncated) as caught:
        await reader.read(3)
    reader.seek(caught.value.start_offset)
    assert await reader.read(3) == b"456"
    skipping = world.client.byte_reader("s/t", skip_truncated=True)
    assert (await skipping.read(3), skipping.tell()) == (b"456", 7)


@on_loop
async def test_cancelled_read_exactly_consumes_nothing(world) -> None:
    world.controller.create("s/t")
    async with world.client.byte_writer("s/t") as writer:
        writer.write(b"0123456789")
        await writer.flush()
        reader = world.client.byte_reader("s/t")
        waiting = asyncio.ensure_future(reader.read_exactly(15))
        await until(lambda: reader.tell() == 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert reader.tell() == 0
        writer.write(b"abcde")
    assert await reader.read_exactly(15) == b"0123456789abcde"


@on_loop
async def test_read_exactly_never_joins_bytes_across_a_gap(world) -> None:
    world.controller.create("s/t")
    async with world.client.byte_writer("s/t") as writer:
        writer.write(b"0123456789")
        await writer.flush()
        reader = world.client.byte_reader("s/t", skip_truncated=True)
        reading = asyncio.ensure_future(reader.read_exactly(12))
        await until(lambda: reader.tell() == 10)
        world.store.drop_all()
        segment = world.store.segments["s/t/0.#epoch.0"]
        segment.append([b"ABCDEFGHIJKLMNOPQRST"])
        segment.start = 15
    assert (await reading, reader.tell()) == (b"FGHIJKLMNOPQ", 27)


@on_loop
async def test_byte_stream_of_two_segments_raises_invalid(world) -> None:
    world.controller.create("s/two", 2)
    writer = world.client.byte_writer("s/two")
    writer.write(b"x")
    with pytest.raises(Invalid, match="2 segments"):
        await writer.flush()
    with pytest.raises(Invalid, match="2 segments"):
        await world.client.byte_reader("s/two").read()
    with pytest.raises(NotFound):
        await world.client.byte_reader("s/none").read()


@on_loop
async def test_client_close_fails_pending_connects(world) -> None:
    world.controller.create("s/t")
    connecting = asyncio.Event()

    async def never(stream, segment):
        connecting.set()
        await asyncio.Event().wait()

    world.controller.endpoint = never
    reading = asyncio.create_task(world.client.byte_reader("s/t").read())
    await connecting.wait()
    await world.client.close()
    with pytest.raises(Invalid, match="the client was closed"):
        await reading
