"""Reads the pieces of packs that one compaction joins, several by one request, since each request costs money.

Pieces that one checkpoint wrote are near each other in a pack, and are often joined at the same time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from sarit.env.background import ignore_outcome, shielded
from sarit.storage.names import is_pack
from sarit.storage.verified_reads import read_verified
from sarit.store.limits import PACK_GAP_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.env.ports import Buffer
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage


class PackReader:
    """A reader of the extents of one batch of joins, each of which is read once.

    Neighbours in a pack are read by one request, with the gap between them: the smallest gaps first, up to
    PACK_GAP_BYTES each, while all that is read is at most `limit_bytes`."""

    def __init__(self, storage: ChunkStorage, extents: Iterable[Extent], limit_bytes: int) -> None:
        self._storage = storage
        pieces: dict[str, dict[int, int]] = {}
        for extent in extents:
            if is_pack(extent.chunk):
                assert extent.checksums is not None, extent
                pieces.setdefault(extent.chunk, {})[extent.checksums.begin] = extent.checksums.length
        # The spans of each pack, each read by one request, as (begin, end) in ascending order.
        self._spans = _spans({pack: sorted(wanted.items()) for pack, wanted in pieces.items()}, limit_bytes)
        self._reads: dict[tuple[str, int], asyncio.Task[Buffer]] = {}

    def __repr__(self) -> str:
        return f"<PackReader: {sum(map(len, self._spans.values()))} spans of {len(self._spans)} packs>"

    async def read(self, extent: Extent) -> Buffer:
        """Return the bytes of an extent in a chunk.  Raises DamagedChunk, NotFound, Unavailable."""
        checksums = extent.checksums
        assert checksums is not None, extent
        if not is_pack(extent.chunk):
            return await read_verified(self._storage, extent.chunk, checksums, extent.chunk_offset, extent.length)
        spans = self._spans[extent.chunk]
        begin, end = spans[bisect_right(spans, (checksums.begin + 1,)) - 1]
        reading = self._reads.get((extent.chunk, begin))
        if reading is None:
            reading = asyncio.ensure_future(self._storage.read(extent.chunk, begin, end - begin))
            # Nobody may retrieve an error: all readers are cancelled when the store stops or gives the container away.
            reading.add_done_callback(ignore_outcome)
            self._reads[extent.chunk, begin] = reading
        # Shield the request: several readers wait for it, and one may be cancelled alone.
        data = await shielded(reading)
        piece = memoryview(data)[checksums.begin - begin :][: checksums.length]
        checksums.verify(extent.chunk, 0, piece)
        return piece[extent.chunk_offset : extent.chunk_offset + extent.length]


def _spans(packs: dict[str, list[tuple[int, int]]], limit_bytes: int) -> dict[str, list[tuple[int, int]]]:
    """Return the spans (begin, end) to read for the pieces (begin, length) of packs, all in ascending order."""
    gaps = sorted(
        (gap, pack, begin)
        for pack, pieces in packs.items()
        for (before, length), (begin, _) in pairwise(pieces)
        if (gap := begin - before - length) <= PACK_GAP_BYTES
    )
    # Only gaps count against what is left of the limit after the pieces, which are read in any case.
    left = max(0, limit_bytes - sum(length for pieces in packs.values() for _, length in pieces))
    joined: set[tuple[str, int]] = set()
    for gap, pack, begin in gaps:
        left -= gap
        if left < 0:
            break
        joined.add((pack, begin))
    spans: dict[str, list[tuple[int, int]]] = {}
    for pack, pieces in packs.items():
        of_pack = spans[pack] = []
        for begin, length in pieces:
            first = of_pack.pop()[0] if (pack, begin) in joined else begin
            of_pack.append((first, begin + length))
    return spans
