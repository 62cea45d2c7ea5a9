"""Long-term storage is full and a checkpoint waits: deletions and truncations meanwhile free space for it."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.storage.memory import MemoryChunks
from sarit.store.tiering import flusher as flushing
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer, read_all

OLD, NEW = "a/old/0.#epoch.0", "a/new/0.#epoch.0"
BY_HAND = replace(SMALL.flush, interval_seconds=1000, inline_below_bytes=1)


class FullChunks(MemoryChunks):
    """Holds `capacity` bytes; `refused` is set when a chunk did not fit."""

    capacity = 2000

    def __init__(self):
        super().__init__()
        self.refused = asyncio.Event()

    async def write(self, name, parts, limiter=None, observe=None):
        if sum(map(len, (*parts, *self.chunks.values()))) > self.capacity:
            self.refused.set()
            raise Unavailable("No space left on device")
        await super().write(name, parts, limiter, observe)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(flushing, "CHUNK_RETRY_SECONDS", 0.01)


def run(main):
    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


async def append(store, name, *pieces):
    writer = Writer(store, name)
    last = max(await writer.set_up(), 0)
    for number, piece in enumerate(pieces, last + 1):
        writer.append(piece, number)
    await writer.wait_for_replies()
    writer.session.close()


async def filled():
    """A world whose storage is filled by OLD, and a checkpoint that waits to write NEW; the store, and both."""
    world = World(limits=replace(SMALL, containers=1, cache_bytes=0, flush=BY_HAND), storage=FullChunks())
    store = await world.start()
    (opened,) = store.opened()
    for name in (OLD, NEW):
        await store.container(name).create(name)
    await append(store, OLD, b"a" * 900, b"b" * 900)
    await opened.flusher.checkpoint()
    await append(store, NEW, b"c" * 900)
    checkpoint = asyncio.ensure_future(opened.flusher.checkpoint())
    await world.storage.refused.wait()
    return world, store, checkpoint


async def all_collected(store):
    (opened,) = store.opened()
    await opened.flusher.checkpoint()
    await opened.flusher.garbage.collect()


def test_storage_outage_and_recovery_are_logged_once(caplog):
    async def main():
        world, store, checkpoint = await filled()
        for _ in range(3):
            world.storage.refused.clear()
            await world.storage.refused.wait()
        world.storage.capacity = 10_000
        assert await checkpoint
        await store.stop()

    run(main)
    logged = [record.message for record in caplog.records if "long-term storage takes" in record.message]
    assert logged == [
        "container 0: long-term storage takes no chunks: No space left on device",
        "container 0: long-term storage takes chunks again",
    ]


def test_deletion_frees_full_storage_during_checkpoint():
    async def main():
        world, store, checkpoint = await filled()
        await store.container(OLD).delete(OLD)
        assert await checkpoint
        assert await read_all(store, NEW) == b"c" * 900
        await all_collected(store)
        assert list(world.storage.chunks.values()) == [b"c" * 900]
        await store.stop()

    run(main)


def test_truncation_frees_whole_chunks_during_checkpoint():
    async def main():
        world, store, checkpoint = await filled()
        await store.container(OLD).truncate(OLD, 1000)
        assert await checkpoint
        assert await read_all(store, NEW) == b"c" * 900
        assert await read_all(store, OLD) == b"b" * 800
        assert sorted(world.storage.chunks.values()) == [b"b" * 900, b"c" * 900]
        await append(store, OLD, b"d" * 100)
        await all_collected(store)
        assert await read_all(store, OLD) == b"b" * 800 + b"d" * 100
        await store.stop()

    run(main)


@pytest.mark.parametrize("change", ["delete", "truncate"])
def test_recovery_after_early_reclaim_repeats_deletion_from_log(change):
    """Power cut after the early reclaim, before the checkpoint that covers the deletion."""

    async def main():
        world, store, checkpoint = await filled()
        world.storage.capacity = 0
        if change == "delete":
            await store.container(OLD).delete(OLD)
        else:
            await store.container(OLD).truncate(OLD, 1000)
        while b"a" * 900 in world.storage.chunks.values():
            world.storage.refused.clear()
            await world.storage.refused.wait()
        checkpoint.cancel()
        store = await world.crash(store)
        assert await read_all(store, NEW) == b"c" * 900
        if change == "delete":
            assert await store.container(OLD).metadata.find(OLD) is None
        else:
            assert await read_all(store, OLD) == b"b" * 800
        world.storage.capacity = 2000
        await all_collected(store)
        left = [b"c" * 900] if change == "delete" else [b"b" * 900, b"c" * 900]
        assert sorted(world.storage.chunks.values()) == left
        await store.stop()

    run(main)


def test_early_reclaim_spares_chunks_of_merged_segment():
    """The segment is deleted, and its bytes belong to another now."""

    async def main():
        world, store, checkpoint = await filled()
        await store.container(NEW).merge(NEW, OLD)
        world.storage.refused.clear()
        await world.storage.refused.wait()
        world.storage.capacity = 3000
        assert await checkpoint
        await all_collected(store)
        assert await read_all(store, NEW) == b"c" * 900 + b"a" * 900 + b"b" * 900
        await store.stop()

    run(main)
