"""Packs: objects that hold small pieces of many segments; to readers each piece is a chunk.

Theory of operation.  On an object store each write costs money, whatever its size.  So the small extents of a
checkpoint or of a compaction are written as the *pieces* of one object, one after the other, without a header.  A
piece has its own checksums (`ChunkChecksums`, with the offset where it begins), so that it is read and verified alone,
by one request.  It is referenced, joined and dropped as a chunk is.  Only the deletion differs: the object is deleted
with its last piece.

A *reference* names a unit of garbage: a chunk by its name, a piece as NAME@OFFSET.  The index has a record for each
piece that an extent names (`keys.piece_key`).  The commit that deletes the last record of a pack records the pack as
garbage (`store/tiering/references.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.storage.checksums import ChecksumBuilder, ChunkChecksums
from sarit.storage.limits import CHECKSUM_BLOCK_BYTES
from sarit.storage.names import is_pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer


def reference(chunk: str, checksums: ChunkChecksums | None) -> str:
    """Return the name of what becomes garbage as a whole: a chunk, or one piece of a pack."""
    if not is_pack(chunk):
        return chunk
    assert checksums is not None, chunk
    return f"{chunk}@{checksums.begin:012d}"


def pack_of(what: str) -> str | None:
    """Return the pack of a reference to a piece; None for a chunk."""
    pack, _, begin = what.partition("@")
    return pack if begin and is_pack(pack) else None


class PieceChecksums:
    """A builder of the checksums of each piece from the bytes of the object, in order."""

    def __init__(self, lengths: Sequence[int], block_bytes: int = CHECKSUM_BLOCK_BYTES) -> None:
        self._lengths = lengths
        self._builders = [ChecksumBuilder(block_bytes) for _ in lengths]
        self._piece = 0
        self._left = lengths[0]

    def __repr__(self) -> str:
        return f"<PieceChecksums of {len(self._lengths)} pieces>"

    def add(self, parts: Sequence[Buffer]) -> None:
        """Add the next bytes of the object.  Blocking."""
        if len(self._builders) == 1:
            self._builders[0].add(parts)
            return
        waiting: list[Buffer] = []
        for part in parts:
            rest = part
            while len(rest) > self._left:
                waiting.append(memoryview(rest)[: self._left])
                rest = memoryview(rest)[self._left :]
                self._builders[self._piece].add(waiting)
                waiting = []
                self._piece += 1
                self._left = self._lengths[self._piece]
            waiting.append(rest)
            self._left -= len(rest)
        self._builders[self._piece].add(waiting)

    def finish(self) -> list[ChunkChecksums]:
        """Return the checksums of each piece, with the offset where it begins."""
        if len(self._builders) == 1:
            return [self._builders[0].finish()]
        out, begin, total = [], 0, sum(self._lengths)
        for length, builder in zip(self._lengths, self._builders, strict=True):
            checksums = builder.finish()
            assert checksums.length == length, (self, checksums)
            out.append(ChunkChecksums(length, checksums.block_bytes, checksums.crcs, begin, total))
            begin += length
        return out
