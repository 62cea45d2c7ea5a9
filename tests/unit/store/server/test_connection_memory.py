"""The memory of what a client sends before it can be stored: counted, and bounded."""

import asyncio

from sarit.core.limits import MAX_CONNECTION_UNACKED_BYTES, MIB, NULL_ATTRIBUTE_VALUE
from sarit.store.container.container import Container
from sarit.store.server import connection_reaper
from sarit.wire import commands as wire
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
            await client.ask(wire.CreateSegment(1, SEGMENT, 0, 0, "", 0))
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


def test_unacked_appends_are_bounded_over_all_connections(monkeypatch):
    """With more connections the limit of each is lower; it rises again when the others have closed."""
    monkeypatch.setattr(connection_reaper, "MAX_CONNECTIONS_MEMORY_BYTES", 16 * MIB)

    async def main():
        async with serving() as server:
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
