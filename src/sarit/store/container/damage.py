"""Damage of chunks, as reads, compaction and the scrub find it: one line in the log for each chunk, and counters.

No decision depends on what is noted here.  Each read of damaged bytes asks long-term storage again, so a chunk that an
operator restores there is served at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt
from sarit.store.limits import MAX_NOTED_DAMAGED_CHUNKS
from sarit.store.statistics import StoreStatistics

if TYPE_CHECKING:
    from sarit.storage.checksums import DamagedChunk

_log = logging.getLogger("sarit.store")


class DamageLog:
    """The damaged chunks of one container since it was opened.

    `reads`: how often damaged bytes were refused.  `chunks`: the first damage of each chunk, by the chunk's name."""

    def __init__(self, statistics: StoreStatistics | None = None) -> None:
        self._statistics = statistics or StoreStatistics()
        self.chunks: dict[str, str] = {}
        self.reads = 0

    def __repr__(self) -> str:
        return f"<DamageLog of {len(self.chunks)} chunks>"

    def found(self, segment: str, offset: int, error: DamagedChunk) -> Corrupt:
        """Record that bytes of a segment from `offset` on are damaged.  Returns the error for their reader."""
        self.reads += 1
        text = (
            f"segment {segment} cannot be read at offset {offset}: {error}; "
            "run `sarit verify` on the node's data directory"
        )
        if error.chunk not in self.chunks and len(self.chunks) < MAX_NOTED_DAMAGED_CHUNKS:
            self.chunks[error.chunk] = text
            self._statistics.damage_found += 1
            _log.error("long-term storage is damaged: %s", text)
        return Corrupt(text)
