"""What the last few short ranges of the index held.

The index changes at commits alone, so a range that was read up to its end holds the same until the next one.  Ranges
are known by where they end: one that begins later within it is known, too.
"""

from __future__ import annotations

from sarit.core.limits import MAX_CACHED_RANGE_BYTES, MAX_CACHED_RANGE_ROWS, MAX_CACHED_RANGES

Rows = list[tuple[bytes, bytes]]


class RangeScanCache:
    """Rows of ranges, as of one generation of the index."""

    def __init__(self) -> None:
        self._generation = -1
        self._ranges: dict[bytes, tuple[bytes, Rows]] = {}

    def __repr__(self) -> str:
        return f"<RangeEnds, {len(self._ranges)} ranges of generation {self._generation}>"

    def rows(self, generation: int, low: bytes, high: bytes) -> Rows | None:
        """All rows of a range, if they are known."""
        found = self._ranges.get(high) if generation == self._generation else None
        if found is None or low < found[0]:
            return None
        return [row for row in found[1] if row[0] >= low]

    def put(self, generation: int, low: bytes, high: bytes, rows: Rows) -> None:
        """All rows of a range, read while the index was of a generation."""
        if generation < self._generation:
            return
        if generation > self._generation:
            self._generation = generation
            self._ranges.clear()
        size = sum(len(key) + len(value) for key, value in rows)
        if len(rows) > MAX_CACHED_RANGE_ROWS or size > MAX_CACHED_RANGE_BYTES:
            return
        if high in self._ranges and self._ranges[high][0] <= low:
            return
        self._ranges.pop(high, None)
        self._ranges[high] = (low, rows)
        if len(self._ranges) > MAX_CACHED_RANGES:
            del self._ranges[next(iter(self._ranges))]
