"""Single chunks, deletions or commits fail: everything else is served, and no chunk leaks."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.index import keys
from sarit.store.container import metadata_cache as metadata
from sarit.store.container.segment import AttributeUpdate
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer, read_all

NAME = "a/b/0.#epoch.0"
SOURCE = f"{NAME}#transaction.1"
REPLACE_IF_EQUALS = 4
BY_HAND = replace(SMALL.flush, interval_seconds=1000, inline_below_bytes=1, small_extent_bytes=100_000)


def run(main):
    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


async def written(world, store, first, last):
    """Small chunks, one for each append."""
    writer = Writer(store, NAME)
    await writer.set_up()
    (opened,) = store.opened()
    for number in range(first, last):
        writer.append(b"%d" % (number % 10) * 300, number)
        await writer.wait_for_replies()
        await opened.flusher.checkpoint()
    writer.session.close()
    return opened


def test_uncommitted_compaction_leaves_no_chunk():
    async def main():
        world = World(limits=replace(SMALL, containers=1, cache_bytes=0, flush=BY_HAND))
        store = await world.start()
        await store.container(NAME).create(NAME)
        opened = await written(world, store, 1, 10)
        commit = opened.container.index.commit

        async def full(batch):
            if keys.meta_key("frame") not in batch.puts:
                raise Unavailable("commit: database or disk is full (SQLITE_FULL)")
            await commit(batch)

        opened.container.index.commit = full
        try:
            await opened.flusher._compact()
        except Unavailable:
            assert opened.flusher.interrupted
        else:
            raise AssertionError("no error was raised")
        opened.container.index.commit = commit
        store = await world.crash(store)
        (opened,) = store.opened()
        await opened.orphan_sweep.run()
        segment = await opened.container.metadata.require(NAME)
        extents = await opened.container.metadata.extents.load_all(segment.id)
        assert set(world.storage.chunks) == {extent.chunk for extent in extents}
        assert len(await read_all(store, NAME)) == 9 * 300
        await store.stop()

    run(main)


def test_damaged_chunk_fails_only_its_readers(caplog):
    async def main():
        world = World(limits=replace(SMALL, containers=1, cache_bytes=0, flush=BY_HAND))
        store = await world.start()
        await store.container(NAME).create(NAME)
        opened = await written(world, store, 1, 10)
        damaged = min(world.storage.chunks)
        world.storage.chunks[damaged] = world.storage.chunks[damaged][:100]
        for first in (10, 20):
            await opened.flusher._compact()
            await written(world, store, first, first + 10)
        assert opened.container.failure is None
        assert sum("cannot be compacted" in line for line in caplog.messages) == 1
        await store.stop()

    run(main)


def test_undeletable_chunk_does_not_block_others():
    async def main():
        world = World(limits=replace(SMALL, containers=1, flush=BY_HAND))
        store = await world.start()
        names = [f"a/{number}/0.#epoch.0" for number in range(20)]
        (opened,) = store.opened()
        for name in names:
            await store.container(name).create(name)
            writer = Writer(store, name)
            await writer.set_up()
            writer.append(b"x" * 900, 1)
            await writer.wait_for_replies()
            writer.session.close()
        await opened.flusher.checkpoint()
        assert len(world.storage.chunks) == 20
        stuck, delete = set(sorted(world.storage.chunks)[:5]), world.storage.delete

        async def some(name):
            if name in stuck:
                raise Unavailable("Operation not permitted")
            await delete(name)

        world.storage.delete = some
        for name in names:
            await store.container(name).delete(name)
        await opened.flusher.checkpoint()
        for _ in range(4):
            await opened.flusher.garbage.collect()
        assert set(world.storage.chunks) == stuck
        stuck.clear()
        for _ in range(3):
            await opened.flusher.garbage.collect()
        assert world.storage.chunks == {}
        await store.stop()

    run(main)


def test_slow_deletions_do_not_delay_checkpoint(monkeypatch):
    async def main():
        world = World(limits=replace(SMALL, containers=1, flush=BY_HAND))
        store = await world.start()
        (opened,) = store.opened()
        await opened.container.index.commit(_garbage(200))
        deleted = []

        async def slowly(name):
            deleted.append(name)
            await asyncio.sleep(0.05)

        world.storage.delete = slowly
        monkeypatch.setattr("sarit.store.tiering.chunk_gc.CHUNK_GC_CYCLE_SECONDS", 0.1)
        for _ in range(50):
            before = len(deleted)
            await opened.flusher.garbage.collect()
            assert len(deleted) - before < 100
            if len(deleted) == 200:
                break
        assert sorted(deleted) == [f"gone-{number:03d}" for number in range(200)]
        await store.stop()

    run(main)


def _garbage(count):
    from sarit.index.port import WriteBatch

    return WriteBatch(puts={keys.garbage_key(f"gone-{number:03d}"): b"" for number in range(count)})


def test_attribute_set_to_same_value_may_be_evicted_in_flight(monkeypatch):
    monkeypatch.setattr(metadata, "MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT", 8)

    async def main():
        world = World(limits=replace(SMALL, containers=1, flush=BY_HAND))
        store = await world.start()
        container = store.container(NAME)
        (opened,) = store.opened()
        await container.create(NAME)
        key = b"k" * 16
        await container.update_attribute(NAME, key, 5, -(1 << 63))
        await opened.flusher.checkpoint()
        world.logs.delay_seconds = 0.05
        setting = asyncio.ensure_future(container.update_attribute(NAME, key, 5, 5))
        await asyncio.sleep(0.01)
        for number in range(20):
            await container.get_attribute(NAME, bytes([number]) * 16)
        await setting
        assert container.failure is None
        assert await container.get_attribute(NAME, key) == 5
        await store.stop()

    run(main)


@pytest.fixture
def merging(monkeypatch):
    """A store whose segment NAME has 20 attributes in the index, of which 8 fit into memory, and a SOURCE to merge."""
    monkeypatch.setattr(metadata, "MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT", 8)

    async def begin():
        store = await World(limits=replace(SMALL, containers=1, flush=BY_HAND)).start()
        (opened,) = store.opened()
        for name in (NAME, SOURCE):
            await opened.container.create(name)
        for number in range(20):
            await opened.container.update_attribute(NAME, attribute(number), number, -(1 << 63))
        await opened.flusher.checkpoint()
        await evict_attributes(opened.container)
        return store, opened.container

    return begin


async def evict_attributes(container):
    """Loading other attributes evicts it."""
    for number in range(100, 130):
        await container.get_attribute(NAME, attribute(number))


def attribute(number):
    return bytes([number]) * 16


def increment(number):
    return AttributeUpdate(attribute(number), REPLACE_IF_EQUALS, number + 1, number)


def test_merge_names_more_attributes_than_memory_caches(merging):
    async def main():
        store, container = await merging()
        await container.merge(NAME, SOURCE, tuple(map(increment, range(20))))
        assert [await container.get_attribute(NAME, attribute(number)) for number in range(20)] == list(range(1, 21))
        await store.stop()

    run(main)


def test_attribute_of_waiting_merge_may_be_evicted(merging):
    async def main():
        store, container = await merging()
        source = await container.metadata.require(SOURCE)
        target = await container.metadata.require(NAME)
        with container.compaction(source):
            merge = asyncio.ensure_future(container.merge(NAME, SOURCE, (increment(3),)))
            while attribute(3) not in target.attributes:
                await asyncio.sleep(0)
            await evict_attributes(container)
            assert attribute(3) not in target.attributes
            assert not merge.done()
        await merge
        assert await container.get_attribute(NAME, attribute(3)) == 4
        await store.stop()

    run(main)
