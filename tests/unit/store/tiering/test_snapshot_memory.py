"""The flusher releases bytes once they are written; the cache alone decides what stays in memory."""

import asyncio
import gc
import weakref
from dataclasses import replace

import pytest

from sarit.storage.memory import MemoryChunks
from sarit.store.limits import BLOCK_OVERHEAD_BYTES
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.frames import Append
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENT, OTHER = "s/t/0.#epoch.0", "s/u/0.#epoch.0"
SOURCE = SEGMENT + "#transaction." + "0" * 32
BY_HAND = FlushLimits(interval_seconds=1000, inline_below_bytes=1, concurrent_small_writes=1)


class Part(bytearray):
    """Bytes whose release a weak reference shows."""


def test_checkpoint_releases_written_bytes():
    async def main():
        world = World(replace(SMALL, containers=1, cache_bytes=0, flush=FlushLimits(interval_seconds=1000)))
        store = await world.start()
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        part = Part(b"x" * 100_000)
        writer.session.append(Append(writer.writer, [part], len(part), 1, 1, 0))
        await writer.wait_for_replies()
        held = weakref.ref(part)
        del part
        assert held() is not None
        await store.opened()[0].flusher.checkpoint()
        gc.collect()
        still_held = held() is not None
        assert not still_held

    asyncio.run(main())


class OneChunk(MemoryChunks):
    """Accepts one chunk; the others wait for `more`.  `waiting` is set when one does."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.more = asyncio.Event(), asyncio.Event()

    async def write(self, name, parts, limiter=None, observe=None):
        if self.chunks:
            self.waiting.set()
            await self.more.wait()
        await super().write(name, parts, limiter, observe)


async def _half_written(cache_bytes: int, first: str = SEGMENT):
    """A store with three blocks in `first`, whose chunk is written, and a checkpoint that waits for that of OTHER;
    and the bytes of the second block."""
    world = World(replace(SMALL, containers=1, cache_bytes=cache_bytes, flush=BY_HAND), storage=OneChunk())
    store = await world.start()
    held = []
    for name in (first, OTHER):
        await store.container(name).create(name)
        writer = Writer(store, name)
        await writer.set_up()
        for number in range(3):
            part = Part(bytes([number]) * 10_000)
            writer.session.append(Append(writer.writer, [part], len(part), 1, number + 1, 0))
            held.append(weakref.ref(part))
            del part
        await writer.wait_for_replies()
        writer.session.close()
    checkpoint = asyncio.ensure_future(store.opened()[0].flusher.checkpoint())
    await asyncio.wait_for(world.storage.waiting.wait(), HANG_SECONDS)
    return store, world.storage, checkpoint, held[1]


WHOLE = b"".join(bytes([number]) * 10_000 for number in range(3))
ONE_CHUNK = len(WHOLE) + 3 * BLOCK_OVERHEAD_BYTES


async def _ended(store, storage, checkpoint) -> None:
    storage.more.set()
    assert await checkpoint
    (opened,) = store.opened()
    assert opened.container.state.dirty.written_bytes == 0
    assert await read_all(store, SEGMENT) == WHOLE
    await store.stop()


@pytest.mark.parametrize(("cache_bytes", "stays"), [(0, False), (ONE_CHUNK - 1, False), (ONE_CHUNK, True)])
def test_written_chunk_leaves_memory_before_other_chunks_are_written(cache_bytes: int, stays: bool) -> None:
    """A checkpoint of a thousand segments takes seconds: it retained as many bytes again as may be dirty."""

    async def main() -> None:
        store, storage, checkpoint, held = await _half_written(cache_bytes)
        gc.collect()
        in_memory = held() is not None
        assert in_memory == stays
        (opened,) = store.opened()
        state = opened.container.state
        assert state.dirty.written_bytes == (ONE_CHUNK if stays else 0)
        assert state.dirty.append_bytes == len(WHOLE), "of OTHER alone"
        assert await read_all(store, SEGMENT) == WHOLE
        segment = state.names[SEGMENT]
        for offset in (0, 9_999, 10_000, 15_000, 29_999):
            found = await store.reads(SEGMENT).from_chunks(segment, offset, 12_000)
            data = b"".join(map(bytes, found.parts))
            assert data
            assert WHOLE.startswith(data, offset)
            assert found.at_tail == (offset + len(data) == len(WHOLE) and len(data) < 12_000)
        assert await store.reads(SEGMENT).event_boundary(SEGMENT, 10_001) == 20_000
        await _ended(store, storage, checkpoint)

    asyncio.run(main())


def test_merge_of_evicted_bytes_before_commit() -> None:
    async def main() -> None:
        store, storage, checkpoint, _ = await _half_written(0, SOURCE)
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        await container.merge(SEGMENT, SOURCE)
        assert await read_all(store, SEGMENT) == WHOLE
        storage.more.set()
        assert await checkpoint
        assert await read_all(store, SEGMENT) == WHOLE
        (opened,) = store.opened()
        assert await opened.flusher.checkpoint()  # of the target: the chunk is its own now
        await opened.flusher.garbage.collect()
        assert len(storage.chunks) == 2
        assert await read_all(store, SEGMENT) == WHOLE
        await store.stop()

    asyncio.run(main())


def test_retained_bytes_of_merged_segment_count_until_target_commits() -> None:
    async def main() -> None:
        store, storage, checkpoint, _ = await _half_written(ONE_CHUNK, SOURCE)
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        await container.merge(SEGMENT, SOURCE)
        (opened,) = store.opened()
        storage.more.set()
        assert await checkpoint
        assert opened.container.state.dirty.written_bytes == ONE_CHUNK
        assert await opened.flusher.checkpoint()
        assert opened.container.state.dirty.written_bytes == 0
        assert await read_all(store, SEGMENT) == WHOLE
        await store.stop()

    asyncio.run(main())


def test_truncation_of_evicted_bytes_before_commit() -> None:
    async def main() -> None:
        store, storage, checkpoint, _ = await _half_written(0)
        container = store.container(SEGMENT)
        await container.truncate(SEGMENT, 15_000)
        segment = container.state.names[SEGMENT]
        for step in range(2):
            found = await store.reads(SEGMENT).from_chunks(segment, 15_000, 12_000)
            assert b"".join(map(bytes, found.parts)) == WHOLE[15_000:27_000], step
            storage.more.set()
            await checkpoint
        await store.stop()

    asyncio.run(main())
