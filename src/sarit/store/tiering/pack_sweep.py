"""Finds packs of which little is needed: a pack is deleted only with its last piece, which may live for years.

The sweep goes through the records of pieces in the index, a page in each cycle of the flusher, and begins again after
an interval.  It notes the extents in packs of which less than a quarter is needed.  Compaction rewrites those, in
packs with each other or in chunks of their own (`compaction.py`).  So long-term storage has at most four times the
bytes that are needed, plus the packs that became sparse since the last pass.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.scans import scan_page
from sarit.storage.packs import pack_of

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.index.port import Index

SPARSE_PARTS: Final = 4
"""A pack is sparse when less than 1 / SPARSE_PARTS of its bytes are needed."""

_PAGE_ROWS: Final = 1000
_MAX_FOUND: Final = 1000


class PackSweep:
    """The sweep for sparse packs of one container."""

    def __init__(self, index: Index, clock: Clock, interval_seconds: float) -> None:
        self._index = index
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._begin_at = clock.monotonic()
        self._at: bytes = keys.PIECE
        # The start offsets of the extents in sparse packs, by segment id.
        self.found: dict[int, set[int]] = {}

    def __repr__(self) -> str:
        return f"<PackSweep, {len(self.found)} segments found>"

    async def advance(self) -> None:
        """Examine the next page of pieces.  Raises what the index raises."""
        if len(self.found) >= _MAX_FOUND or self._clock.monotonic() < self._begin_at:
            return
        end = keys.kind_range(keys.PIECE)[1]
        rows, damaged = await scan_page(self._index, self._at, end, _PAGE_ROWS)
        packs = [(pack, list(pieces)) for pack, pieces in groupby(rows, lambda row: _pack(row[0]))]
        ended = damaged is None and len(rows) < _PAGE_ROWS
        # Leave out the last pack, which may continue; a pack that fills a page, or is damaged, is skipped.
        complete = packs if ended else packs[:-1]
        for pack, pieces in complete:
            if pack:
                self._note(pieces)
        if ended:
            self._at = keys.PIECE
            self._begin_at = self._clock.monotonic() + self._interval_seconds
        elif damaged is not None:
            self._at = damaged.resume
        else:
            low, high = keys.pieces_range(packs[-1][0])
            self._at = low if complete else high

    def _note(self, pieces: list[tuple[bytes, bytes]]) -> None:
        try:
            values = [keys.parse_piece_value(value) for _, value in pieces]
        except Corrupt:  # skip a pack with a damaged record, which `sarit verify` lists
            return
        if SPARSE_PARTS * sum(length for _, _, length, _ in values) >= max(whole for *_, whole in values):
            return
        coverage_probe("sparse_pack_found")
        for segment, start, *_ in values:
            self.found.setdefault(segment, set()).add(start)


def _pack(key: bytes) -> str:
    try:
        return pack_of(keys.parse_piece_key(key)) or ""
    except Corrupt:
        return ""
