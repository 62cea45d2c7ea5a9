"""The layout of a segment in long-term storage, which chunk holds which of its bytes: pure.

Theory of operation.  The flushed bytes of a segment are covered by *extents*, in order and without gaps.  An extent is
a run of the segment's bytes inside one chunk.  A run too small for a chunk is an *inlined extent*: its bytes are a
value in the index.  Chunks are immutable, and extents are never cut: truncation drops extents that lie wholly below the
new start, so the first extent may begin before the segment does.  A merge moves the extents of a segment to another and
copies nothing.  Compaction joins adjacent small extents.

Warnings.  (1) Two extents may name the same chunk; it is garbage only when no extent names it.  A chunk may be a piece
of a pack (`storage/packs.py`): then `Extent.reference` says which.  (2) A reader may still
hold an extent that was dropped, and finds its chunk deleted; it then loads the extents again.  (3) Nothing here is
durable: the caller commits the records of added and removed extents in the same batch as the segment's record.

The record of an extent in a chunk (docs/formats/sqlite-index.md) holds the place of its bytes, the checksums of the
whole chunk, and where in the extent appends began (`storage/starts.py`).  The record of an inlined extent is its bytes:
an append began with the first of them.
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
"""Of an extent in a piece of a pack: as EXTENT_VERSION, and where in the pack the piece is."""
# Blocks larger than what is read at once could not be verified (READ_BLOCK_BYTES, of which each is a divisor).
_MAX_BLOCK_POWER: Final = READ_BLOCK_BYTES.bit_length() - 1
JOIN_EXTENTS: Final = 8
"""That many adjacent small extents are joined even if the result is still small."""

# Version, length, offset in the chunk; length of the chunk, of its blocks (as a power of two), and of its name; how
# many appends began in it.
_EXTENT = struct.Struct(">BQQQBHI")
_PIECE = struct.Struct(">QQ")  # follows in PIECE_VERSION: where the piece begins, and the length of the pack


@dataclass(frozen=True, slots=True)
class Extent:
    """The segment's bytes [start, start + length): in `chunk` from `chunk_offset`, or `inline`.

    Where its bytes are not needed, an inlined extent has neither (`Extents.readable`, compaction).

    `checksums`: of the whole chunk, of which the extent may be a part.  `starts`: where in the extent appends began,
    packed; an inlined extent begins with one."""

    start: int
    length: int
    chunk: str = ""
    chunk_offset: int = 0
    inline: bytes = b""
    checksums: ChunkChecksums | None = None
    starts: bytes = starts.FIRST

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + self.length

    @property
    def reference(self) -> str:
        """The object that becomes garbage when nobody needs the extent: its chunk, or its piece of a pack; "" when
        inlined."""
        return reference(self.chunk, self.checksums)

    @property
    def object_offset(self) -> int:
        """Where in the object its bytes begin."""
        return self.chunk_offset + (0 if self.checksums is None else self.checksums.begin)

    def record(self) -> bytes:
        """Return the value in the index, under `extent_key` or `inlined_key`."""
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
    """Runs of adjacent extents, each to be joined into one of at most `target_bytes`.

    A run is joined when it makes an extent that is small no more, or when it has at least
    `join_extents` members.  In the second case large members at its front are left out until
    what follows them is as long as they are: an extent that a join made thus at least doubles
    in the next, and a byte is rewritten at most 1 + log2(small_bytes / first join) times.
    """
    runs: list[list[Extent]] = []
    run: list[Extent] = []
    size = 0
    for extent in extents:
        small = extent.length < small_bytes
        # A large extent ends a run and is never part of one: to rewrite it would gain nothing.
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
        # The result is still small: leave out large members at the front (see `plan_compaction`).
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
