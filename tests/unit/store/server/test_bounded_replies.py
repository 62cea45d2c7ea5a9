"""The memory of many requests and replies of one connection: counted, and bounded."""

import asyncio
from dataclasses import replace

from sarit.client.limits import SEGMENT_READ_BYTES
from sarit.core.limits import MIB
from sarit.store.container.reads import ReadResult, Reads
from sarit.store.container.tables import Tables
from sarit.store.limits import (
    BLOCK_OVERHEAD_BYTES,
    MAX_CONNECTION_UNACKED_BYTES,
    MAX_REQUESTS_PER_CONNECTION,
    REQUEST_OVERHEAD_BYTES,
)
from sarit.store.server.connection import StoreConnection
from sarit.store.server.memory_cost import reply_bytes, request_bytes
from sarit.wire import commands as wire
from sarit.wire.frames import AppendAssembler
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, WRITER, World
from tests.unit.store.server.test_connection import SEGMENT, append_end, raw, ready, run, serving

ASKED = 100
# Replies in the buffers of both sockets and of the transport, and those that wait for a reply slot.
MOST_MADE = 60
TABLE = "s/x_kvtable/0.#epoch.0"


def send_without_reading(client, *commands):
    """Send, and take no replies."""
    client.reader._transport.pause_reading()
    client.send(*commands)


async def settled(server, client, true):
    """Wait until `true()`, and until the server has nothing more to do for `client`, which takes no replies."""
    other = await server.client()
    async with asyncio.timeout(HANG_SECONDS):
        while not true():
            await other.ask(wire.KeepAlive())
        for _ in range(20):
            await other.ask(wire.KeepAlive())


def connection_of(server, client):
    host, port = client.writer.transport.get_extra_info("sockname")
    return next(one for one in server.server._connections if one.peer == f"{host}:{port}")


async def take_all(client, count):
    client.reader._transport.resume_reading()
    return [(await client.reply(20)).request_id for _ in range(count)]


def test_chunk_reads_are_bounded_for_a_client_that_takes_no_replies(monkeypatch):
    """250 of them at once used to read 1 GB ahead."""
    made = []

    async def from_chunks(self, segment, offset, limit):
        made.append(offset)
        return ReadResult([bytes(MIB)], MIB, False, False)

    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"x", 1, 1))
            await client.reply()
            monkeypatch.setattr(Reads, "from_memory", lambda *_: None)
            monkeypatch.setattr(Reads, "from_chunks", from_chunks)
            send_without_reading(client, *(wire.ReadSegment(SEGMENT, 0, MIB, "", number) for number in range(ASKED)))
            connection = connection_of(server, client)
            await settled(server, client, lambda: connection.paused and len(made) > 8)
            assert len(made) < MOST_MADE
            assert await take_all(client, ASKED) == list(range(ASKED))
            assert len(made) == ASKED

    run(main())


def test_large_reads_are_not_copied_and_small_reads_are_no_views_of_a_block(monkeypatch):
    block = memoryview(bytes(2 * MIB))
    sent = []
    send_parts = StoreConnection.send_parts

    async def from_chunks(self, segment, offset, limit):
        return ReadResult([block[:limit]], limit, False, False)

    def sending(self, parts):
        sent.append(parts[1])
        send_parts(self, parts)

    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"x", 1, 1))
            await client.reply()
            monkeypatch.setattr(Reads, "from_memory", lambda *_: None)
            monkeypatch.setattr(Reads, "from_chunks", from_chunks)
            monkeypatch.setattr(StoreConnection, "send_parts", sending)
            await client.ask(wire.ReadSegment(SEGMENT, 0, SEGMENT_READ_BYTES, "", 1))
            await client.ask(wire.ReadSegment(SEGMENT, 0, SEGMENT_READ_BYTES // 2, "", 2))

    run(main())
    assert [type(part) for part in sent] == [memoryview, bytes]
    assert [len(part) for part in sent] == [SEGMENT_READ_BYTES, SEGMENT_READ_BYTES // 2]


def test_table_pages_are_bounded_for_a_client_that_takes_no_replies(monkeypatch):
    made = []
    get = Tables.get

    async def counting(self, name, keys):
        made.append(name)
        return await get(self, name, keys)

    async def main():
        async with serving() as server:
            client = await server.client()
            await client.ask(wire.CreateTableSegment(3, TABLE, "", False, 0, 0))
            await client.ask(wire.UpdateTableEntries(4, TABLE, "", (wire.TableEntry(b"k", -1, bytes(900_000)),), -1))
            monkeypatch.setattr(Tables, "get", counting)
            send_without_reading(
                client, *(wire.ReadTable(n, TABLE, "", (wire.TableKey(b"k", 0),)) for n in range(ASKED))
            )
            connection = connection_of(server, client)
            await settled(server, client, lambda: connection.paused and len(made) > 8)
            assert len(made) < MOST_MADE
            assert sorted(await take_all(client, ASKED)) == list(range(ASKED))
            assert len(made) == ASKED

    run(main())


def test_waiting_requests_count_by_their_bytes(monkeypatch):
    """A thousand of 16 MiB each may wait."""
    go_on = asyncio.Event()
    update = Tables.update

    async def slowly(self, *arguments):
        await go_on.wait()
        return await update(self, *arguments)

    async def main():
        async with serving() as server:
            client = await server.client()
            await client.ask(wire.CreateTableSegment(3, TABLE, "", False, 0, 0))
            monkeypatch.setattr(Tables, "update", slowly)
            put = wire.UpdateTableEntries(4, TABLE, "", (wire.TableEntry(b"k", -(1 << 63), bytes(MIB // 2)),), -1)
            client.send(*[put] * 100)
            connection = connection_of(server, client)
            await settled(server, client, lambda: connection.paused)
            assert len(connection._tasks) < MAX_CONNECTION_UNACKED_BYTES // (MIB // 2) + 4
            go_on.set()
            for _ in range(100):
                assert isinstance(await client.reply(20), wire.TableEntriesUpdated)
            assert (connection._request_bytes, connection._tasks) == (0, {})

    run(main())


def test_small_appends_count_by_their_memory():
    async def main():
        async with serving() as server:
            client = await ready(server)
            connection = connection_of(server, client)
            connection.set_memory_limits(MIB, 1000 * BLOCK_OVERHEAD_BYTES)
            server.store.budget.disk_full = True
            client.send(*(append_end(b"x", 1, number) for number in range(1, 3001)))
            container = server.store.container(SEGMENT)
            await settled(server, client, lambda: connection.paused)
            assert container.throttled < 3000
            server.store.budget.disk_full = False
            while (await client.reply(20)).event_number < 3000:
                pass
            assert connection._appends.unacked_bytes == 0

    run(main())


def test_memory_cost_of_requests_and_replies():
    keys = tuple(wire.TableKey(b"k", 0) for _ in range(3))
    read = wire.ReadTable(1, TABLE, "", keys)
    assert request_bytes(read, 500) == REQUEST_OVERHEAD_BYTES + 500 + 3 * BLOCK_OVERHEAD_BYTES
    assert reply_bytes(read) > 2 * MIB
    assert reply_bytes(wire.ReadTable(1, TABLE, "", keys * 100)) == (1 << 24) - 1
    info = wire.GetStreamSegmentInfo(1, SEGMENT, "")
    assert (request_bytes(info, 50), reply_bytes(info)) == (REQUEST_OVERHEAD_BYTES + 50, 0)
    assert MAX_REQUESTS_PER_CONNECTION * REQUEST_OVERHEAD_BYTES < MAX_CONNECTION_UNACKED_BYTES


def test_append_does_not_retain_the_rest_of_its_frame():
    payload = append_end(b"data", 1, 1)[8:] + bytes(1 << 20)
    (part,) = AppendAssembler().block_end(memoryview(payload)).parts
    assert bytes(part) == b"data"
    assert len(memoryview(part).obj) == 4

    async def main():
        # Nothing is flushed by itself: a flushed block is no part of the tail any more.
        async with serving(World(replace(SMALL, flush=replace(SMALL.flush, interval_seconds=1000)))) as server:
            client = await ready(server)
            conditional = wire.encode(wire.ConditionalBlockEnd(WRITER, 1, 0, b"data", 7))[8:] + bytes(1 << 20)
            client.send(raw(89, conditional))
            assert (await client.reply()).segment_write_offset == 4
            (block,) = server.store.container(SEGMENT).state.names[SEGMENT].tail
            assert type(block.parts[0]) is bytes

    run(main())


def test_replies_after_close_are_not_retained():
    async def main():
        async with serving() as server:
            client = await ready(server)
            connection = connection_of(server, client)
            connection.close()
            connection.send(b"x")
            connection.send_parts([bytes(2 * MIB)])
            assert connection._out == []

    run(main())
