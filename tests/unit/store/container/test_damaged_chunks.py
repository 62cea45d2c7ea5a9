"""Damaged chunks: every way to their bytes is verified, and only what is damaged is refused."""

import asyncio
import logging
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.index import keys
from sarit.store.container import reads as reads_module
from sarit.store.tiering.scrub import Scrub, ScrubRateLimiter
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer, read_all

NAME = "a/b/0.#epoch.0"
SOURCE = f"{NAME}#transaction.1"
BLOCK = 512
BY_HAND = replace(
    SMALL.flush, interval_seconds=1000, inline_below_bytes=1, small_extent_bytes=100_000, chunk_bytes=100_000,
    checksum_block_bytes=BLOCK,
)  # fmt: skip
LIMITS = replace(SMALL, containers=1, cache_bytes=0, chunk_cache_bytes=1, flush=BY_HAND)


def run(main):
    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


async def append(store, segment, *sizes):
    """One append of each size, of distinct bytes; flushes them together."""
    writer = Writer(store, segment)
    number = max(await writer.set_up(), 0)
    for at, size in enumerate(sizes, 1):
        writer.append(bytes((number + at + byte) % 251 for byte in range(size)), number + at)
    await writer.wait_for_replies()
    writer.session.close()


async def started(*sizes):
    """A store with a segment of which each append is a chunk of its own."""
    world = World(limits=LIMITS)
    store = await world.start()
    (opened,) = store.opened()
    await opened.container.create(NAME)
    for size in sizes:
        await append(store, NAME, size)
        await opened.flusher.checkpoint()
    return world, store, opened


def flip(world, name, at):
    data = bytearray(world.storage.chunks[name])
    data[at] ^= 4
    world.storage.chunks[name] = bytes(data)


async def read(store, name, offset, limit=700, *, cached=False):
    """What a read from long-term storage returns, or from the cache of chunk blocks."""
    reads = store.reads(name)
    if not cached:
        for key in list(reads._chunks._blocks):
            reads._chunks._forget(key)
    segment = await reads.find(name)
    result = await reads.from_chunks(segment, offset, limit)
    return b"".join(bytes(part) for part in result.parts)


@pytest.mark.parametrize("cache", [1, 1 << 24])
def test_flipped_bit_is_refused_and_all_other_blocks_are_served(cache, caplog):
    async def main():
        world = World(limits=replace(LIMITS, chunk_cache_bytes=cache))
        store = await world.start()
        (opened,) = store.opened()
        await opened.container.create(NAME)
        await append(store, NAME, 300, 5 * BLOCK)
        await opened.flusher.checkpoint()
        whole = await read_all(store, NAME)
        store = await world.crash(store)
        (opened,) = store.opened()
        (chunk,) = world.storage.chunks
        flip(world, chunk, 2 * BLOCK + 7)
        for offset in range(0, len(whole)):
            if 2 * BLOCK <= offset < 3 * BLOCK:
                with pytest.raises(Corrupt) as error:
                    await read(store, NAME, offset, cached=True)
                assert NAME in str(error.value)
                assert f"offset {offset}:" in str(error.value)
                assert chunk in str(error.value)
                assert "`sarit verify`" in str(error.value)
            else:
                found = await read(store, NAME, offset, cached=True)
                assert found
                assert found == whole[offset : offset + len(found)]
        assert sum("long-term storage is damaged" in line for line in caplog.messages) == 1
        assert list(opened.container.damage.chunks) == [chunk]
        assert opened.container.damage.reads == BLOCK
        assert opened.container.failure is None
        flip(world, chunk, 2 * BLOCK + 7)  # restored by an operator
        assert await read_all(store, NAME) == whole
        await store.stop()

    run(main)


def test_short_chunk_serves_its_whole_blocks():
    async def main():
        world, store, opened = await started(4 * BLOCK)
        whole = await read_all(store, NAME)
        (chunk,) = world.storage.chunks
        world.storage.chunks[chunk] = world.storage.chunks[chunk][: 2 * BLOCK + 100]
        assert await read(store, NAME, 100) == whole[100:BLOCK]
        assert await read(store, NAME, BLOCK) == whole[BLOCK : 2 * BLOCK]
        with pytest.raises(Corrupt, match=rf"{NAME} cannot be read at offset \d+: chunk .* is too short"):
            await read(store, NAME, 2 * BLOCK)
        await store.stop()

    run(main)


def test_missing_chunk_is_named(caplog):
    async def main():
        world, store, opened = await started(600, 600)
        whole = await read_all(store, NAME)
        first = min(world.storage.chunks)
        del world.storage.chunks[first]
        for _ in range(3):
            with pytest.raises(Corrupt, match=f"{NAME} cannot be read at offset 20: chunk {first} is missing"):
                await read(store, NAME, 20)
        assert await read(store, NAME, 600) == whole[600:]
        assert sum("long-term storage is damaged" in line for line in caplog.messages) == 1
        await store.stop()

    run(main)


def test_exchanged_chunk_of_the_same_length_is_refused():
    async def main():
        world, store, opened = await started(600, 600)
        first, second = sorted(world.storage.chunks)
        world.storage.chunks[first] = world.storage.chunks[second]
        with pytest.raises(Corrupt):
            await read(store, NAME, 0)
        await store.stop()

    run(main)


def test_read_of_the_tail_from_its_chunk_is_verified():
    """The chunk is written, its checkpoint not committed, and the bytes are not in memory any more."""

    async def main():
        world = World(limits=replace(LIMITS, max_dirty_bytes=1000))
        store = await world.start()
        (opened,) = store.opened()
        await opened.container.create(NAME)
        await append(store, NAME, 600)
        segment = await opened.container.metadata.require(NAME)
        commit, seen = opened.container.index.commit, []

        async def meanwhile(batch):
            (block,) = segment.tail
            assert block.parts is None
            seen.append(await read(store, NAME, 0))
            flip(world, block.chunk, 5)
            with pytest.raises(Corrupt, match="does not match its checksum"):
                await read(store, NAME, 0)
            flip(world, block.chunk, 5)
            await commit(batch)

        opened.container.index.commit = meanwhile
        await opened.flusher.checkpoint()
        opened.container.index.commit = commit
        assert seen == [await read_all(store, NAME)]
        await store.stop()

    run(main)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_read_of_merged_bytes_is_verified(checkpointed):
    """Extents of a transaction move to its parent with their checksums, also when a part was truncated."""

    async def main():
        world, store, opened = await started(600)
        await opened.container.create(SOURCE)
        await append(store, SOURCE, 700, 300)
        await opened.flusher.checkpoint()
        await opened.container.merge(NAME, SOURCE, ())
        await opened.container.truncate(NAME, 1000)
        whole = await read_all(store, NAME)
        assert len(whole) == 600
        if checkpointed:
            await opened.flusher.checkpoint()
            store = await world.crash(store)
        moved = max(world.storage.chunks)
        flip(world, moved, 999)
        assert await read(store, NAME, 1000) == whole[: BLOCK - 400]
        with pytest.raises(Corrupt, match=f"chunk {moved} does not match"):
            await read(store, NAME, 600 + BLOCK)
        await store.stop()

    run(main)


def test_compaction_does_not_launder(caplog):
    async def main():
        world, store, opened = await started(*[300] * 9)
        whole = await read_all(store, NAME)
        damaged = sorted(world.storage.chunks)[4]
        flip(world, damaged, 10)
        before = set(world.storage.chunks)
        await opened.flusher._compact()
        assert set(world.storage.chunks) == before
        with pytest.raises(Corrupt, match=damaged):
            await read(store, NAME, 4 * 300)
        assert await read(store, NAME, 5 * 300) == whole[5 * 300 : 6 * 300]
        assert sum("long-term storage is damaged" in line for line in caplog.messages) == 1
        await store.stop()

    run(main)


def test_compaction_of_a_missing_chunk_is_reported_once(caplog):
    async def main():
        world, store, opened = await started(*[300] * 9)
        del world.storage.chunks[sorted(world.storage.chunks)[4]]
        for _ in range(3):
            await opened.flusher._compact()
        assert sum("cannot be compacted" in line for line in caplog.messages) == 1
        assert sum("long-term storage is damaged" in line for line in caplog.messages) == 1
        assert opened.flusher.compactor._counts == {}
        await store.stop()

    run(main)


def test_compacted_bytes_have_checksums_of_their_own():
    async def main():
        world, store, opened = await started(*[300] * 9)
        whole = await read_all(store, NAME)
        await opened.flusher._compact()
        await opened.flusher.garbage.collect()
        (joined,) = world.storage.chunks
        assert await read_all(store, NAME) == whole
        flip(world, joined, 1999)
        with pytest.raises(Corrupt, match=joined):
            await read(store, NAME, 1800)
        await store.stop()

    run(main)


def test_cached_block_is_verified_once(monkeypatch):
    calls = []
    right = reads_module.ChunkReader._load

    async def counted(self, *arguments):
        calls.append(arguments)
        return await right(self, *arguments)

    monkeypatch.setattr(reads_module.ChunkReader, "_load", counted)

    async def main():
        world = World(limits=replace(LIMITS, chunk_cache_bytes=1 << 24))
        store = await world.start()
        (opened,) = store.opened()
        await opened.container.create(NAME)
        await append(store, NAME, 5 * BLOCK)
        await opened.flusher.checkpoint()
        for _ in range(3):
            assert len(await read_all(store, NAME)) == 5 * BLOCK
        assert len(calls) == 1
        await store.stop()

    run(main)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("finder", ["read", "compaction", "scrub"])
def test_damage_is_noted_by_the_owner_alone(finder, fenced, caplog):
    """The next owner deletes chunks that the index of an owner before it names: no damage is reported of these."""

    async def main():
        world, store, opened = await started(*[300] * 9)
        container = opened.container
        container.lease = lambda: True  # a store of several; its clock stood still
        del world.storage.chunks[sorted(world.storage.chunks)[4]]
        if fenced:
            await world.logs.claim(container.number)
        if finder == "read":
            with pytest.raises(Unavailable if fenced else Corrupt):
                await read(store, NAME, 4 * 300)
        elif finder == "compaction":
            await opened.flusher._compact()
        else:
            scrub = Scrub(container, ScrubRateLimiter(container.env.clock, 1 << 40), 1000)
            await scrub._pass(*keys.kind_range(keys.EXTENT))
        assert len(container.damage.chunks) == (0 if fenced else 1)
        errors = [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR]
        assert any("is damaged" in line for line in errors) is not fenced
        assert not any("cannot be compacted" in line for line in errors) or not fenced
        assert isinstance(container.failure, Fenced) is fenced
        await store.stop()

    run(main)
