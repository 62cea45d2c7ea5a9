"""The layout of a segment in long-term storage, which chunk holds which of its bytes: pure.

Theory of operation.  The flushed bytes of a segment are covered by *extents*, in order and without gaps.  An extent is
a run of the segment's bytes inside one chunk.  A run too small for a chunk is an *inlined extent*: its bytes are a
value in the index.  Chunks are immutable, and extents are never cut: truncation drops extents that lie wholly below the
new start, so the first extent may begin before the segment does.  A merge moves the extents of a segment to another and
copies nothing.  Compaction joins adjacent small extents.

Warnings.  (1) Two extents may name the same chunk; it is garbage only when no extent names it.  (2) A reader may still
hold an extent that was dropped, and finds its chunk deleted; it then loads the extents again.  (3) Nothing here is
durable: the caller commits the records of added and removed extents in the same batch as the segment's record.

The record of an extent in a chunk (docs/formats/sqlite-index.md) is `>B Q Q` (version, length, offset in the chunk)
and the chunk's name; the record of an inlined extent is its bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt
from sarit.core.limits import CHUNK_TARGET_BYTES, SMALL_EXTENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

EXTENT_VERSION: Final = 1
JOIN_EXTENTS: Final = 8
"""That many adjacent small extents are joined even if the result is still small."""

_EXTENT = struct.Struct(">BQQ")


@dataclass(frozen=True, slots=True)
class Extent:
    """The segment's bytes [start, start + length): in `chunk` from `chunk_offset`, or `inline`."""

    start: int
    length: int
    chunk: str = ""
    chunk_offset: int = 0
    inline: bytes = b""

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + self.length

    def record(self) -> bytes:
        """The value in the index, under `extent_key` or `inlined_key`."""
        if not self.chunk:
            return self.inline
        return _EXTENT.pack(EXTENT_VERSION, self.length, self.chunk_offset) + self.chunk.encode("ascii")

    def check(self) -> None:
        """Assert the invariants of every extent."""
        assert self.start >= 0, self
        assert self.length > 0, self
        assert self.chunk_offset >= 0, self
        if self.chunk:
            assert not self.inline, self
        else:
            assert len(self.inline) == self.length, self
            assert self.chunk_offset == 0, self


def load_chunk_extent(start: int, record: bytes) -> Extent:
    """An extent in a chunk from its record.  Raises Corrupt."""
    if len(record) <= _EXTENT.size or record[0] != EXTENT_VERSION:
        raise Corrupt(f"the record of an extent at {start} is of an unknown format: {record[:32].hex()}")
    _, length, chunk_offset = _EXTENT.unpack_from(record)
    name = record[_EXTENT.size :]
    if length == 0 or not name.isascii():
        raise Corrupt(f"the record of an extent at {start} is damaged: {record[:32].hex()}")
    return Extent(start, length, name.decode("ascii"), chunk_offset)


def load_inlined_extent(start: int, record: bytes) -> Extent:
    """An inlined extent from its record.  Raises Corrupt."""
    if not record:
        raise Corrupt(f"the inlined extent at {start} is empty")
    return Extent(start, len(record), inline=record)


def _start(extent: Extent) -> int:
    return extent.start


class ChunkList:
    """The extents of one segment in order of offset, without gaps; the first may start at any offset."""

    __slots__ = ("_extents",)

    def __init__(self, extents: Iterable[Extent] = ()) -> None:
        """Extents in any order; raises Corrupt when they overlap or leave a gap."""
        self._extents = sorted(extents, key=_start)
        for before, extent in pairwise(self._extents):
            if extent.start != before.end:
                raise Corrupt(f"extents overlap or leave a gap: {before} is followed by {extent}")

    def __repr__(self) -> str:
        return f"<ChunkList {len(self._extents)} extents [{self.start}, {self.end})>"

    def __len__(self) -> int:
        return len(self._extents)

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    @property
    def start(self) -> int:
        """Offset of the first byte; 0 when empty."""
        return self._extents[0].start if self._extents else 0

    @property
    def end(self) -> int:
        """Offset after the last byte; 0 when empty."""
        return self._extents[-1].end if self._extents else 0

    def locate(self, offset: int) -> Extent | None:
        """The extent that holds the byte at `offset`; None when none does."""
        # The last extent that begins at or before `offset`.
        at = bisect_right(self._extents, offset, key=_start) - 1
        if at < 0 or offset >= self._extents[at].end:
            return None
        return self._extents[at]

    def append(self, extent: Extent) -> None:
        """Add bytes at the end."""
        extent.check()
        assert not self._extents or extent.start == self.end, (self, extent)
        self._extents.append(extent)

    def truncate(self, offset: int) -> list[Extent]:
        """Drop the extents wholly below `offset`; returns them."""
        count = bisect_right(self._extents, offset, key=_start)
        if count and self._extents[count - 1].end > offset:
            # It holds the byte at `offset`, so it stays whole: `check` permits that the first one begins lower.
            count -= 1
        dropped = self._extents[:count]
        del self._extents[:count]
        return dropped

    def replace(self, start: int, extents: Sequence[Extent]) -> list[Extent]:
        """Replace the extents of the same bytes by `extents`, which begin at `start` and have no gaps.

        Returns the replaced extents.  An empty list: the bytes are not covered by whole extents any more (truncated
        meanwhile), and nothing was changed.
        """
        assert extents, start
        assert extents[0].start == start, (start, extents)
        for before, extent in pairwise(extents):
            assert before.end == extent.start, (before, extent)
        first = bisect_left(self._extents, start, key=_start)
        last = bisect_left(self._extents, extents[-1].end, key=_start)
        replaced = self._extents[first:last]
        # A truncation may have dropped some of them while their bytes were joined.
        if not replaced or replaced[0].start != start or replaced[-1].end != extents[-1].end:
            return []
        self._extents[first:last] = extents
        return replaced

    def check(self, start: int, end: int) -> None:
        """Assert that the extents hold exactly the bytes of a segment flushed in [start, end).

        The first extent may begin below `start`, but must reach above it.
        """
        for extent in self._extents:
            extent.check()
        for before, extent in pairwise(self._extents):
            assert before.end == extent.start, (before, extent)
        if not self._extents:
            assert start == end, (start, end)
            return
        first = self._extents[0]
        assert first.start <= start < first.end, (first, start)
        assert self.end == end, (self, end)


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
