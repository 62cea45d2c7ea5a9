"""The layout of a segment in long-term storage: which chunk holds which bytes of the segment.

Theory of operation.  The flushed bytes of a segment are covered by *extents*, in order and without gaps.  An extent is
a run of the segment's bytes inside one chunk.  A run too small for a chunk is an *inlined extent*: its bytes are a
value in the index.  Chunks are immutable, and extents are never cut: truncation drops extents that lie wholly below the
new start, so the first extent may begin before the segment does.  A merge moves the extents of a segment to another and
copies nothing.  Compaction joins adjacent small extents.

Warnings.  (1) Two extents may name the same chunk, which is garbage only when no extent names it.  A chunk may be a
piece of a pack (`storage/packs.py`), which `Extent.reference` names.  (2) A reader may still hold an extent that was
dropped, and finds its chunk deleted; it then looks the extent up again.  (3) This module writes nothing: the caller
commits the records of added and removed extents in the same batch as the segment's record.

The record of an extent in a chunk (docs/formats/sqlite-index.md) holds the offset of its bytes in the chunk, the
checksums of the whole chunk, and the offsets in the extent where appends began (`storage/starts.py`).  The record of an
inlined extent is its bytes, with the first of which an append began.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt
from sarit.env.limits import READ_BLOCK_BYTES
from sarit.storage import starts
from sarit.storage.checksums import ChunkChecksums
from sarit.storage.limits import APPEND_START_BYTES, CHECKSUM_BYTES, CHUNK_TARGET_BYTES, SMALL_EXTENT_BYTES
from sarit.storage.names import is_pack
from sarit.storage.packs import reference

if TYPE_CHECKING:
    from collections.abc import Iterable

EXTENT_VERSION: Final = 3
PIECE_VERSION: Final = 4
"""The version of the record of an extent in a piece of a pack, which also has the piece's offset in the pack."""
# The greatest size of a checksum's block, as a power of two: a read of READ_BLOCK_BYTES must have whole blocks.
_MAX_BLOCK_POWER: Final = READ_BLOCK_BYTES.bit_length() - 1
JOIN_EXTENTS: Final = 8
"""So many adjacent small extents are joined even if the result is still small."""

# Fields: version, length, offset in the chunk; the lengths of the chunk, of its blocks (as a power of two) and of its
# name; the number of known starts of appends.
_EXTENT = struct.Struct(">BQQQBHI")
_PIECE = struct.Struct(">QQ")  # follows in PIECE_VERSION: the offset of the piece, the length of the pack


@dataclass(frozen=True, slots=True)
class Extent:
    """The segment's bytes [start, start + length): in `chunk` from `chunk_offset`, or `inline`.

    `inline`: the bytes of an inlined extent, empty if they were not loaded.  `checksums`: those of the whole chunk, of
    which the extent may be a part.  `starts`: the offsets in the extent where appends began, packed; an inlined extent
    has only offset 0."""

    start: int
    length: int
    chunk: str = ""
    chunk_offset: int = 0
    inline: bytes = b""
    checksums: ChunkChecksums | None = None
    starts: bytes = starts.FIRST

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.start + self.length

    @property
    def reference(self) -> str:
        """The chunk or piece of a pack that holds the extent, garbage when no extent needs it; "" if inlined."""
        return reference(self.chunk, self.checksums)

    @property
    def object_offset(self) -> int:
        """The offset of the extent's first byte in the object of long-term storage."""
        return self.chunk_offset + (0 if self.checksums is None else self.checksums.begin)

    def record(self) -> bytes:
        """Return the value in the index under `extent_key` or `inlined_key`."""
        if not self.chunk:
            return self.inline
        sums, name = self.checksums, self.chunk.encode("ascii")
        assert sums is not None, self
        power = sums.block_bytes.bit_length() - 1
        count = len(self.starts) // APPEND_START_BYTES
        version = PIECE_VERSION if is_pack(self.chunk) else EXTENT_VERSION
        head = _EXTENT.pack(version, self.length, self.chunk_offset, sums.length, power, len(name), count)
        if version == PIECE_VERSION:
            head += _PIECE.pack(sums.begin, sums.object_length)
        return head + name + sums.crcs + self.starts

    def check(self) -> None:
        """Assert the invariants of every extent."""
        assert self.start >= 0, self
        assert self.length > 0, self
        assert self.chunk_offset >= 0, self
        if self.starts is not starts.FIRST:
            places = starts.unpack(self.starts)
            assert all(before < place for before, place in zip((-1, *places), (*places, self.length), strict=True)), (
                self
            )
        if self.chunk:
            assert not self.inline, self
            assert self.checksums is None or self.chunk_offset + self.length <= self.checksums.length, self
        else:
            assert len(self.inline) == self.length, self
            assert self.chunk_offset == 0, self
            assert self.starts == starts.FIRST, self


def load_chunk_extent(start: int, record: bytes) -> Extent:
    """Return an extent in a chunk from its record.  Raises Corrupt."""
    if not record or record[0] not in (EXTENT_VERSION, PIECE_VERSION):
        raise Corrupt(
            f"the record of an extent at {start} has format {record[0] if record else 'none'}; this version of Sarit "
            f"reads {EXTENT_VERSION} and {PIECE_VERSION}"
        )
    head_bytes = _EXTENT.size + (_PIECE.size if record[0] == PIECE_VERSION else 0)
    if len(record) <= head_bytes:
        raise Corrupt(f"the record of an extent at {start} is damaged: {record[:32].hex()}")
    version, length, chunk_offset, chunk_length, power, size, count = _EXTENT.unpack_from(record)
    begin, pack_length = _PIECE.unpack_from(record, _EXTENT.size) if version == PIECE_VERSION else (0, 0)
    name = record[head_bytes : head_bytes + size]
    blocks = -(-chunk_length >> power) if power <= _MAX_BLOCK_POWER else -1
    first = head_bytes + size + blocks * CHECKSUM_BYTES
    crcs, places = record[head_bytes + size : first], record[first:]
    if (
        length == 0 or not name.isascii() or len(name) != size or not size or len(crcs) != blocks * CHECKSUM_BYTES
        or is_pack(name.decode("ascii")) != (version == PIECE_VERSION)
        or (version == PIECE_VERSION and begin + chunk_length > pack_length)
        or chunk_offset + length > chunk_length or len(places) != count * APPEND_START_BYTES
        or int.from_bytes(places[-APPEND_START_BYTES:], "big") >= length
    ):  # fmt: skip
        raise Corrupt(f"the record of an extent at {start} is damaged: {record[:32].hex()}")
    checksums = ChunkChecksums(chunk_length, 1 << power, crcs, begin, pack_length)
    return Extent(start, length, name.decode("ascii"), chunk_offset, checksums=checksums, starts=places)


def load_inlined_extent(start: int, record: bytes) -> Extent:
    """Return an inlined extent from its record.  Raises Corrupt."""
    if not record:
        raise Corrupt(f"the inlined extent at {start} is empty")
    return Extent(start, len(record), inline=record)


def plan_compaction(
    extents: Iterable[Extent],
    *,
    small_bytes: int = SMALL_EXTENT_BYTES,
    target_bytes: int = CHUNK_TARGET_BYTES,
    join_extents: int = JOIN_EXTENTS,
) -> list[list[Extent]]:
    """Return runs of adjacent extents, each to be joined into one of at most `target_bytes`.

    A run is joined when the result is not small any more, or when it has at least `join_extents` members.  In the
    second case a member at its front is left out if it is longer than all that follow it together: so an extent that a
    join made at least doubles in the next one, and a byte is rewritten at most 1 + log2(small_bytes / first join)
    times."""
    runs: list[list[Extent]] = []
    run: list[Extent] = []
    size = 0
    for extent in extents:
        small = extent.length < small_bytes
        # A large extent ends a run and is never part of one, since rewriting it would gain nothing.
        if run and (not small or size + extent.length > target_bytes):
            _add_run(runs, run, size, small_bytes, join_extents)
            run, size = [], 0
        if small:
            run.append(extent)
            size += extent.length
    _add_run(runs, run, size, small_bytes, join_extents)
    return runs


def _add_run(runs: list[list[Extent]], run: list[Extent], size: int, small_bytes: int, join_extents: int) -> None:
    if size < small_bytes:
        # Leave out large members at the front if the result is still small (see `plan_compaction`).
        first = 0
        rest = size
        for extent in run:
            rest -= extent.length
            if rest >= extent.length:
                break
            first += 1
        run = run[first:]
        if len(run) < join_extents:
            return
    if len(run) > 1:
        runs.append(run)
