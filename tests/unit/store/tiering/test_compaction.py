"""Compaction joins small extents, invisibly to readers."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

from sarit.storage.layout import JOIN_EXTENTS
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENT = "s/t/0.#epoch.0"


async def _trickling():
    """A store in its world where extents below 600 bytes are small, and a writer on a segment of it."""
    world = World(limits=replace(SMALL, flush=replace(SMALL.flush, small_extent_bytes=600)))
    store = await world.start()
    await store.container(SEGMENT).create(SEGMENT)
    writer = Writer(store, SEGMENT)
    await writer.set_up()
    return world, store, writer


def test_compaction_of_slow_segments_is_invisible_to_readers():
    async def main():
        world, store, writer = await _trickling()
        expected = b""
        for number in range(1, 60):
            data = bytes([number]) * (50 + number * 5)
            writer.append(data, number)
            expected += data
            await writer.wait_for_replies()
            await asyncio.sleep(0.03)
            if number % 20 == 0:
                assert await read_all(store, SEGMENT) == expected
        joined = sum(o.flusher.compactor.joined for o in store.opened())
        assert joined > 30
        await asyncio.sleep(0.1)
        assert await read_all(store, SEGMENT) == expected
        store = await world.crash(store)
        assert await read_all(store, SEGMENT) == expected
        await asyncio.sleep(0.1)
        opened_container = next(o for o in store.opened() if o.container is store.container(SEGMENT))
        segment = await opened_container.container.metadata.require(SEGMENT)
        chunks = await opened_container.container.metadata.chunks(segment)
        named = {extent.chunk for extent in chunks if extent.chunk}
        assert set(world.storage.chunks) == named  # the joined ones are deleted, nothing else is
        await store.stop()

    asyncio.run(main())


def test_compaction_stops_over_soft_limit():
    """With a thousand busy segments it took seconds without a flush, and appends were throttled."""

    async def main():
        _, store, writer = await _trickling()
        half = store.budget.max_dirty_bytes // 2
        store.budget.report(99, SimpleNamespace(charged_bytes=half, append_bytes=0, written_bytes=0))
        numbers = iter(range(1, 1000))
        expected = b""

        async def write_one() -> None:
            nonlocal expected
            number = next(numbers)
            writer.append(bytes([number % 256]) * 300, number)
            expected += bytes([number % 256]) * 300
            await writer.wait_for_replies()
            await asyncio.sleep(0.03)

        def joined() -> int:
            return sum(opened.flusher.compactor.joined for opened in store.opened())

        compactor = next(o.flusher.compactor for o in store.opened() if o.container is store.container(SEGMENT))
        while sum(compactor._small.values()) < 3 * JOIN_EXTENTS:
            await write_one()
        assert joined() == 0
        store.budget.forget(99)
        while joined() < 3 * JOIN_EXTENTS:
            await write_one()
        assert await read_all(store, SEGMENT) == expected
        await store.stop()

    asyncio.run(main())


def test_compaction_forgets_deleted_segments():
    """An entry for every transaction would have leaked for as long as the node ran."""

    async def main():
        world = World(limits=replace(SMALL, flush=replace(SMALL.flush, interval_seconds=1000)))
        store = await world.start()
        names = [f"a/b/{number}.#epoch.0" for number in range(6)]
        for name in names:
            await store.container(name).create(name)
            writer = Writer(store, name)
            await writer.set_up()
            writer.append(b"x" * 50, 1)
            await writer.wait_for_replies()
            writer.session.close()
        flushers = [opened_container.flusher for opened_container in store.opened()]
        for flusher in flushers:
            await flusher.checkpoint()
        assert sum(len(flusher.compactor._small) for flusher in flushers) == len(names)
        for name in names[1:]:
            await store.container(name).delete(name)
        for flusher in flushers:
            await flusher.checkpoint()
        assert sum(len(flusher.compactor._small) for flusher in flushers) == 1
        await store.stop()

    asyncio.run(main())
