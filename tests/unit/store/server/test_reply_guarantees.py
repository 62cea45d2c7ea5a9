"""Every request ends with its reply or with its connection: no client waits for ever."""

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.core.errors import Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.index.memory import MemoryIndex
from sarit.store.flow_control.free_space import FreeSpace
from sarit.store.limits import MAX_CONNECTION_UNACKED_BYTES
from sarit.wire import commands as wire
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, Writer
from tests.unit.store.server.test_connection import ATTRIBUTE, SEGMENT, WRITER, append_end, ready, run, serving

OTHER = b"v" * 16


class Gate:
    """Delays the answers of `MemoryIndex.get` while it is closed."""

    def __init__(self, monkeypatch):
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = 0
        original = MemoryIndex.get

        async def get(index, keys):
            found = await original(index, keys)
            self.waiting += 1
            try:
                await self.open.wait()
            finally:
                self.waiting -= 1
            return found

        monkeypatch.setattr(MemoryIndex, "get", get)

    async def waited_for(self, count=1):
        while self.waiting < count:
            await asyncio.sleep(0.001)


async def cold(world, *names):
    """A store that has the segments in its index only."""
    store = await world.start()
    for name in names:
        await store.container(name).create(name)
    await store.stop()


def test_cancelled_load_does_not_cancel_its_other_waiters(monkeypatch):
    async def main():
        world = World()
        await cold(world, SEGMENT)
        store = await world.start()
        gate = Gate(monkeypatch)
        gate.open.clear()
        first = asyncio.create_task(store.container(SEGMENT).info(SEGMENT))
        await gate.waited_for()
        second = asyncio.create_task(store.container(SEGMENT).info(SEGMENT))
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        gate.open.set()
        assert (await asyncio.wait_for(second, HANG_SECONDS)).length == 0
        await store.stop()

    run(main())


def test_closed_connection_loses_no_reply_of_another(monkeypatch):
    async def main():
        world = World()
        await cold(world, SEGMENT)
        async with serving(world) as server:
            gate = Gate(monkeypatch)
            gone, stays = await server.client(), await server.client()
            gate.open.clear()
            gone.send(wire.GetStreamSegmentInfo(1, SEGMENT, ""))
            await gate.waited_for()
            stays.send(wire.GetStreamSegmentInfo(2, SEGMENT, ""))
            await stays.ask(wire.KeepAlive())
            gone.writer.transport.abort()
            while len(server.server._connections) > 1:
                await asyncio.sleep(0.001)
            gate.open.set()
            assert (await stays.reply()).request_id == 2

    run(main())


def test_appends_after_a_refused_set_up_are_dropped_and_the_connection_stays_open():
    async def main():
        async with serving() as server:
            c = await server.client()
            c.send(wire.SetupAppend(1, WRITER, "s/no/0.#epoch.0", ""))
            assert isinstance(await c.reply(), wire.NoSuchSegment)
            c.send(append_end(b"x", 1, 1))
            assert isinstance(await c.ask(wire.KeepAlive()), wire.KeepAlive)

    run(main())


def test_appends_pending_on_two_set_ups_keep_their_order(monkeypatch):
    async def main():
        async with serving() as server:
            c = await ready(server)
            gates = [asyncio.Event(), asyncio.Event()]
            left = list(gates)
            container = type(server.store.container(SEGMENT))
            original = container.set_up_writer

            async def set_up_writer(*arguments):
                await left.pop(0).wait()
                return await original(*arguments)

            monkeypatch.setattr(container, "set_up_writer", set_up_writer)
            c.send(wire.SetupAppend(1, OTHER, SEGMENT, ""), append_end(b"a", 1, 1, writer=OTHER))
            c.send(wire.SetupAppend(2, OTHER, SEGMENT, ""))
            await c.ask(wire.KeepAlive())
            gates[0].set()
            assert (await c.reply()).request_id == 1
            c.send(append_end(b"b", 1, 2, writer=OTHER))  # after "a", which is pending
            await c.ask(wire.KeepAlive())
            gates[1].set()
            assert await c.reply() == wire.AppendSetup(2, SEGMENT, OTHER, NULL_ATTRIBUTE_VALUE)
            assert (await c.reply()).event_number == 1
            assert (await c.reply()).event_number == 2
            got = await c.ask(wire.ReadSegment(SEGMENT, 0, 100, "", 9))
            assert bytes(got.data) == b"ab"

    run(main())


def test_refused_set_up_leaves_pending_appends_to_its_successor(monkeypatch):
    async def main():
        async with serving() as server:
            c = await ready(server)
            c.send(
                wire.SetupAppend(1, OTHER, "s/no/0.#epoch.0", ""),
                wire.SetupAppend(2, OTHER, SEGMENT, ""),
                append_end(b"x", 1, 1, writer=OTHER),
            )
            assert isinstance(await c.reply(), wire.NoSuchSegment)
            assert isinstance(await c.reply(), wire.AppendSetup)
            assert (await c.reply()).event_number == 1

    run(main())


def test_reading_resumes_when_the_appends_over_the_limit_are_refused():
    async def main():
        async with serving() as server:
            c = await ready(server)
            store = server.store
            store.budget.disk_full = True
            size = MAX_CONNECTION_UNACKED_BYTES // 4
            for number in range(1, 6):
                c.send(append_end(bytes(size), 1, number))
            (connection,) = server.server._connections
            while not connection.paused:
                await asyncio.sleep(0.001)
            await store.container(SEGMENT).seal(SEGMENT)
            store.budget.disk_full = False
            assert isinstance(await c.reply(), wire.SegmentIsSealed)
            assert isinstance(await c.ask(wire.KeepAlive()), wire.KeepAlive)

    run(main())


def test_container_failure_during_a_set_up_ends_the_connection(monkeypatch):
    async def main():
        world = World()
        await cold(world, SEGMENT)
        async with serving(world) as server:
            gate = Gate(monkeypatch)
            c = await server.client()
            gate.open.clear()
            c.send(wire.SetupAppend(1, WRITER, SEGMENT, ""))
            await gate.waited_for()
            server.store.container(SEGMENT).fail(Unavailable("a test"))
            gate.open.set()
            await c.closed()

    run(main())


def test_container_failure_while_a_tail_read_loads_its_segment_ends_the_connection(monkeypatch):
    async def main():
        world = World()
        await cold(world, SEGMENT)
        async with serving(world) as server:
            gate = Gate(monkeypatch)
            c = await server.client()
            gate.open.clear()
            c.send(wire.ReadSegment(SEGMENT, 0, 100, "", 1))
            await gate.waited_for()
            server.store.container(SEGMENT).fail(Unavailable("a test"))
            gate.open.set()
            await c.closed()

    run(main())


def test_failed_container_refuses_appends_also_over_the_append_limit():
    async def main():
        world = World()
        store = await world.start()
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        writer.session.container.fail(Unavailable("a test"))
        store.budget.disk_full = True
        writer.append(b"x", 1)
        assert [type(error) for error in writer.replies.errors] == [Unavailable]
        await store.stop()

    run(main())


def test_cancelled_request_ends_the_connection(monkeypatch):
    async def main():
        async with serving() as server:
            c = await ready(server)

            async def cancelled(*_):
                raise asyncio.CancelledError

            monkeypatch.setattr(type(server.store.container(SEGMENT)), "get_attribute", cancelled)
            c.send(wire.GetSegmentAttribute(1, SEGMENT, ATTRIBUTE, ""))
            await c.closed()

    run(main())


def test_throttled_appends_are_released_when_free_space_is_unknown(caplog):
    async def main():
        world = World()
        store = await world.start()

        class Worker:
            async def run(self, call):
                raise OSError("no answer")

            async def close(self):
                return

        class Threads:
            def worker(self, name):
                return Worker()

        store._disks = [("/nowhere", FreeSpace("/nowhere", 1, "appends wait", store.env.clock.monotonic))]
        store.env = replace(store.env, threads=Threads(), files=SimpleNamespace(free_bytes=len))
        for task in list(store._background._tasks):
            task.cancel()
        store.spawn(store._watch_disk())
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        store.budget.disk_full = True
        writer.append(b"x", 1)
        await asyncio.sleep(0.02)
        store.budget.disk_full = False
        for _ in range(200):
            if writer.replies.acknowledgements:
                break
            await asyncio.sleep(0.01)
        assert writer.replies.acknowledgements
        assert "the free space of /nowhere is unknown" in caplog.text
        await store.stop()

    run(main())


def test_background_task_that_dies_is_logged(caplog):
    async def main():
        store = await World().start()

        async def bug():
            raise AssertionError("a test")

        store.spawn(bug())
        await asyncio.sleep(0.01)
        await store.stop()

    run(main())
    assert "restart this process" in caplog.text


def test_closed_connection_that_takes_nothing_is_aborted(monkeypatch):
    async def main():
        monkeypatch.setattr("sarit.store.server.connection.CONNECTION_CLOSE_SECONDS", 0.1)
        async with serving() as server:
            c = await ready(server)
            for number in range(1, 9):
                c.send(append_end(b"x" * 1_000_000, 1, number))
            for _ in range(8):
                await c.reply()
            slow = await server.client()
            slow.reader._transport.pause_reading()
            for request in range(40):
                slow.send(wire.ReadSegment(SEGMENT, 0, 1_000_000, "", request))
            while not any(connection.paused for connection in server.server._connections):
                await asyncio.sleep(0.01)
            (connection,) = [x for x in server.server._connections if x.paused]
            connection.close()
            async with asyncio.timeout(HANG_SECONDS):
                while connection in server.server._connections:
                    await asyncio.sleep(0.01)
            slow.writer.transport.abort()

    run(main())


@pytest.mark.parametrize("kind", ["takes no replies", "half a frame"])
def test_stalled_connections_are_ended_with_one_log_line(kind, caplog):
    async def main():
        async with serving() as server:
            c = await ready(server)
            still = await server.client()
            if kind == "takes no replies":
                for number in range(1, 9):
                    c.send(append_end(b"x" * 1_000_000, 1, number))
                for _ in range(8):
                    await c.reply()
                still.reader._transport.pause_reading()
                for request in range(40):
                    still.send(wire.ReadSegment(SEGMENT, 0, 1_000_000, "", request))
                while not any(connection.paused for connection in server.server._connections):
                    await asyncio.sleep(0.01)
            else:
                still.send(append_end(b"x" * 100_000, 1, 1)[:50_000])
                while not any(x.memory().incomplete_frame_bytes for x in server.server._connections):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            now = asyncio.get_running_loop().time()  # the clock of the server, whose reaper runs on its timer, too
            server.server.reap(now)
            server.server.reap(now + 50)
            assert len(server.server._connections) == 2
            server.server.reap(now + 61)
            while len(server.server._connections) > 1:
                await asyncio.sleep(0.01)
            assert isinstance(await c.ask(wire.KeepAlive()), wire.KeepAlive)
            still.writer.transport.abort()
        lines = [r.getMessage() for r in caplog.records if r.name == "sarit.store.server.connection"]
        assert len(lines) == 1, lines
        assert ("did not take" if kind == "takes no replies" else "of a frame and stalled") in lines[0]

    run(main())
