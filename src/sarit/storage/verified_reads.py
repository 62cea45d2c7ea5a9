"""Verified reads of chunks, and the verification of a whole extent.

`sarit verify` and the background scrub (`store/tiering/scrub.py`) call `verify_extent` with an open `ChunkStorage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import NotFound
from sarit.storage.checksums import missing
from sarit.storage.limits import SCRUB_READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.env.ports import Buffer
    from sarit.storage.checksums import ChunkChecksums
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage


async def read_verified(
    storage: ChunkStorage, chunk: str, checksums: ChunkChecksums, offset: int, length: int
) -> Buffer:
    """Return bytes [offset, offset + length) of a chunk, verified.  Raises DamagedChunk, NotFound, Unavailable."""
    begin, end = checksums.blocks_of(offset, length)
    data = await read_blocks(storage, chunk, checksums, begin, end - begin)
    return data if len(data) == length else memoryview(data)[offset - begin : offset - begin + length]


async def read_blocks(storage: ChunkStorage, chunk: str, checksums: ChunkChecksums, offset: int, length: int) -> Buffer:
    """Return whole blocks of a chunk or piece of a pack, verified.  Raises as `read_verified`."""
    return await storage.read(chunk, checksums.begin + offset, length, checksums.verifier(chunk, offset))


async def verify_extent(
    storage: ChunkStorage, extent: Extent, pause: Callable[[int], Awaitable[None]] | None = None
) -> int:
    """Read the blocks of a chunk that hold an extent, and verify their checksums.  Returns how many bytes were read.

    For an inlined extent nothing is read: its record has a checksum in the index.  `pause` is awaited with the length
    of each piece before the piece is read.

    Raises DamagedChunk (the chunk does not match, is too short, or `missing`) and Unavailable (try again).  While a
    node runs, a chunk may be missing because compaction or a deletion has replaced the extent: then its record is not
    in the index any more, and nothing is damaged."""
    checksums = extent.checksums
    if not extent.chunk or checksums is None:
        return 0
    first, last = checksums.blocks_of(extent.chunk_offset, extent.length)
    # Read pieces of whole blocks.
    step = max(SCRUB_READ_BYTES - SCRUB_READ_BYTES % checksums.block_bytes, checksums.block_bytes)
    for begin in range(first, last, step):
        size = min(step, last - begin)
        if pause is not None:
            await pause(size)
        try:
            await read_blocks(storage, extent.chunk, checksums, begin, size)
        except NotFound:
            raise missing(extent.chunk, checksums.begin + begin) from None
    return last - first
