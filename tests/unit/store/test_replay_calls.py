"""Replay asks the index for what a window of frames needs at once: each call is a round trip on an object store."""

import asyncio
import time

import pytest

from sarit.index.memory import IndexFaults, MemoryIndexes
from sarit.index.slate import open_in_memory
from sarit.store.container.container import ContainerLimits
from sarit.store.store import StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from tests.unit.store.harness import World, Writer, read_all

NEVER = 3600.0
ANSWER_SECONDS = 0.03


def limits(window_bytes: int = 8 << 20) -> StoreLimits:
    return StoreLimits(
        containers=1,
        flush=FlushLimits(interval_seconds=NEVER),
        container=ContainerLimits(recovery_window_bytes=window_bytes),
    )


def name_of(number: int) -> str:
    return f"scope/stream{number}/0.#epoch.0"


async def append_to_all(store, count: int, event: int) -> None:
    writers = [Writer(store, name_of(number), number.to_bytes(16, "big")) for number in range(count)]
    for first in range(0, count, 500):
        some = writers[first : first + 500]
        if event == 1:
            await asyncio.gather(*(store.container(one.segment).create(one.segment, fresh=True) for one in some))
        for writer in some:
            await writer.set_up()
            writer.append(b"event %d;" % event, event)
        await some[0].wait_for_replies()
        for writer in some:
            writer.session.close()


async def fill(world: World, count: int) -> None:
    """Every segment has an event in a checkpoint, and one that only the log has.  The process is gone."""
    store = await world.start()
    await append_to_all(store, count, 1)
    await store.stop()
    store = await world.start()
    await append_to_all(store, count, 2)
    for task in [*store._background._tasks, *(task for hosted in store._hosted for task in hosted.tasks)]:
        task.cancel()
    for opened in store.opened():
        await opened.container.log.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("segments", [1, 200])
def test_calls_of_a_recovery_do_not_grow_with_its_segments(segments):
    async def main():
        calls = []

        def count_call() -> float:
            calls.append(asyncio.current_task())
            return 0.0

        world = World(limits(), indexes=MemoryIndexes(IndexFaults(delay=count_call)))
        await fill(world, segments)
        calls.clear()
        store = await world.start()
        # Open, the last checkpoint, operations set aside, one get for the window, transient segments.  The record of
        # the log, and what runs from then on, have tasks of their own.
        assert calls.count(calls[0]) == 5
        assert await read_all(store, name_of(segments - 1)) == b"event 1;event 2;"
        await store.stop()

    asyncio.run(main())


def test_each_window_of_frames_costs_one_get():
    async def main():
        calls = []

        def count_call() -> float:
            calls.append(asyncio.current_task())
            return 0.0

        counts = []
        for window_bytes in (1, 8 << 20):  # every frame is a window; all are one
            world = World(limits(window_bytes), indexes=MemoryIndexes(IndexFaults(delay=count_call)))
            await fill(world, 300)
            calls.clear()
            store = await world.start()
            counts.append(calls.count(calls[0]))
            await store.stop()
        assert counts[1] == 5
        assert 1 < counts[0] - 4 <= 300 // 50, "a frame holds the operations of many segments"

    asyncio.run(main())


@pytest.mark.long
def test_5000_dirty_segments_replay_in_3_seconds_although_each_get_takes_30_ms(monkeypatch):
    async def main():
        world = World(limits(), indexes=open_in_memory())
        await fill(world, 5000)
        opened, store_away = world.indexes.open, Rounds()

        async def open_slow(container):
            index = await opened(container)
            index._database = Slow(index._database, store_away)
            return index

        monkeypatch.setattr(world.indexes, "open", open_slow)
        began, spent = time.perf_counter(), time.process_time()
        store = await world.start()
        took, spent, rounds = time.perf_counter() - began, time.process_time() - spent, store_away.rounds
        print(f"recovery: {took:.2f} s, {spent:.2f} s of processor time, {rounds} rounds of requests")
        # Not the time by the clock: other work of the machine is in it.
        assert spent + rounds * ANSWER_SECONDS < 3
        assert await read_all(store, name_of(4999)) == b"event 1;event 2;"
        await store.stop()

    asyncio.run(main())


class Rounds:
    """How many times requests went out while none was under way."""

    def __init__(self):
        self.rounds = self.under_way = 0

    async def wait(self):
        self.rounds += not self.under_way
        self.under_way += 1
        await asyncio.sleep(ANSWER_SECONDS)
        self.under_way -= 1


class Slow:
    """A database on a store each of whose answers takes its time."""

    def __init__(self, database, rounds):
        self.database, self.rounds = database, rounds

    async def get(self, key):
        await self.rounds.wait()
        return await self.database.get(key)

    async def scan_with_options(self, span, options):
        await self.rounds.wait()
        return await self.database.scan_with_options(span, options)

    async def flush_with_options(self, options):
        await self.rounds.wait()
        return await self.database.flush_with_options(options)

    async def snapshot(self):
        return Slow(await self.database.snapshot(), self.rounds)

    def __getattr__(self, name):
        return getattr(self.database, name)
