"""Early reclaim: frees long-term storage while a checkpoint waits for it.

A chunk write is retried until it succeeds, and its checkpoint waits.  What is deleted or truncated meanwhile would
become garbage with the next checkpoint only, so long-term storage that is full would stay full.  Therefore a flusher
that waits drops the extents that no reader can reach any more.  It does so in a commit of its own, which also records
their chunks as garbage; `ChunkGC` then deletes them as after every commit.

Afterwards the index lacks extents of a segment, while its record and the checkpoint's frame are those of the last
checkpoint.  That is safe.  The deletion or truncation that made the extents unreachable is durable in the log, which
is truncated below the checkpoint's frame alone, so recovery repeats it before anybody reads.  Replay needs the extents
of merged segments only, and those are never dropped here: their bytes belong to the target of the merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.index.port import WriteBatch
from sarit.store.tiering.references import drop_references, stored_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.storage.layout import Extent
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment


class EarlyReclaim:
    """The early reclaim of one checkpoint."""

    def __init__(self, container: Container) -> None:
        self._container = container
        # By segment: the offset up to which its extents were scanned, so that a long wait scans each once.
        self._scanned_to: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<EarlyReclaim of {self._container!r}: {len(self._scanned_to)} segments scanned>"

    async def reclaim(self, segments: Iterable[Segment]) -> None:
        """Drop what applied deletions and truncations of `segments` made unreachable.  Raises what the index raises."""
        batch, dropped = WriteBatch(), set[str]()
        for segment in segments:
            # Not committed: the index holds nothing of it.  Merged: its bytes belong to the target.
            if not segment.committed or segment.is_table or segment.merged_into is not None:
                continue
            # The applied state: the change is durable in the log, so recovery repeats it.
            start = segment.length if segment.deleted else segment.start
            if start <= self._scanned_to.get(segment.id, 0):
                continue
            # Before the await: one reclaim runs at a time (`Flusher._reclaim_early`).
            # One that fails ends the container, and this object with it.
            self._scanned_to[segment.id] = start
            extents, unreadable = await self._container.metadata.extents.readable(segment.id, start)
            # An extent that cannot be read may name any chunk of the segment.  Nobody reads those of a deleted one.
            if unreadable and not segment.deleted:
                continue
            dropped |= _drop_below(batch, segment, start, extents)
        if not batch.deletes:
            return
        await drop_references(batch, self._container.index, dropped)
        coverage_probe("reclaimed_early")
        await self._container.metadata.commit(batch)


def _drop_below(batch: WriteBatch, segment: Segment, start: int, stored: list[Extent]) -> set[str]:
    """Delete extents wholly below `start`; returns the references that no live extent has, too."""
    # The extents of this segment suffice: the bytes of a chunk, or of a piece of a pack, are of one segment.
    live = {extent.reference for extent in stored if extent.end > start}
    below = [extent for extent in stored if extent.end <= start]
    batch.deletes.update(stored_key(segment.id, extent) for extent in below)
    return {extent.reference for extent in below if extent.chunk and extent.reference not in live}
