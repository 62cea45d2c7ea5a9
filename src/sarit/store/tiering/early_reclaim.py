"""Early reclaim: frees long-term storage while a checkpoint waits for it.

A chunk write is retried until it succeeds, and its checkpoint waits.  Segments that are deleted or truncated meanwhile
would become garbage only with the next checkpoint, so long-term storage that is full would stay full.  Therefore a
flusher that waits drops the extents that no reader can reach any more.  It does so in a commit of its own, which also
records their chunks as garbage; `ChunkGC` then deletes them as after every commit.

Afterwards the index lacks extents of a segment, while its record and the checkpoint's frame are those of the last
checkpoint.  That is safe.  The deletion or truncation that made the extents unreachable is durable in the log, which
is truncated only below the checkpoint's frame, so recovery repeats it before anybody reads.  Replay needs only the
extents of merged segments, and those are never dropped here: their bytes belong to the target of the merge.
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
        # The offset up to which each segment's extents were scanned, so that a long wait scans each extent once.
        self._scanned_to: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<EarlyReclaim of {self._container!r}: {len(self._scanned_to)} segments scanned>"

    async def reclaim(self, segments: Iterable[Segment]) -> None:
        """Drop the extents that applied deletions and truncations of `segments` made unreachable.

        Raises what the index raises."""
        batch, dropped = WriteBatch(), set[str]()
        for segment in segments:
            # Skip a segment without a record in the index, and a merged one, whose bytes belong to the target.
            if not segment.committed or segment.is_table or segment.merged_into is not None:
                continue
            # Use the applied state, which is durable in the log, so that recovery repeats the change.
            start = segment.length if segment.deleted else segment.start
            if start <= self._scanned_to.get(segment.id, 0):
                continue
            # Note this before the read: one reclaim runs at a time, and an error ends the container.
            self._scanned_to[segment.id] = start
            extents, unreadable = await self._container.metadata.extents.readable(segment.id, start)
            # Drop nothing if an extent cannot be read, which may name any chunk, unless the segment is deleted.
            if unreadable and not segment.deleted:
                continue
            dropped |= _drop_below(batch, segment, start, extents)
        if not batch.deletes:
            return
        await drop_references(batch, self._container.index, dropped)
        coverage_probe("reclaimed_early")
        await self._container.metadata.commit(batch)


def _drop_below(batch: WriteBatch, segment: Segment, start: int, stored: list[Extent]) -> set[str]:
    """Delete the extents wholly below `start`.  Returns the chunks and pieces that no extent above it names."""
    # Look at this segment's extents only: a chunk, or a piece of a pack, has bytes of one segment.
    live = {extent.reference for extent in stored if extent.end > start}
    below = [extent for extent in stored if extent.end <= start]
    batch.deletes.update(stored_key(segment.id, extent) for extent in below)
    return {extent.reference for extent in below if extent.chunk and extent.reference not in live}
