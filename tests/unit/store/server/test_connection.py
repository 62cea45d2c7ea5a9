"""The store's listener over real sockets on in-memory storage: protocol rules, bad input, bounds."""

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.env.real import RealNetwork
from sarit.store.limits import FIRST_REQUEST_SECONDS
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.wire import commands as wire
from sarit.wire.frames import FrameReader, append_block_end_header
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, memory_env

SEGMENT = "s/t/0.#epoch.0"
WRITER = b"w" * 16
ATTRIBUTE = b"a" * 16
SECRET = b"of this installation"


class Client:
    """A bare client: sends frames, receives replies in order."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.frames = FrameReader()
        self.replies = []

    def send(self, *commands):
        for command in commands:
            self.writer.write(command if isinstance(command, bytes) else wire.encode(command))

    async def reply(self, seconds=5):
        async with asyncio.timeout(seconds):
            while not self.replies:
                data = await self.reader.read(1 << 20)
                if not data:
                    raise ConnectionError("closed")
                self.replies += [wire.decode(code, payload) for code, payload in self.frames.feed(data)]
        return self.replies.pop(0)

    async def ask(self, command):
        self.send(command)
        return await self.reply()

    async def closed(self):
        with pytest.raises(ConnectionError):
            await self.reply()


class Server:
    def __init__(self, port, store, server):
        self.port, self.store, self.server = port, store, server

    async def client(self, hello=True, version=17):
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        if hello:
            assert await client.ask(wire.Hello(version, 5)) == wire.Hello(17, 5)
        return client

    async def controller(self):
        client = await self.client()
        assert await client.ask(wire.Introduce(1, SECRET)) == wire.Introduced(1)
        return client

    async def create(self, *segments):
        for segment in segments:
            await self.store.container(segment).create(segment)


@asynccontextmanager
async def serving(world=None):
    world = world or World()
    store = await world.start()
    store.env = replace(memory_env(), network=RealNetwork())
    server = StoreListener(store, internal=InternalHandler(store, SECRET))
    port = await server.listen("127.0.0.1", 0)
    yield Server(port, store, server)
    await server.close()
    await store.stop()


def run(test):
    asyncio.run(asyncio.wait_for(test, HANG_SECONDS))


def append_end(data, events, number, request=5, writer=WRITER):
    prefix, suffix = append_block_end_header(writer, len(data), events, number, request)
    return prefix + data + suffix


def raw(code, payload):
    return struct.pack(">ii", code, len(payload)) + payload


async def ready(server, **options):
    client = await server.client(**options)
    await server.create(SEGMENT)
    setup = await client.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
    assert setup == wire.AppendSetup(2, SEGMENT, WRITER, NULL_ATTRIBUTE_VALUE)
    return client


def test_appends_of_both_clients_are_read_back():
    async def main():
        async with serving() as server:
            c = await ready(server)
            c.send(append_end(b"rust", 2, 2))
            assert await c.reply() == wire.DataAppended(WRITER, 2, NULL_ATTRIBUTE_VALUE, 5, 4)
            # Java: a block with two whole bytes and the first part of an event, then its rest.
            block = b"ja" + struct.pack(">ii", -2, 1) + b"v"
            end = WRITER + struct.pack(">ii", 2, 1) + b"a" + struct.pack(">iqq", 1, 3, 6)
            c.send(raw(3, WRITER + block), raw(4, end))
            assert await c.reply() == wire.DataAppended(WRITER, 3, 2, 6, 8)
            c.send(append_end(b"", 1, 4))
            assert await c.reply() == wire.DataAppended(WRITER, 4, 3, 5, 8)
            read = await c.ask(wire.ReadSegment(SEGMENT, 0, 100, "", 9))
            assert (bytes(read.data), read.at_tail, read.end_of_segment, read.offset) == (b"rustjava", True, False, 0)

    run(main())


def test_tail_read_waits_for_bytes_then_for_the_seal():
    async def main():
        async with serving() as server:
            c = await ready(server)
            reader = await server.client()
            reader.send(wire.ReadSegment(SEGMENT, 0, 100, "", 9))
            await c.ask(wire.KeepAlive())
            c.send(append_end(b"abc", 1, 1))
            read = await reader.reply()
            assert (bytes(read.data), read.request_id) == (b"abc", 9)
            reader.send(wire.ReadSegment(SEGMENT, 3, 100, "", 10))
            await c.reply()
            await c.ask(wire.SealSegment(11, SEGMENT, ""))
            assert await reader.reply() == wire.SegmentIsSealed(10, SEGMENT, "", 3)
            last = await reader.ask(wire.ReadSegment(SEGMENT, 3, 100, "", 12))
            assert (last.end_of_segment, bytes(last.data)) == (True, b"")
            assert isinstance(await reader.ask(wire.ReadSegment(SEGMENT, 9, 100, "", 13)), wire.ErrorMessage)
            assert isinstance(await c.ask(wire.SealSegment(14, SEGMENT, "")), wire.SegmentSealed)

    run(main())


def test_error_replies_name_the_requested_offset():
    async def main():
        async with serving() as server:
            c = await ready(server)
            c.send(append_end(b"x" * 10, 1, 1))
            await c.reply()
            await c.ask(wire.TruncateSegment(3, SEGMENT, 5, ""))
            assert await c.ask(wire.ReadSegment(SEGMENT, 2, 9, "", 4)) == wire.SegmentIsTruncated(4, SEGMENT, 5, "", 2)
            assert await c.ask(wire.ReadSegment("s/no/0", 2, 9, "", 4)) == wire.NoSuchSegment(4, "s/no/0", "", 2)
            assert isinstance(await c.ask(wire.GetStreamSegmentInfo(4, "s/no/0", "")), wire.NoSuchSegment)
            controller = await server.controller()
            again = await controller.ask(wire.CreateSegment(1, SEGMENT, 0, 0, "", 0))
            assert again == wire.SegmentAlreadyExists(1, SEGMENT, "")
            info = await c.ask(wire.GetStreamSegmentInfo(4, SEGMENT, ""))
            assert (info.write_offset, info.start_offset, info.is_sealed) == (10, 5, False)

    run(main())


def test_wrong_event_number_is_answered_and_closes_the_connection():
    async def main():
        async with serving() as server:
            first = await ready(server)
            first.send(append_end(b"a", 1, 1))
            await first.reply()
            second = await server.client()
            setup = await second.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            assert setup.last_event_number == 1
            first.send(append_end(b"b", 1, 2))
            refusal = await first.reply()
            assert (type(refusal), refusal.event_number) == (wire.InvalidEventNumber, 2)
            await first.closed()
            second.send(append_end(b"c", 1, 2))
            assert (await second.reply()).segment_write_offset == 2

    run(main())


def test_conditional_append_at_a_wrong_offset_is_refused():
    async def main():
        async with serving() as server:
            c = await ready(server)
            done = await c.ask(wire.ConditionalAppend(WRITER, 1, 0, b"xy", 7))
            assert (done.event_number, done.segment_write_offset) == (1, 10)
            refused = await c.ask(wire.ConditionalBlockEnd(WRITER, 5, 0, b"raw", 8))
            assert refused == wire.ConditionalCheckFailed(WRITER, 5, 8)
            assert (await c.ask(wire.ConditionalBlockEnd(WRITER, 5, 10, b"raw", 8))).segment_write_offset == 13
            stored = b""
            while len(stored) < 13:  # a flush may have moved the first append to a chunk: a read ends there
                stored += bytes((await c.ask(wire.ReadSegment(SEGMENT, len(stored), 100, "", 9))).data)
            assert stored == struct.pack(">ii", 0, 2) + b"xy" + b"raw"

    run(main())


def test_appends_to_a_sealed_segment_are_refused_after_earlier_acknowledgements():
    async def main():
        async with serving() as server:
            c = await ready(server)
            other = await server.client()
            c.send(append_end(b"a", 1, 1))
            await c.reply()
            await other.ask(wire.SealSegment(1, SEGMENT, ""))
            c.send(append_end(b"b", 1, 2), append_end(b"c", 1, 3))
            assert await c.reply() == wire.SegmentIsSealed(5, SEGMENT, "", 2)
            again = await c.ask(wire.SetupAppend(3, WRITER, SEGMENT, ""))
            assert again.last_event_number == 1

    run(main())


@pytest.mark.parametrize(("version", "expected"), [(15, wire.AppendSetup), (16, wire.NoSuchSegment)])
def test_set_up_on_a_missing_segment_is_answered_by_client_version(version, expected):
    async def main():
        async with serving() as server:
            c = await server.client(version=version)
            assert type(await c.ask(wire.SetupAppend(2, WRITER, "s/gone/0.#epoch.0", ""))) is expected
            if expected is wire.AppendSetup:
                c.send(append_end(b"a", 1, 1))
                assert type(await c.reply()) is wire.NoSuchSegment

    run(main())


def test_transient_segment_is_deleted_with_its_connection():
    async def main():
        async with serving() as server:
            c = await ready(server)
            made = await c.ask(wire.CreateTransientSegment(3, WRITER, SEGMENT, ""))
            setup = await c.ask(wire.SetupAppend(4, WRITER, made.segment, ""))
            assert setup.last_event_number == NULL_ATTRIBUTE_VALUE
            await c.ask(wire.ConditionalBlockEnd(WRITER, 0, 0, b"x" * 1000, 5))
            await c.ask(wire.ConditionalBlockEnd(WRITER, 1, 1000, b"y" * 1000, 6))
            merged = await c.ask(wire.MergeSegments(7, SEGMENT, made.segment, ""))
            assert merged.new_target_write_offset == 2000
            left = (await c.ask(wire.CreateTransientSegment(3, WRITER, SEGMENT, ""))).segment
            c.writer.close()
            other = await server.client()
            for _ in range(100):
                if isinstance(await other.ask(wire.GetStreamSegmentInfo(1, left, "")), wire.NoSuchSegment):
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("the transient segment is still there")

    run(main())


def test_attributes_and_tables_over_the_wire():
    async def main():
        async with serving() as server:
            c = await ready(server)
            null = NULL_ATTRIBUTE_VALUE
            assert (await c.ask(wire.GetSegmentAttribute(1, SEGMENT, ATTRIBUTE, ""))).value == null
            assert (await c.ask(wire.UpdateSegmentAttribute(2, SEGMENT, ATTRIBUTE, 5, null, ""))).success
            assert not (await c.ask(wire.UpdateSegmentAttribute(2, SEGMENT, ATTRIBUTE, 6, 4, ""))).success
            assert (await c.ask(wire.GetSegmentAttribute(1, SEGMENT, ATTRIBUTE, ""))).value == 5
            table = "s/x_kvtable/0.#epoch.0"
            await c.ask(wire.CreateTableSegment(3, table, "", False, 0, 0))
            put = wire.UpdateTableEntries(4, table, "", (wire.TableEntry(b"k", -1, b"v"),), -1)
            (version,) = (await c.ask(put)).versions
            assert isinstance(await c.ask(put), wire.TableKeyBadVersion)
            got = await c.ask(wire.ReadTable(5, table, "", (wire.TableKey(b"no", 0), wire.TableKey(b"k", 0))))
            assert [(bytes(e.key), e.version, bytes(e.value)) for e in got.entries] == [
                (b"no", -1, b""),
                (b"k", version, b"v"),
            ]
            missing = wire.RemoveTableKeys(6, table, "", (wire.TableKey(b"no", 7),), -1)
            assert isinstance(await c.ask(missing), wire.TableKeyDoesNotExist)
            info = await c.ask(wire.GetTableSegmentInfo(7, table, ""))
            assert (info.entry_count, info.key_length) == (1, 0)
            assert isinstance(await c.ask(wire.DeleteTableSegment(8, table, True, "")), wire.TableSegmentNotEmpty)

    run(main())


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 3,
        raw(1, b"\x00" * 5),
        raw(999, b""),
        struct.pack(">ii", 4, 1 << 30),
        struct.pack(">ii", 4, -1),
        raw(2, b"\0" * 100),
        raw(4, WRITER + struct.pack(">ii", 0, 0) + struct.pack(">iqq", 0, 1, 1)),
        raw(3, WRITER + b"abc") + raw(3, WRITER + b"abc"),
    ],
    ids=["http", "cut short", "unknown type", "too long", "negative length", "a reply", "no events", "two blocks"],
)
def test_bad_input_ends_only_its_connection_with_one_log_line(bad, caplog):
    async def main():
        async with serving() as server:
            good = await ready(server)
            client = await server.client()
            client.send(bad)
            await client.closed()
            good.send(append_end(b"still", 1, 1))
            assert (await good.reply()).segment_write_offset == 5
            assert len([r for r in caplog.records if r.name == "sarit.store.server.connection"]) == 1

    run(main())


def test_http_request_gets_the_name_of_the_http_port():
    async def main():
        async with serving() as server:
            for method in (b"GET", b"HEAD", b"POST", b"OPTIONS"):
                client = await server.client(hello=False)
                client.send(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n")
                answer = await client.reader.read()
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"--http-port" in answer

    run(main())


def test_client_that_begins_with_tls_is_refused_at_once(caplog):
    async def main():
        async with serving() as server:
            for size in (0x200, 0x205):  # as a frame: 64 KiB that never come, and more than a frame may have
                client = await server.client(hello=False)
                client.send(b"\x16\x03\x01" + size.to_bytes(2) + b"\x01\x00" + (size - 4).to_bytes(2) + bytes(size - 4))
                assert await client.reader.read() == bytes.fromhex("15 0301 0002 0228")
            assert [r.message.count("asks for TLS, and this port has none") for r in caplog.records[-2:]] == [1, 1]

    run(main())


def test_connections_without_a_request_lose_their_places(caplog):
    async def main():
        async with serving() as server:
            now = server.store.env.clock.monotonic()
            writer = await ready(server)
            silent = [await server.client(hello=False) for _ in range(3)]
            silent[2].send(wire.encode(wire.Hello(17, 5))[:5])
            while server.server.connections < 4:
                await asyncio.sleep(0)
            server.server.reap(now + FIRST_REQUEST_SECONDS - 1)
            assert server.server.connections == 4
            server.server.reap(server.store.env.clock.monotonic() + FIRST_REQUEST_SECONDS)
            for client in silent:
                await client.closed()
            assert server.server.connections == 1
            writer.send(append_end(b"still", 1, 1))
            assert (await writer.reply()).segment_write_offset == 5
        assert len([r for r in caplog.records if "sent no valid request" in r.getMessage()]) == 1

    run(main())


def test_decreasing_event_number_ends_the_connection():
    async def main():
        async with serving() as server:
            c = await ready(server)
            c.send(append_end(b"a", 1, 5))
            await c.reply()
            c.send(append_end(b"b", 1, 4))
            await c.closed()

    run(main())


def test_many_connections_are_served_at_once():
    async def main():
        async with serving() as server:
            clients = await asyncio.gather(*(server.client() for _ in range(500)))
            replies = await asyncio.gather(*(c.ask(wire.KeepAlive()) for c in clients))
            assert all(isinstance(reply, wire.KeepAlive) for reply in replies)
            for c in clients:
                c.writer.close()

    run(main())


def test_replies_to_a_client_that_never_reads_are_bounded():
    async def main():
        async with serving() as server:
            c = await ready(server)
            for number in range(1, 9):
                c.send(append_end(b"x" * 1_000_000, 1, number))
            for _ in range(8):
                await c.reply()
            slow = await server.client()
            slow.reader._transport.pause_reading()
            for request in range(400):
                slow.send(wire.ReadSegment(SEGMENT, 0, 1_000_000, "", request))
            await asyncio.sleep(0.3)
            (connection,) = [x for x in server.server._connections if x.paused]
            assert connection._transport.get_write_buffer_size() < 24_000_000
            c.send(append_end(b"y", 1, 9))
            assert (await c.reply()).event_number == 9
            slow.writer.transport.abort()

    run(main())


def test_failed_container_closes_its_writers_connections_without_acknowledgement():
    async def main():
        world = World()
        async with serving(world) as server:
            c = await ready(server)
            parked = await server.client()
            parked.send(wire.ReadSegment(SEGMENT, 0, 10, "", 1))
            await parked.ask(wire.KeepAlive())
            world.logs.fail_appends = True
            c.send(append_end(b"lost", 1, 1))
            await c.closed()
            await parked.closed()
            world.logs.fail_appends = False
            for _ in range(300):
                if len(server.store.opened()) == 2:
                    break
                await asyncio.sleep(0.01)
            again = await server.client()
            setup = await again.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            assert setup.last_event_number == NULL_ATTRIBUTE_VALUE

    run(main())
