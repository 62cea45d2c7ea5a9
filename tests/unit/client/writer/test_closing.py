"""Closing a writer: pending calls end, and a failure that was not reported yet is raised."""

import asyncio

import pytest

from sarit.core.errors import Invalid, NotFound, Sealed
from tests.unit.client.world import on_loop, until


@on_loop
async def test_close_raises_an_unreported_failure(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()
    world.controller.seal(stream)
    writer.write(b"lost")
    await until(lambda: writer.failure is not None)
    with pytest.raises(Sealed):
        await writer.close()
    with pytest.raises(NotFound):
        async with world.client.writer("s/misspelt") as writer:
            writer.write(b"lost")
            await until(lambda: writer.failure is not None)


@on_loop
async def test_error_in_a_with_block_is_not_replaced_by_the_writers(world) -> None:
    for writer in (world.client.writer("s/none"), world.client.byte_writer("s/none")):
        with pytest.raises(ValueError, match="mine"):
            async with writer:
                writer.write(b"1")
                await until(lambda writer=writer: writer.failure is not None)
                raise ValueError("mine")


@on_loop
@pytest.mark.parametrize("kind", ["writer", "byte_writer"])
async def test_block_left_by_an_error_says_how_much_may_be_lost(world, caplog, kind) -> None:
    world.controller.create("s/t")
    writer = getattr(world.client, kind)("s/t")
    async with writer:
        writer.write(b"durable")
    world.store.ack_delay = 1000.0
    writer = getattr(world.client, kind)("s/t")
    with pytest.raises(ValueError, match="mine"):
        async with writer:
            writer.write(b"1")
            writer.write(b"2")
            raise ValueError("mine")
    what = "2 events of s/t" if kind == "writer" else "2 bytes of s/t"
    assert [record.message for record in caplog.records if "abandoned" in record.message] == [
        f"a writer was abandoned, as by an error in its block, with {what} not acknowledged: they may be lost"
    ]


@on_loop
async def test_abandon_fails_pending_flushes(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 1000.0
    writer = world.client.writer("s/t", buffer_bytes=0)
    writer.write(b"1")
    waiting = [asyncio.create_task(work) for work in (writer.flush(), writer.drain())]
    await until(lambda: writer._drained is not None)
    with pytest.raises(ValueError):
        async with writer:
            raise ValueError
    for one in waiting:
        with pytest.raises(Invalid, match="closed before everything was durable"):
            await one


@on_loop
async def test_close_completes_pending_drains(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.05
    writer = world.client.writer("s/t", buffer_bytes=0)
    writer.write(b"1")
    draining = asyncio.create_task(writer.drain())
    await until(lambda: writer._drained is not None)
    await writer.close()
    await draining


@on_loop
async def test_cancelled_drain_leaves_other_drains_waiting(world) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.05
    writer = world.client.writer("s/t", buffer_bytes=0)
    writer.write(b"1")
    one, other = asyncio.create_task(writer.drain()), asyncio.create_task(writer.drain())
    await until(lambda: writer._drained is not None)
    one.cancel()
    await other
    assert one.cancelled()


@on_loop
async def test_close_after_the_client_closed_raises_invalid_if_events_may_be_lost(world) -> None:
    world.controller.create("s/t", 2)
    world.controller.create("s/b")
    done = [world.client.writer("s/t"), world.client.byte_writer("s/b")]
    for writer in done:
        writer.write(b"1")
        await writer.flush()
    world.store.ack_delay = 1000.0
    pending = [world.client.writer("s/t"), world.client.byte_writer("s/b")]
    for writer in pending:
        writer.write(b"2")
    await world.client.close()
    for writer in done:
        await writer.close()
    for writer in pending:
        with pytest.raises(Invalid, match="the client was closed before"):
            await writer.close()


@on_loop
async def test_error_in_the_search_for_successors_fails_the_writer(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"1")
    await writer.flush()

    async def surprising(stream, segment):
        raise ValueError("nobody thought of this")

    world.controller.successors = surprising
    world.controller.seal(stream)
    writer.write(b"2")
    with pytest.raises(ValueError, match="nobody thought"):
        await writer.flush()
    writer.abandon()


@on_loop
async def test_invalid_arguments_raise_invalid(world) -> None:
    world.controller.create("s/t")
    with pytest.raises(Invalid, match="0 or more"):
        world.client.writer("s/t", buffer_bytes=-1)
    async with world.client.writer("s/t") as writer:
        for one in ("abc", b"abc", bytearray(b"abc")):
            with pytest.raises(Invalid, match="single"):
                writer.write_many(one)
    assert world.everything() == []


@on_loop
async def test_byte_writer_wakes_all_waiters(world) -> None:
    world.controller.create("s/b")
    world.store.ack_delay = 0.05
    writer = world.client.byte_writer("s/b")
    writer.write(b"x" * (33 << 20))
    await asyncio.gather(writer.drain(), writer.flush(), writer.flush(), writer.drain())
    world.store.ack_delay = 1000.0
    writer.write(b"1")
    waiting = [asyncio.create_task(writer.flush()) for _ in range(2)]
    await until(lambda: writer._changed is not None and not writer._changed.done())
    writer.failed(Sealed("sealed meanwhile"))
    for one in waiting:
        with pytest.raises(Sealed):
            await one
    with pytest.raises(Sealed):
        await writer.close()
