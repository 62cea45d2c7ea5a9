"""Reads the pieces of packs that one compaction joins: those of a pack by one request, where that fetches little else.

The pieces that come together in one checkpoint leave their pack together as a rule.  Each request costs money.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.storage.names import is_pack
from sarit.storage.verified import read_verified

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.env.ports import Buffer
    from sarit.storage.checksums import ChunkChecksums
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage


class PackReader:
    """Reads these extents, each once; made for one batch of joins, whose bytes are bounded."""

    def __init__(self, storage: ChunkStorage, extents: Iterable[Extent]) -> None:
        self._storage = storage
        pieces: dict[str, dict[int, ChunkChecksums]] = {}
        for extent in extents:
            if is_pack(extent.chunk):
                assert extent.checksums is not None, extent
                pieces.setdefault(extent.chunk, {})[extent.checksums.begin] = extent.checksums
        # By pack: from where to where it is read at once.
        self._spans: dict[str, tuple[int, int]] = {}
        for pack, wanted in pieces.items():
            begin, end = min(wanted), max(one.begin + one.length for one in wanted.values())
            if len(wanted) > 1 and 2 * sum(one.length for one in wanted.values()) >= end - begin:
                self._spans[pack] = begin, end
        self._reads: dict[str, asyncio.Task[Buffer]] = {}

    def __repr__(self) -> str:
        return f"<PackReader: {len(self._spans)} packs are read at once>"

    async def read(self, extent: Extent) -> Buffer:
        """The bytes of an extent in a chunk.  Raises DamagedChunk, NotFound, Unavailable."""
        checksums = extent.checksums
        assert checksums is not None, extent
        span = self._spans.get(extent.chunk)
        if span is None:
            return await read_verified(self._storage, extent.chunk, checksums, extent.chunk_offset, extent.length)
        begin, end = span
        reading = self._reads.get(extent.chunk)
        if reading is None:
            reading = asyncio.ensure_future(self._storage.read(extent.chunk, begin, end - begin))
            self._reads[extent.chunk] = reading
        # One of those that wait may be cancelled.
        data = await asyncio.shield(reading)
        piece = memoryview(data)[checksums.begin - begin :][: checksums.length]
        checksums.verify(extent.chunk, 0, piece)
        return piece[extent.chunk_offset : extent.chunk_offset + extent.length]
