"""The memory of what a client sends before it can be stored: counted, and bounded."""

import asyncio
import struct

from sarit.core.limits import MIB, NULL_ATTRIBUTE_VALUE
from sarit.store.container.container import Container
from sarit.store.limits import MAX_CONNECTION_UNACKED_BYTES
from sarit.wire import commands as wire
from sarit.wire.limits import LARGE_FRAME_BYTES, MAX_WIRE_PAYLOAD_BYTES
from tests.unit.store.server.test_connection import SEGMENT, WRITER, append_end, raw, ready, run, serving


def test_open_append_block_counts_as_connection_memory_and_stalls(caplog):
    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(raw(3, WRITER + bytes(100_000)))
            await client.ask(wire.KeepAlive())
            (connection,) = server.server._connections
            assert connection.memory().incomplete_frame_bytes == 100_000
            server.server.reap(0)
            server.server.reap(61)
            await client.closed()

    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "of a frame and stalled" in line


HALF_FRAME = struct.pack(">ii", 4, MAX_WIRE_PAYLOAD_BYTES) + bytes(1000)


def test_half_frames_hold_little_more_than_came():
    """1,500 of these took a node from 51 to 1,557 MiB: each held 1 MiB for 1,000 bytes."""

    async def main():
        async with serving() as server:
            clients = [await server.client() for _ in range(200)]
            for client in clients:
                client.send(HALF_FRAME)
            held = server.server._incomplete
            while len(held._held) < len(clients):
                await asyncio.sleep(0.01)
            assert held.total_bytes == len(clients) * LARGE_FRAME_BYTES
            memory = [connection.memory().incomplete_frame_bytes for connection in server.server._connections]
            assert sum(memory) == held.total_bytes
            for client in clients[:150]:
                client.writer.close()
            while held.total_bytes > 50 * LARGE_FRAME_BYTES:
                await asyncio.sleep(0.01)

    run(main())


def test_oldest_incomplete_frames_are_ended_at_the_bound_and_writers_go_on(caplog):
    async def main():
        async with serving() as server:
            server.server._incomplete.max_bytes = MIB
            writer = await ready(server)
            stalled, opened = [], {}
            for number in range(1, 41):
                client = await server.client()
                # One complete block stays open, the others are half frames.
                client.send(HALF_FRAME + bytes(100_000) if number % 2 else raw(3, WRITER + bytes(100_000)))
                stalled.append(client)
                opened.update(server.server._connections)
                # Large frames one after another are no old frame.
                writer.send(append_end(bytes(300_000), 1, number))
                assert (await writer.reply(20)).event_number == number
                assert server.server._incomplete.total_bytes <= MIB
            for client in stalled[:30]:
                await client.closed()
            # Freed at once, not when the collector comes.
            assert sum(connection._reader.held_bytes for connection in opened) <= MIB
            assert sum(connection._assembler.buffered_bytes for connection in opened) <= MIB
            assert len(server.server._connections) <= 1 + MIB // 100_000

    run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) >= 30
    assert all("for the oldest incomplete frame; all connections hold too much of those" in line for line in lines)


def test_one_connection_alone_may_send_the_longest_frame_beyond_the_bound():
    async def main():
        async with serving() as server:
            server.server._incomplete.max_bytes = MIB
            client = await server.client()
            client.send(HALF_FRAME)
            client.send(bytes(8 * MIB))
            while server.server._incomplete.total_bytes < 8 * MIB:
                await asyncio.sleep(0.01)
            assert len(server.server._connections) == 1

    run(main())


def test_appends_pending_on_a_set_up_are_bounded(monkeypatch):
    """A store that takes long to set up a writer stops reading."""
    go_on = asyncio.Event()
    set_up = Container.set_up_writer

    async def slowly(self, *arguments):
        await go_on.wait()
        return await set_up(self, *arguments)

    async def main():
        async with serving() as server:
            client = await server.client()
            await server.create(SEGMENT)
            monkeypatch.setattr(Container, "set_up_writer", slowly)
            size = MAX_CONNECTION_UNACKED_BYTES // 8
            client.send(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            client.send(*(append_end(bytes(size), 1, number) for number in range(1, 20)))
            (connection,) = server.server._connections
            while not connection.paused:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert connection._appends.unacked_bytes <= MAX_CONNECTION_UNACKED_BYTES + 2 * size
            go_on.set()
            assert await client.reply() == wire.AppendSetup(2, SEGMENT, WRITER, NULL_ATTRIBUTE_VALUE)
            while (await client.reply(20)).event_number < 19:
                pass
            assert connection._appends.unacked_bytes == 0

    run(main())


def test_decreasing_event_number_during_a_set_up_ends_the_connection(caplog):
    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"a", 1, 5))
            await client.reply()
            client.send(wire.SetupAppend(2, WRITER, SEGMENT, ""), append_end(b"b", 1, 4))
            await client.closed()

    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "broke the protocol: event number 4 came after 5" in line


def test_unacked_appends_are_bounded_over_all_connections():
    """With more connections the limit of each is lower; it rises again when the others have closed."""

    async def main():
        async with serving() as server:
            server.server._memory_bytes = 16 * MIB
            client = await ready(server)
            others = [await server.client() for _ in range(15)]
            (connection,) = [one for one in server.server._connections if len(one._appends)]
            server.store.budget.disk_full = True
            client.send(*(append_end(bytes(MIB // 2), 1, number) for number in range(1, 20)))
            while not connection.paused:
                await asyncio.sleep(0.01)
            assert connection._appends.unacked_bytes <= 2 * MIB
            for other in others:
                other.writer.close()
            while connection.paused:
                await asyncio.sleep(0.01)
            while connection._appends.unacked_bytes < 9 * MIB:
                await asyncio.sleep(0.01)
            server.store.budget.disk_full = False
            while (await client.reply(20)).event_number < 19:
                pass

    run(main())
