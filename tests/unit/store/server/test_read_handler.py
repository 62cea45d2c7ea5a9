"""Reads that wait for bytes, or for a client that takes replies again."""

import asyncio
import itertools
import math
from dataclasses import replace

from sarit.store.container.container import ContainerLimits
from sarit.store.server.read_handler import ReadHandler
from sarit.store.server.reply_semaphore import ReplySemaphore
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire import commands as wire
from sarit.wire.frames import FrameReader
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer

SEGMENT = "s/t/0.#epoch.0"
_OTHERS = itertools.count()
BY_HAND = replace(
    SMALL,
    containers=1,
    cache_bytes=0,
    flush=FlushLimits(interval_seconds=1000),
    container=ContainerLimits(max_segments=3),
)


class Connection:
    """A connection whose client takes replies while `gate` is set."""

    closed = False

    def __init__(self):
        self.gate = asyncio.Event()
        self.replies = []
        self.reply_semaphore = ReplySemaphore(1 << 20)
        self.reply_semaphore.pause()
        self.answered = asyncio.Event()
        self._frames = FrameReader()

    @property
    def writable(self):
        return self.gate.is_set()

    async def wait_writable(self):
        while not self.gate.is_set():
            await self.gate.wait()

    def take(self, *, replies):
        if replies:
            self.gate.set()
            self.reply_semaphore.resume()
        else:
            self.gate.clear()
            self.reply_semaphore.pause()

    def spawn(self, work, memory_bytes):
        return asyncio.ensure_future(work)

    def token_expires(self, token):
        return math.inf

    def send(self, frame):
        self.replies += [wire.decode(code, payload) for code, payload in self._frames.feed(frame)]
        self.answered.set()

    def send_parts(self, parts):
        self.send(b"".join(map(bytes, parts)))


async def parked_read():
    """A read at the tail of a segment that holds "one", from a client that takes no replies."""
    store = await World(BY_HAND).start()
    container = store.container(SEGMENT)
    await container.create(SEGMENT)
    writer = Writer(store, SEGMENT)
    await writer.set_up()
    writer.append(b"one", 1)
    await writer.wait_for_replies()
    writer.session.close()
    await store.opened()[0].flusher.checkpoint()
    connection = Connection()
    ReadHandler(connection, store).read(wire.ReadSegment(SEGMENT, 3, 100, "", 7))
    await asyncio.sleep(0)
    return store, connection


def read_flags(replies):
    return [(bytes(r.data), r.at_tail, r.end_of_segment) for r in replies]


def test_read_that_is_filled_exactly_reports_neither_tail_nor_end():
    """Pravega reports what a read met, and a filled read met nothing: the Rust client's wire tests assert it."""

    async def main():
        store = await World(BY_HAND).start()
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        writer.append(b"0123456789", 1)
        await writer.wait_for_replies()
        writer.session.close()

        async def flags(connection):
            connection.take(replies=True)
            handler = ReadHandler(connection, store)
            for length in (9, 10, 11):
                seen = len(connection.replies)
                handler.read(wire.ReadSegment(SEGMENT, 0, length, "", 1))
                while len(connection.replies) == seen:
                    connection.answered.clear()
                    await connection.answered.wait()
            return read_flags(connection.replies)

        pieces = [b"012345678", b"0123456789", b"0123456789"]
        # From memory, then from a chunk.
        for _ in range(2):
            assert await flags(Connection()) == list(zip(pieces, (False, False, True), (False,) * 3, strict=True))
            await store.opened()[0].flusher.checkpoint()
            await evicted(store)
        await container.seal(SEGMENT)
        assert await flags(Connection()) == list(zip(pieces, (False,) * 3, (False, False, True), strict=True))
        await store.stop()

    asyncio.run(main())


async def evicted(store):
    container, flusher = store.opened()[0].container, store.opened()[0].flusher
    for _ in range(4):
        await container.create(f"other{next(_OTHERS)}")
    await flusher.checkpoint()
    assert SEGMENT not in container.state.names


def test_tail_read_waits_on_the_segment_object_in_memory_when_it_parks():
    """While its client took no replies, the segment was evicted: appends went to another object and woke no reader."""

    async def main():
        store, connection = await parked_read()
        await evicted(store)
        connection.take(replies=True)
        container = store.container(SEGMENT)
        async with asyncio.timeout(HANG_SECONDS):
            while SEGMENT not in container.state.names or not container.state.names[SEGMENT].waiters:
                await asyncio.sleep(0)
            writer = Writer(store, SEGMENT)
            await writer.set_up()
            writer.append(b"two", 2)
            await connection.answered.wait()
        (reply,) = connection.replies
        assert (reply.offset, bytes(reply.data), reply.request_id) == (3, b"two", 7)

    asyncio.run(main())


def test_read_waits_again_when_its_client_stops_taking_replies_during_the_load():
    async def main():
        store, connection = await parked_read()
        await evicted(store)
        find, loads = store.reads(SEGMENT).find, []

        async def slowly(name):
            loads.append(name)
            segment = await find(name)
            if len(loads) == 1:
                connection.take(replies=False)
            return segment

        store.reads(SEGMENT).find = slowly
        connection.take(replies=True)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        writer.append(b"two", 2)
        await writer.wait_for_replies()
        await asyncio.sleep(0)
        assert connection.replies == []
        connection.take(replies=True)
        async with asyncio.timeout(HANG_SECONDS):
            await connection.answered.wait()
        assert [bytes(reply.data) for reply in connection.replies] == [b"two"]
        assert len(loads) == 2

    asyncio.run(main())


def test_parked_reads_are_answered_empty_at_their_own_deadlines(monkeypatch):
    """One timer serves all reads of a connection: it is set again for the later ones."""
    wait = 0.05
    monkeypatch.setattr("sarit.store.server.read_handler.PARKED_READ_SECONDS", wait)

    async def main():
        loop = asyncio.get_running_loop()
        store = await World(BY_HAND).start()
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        segment = container.state.names[SEGMENT]
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        connection = Connection()
        connection.gate.set()
        requests = ReadHandler(connection, store)
        answered = {}
        connection.send_parts = lambda parts: answered.setdefault(len(answered), (b"".join(parts), loop.time()))
        begun = [loop.time()]
        requests.read(wire.ReadSegment(SEGMENT, 0, 100, "", 1))
        writer.append(b"one", 1)
        await writer.wait_for_replies()
        async with asyncio.timeout(HANG_SECONDS):
            for request in (2, 3):
                while loop.time() < begun[0] + wait * (request - 1) / 4:
                    await asyncio.sleep(0.001)
                begun.append(loop.time())
                requests.read(wire.ReadSegment(SEGMENT, 3, 100, "", request))
            while len(answered) < 3:
                await asyncio.sleep(0.001)
        frames = [FrameReader().feed(frame)[0] for frame, _ in answered.values()]
        replies = [wire.decode(code, payload) for code, payload in frames]
        assert [(reply.request_id, bytes(reply.data)) for reply in replies] == [(1, b"one"), (2, b""), (3, b"")]
        for number in (1, 2):
            assert answered[number][1] >= begun[number] + wait - 0.002
        assert not segment.waiters

    asyncio.run(main())


def test_parked_read_beyond_the_end_at_which_its_segment_is_sealed_is_refused():
    """Its position is from the source of a mirror, which was promoted before it had those bytes."""

    async def main():
        store = await World(BY_HAND).start()
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        writer.append(b"one", 1)
        await writer.wait_for_replies()
        connection = Connection()
        connection.take(replies=True)
        requests = ReadHandler(connection, store)
        for offset in (3, 5):
            requests.read(wire.ReadSegment(SEGMENT, offset, 100, "", offset))
        await asyncio.sleep(0)
        assert not connection.replies
        async with asyncio.timeout(HANG_SECONDS):
            await container.seal(SEGMENT)
            while len(connection.replies) < 2:
                connection.answered.clear()
                await connection.answered.wait()
        ended, refused = sorted(connection.replies, key=lambda reply: reply.request_id)
        assert isinstance(ended, wire.SegmentIsSealed)
        assert isinstance(refused, wire.ErrorMessage)
        assert "offset 5 is after the end 3 of sealed segment" in refused.message
        await store.stop()

    asyncio.run(main())


def test_parked_reads_of_a_closed_connection_are_dropped(monkeypatch):
    monkeypatch.setattr("sarit.store.server.read_handler.PARKED_READ_SECONDS", 0.02)

    async def main():
        store = await World(BY_HAND).start()
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        connection = Connection()
        connection.gate.set()
        requests = ReadHandler(connection, store)
        requests.read(wire.ReadSegment(SEGMENT, 0, 100, "", 1))
        segment = container.state.names[SEGMENT]
        assert segment.waiters
        connection.closed = True
        async with asyncio.timeout(HANG_SECONDS):
            while segment.waiters:
                await asyncio.sleep(0.001)
        assert not connection.replies

    asyncio.run(main())
