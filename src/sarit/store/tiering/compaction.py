"""Compaction: joins small extents of a segment into larger chunks, in the background.

It runs between two checkpoints of a container, never during one.  Dirty bytes accumulate meanwhile, so it stops while
the memory budget is over its soft limit, and continues in a later cycle.

The order matters: the new chunk is durable before the commit that names it.  The old chunks become garbage in the same
commit and are deleted after it.  A read that holds an old extent finds its chunk gone and loads the extents again.

A segment is not merged into another during its compaction (`Segment.compacting`), because the merge would move extents
that are about to be replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Exists, NotFound, Unavailable
from sarit.core.limits import CHUNK_TARGET_BYTES, MAX_COMPACTED_BYTES_PER_CYCLE, SMALL_EXTENT_BYTES
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.storage.layout import JOIN_EXTENTS, ChunkList, Extent, plan_compaction
from sarit.store.tiering.checkpoint import record_resolved_chunks

if TYPE_CHECKING:
    from sarit.env.ports import Buffer
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment

# The name and number of the next chunk of a segment, which begins at an offset.
NameChunk = Callable[["Segment", int], tuple[str, int]]

_log = logging.getLogger("sarit.store")

MAX_SEGMENTS_PER_CYCLE: Final = 64


class StorageUnavailable(Exception):
    """Long-term storage failed a read or a write: try again in a later cycle."""


class Compactor:
    """Counts the small extents of each segment, and joins them when there are enough."""

    def __init__(self, container: Container, failed_writes: set[int], small_bytes: int = SMALL_EXTENT_BYTES) -> None:
        self._container = container
        self._failed_writes = failed_writes
        self._small_bytes = small_bytes
        self._small: dict[int, int] = {}
        self._damaged: set[int] = set()
        self.joined = 0

    def __repr__(self) -> str:
        return f"<Compactor of {self._container!r}: {len(self._small)} segments with small extents>"

    def add_extents(self, segment: Segment, extents: list[Extent]) -> None:
        """A checkpoint committed these extents of a segment."""
        small = sum(extent.length < self._small_bytes for extent in extents)
        if small:
            self._small[segment.id] = self._small.get(segment.id, 0) + small

    def forget(self, segment: Segment) -> None:
        """A segment was deleted."""
        self._small.pop(segment.id, None)
        self._damaged.discard(segment.id)

    async def run(self, next_name: NameChunk) -> None:
        """Join small extents, up to the bounds of one cycle.  Raises what the index raises."""
        ready = [segment for segment, count in self._small.items() if count >= JOIN_EXTENTS]
        budget = MAX_COMPACTED_BYTES_PER_CYCLE
        for segment_id in ready[:MAX_SEGMENTS_PER_CYCLE]:
            if budget <= 0:
                return
            if self._container.budget.over_soft_limit:
                coverage_probe("compaction_yielded")
                return
            # Before the awaits: what a cycle leaves over is counted again (JOIN_EXTENTS).
            del self._small[segment_id]
            segment = self._container.state.segments.get(segment_id)
            if segment is None:
                # Evicted from memory: it is counted again when it grows again.
                continue
            if segment.assigned_deleted or segment.is_table or segment_id in self._damaged:
                continue
            try:
                with self._container.compaction(segment):
                    budget -= await self._compact(segment, next_name)
            # The next segment would most likely meet the same storage: leave it to a later cycle.
            except StorageUnavailable:
                self._small[segment_id] = JOIN_EXTENTS
                return
            except Corrupt as error:  # readers of those bytes get the error; the container serves everything else
                self._damaged.add(segment_id)
                _log.error("segment %s cannot be compacted: %s", segment.name, error)

    async def _compact(self, segment: Segment, next_name: NameChunk) -> int:
        chunks = await self._container.metadata.chunks(segment)
        done = 0
        # Planned once: runs do not overlap.  No checkpoint, early reclaim or merge of the segment comes in between, so
        # the extents of a later run are still those of the index.
        for run in plan_compaction(chunks, small_bytes=self._small_bytes, target_bytes=CHUNK_TARGET_BYTES):
            if done >= MAX_COMPACTED_BYTES_PER_CYCLE or (done and self._container.budget.over_soft_limit):
                self._small[segment.id] = JOIN_EXTENTS
                break
            await self._join(segment, chunks, run, next_name)
            done += sum(extent.length for extent in run)
        return done

    async def _join(self, segment: Segment, chunks: ChunkList, run: list[Extent], next_name: NameChunk) -> None:
        container = self._container
        try:
            # 1. Read the old extents; appends, truncations and deletions go on meanwhile.
            parts = [await self._bytes(extent) for extent in run]
        except (Unavailable, NotFound) as error:
            raise StorageUnavailable from error
        joined_bytes = sum(extent.length for extent in run)
        assert sum(map(len, parts)) == joined_bytes, (segment, run)
        # 2. Write the new chunk.
        name, sequence = next_name(segment, run[0].start)
        try:
            await container.storage.write(name, parts, container.rate_limiters.flush)
        except (Unavailable, Exists):
            container.state.garbage.add(name)  # the write may have happened
            self._failed_writes.add(sequence)
            raise StorageUnavailable from None
        # 3. Commit.  A crash before it leaves a chunk whose number no commit resolved: the orphan sweep deletes it.
        # The new chunk is durable: from here on the index may name it.
        joined = Extent(run[0].start, joined_bytes, name)
        joined.check()
        batch = WriteBatch()
        for extent in run:
            key = keys.extent_key if extent.chunk else keys.inlined_key
            batch.deletes.add(key(segment.id, extent.start))
        batch.puts[keys.extent_key(segment.id, joined.start)] = joined.record()
        # A set: a run may have hundreds of extents after compaction was postponed for long.
        starts = {extent.start for extent in run}
        live = {extent.chunk for extent in chunks if extent.start not in starts}
        for extent in run:
            if extent.chunk and extent.chunk not in live:
                batch.puts[keys.garbage_key(extent.chunk)] = b""
        record_resolved_chunks(batch, container, sequence, self._failed_writes)
        coverage_probe("extents_joined")
        await container.metadata.commit(batch)
        # 4. The list in memory follows the index without an await in between.
        if segment.chunks is not chunks:  # loaded again during the commit, with the old extents
            assert segment.chunks is not None, segment
            segment.chunks.replace(run[0].start, [joined])
        chunks.replace(run[0].start, [joined])
        self.joined += len(run)

    async def _bytes(self, extent: Extent) -> Buffer:
        if not extent.chunk:
            return extent.inline
        return await self._container.storage.read(extent.chunk, extent.chunk_offset, extent.length)
