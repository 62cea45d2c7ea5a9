"""Moves applied bytes to long-term storage and checkpoints the container.

One cycle: (1) take a snapshot of the applied state at one frame; (2) write runs of bytes as
new immutable chunks, with which they leave memory beyond what the cache may hold; (3) commit
chunk lists, records, attributes and table entries, with "flushed up to frame n", to the index
in one batch; (4) drop the bytes from memory (the rest of them stays in the cache for a while)
and truncate the log below the frame.

The snapshot copies nothing but references: each dirty segment is captured the first time it
is about to change, or in turn.  Runs too small for a chunk of their own go into the index.

Chunk names carry epoch and a sequence number; every commit records the highest number it
settles.  A chunk of an older epoch above that number was never referenced: recovery's sweep
deletes it.  Chunks dropped by a commit are recorded as garbage in the same batch and deleted
only after it.  While a chunk cannot be written, storage may be full: room.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Exists, SaritError, Unavailable
from sarit.core.limits import (
    CHUNK_RETRY_SECONDS,
    CHUNK_TARGET_BYTES,
    FLUSH_INTERVAL_SECONDS,
    FLUSH_TRIGGER_BYTES,
    INLINE_BELOW_BYTES,
    MAX_CHUNK_RETRY_SECONDS,
    SMALL_EXTENT_BYTES,
)
from sarit.storage.layout import Extent
from sarit.storage.names import epoch_prefix
from sarit.store.tiering.checkpoint import BatchBuilder, add_chunk_extents, adjacent_runs
from sarit.store.tiering.chunk_gc import ChunkGC
from sarit.store.tiering.compaction import Compactor
from sarit.store.tiering.early_reclaim import EarlyReclaim

if TYPE_CHECKING:
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment
    from sarit.store.container.snapshot import BlockSnapshot, SegmentSnapshot, Snapshot

_log = logging.getLogger(__name__)

_SNAPSHOTS_PER_TURN = 200
_SCAN_ROWS = 1000
_COMMITS_REMEMBERED = 10_000
_INTERVAL_FACTOR = 2
_WAKEUPS_PER_INTERVAL = 8  # an interval: memory may run short meanwhile


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """When to flush, and what is small; tests shrink them."""

    interval_seconds: float = FLUSH_INTERVAL_SECONDS
    trigger_bytes: int = FLUSH_TRIGGER_BYTES
    chunk_bytes: int = CHUNK_TARGET_BYTES
    inline_below_bytes: int = INLINE_BELOW_BYTES
    concurrent_writes: int = 3
    concurrent_small_writes: int = 16
    small_extent_bytes: int = SMALL_EXTENT_BYTES


@dataclass(slots=True)
class FlushStatistics:
    """Counters since the container opened; seconds and bytes."""

    checkpoints: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    commit_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_COMMITS_REMEMBERED))
    storage_errors: int = 0


class Flusher:
    """The background task of one container."""

    def __init__(self, container: Container, limits: FlushLimits, chunk_sequence: int) -> None:
        self._container = container
        self._limits = limits
        self._sequence = chunk_sequence
        self._builder = BatchBuilder(container)
        self._wake = asyncio.Event()
        self._writes = asyncio.Semaphore(limits.concurrent_writes)
        # A busy loop looks every 20 ms or so at what has ended: so long would the threads wait after a few small ones.
        self._small_writes = asyncio.Semaphore(limits.concurrent_small_writes)
        self._snapshot: Snapshot | None = None
        self._early_reclaim: EarlyReclaim | None = None
        # Their chunk numbers, until a checkpoint has told them.
        self._failed_writes: set[int] = set()
        self._storage_unavailable = False
        self._ending = False
        self._in_progress = False
        self.checkpoint_frame = container.state.applied_frame
        self.statistics = FlushStatistics()
        self.garbage = ChunkGC(container)
        self.compactor = Compactor(container, self._failed_writes, limits.small_extent_bytes)

    def __repr__(self) -> str:
        return f"<Flusher of {self._container!r} at frame {self.checkpoint_frame}>"

    def wake(self) -> None:
        """Look now whether there is enough to flush."""
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return when its cycle is done."""
        self._ending = True
        self._wake.set()

    @property
    def interrupted(self) -> bool:
        """Whether a checkpoint or a compaction was given up: no checkpoint may follow.

        What a checkpoint had captured is in the log alone; a chunk that a compaction wrote would never be swept once
        another commit of this epoch settled its number."""
        return self._in_progress

    async def run(self) -> None:
        """Flush until ended or cancelled; an index that fails ends the container's epoch."""
        container = self._container
        last = container.env.clock.monotonic()
        idle = False
        while container.failure is None and not self._ending:
            factor = self._interval_factor()
            wait = last + factor * self._limits.interval_seconds - container.env.clock.monotonic()
            # What is in flight counts as un-flushed, but cannot be flushed yet: do not spin on it.
            if wait > 0 and (idle or container.state.dirty.append_bytes < factor * self._limits.trigger_bytes):
                idle = False
                self._wake.clear()
                if factor > 1:
                    wait = min(wait, self._limits.interval_seconds / _WAKEUPS_PER_INTERVAL)
                timer = asyncio.get_running_loop().call_later(wait, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
                continue
            last = container.env.clock.monotonic()
            try:
                idle = not await self.checkpoint()
                await self._compact()
                await self.garbage.collect()
            except SaritError as error:
                container.fail(error)
                return
            except Exception as error:  # a bug: recovery begins from what is known to be right
                container.fail(error)
                raise

    def _interval_factor(self) -> int:
        """How many times as long, and up to as many more bytes, as usual to gather: where many segments grew by little
        each, as many small chunks would be written, to be joined later."""
        state, budget, limits = self._container.state, self._container.budget, self._limits
        size = state.dirty.append_bytes
        many = limits.trigger_bytes // 4 <= size < len(state.changed) * limits.small_extent_bytes
        full = budget.disk_full or self._container.log.short_of_space  # a flush gives the log's room back
        return _INTERVAL_FACTOR if many and not full and not budget.over_soft_limit else 1

    # -- one checkpoint -----------------------------------------------------------------------

    async def checkpoint(self) -> bool:
        """Make the index hold everything applied now.  False when there was nothing to do."""
        state = self._container.state
        if not state.changed and not state.garbage:
            return False
        assert not self._in_progress, "a checkpoint was given up: the next one would truncate the log above its changes"
        self._in_progress = True
        snapshot = self._snapshot = state.begin_checkpoint()
        self._early_reclaim = EarlyReclaim(self._container)
        while snapshot.uncopied:
            snapshot.copy_next(_SNAPSHOTS_PER_TURN)
            await asyncio.sleep(0)
        segments = list(snapshot.segments.values())
        coverage_probe("checkpoint_snapshot_taken")
        await self._write_runs(segments, snapshot.garbage)
        coverage_probe("checkpoint_chunks_written")
        clock = self._container.env.clock
        started = clock.monotonic()
        batch = await self._builder.build(snapshot, self._sequence, self._failed_writes)
        await self._container.metadata.commit(batch)
        self._failed_writes.clear()
        self.statistics.commit_seconds.append(clock.monotonic() - started)
        self.statistics.checkpoints += 1
        coverage_probe("checkpoint_committed")
        state.end_checkpoint(snapshot)
        self._after_commit(segments, snapshot.frame)
        self._snapshot = None
        self._in_progress = False
        return True

    async def _compact(self) -> None:
        self._in_progress = True
        await self.compactor.run(self._name_chunk)
        self._in_progress = False

    # -- chunks ---------------------------------------------------------------------------------

    async def _write_runs(self, snapshots: list[SegmentSnapshot], garbage: set[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for item in snapshots:
                for run in adjacent_runs(item.blocks, self._limits.chunk_bytes):
                    size = sum(snapshot.block.length for snapshot in run)
                    if size < self._limits.inline_below_bytes:
                        self._inline(item, run)
                        continue
                    slots = self._small_writes if size < self._limits.small_extent_bytes else self._writes
                    await slots.acquire()
                    tasks.create_task(self._write_chunk(item, run, garbage, slots))
        for item in snapshots:
            add_chunk_extents(item)

    def _inline(self, item: SegmentSnapshot, run: list[BlockSnapshot]) -> None:
        data = b"".join(bytes(part) for snapshot in run for part in snapshot.parts or ())
        item.extents.append(Extent(run[0].offset, len(data), inline=data))
        item.inlined.extend(snapshot.block for snapshot in run)

    async def _write_chunk(
        self, item: SegmentSnapshot, run: list[BlockSnapshot], garbage: set[str], slots: asyncio.Semaphore
    ) -> None:
        container = self._container
        try:
            parts = [part for snapshot in run for part in snapshot.parts or ()]
            delay = CHUNK_RETRY_SECONDS
            while True:
                name, sequence = self._name_chunk(item.segment, run[0].offset)
                try:
                    await container.storage.write(name, parts, container.rate_limiters.flush)
                    break
                except (Unavailable, Exists) as error:
                    self._report_storage(error)
                    # The write may have happened: another name, and this one is garbage.
                    coverage_probe("chunk_write_retried")
                    garbage.add(name)
                    self._failed_writes.add(sequence)
                    self.statistics.storage_errors += 1
                    await self._reclaim_early()
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, MAX_CHUNK_RETRY_SECONDS)
            self._report_storage(None)
            self.statistics.chunks += 1
            self.statistics.chunk_bytes += sum(snapshot.block.length for snapshot in run)
            self._assign_chunk(run, name)
        finally:
            slots.release()

    def _report_storage(self, error: SaritError | None) -> None:
        """Log once that long-term storage takes no chunks, for which writers may be slowed, and once that it does."""
        if self._storage_unavailable != (error is not None):
            self._storage_unavailable = error is not None
            what = "chunks again" if error is None else f"no chunks: {error}"
            _log.warning("container %d: long-term storage takes %s", self._container.number, what)

    async def _reclaim_early(self) -> None:
        """Storage took no chunk, perhaps because it is full: delete what nobody can reach any more (room.py)."""
        room, self._early_reclaim = self._early_reclaim, None
        if room is None:
            return  # another chunk that waits is at it
        state = self._container.state
        snapshot = self._snapshot
        assert snapshot is not None
        copied = [item.segment for item in snapshot.segments.values()]
        deleted = [segment for segment in (*copied, *state.changed.values()) if segment.deleted]
        try:
            await room.reclaim([*deleted, *snapshot.truncated.values(), *state.truncated.values()])
            await self.garbage.collect()
        except SaritError as error:  # the index: as in `run`, but this is a task of a group
            self._container.fail(error)
        finally:
            self._early_reclaim = room

    def _name_chunk(self, segment: Segment, start: int) -> tuple[str, int]:
        """A name never used before, and its sequence number."""
        self._sequence += 1
        prefix = epoch_prefix(self._container.number, self._container.log.epoch)
        return f"{prefix}/{self._sequence:012d}-s{segment.id}-{start}", self._sequence

    def _assign_chunk(self, run: list[BlockSnapshot], name: str) -> None:
        """The blocks of `run` stand in chunk `name` now; their bytes leave memory when what is written is much.

        Also those that were released meanwhile (truncated, deleted): this checkpoint is of a moment at which they were
        there, and extents have no gaps.  The next one takes them out, and a chunk that holds nothing else."""
        state = self._container.state
        held = sum(snapshot.charged_bytes for snapshot in run)
        kept = self._container.budget.may_cache_written(held)
        if kept:
            state.dirty.written_bytes += held
        else:
            coverage_probe("written_bytes_dropped_early")
        at = 0
        chunk_bytes = sum(snapshot.block.length for snapshot in run)
        for snapshot in run:
            block = snapshot.block
            block.chunk = name
            block.chunk_bytes = chunk_bytes
            block.chunk_offset = at
            if not block.released:
                state.dirty.remove_block(block.length)
            snapshot.parts = None
            if not kept:
                block.parts = None
            at += block.length
        if all(snapshot.block.released for snapshot in run):
            coverage_probe("chunk_written_unreferenced")
            state.garbage.add(name)
        self._container.account()

    # -- after the commit -----------------------------------------------------------------------

    def _after_commit(self, snapshots: list[SegmentSnapshot], frame: int) -> None:
        container = self._container
        for item in snapshots:
            segment = item.segment
            if item.gone:
                container.state.forget(segment)
                self.compactor.forget(segment)
                continue
            segment.committed = True
            segment.saved = segment.id not in container.state.changed
            segment.flushing_attributes = set()
            if segment.table is not None:
                segment.table.flushing = {}
                for entry in item.entries.values():
                    container.metadata.entries.committed(segment.id, entry)
            if segment.deleted:
                # What was merged meanwhile stands in the target's tail, and in memory until that is checkpointed.
                container.state.dirty.written_bytes += sum(
                    snapshot.charged_bytes
                    for snapshot in item.blocks
                    if snapshot.block.chunk is not None and snapshot.block.parts is not None
                )
            else:
                self._drop_flushed(item)
                self.compactor.note(segment, item.extents)
        self.checkpoint_frame = frame
        container.log.truncate(frame + 1)
        container.account()
        container.metadata.evict()

    def _drop_flushed(self, item: SegmentSnapshot) -> None:
        segment = item.segment
        for block in item.inlined:
            if not block.released and block.chunk is None:
                self._container.state.dirty.remove_block(block.length)
        count = 0
        for block in segment.tail:
            if block.end > item.length:
                break
            count += 1
        flushed = segment.tail[:count]
        del segment.tail[:count]
        if not segment.is_table:
            segment.flushed = max(segment.flushed, item.length)
        if segment.chunks is not None:
            segment.chunks.truncate(item.start)
            for extent in item.extents:
                if extent.end > item.start:
                    segment.chunks.append(extent)
        self._container.budget.cache(segment.cache_flushed(flushed))
