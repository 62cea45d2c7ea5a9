"""Readahead: the blocks of a chunk that are read beyond those requested."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.limits import MIB
from sarit.storage.checksums import ChunkChecksums
from sarit.store.container.reads import ChunkReader


class _Storage:
    """Zeros in every chunk; records what is read."""

    def __init__(self) -> None:
        self.reads = []

    async def read(self, name, offset, length, check):
        self.reads.append((offset, length))
        return bytes(length)


async def _unlimited(length, reader) -> None:
    return


@pytest.mark.parametrize(("chunk_bytes", "most"), [(100, 1), (2 * MIB, 1), (2 * MIB + 1, 2), (32 * MIB, 3)])
def test_readahead_stops_at_end_of_chunk(chunk_bytes, most) -> None:
    """A task was made for each block of the readahead, even after the end of the chunk."""

    async def main() -> None:
        storage = _Storage()
        reader = ChunkReader(storage, 64 * MIB, _unlimited)
        begun, load = [], reader._load

        async def counted(chunk, begin, length, *others):
            begun.append(begin)
            return await load(chunk, begin, length, *others)

        reader._load = counted
        (piece,) = await reader.read("chunk", ChunkChecksums(chunk_bytes, MIB, b""), 0, 50, None)
        await asyncio.sleep(0)
        assert len(piece) == 50
        assert len(begun) == most
        assert sum(length for _, length in storage.reads) == min(chunk_bytes, 6 * MIB)

    asyncio.run(main())
