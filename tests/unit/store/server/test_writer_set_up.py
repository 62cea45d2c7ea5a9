"""Setting up a writer, and what remains of its older sessions."""

import asyncio
from dataclasses import replace

from sarit.store.container import metadata_cache as metadata
from sarit.store.container.state import WrongEventNumber
from sarit.store.server.append_handler import AppendHandler
from sarit.store.server.connection_quotas import ConnectionQuotas
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire import commands as wire
from sarit.wire.frames import Append, FrameReader
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, WRITER, World, Writer, read_all

SEGMENT, OTHER = "s/t/0.#epoch.0", "s/t/1.#epoch.0"
BY_HAND = replace(SMALL, containers=1, flush=FlushLimits(interval_seconds=1000))


async def until(condition):
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():
            await asyncio.sleep(0)


class DelayedFrames:
    """Delays frames to a container's log until it is let through, one frame at a time."""

    def __init__(self, container):
        self._log, self._append, self._frames = container.log, container.log.append, []
        container.log.append = lambda number, parts, done: self._frames.append((number, list(parts), done))

    async def hold(self, count):
        await until(lambda: len(self._frames) == count)

    def let_through(self):
        self._append(*self._frames.pop(0))

    def end(self):
        self._log.append = self._append
        while self._frames:
            self.let_through()


def test_set_up_answers_the_latest_number_though_its_attribute_was_evicted(monkeypatch):
    """Its attribute is evicted while its set-up waits for appends in flight."""
    monkeypatch.setattr(metadata, "MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT", 4)

    async def come_and_go(store, numbers):
        for number in numbers:
            writer = Writer(store, SEGMENT, b"%016d" % number)
            await writer.set_up()
            writer.append(b"-", 1)
            await writer.wait_for_replies()
            writer.session.close()

    async def main():
        store = await World(BY_HAND).start()
        container, flusher = store.opened()[0].container, store.opened()[0].flusher
        await container.create(SEGMENT)
        await come_and_go(store, range(4))
        await flusher.checkpoint()
        frames = DelayedFrames(container)
        first, other = Writer(store, SEGMENT), Writer(store, SEGMENT, b"o" * 16)
        for count, writer in enumerate((first, other), 1):
            await writer.set_up()
            writer.append(b"one", 1)
            await frames.hold(count)
        again = Writer(store, SEGMENT)
        setting_up = asyncio.ensure_future(again.set_up())
        await asyncio.sleep(0)
        frames.let_through()
        await until(lambda: first.replies.acknowledgements)
        await flusher.checkpoint()
        for number in range(10, 14):
            writer = Writer(store, SEGMENT, b"%016d" % number)
            await writer.set_up()
            writer.session.close()
        segment = await container.metadata.require(SEGMENT)
        assert first.writer not in segment.attributes
        assert not setting_up.done()
        frames.end()
        assert await setting_up == 1
        third = Writer(store, SEGMENT)
        assert await third.set_up() == 1
        again.append(b"two", 2)
        third.append(b"two", 2)
        await third.wait_for_replies()
        assert [type(error) for error in again.replies.errors] == [WrongEventNumber]
        assert [number for number, _, _ in third.replies.acknowledgements] == [2]
        assert await read_all(store, SEGMENT) == b"----oneonetwo"

    asyncio.run(main())


class Connection:
    """What `AppendHandler` needs of a connection."""

    hello_version = 17
    closed = paused = False

    def __init__(self):
        self.tasks, self.replies = [], []

    def spawn(self, work, memory_bytes):
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def send(self, frame):
        self.replies += [wire.decode(code, payload) for code, payload in FrameReader().feed(frame)]

    async def wait_for_replies(self):
        await asyncio.gather(*self.tasks)


async def with_segments():
    """A container that holds both segments, and the appends of one connection to it."""
    store = await World(BY_HAND).start()
    container = store.container(SEGMENT)
    for name in (SEGMENT, OTHER):
        await container.create(name)
    connection = Connection()
    connection.quotas = ConnectionQuotas(connection, store.quotas)
    return container, connection, AppendHandler(connection, store)


def pins(container):
    return {name: segment.pins for name, segment in container.state.names.items()}


def test_set_up_on_another_segment_replaces_the_one_in_progress():
    async def main():
        container, connection, appends = await with_segments()
        for request, name in enumerate((SEGMENT, OTHER, SEGMENT, OTHER)):
            appends.set_up(wire.SetupAppend(request, WRITER, name, ""))
        await connection.wait_for_replies()
        assert [reply.segment for reply in connection.replies] == [SEGMENT, OTHER, SEGMENT, OTHER]
        assert pins(container) == {SEGMENT: 0, OTHER: 1}
        appends.connection_closed()
        assert pins(container) == {SEGMENT: 0, OTHER: 0}

    asyncio.run(main())


def test_refused_set_up_ends_the_session_on_the_segment_before():
    async def main():
        container, connection, appends = await with_segments()
        appends.set_up(wire.SetupAppend(1, WRITER, SEGMENT, ""))
        appends.set_up(wire.SetupAppend(2, WRITER, "nowhere", ""))
        await connection.wait_for_replies()
        assert [type(reply) for reply in connection.replies] == [wire.AppendSetup, wire.NoSuchSegment]
        appends.append(Append(WRITER, [b"for nowhere"], 11, 1, 1, 0), None)
        await container.group_commit.wait_durable()
        assert await container.length(SEGMENT) == 0
        assert pins(container) == {SEGMENT: 0, OTHER: 0}

    asyncio.run(main())


def test_attribute_of_a_repeated_number_can_be_evicted_during_its_append(monkeypatch):
    """Assigned and applied numbers are equal, so it seemed idle; applying the append then failed the container."""
    monkeypatch.setattr(metadata, "MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT", 4)

    async def main():
        store = await World(BY_HAND).start()
        container, flusher = store.opened()[0].container, store.opened()[0].flusher
        await container.create(SEGMENT)
        writers = [Writer(store, SEGMENT, b"%016d" % number) for number in range(4)]
        for writer in writers:
            await writer.set_up()
            writer.append(b"once", 5)
            await writer.wait_for_replies()
        await flusher.checkpoint()
        frames = DelayedFrames(container)
        again = writers[0]
        again.append(b"again", 5)
        await frames.hold(1)
        again.session.close()
        await Writer(store, SEGMENT, b"%016d" % 4).set_up()
        assert again.writer not in container.state.names[SEGMENT].attributes
        frames.end()
        assert len((await again.wait_for_replies()).acknowledgements) == 2
        assert await container.get_attribute(SEGMENT, again.writer) == 5
        assert container.failure is None
        await store.stop()

    asyncio.run(main())
