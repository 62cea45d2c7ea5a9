"""Lookups of extents by offset, and the bounds of what is cached of them."""

import asyncio
import random
from itertools import pairwise

import pytest

from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.memory import MemoryIndexes
from sarit.index.port import WriteBatch
from sarit.storage.checksums import ChunkChecksums
from sarit.storage.layout import Extent
from sarit.storage.starts import pack, unpack
from sarit.store.container.extents import Commits, ExtentCache, Extents, extent_bytes
from sarit.store.tiering.compaction_sweep import neighbourhood
from sarit.store.tiering.references import stored_key

SEGMENT = 7


def in_chunk(start: int, length: int) -> Extent:
    # An append began with each third byte of the segment: in some extents, none.
    starts = pack([at for at in range(length) if (start + at) % 3 == 0])
    return Extent(start, length, f"c{start}", 0, checksums=ChunkChecksums(length, 1 << 12, bytes(4)), starts=starts)


def inlined(start: int, length: int) -> Extent:
    return Extent(start, length, inline=bytes((start + at) % 251 for at in range(length)))


async def committed(extents: list[Extent], cache_bytes: int = 1 << 20):
    index = await MemoryIndexes().open(0)
    others = [Extent(0, 9, inline=bytes(9)), in_chunk(9, 1)]
    batch = WriteBatch({stored_key(SEGMENT, one): one.record() for one in extents})
    for segment in (SEGMENT - 1, SEGMENT + 1):
        batch.puts |= {stored_key(segment, one): one.record() for one in others}
    await index.commit(batch)
    return index, Extents(index, Commits(), cache_bytes)


def tiled(seed: int, count: int) -> list[Extent]:
    rng, at, out = random.Random(seed), rng_start(seed), []
    for _ in range(count):
        length = rng.randrange(1, 40)
        out.append((in_chunk if rng.random() < rng.choice((0.1, 0.9)) else inlined)(at, length))
        at += length
    return out


def rng_start(seed: int) -> int:
    return seed % 3 * 50


@pytest.mark.parametrize("cache_bytes", [0, 2000, 1 << 20])
@pytest.mark.parametrize("seed", range(6))
def test_every_offset_is_found(seed, cache_bytes):
    async def main():
        extents = tiled(seed, 300)
        _, lookup = await committed(extents, cache_bytes)
        by_offset = {offset: one for one in extents for offset in range(one.start, one.end)}
        offsets = list(by_offset)
        random.Random(seed).shuffle(offsets)
        for offset in offsets[:400]:
            found = await lookup.locate(SEGMENT, offset, 100)
            assert found[0] == by_offset[offset]
            assert all(not one.chunk for one in found[1:])
            assert all(before.end == one.start for before, one in pairwise(found))
            left = 100 - (found[0].end - offset)
            if not found[0].chunk and left >= found[0].length and not by_offset.get(found[0].end, found[0]).chunk:
                assert len(found) > 1 or found[0] == extents[-1]
            assert lookup.cache.bytes <= cache_bytes
            assert lookup.cache.bytes == sum(extent_bytes(one) for run in lookup.cache._runs.values() for one in run)
        assert await lookup.locate(SEGMENT, extents[-1].end, 10) == []
        assert extents[0].start == 0 or await lookup.locate(SEGMENT, extents[0].start - 1, 10) == []
        assert await lookup.load_all(SEGMENT) == extents
        starts = [one.start + place for one in extents for place in unpack(one.starts)]
        for offset in (*offsets[:400], extents[-1].end):
            following = min((start for start in starts if start >= offset), default=None)
            found = await lookup.next_start(SEGMENT, offset)
            end = extents[-1].end if following is None else by_offset[following].end
            assert found == (following, max(end, offset))

    asyncio.run(main())


def test_bytes_of_inlined_extents_are_not_cached():
    async def main():
        _, lookup = await committed([inlined(at * 30_000, 30_000) for at in range(50)])
        for at in range(50):
            await lookup.locate(SEGMENT, at * 30_000, 100)
        assert lookup.cache.bytes == 0

    asyncio.run(main())


def test_a_damaged_extent_is_an_error_for_its_own_bytes_alone():
    async def main():
        extents = [
            in_chunk(0, 10),
            inlined(10, 10),
            inlined(20, 10),
            inlined(30, 10),
            in_chunk(40, 10),
            in_chunk(50, 10),
        ]
        for damaged in extents:
            index, lookup = await committed(extents)
            values = index._table.values
            values[stored_key(SEGMENT, damaged)] = b"\0" + values[stored_key(SEGMENT, damaged)][1:]
            for one in extents:
                if one is damaged:
                    with pytest.raises(Corrupt):
                        await lookup.locate(SEGMENT, one.start + 3, 100)
                else:
                    assert (await lookup.locate(SEGMENT, one.start + 3, 100))[0] == one

    asyncio.run(main())


def test_least_recently_used_runs_are_evicted():
    runs = [[in_chunk(100 * number, 10), in_chunk(100 * number + 10, 10)] for number in range(4)]
    size = sum(map(extent_bytes, runs[3]))
    cache = ExtentCache(3 * size)
    for run in runs[:3]:
        cache.put(1, run)
    assert cache.locate(1, 5) == runs[0][0]
    cache.put(2, runs[3])
    assert cache.locate(1, 115) is None
    assert cache.locate(1, 215) == runs[2][1]
    assert cache.locate(1, 220) is None
    cache.put(1, runs[2])  # again
    cache.drop(1)
    assert cache.locate(1, 5) is None
    assert cache.bytes == size
    cache.put(3, [in_chunk(at, 1) for at in range(100)])
    assert cache.bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_neighbourhood_is_in_order_and_says_where_it_ends(seed):
    async def main():
        extents = tiled(seed, 1200)
        index, _ = await committed(extents)
        for at in (None, 0, extents[600].start, extents[-1].end):
            found, (all_left, all_right) = await neighbourhood(index, SEGMENT, at)
            first = extents.index(next(one for one in extents if one.start == found[0].start))
            assert [(one.start, one.length, one.chunk) for one in found] == [
                (one.start, one.length, one.chunk) for one in extents[first : first + len(found)]
            ]
            assert not all_left or first == 0
            assert all_right == (first + len(found) == len(extents)) or not all_right
            assert len(found) >= 64

    asyncio.run(main())


def test_keys_of_extents_are_taken_apart():
    assert keys.number_of(keys.extent_key(5, 77)) == 77
    assert keys.segment_of(keys.inlined_key(5, 77)) == 5
