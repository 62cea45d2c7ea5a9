"""Gives long-term storage room while a checkpoint cannot end.

A chunk that could not be written is tried until it is, and its checkpoint waits for it.  What is deleted or truncated
meanwhile becomes garbage with the next checkpoint only: long-term storage that is full would stay full.  So a flusher
that waits drops the extents that no reader can reach any more, in a commit of their own which marks their chunks as
garbage; the collector deletes them after it, as it does after every commit.

The index then lacks extents of a segment whose record, and the frame up to which the index holds everything, are as
before.  That is safe because the deletion or truncation that took them is durable in the log, which is truncated below
that frame alone: recovery repeats it before anybody reads, and replay needs extents of merged segments only.  Those
are left alone: their bytes stand in the segment they were merged into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.store.tiering.checkpoint import stored_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.storage.layout import Extent
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment


class EarlyReclaim:
    """What one checkpoint, while it waits, has taken out of the index for room."""

    def __init__(self, container: Container) -> None:
        self._container = container
        # By segment: up to which offset its extents were looked at, so that a long wait reads each once.
        self._scanned_to: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Room of {self._container!r}: {len(self._scanned_to)} segments looked at>"

    async def reclaim(self, segments: Iterable[Segment]) -> None:
        """Drop what applied deletions and truncations of `segments` left unreachable.  Raises what the index raises."""
        batch = WriteBatch()
        truncated: list[tuple[Segment, int]] = []
        for segment in segments:
            if not segment.committed or segment.is_table or segment.merged_into is not None:
                continue
            start = segment.length if segment.deleted else segment.start
            if start <= self._scanned_to.get(segment.id, 0):
                continue
            self._scanned_to[segment.id] = start
            _drop_below(batch, segment, start, await self._container.metadata.scan_extents(segment.id))
            truncated.append((segment, start))
        if not batch.deletes:
            return
        coverage_probe("reclaimed_early")
        await self._container.metadata.commit(batch)
        for segment, start in truncated:
            if segment.chunks is not None:
                segment.chunks.truncate(start)


def _drop_below(batch: WriteBatch, segment: Segment, start: int, stored: list[Extent]) -> None:
    """Extents wholly below `start` go, and their chunks are garbage unless an extent that stays names them too."""
    kept = {extent.chunk for extent in stored if extent.end > start}
    for extent in stored:
        if extent.end <= start:
            batch.deletes.add(stored_key(segment.id, extent))
            if extent.chunk and extent.chunk not in kept:
                batch.puts[keys.garbage_key(extent.chunk)] = b""
