"""Finds small extents that compaction does not know of, and reads the extents around an offset.

The sweep goes through all extents of the index, a page in each cycle of the flusher, and begins again after an interval
(at once when compaction had to forget segments).  It reads the sizes of inlined extents, not their bytes.

A segment with enough small extents is noted with the offset of the first one.  The number of noted segments is bounded:
at the bound the sweep waits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.scans import scan_page
from sarit.storage.layout import JOIN_EXTENTS, Extent, load_chunk_extent

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.index.port import Index

_PAGE_ROWS: Final = 1000
_MAX_FOUND: Final = 1000
# How many extents `neighbourhood` reads to each side: more of the inlined ones, which are smaller.
_INLINED_ROWS: Final = 256
_CHUNK_ROWS: Final = 64


class CompactionSweep:
    """The sweep for small extents of one container."""

    def __init__(self, index: Index, clock: Clock, small_bytes: int, interval_seconds: float) -> None:
        self._index = index
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._begin_at = clock.monotonic()
        self._small_bytes = small_bytes
        self._at: bytes = keys.INLINED
        # The offset of the first small extent, by segment id.
        self.found: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<CompactionSweep, {len(self.found)} segments found>"

    def hurry(self) -> None:
        """Begin the next pass at once, without the interval."""
        self._begin_at = self._clock.monotonic()

    async def advance(self) -> None:
        """Examine the next page of extents.  Raises what the index raises."""
        if len(self.found) >= _MAX_FOUND or self._clock.monotonic() < self._begin_at:
            return
        kind = self._at[:1]
        end = keys.kind_range(kind)[1]
        if kind == keys.INLINED:
            sizes = await self._index.scan_sizes(self._at, end, _PAGE_ROWS)
            small = [(key, size < self._small_bytes) for key, size in sizes]
        else:
            rows, damaged = await scan_page(self._index, self._at, end, _PAGE_ROWS)
            small = [(key, self._is_small(key, value)) for key, value in rows]
            if damaged is not None:
                # Continue after the damaged record.
                self._note(small)
                self._at = keys.after(damaged.key)
                return
        self._note(small)
        if len(small) < _PAGE_ROWS:
            self._at = keys.EXTENT if kind == keys.INLINED else keys.INLINED
            if self._at == keys.INLINED:
                self._begin_at = self._clock.monotonic() + self._interval_seconds
            return
        # Begin the next page with the last segment of this one, to count its extents together, unless it fills a page.
        last = small[-1][0]
        (begin, _) = keys.segment_range(kind, keys.segment_of(last))
        self._at = begin if small[0][0] < begin else keys.after(last)

    def _note(self, small: list[tuple[bytes, bool]]) -> None:
        segment = count = first = -1
        for key, is_small in small:
            number = keys.segment_of(key)
            # A large extent ends a run of small ones.
            if number != segment or not is_small:
                segment, count = number, 0
            if is_small:
                count += 1
                if count == 1:
                    first = keys.number_of(key)
                if count == JOIN_EXTENTS and number not in self.found:
                    coverage_probe("small_extents_found")
                    self.found[number] = first

    def _is_small(self, key: bytes, value: bytes) -> bool:
        try:
            return load_chunk_extent(keys.number_of(key), value).length < self._small_bytes
        except Corrupt:  # skip a record of another format, which `sarit verify` lists
            return False


async def neighbourhood(index: Index, segment: int, at: int | None) -> tuple[list[Extent], tuple[bool, bool]]:
    """Return adjacent extents of a segment on both sides of an offset (None: its end), without inlined bytes; and
    whether these are all extents to the left, and all to the right.

    Raises Corrupt when an extent cannot be read."""
    middle = keys.MAX_OFFSET if at is None else at
    low, high = 0, keys.MAX_OFFSET
    extents: dict[int, Extent] = {}
    for begin, end, reverse in ((0, middle, True), (middle, keys.MAX_OFFSET, False)):
        if begin == end:
            continue
        inlined = await index.scan_sizes(
            *keys.offset_range(keys.INLINED, segment, begin, end), _INLINED_ROWS, reverse=reverse
        )
        rows = await index.scan(*keys.offset_range(keys.EXTENT, segment, begin, end), _CHUNK_ROWS, reverse=reverse)
        # Keep only the range in which the extents of both kinds are known: a full page ends at its last row.
        for page, limit in (([key for key, _ in inlined], _INLINED_ROWS), ([key for key, _ in rows], _CHUNK_ROWS)):
            if len(page) == limit and reverse:
                low = max(low, keys.number_of(page[-1]))
            elif len(page) == limit:
                high = min(high, keys.number_of(page[-1]))
        extents.update((keys.number_of(key), Extent(keys.number_of(key), size)) for key, size in inlined)
        extents.update((keys.number_of(key), load_chunk_extent(keys.number_of(key), value)) for key, value in rows)
    found = [extents[start] for start in sorted(extents) if low <= start <= high]
    for before, extent in pairwise(found):
        if before.end != extent.start:
            raise Corrupt(f"extents overlap or leave a gap: {before} is followed by {extent}")
    return found, (low == 0, high == keys.MAX_OFFSET)
