"""Checkpoints a container: moves its dirty bytes to long-term storage and its state to the index.

A *checkpoint* makes the index hold everything that the container had applied at one frame of the log.  After it the
log is needed only above that frame, and the covered bytes need not stay in memory.  Its steps, in this order:

1. Snapshot: take the applied state at one frame, by copy-on-write (`container/state.py`).  Appends go on meanwhile.
2. Chunks: write adjacent dirty bytes as new immutable chunks, each durable when its write returns.  Runs below
   `inline_below_bytes` become inlined extents, in the index.  With `packs` small runs share one object.
3. Commit: one atomic batch with segment records, extents, attributes, table entries, garbage chunks and the frame
   (`checkpoint.py`).  It is durable when the commit returns.
4. Truncate the log up to the frame, and release the bytes from memory; the cache retains some for a while.

The order matters.  An extent is committed only after its chunk is durable, so the index never names bytes that may be
lost.  The log is truncated only after the commit is durable, so until then replay can repeat everything.  Chunks that
the commit leaves without a reference are recorded as garbage in the same batch and deleted only after it: a crash in
between leaves a garbage record, never an extent without its chunk.

The failures, and their consequences:

- Another store owns the container by now: no chunk write begins, as each one waits for a lease that runs, or a proof of
  ownership (`Container.confirm`).
- A chunk write fails: it may still have happened, or happen later.  The name is recorded as garbage, and the write is
  retried under a new name until it succeeds.  While long-term storage is full, `early_reclaim.py` deletes chunks that
  no reader can reach any more.
- The index fails: the outcome is unknown.  The container fails, and recovery reads what is there.
- The checkpoint is cancelled: the container must not make another one (`interrupted`).

Chunk names carry the epoch and a number that rises.  Each commit records the highest number that it resolves, and the
numbers whose writes failed.  The orphan sweep of a later epoch deletes the chunks that no commit referenced.

One cycle of the flusher is a checkpoint, then compaction (`compaction.py`), then deletion of garbage (`chunk_gc.py`).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedDict

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Exists, SaritError, Unavailable
from sarit.storage.layout import Extent
from sarit.storage.names import epoch_prefix, pack_name
from sarit.storage.packs import PieceChecksums, reference
from sarit.store.container.metadata_cache import EVICTION_SCAN
from sarit.store.container.segment import block_end
from sarit.store.limits import (
    BLOCK_OVERHEAD_BYTES,
    CHUNK_RETRY_SECONDS,
    MAX_CHUNK_RETRY_SECONDS,
    MAX_UNCHANGED_FRAMES,
)
from sarit.store.tiering.checkpoint import (
    ENTRIES_PER_TURN,
    BatchBuilder,
    FlushLimits,
    Run,
    add_chunk_extents,
    adjacent_runs,
    in_turns,
    length_of,
)
from sarit.store.tiering.chunk_gc import ChunkGC
from sarit.store.tiering.compaction import Compactor
from sarit.store.tiering.early_reclaim import EarlyReclaim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.storage.checksums import ChunkChecksums
    from sarit.store.container.container import Container
    from sarit.store.container.segment import BlockSnapshot, Segment, SegmentSnapshot
    from sarit.store.container.state import Snapshot
    from sarit.store.tiering.joint_checkpoint import JointCheckpoint

_log = logging.getLogger("sarit.store")

# While many segments have few dirty bytes each, a checkpoint waits for that many times the interval and the bytes.
_INTERVAL_FACTOR = 2
_WAKEUPS_PER_INTERVAL = 8  # how often that wait checks whether space has become short, which ends it
_MAX_COMMIT_SAMPLES: Final = 10_000


@dataclass(slots=True)
class FlushStatistics:
    """Counters of one flusher since its container opened; seconds and bytes."""

    checkpoints: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    commit_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_COMMIT_SAMPLES))
    storage_errors: int = 0


class Flusher:
    """The flusher of one container: a background task that makes checkpoints, compacts and deletes garbage."""

    def __init__(self, container: Container, limits: FlushLimits, chunk_sequence: int) -> None:
        self._container = container
        self._limits = limits
        self._sequence = chunk_sequence
        self._builder = BatchBuilder(container, limits.segments_per_turn)
        self._wake = asyncio.Event()
        self._writes = asyncio.Semaphore(limits.concurrent_writes)
        # Allow more small writes: a busy event loop sees completed writes late, and threads would be idle until then.
        self._small_writes = asyncio.Semaphore(limits.concurrent_small_writes)
        self._snapshot: Snapshot | None = None
        self._early_reclaim: EarlyReclaim | None = None
        # Chunk numbers whose writes failed since the last commit; `Compactor` shares the set.
        self._failed_writes: set[int] = set()
        # Why long-term storage refused the last chunk; empty: it accepted it, or there was none.
        self.storage_error = ""
        self._finishing = False
        self._hurried = False
        self._cycle_ended = asyncio.Event()
        self._in_progress = self._begun = False  # `_begun`: `begin` has taken a snapshot for the next `checkpoint`
        self.joint: JointCheckpoint | None = None  # the joint checkpoint to take part in after the current cycle
        self.checkpoint_frame = container.state.applied_frame
        self.statistics = FlushStatistics()
        self.garbage = ChunkGC(container, with_checkpoints=limits.packs)
        self.compactor = Compactor(container, self._failed_writes, limits)

    def __repr__(self) -> str:
        return f"<Flusher of {self._container!r} at frame {self.checkpoint_frame}>"

    def wake(self) -> None:
        """Evaluate now whether a checkpoint is due."""
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return after its current cycle."""
        self._finishing = True
        self._wake.set()

    async def flush_below(self, dirty_bytes: int) -> None:
        """Make checkpoints without a pause until fewer bytes are dirty, or the container has failed."""
        container = self._container
        self._hurried = True
        self._wake.set()
        try:
            while container.failure is None and container.state.dirty.append_bytes >= dirty_bytes:
                await self._cycle_ended.wait()
        finally:
            self._hurried = False

    @property
    def interrupted(self) -> bool:
        """Whether a checkpoint or a compaction was cancelled, so that no checkpoint may follow in this epoch.

        The changes in the snapshot of a cancelled checkpoint are only in the log, and the next checkpoint would
        truncate the log above them.  The chunk of a cancelled compaction would never be swept if another commit of
        this epoch resolved its number."""
        return self._in_progress

    async def run(self) -> None:
        """Run cycles until `finish` or a cancellation; an error of the index fails the container."""
        container, clock = self._container, self._container.env.clock
        began = clock.monotonic()  # when the last cycle began
        idle = False  # whether the last cycle found nothing to do
        while container.failure is None and not self._finishing:
            wait = self._seconds_until_due(began, idle)
            if wait > 0 and self.joint is None:
                idle = False
                await self._wait(wait)
                continue
            began = clock.monotonic()
            # Clear before the cycle, so that a wake during the cycle lets the next `_wait` return at once.
            self._wake.clear()
            try:
                joint, self.joint = self.joint, None
                if joint is not None:
                    await joint.take_part(self)
                # Compact only after the checkpoint, since both replace extents of a segment.
                idle = not await self.checkpoint()
                if not idle:
                    container.statistics.checkpoint_seconds.observe(clock.monotonic() - began)
                if not self._hurried:
                    await self._compact()
                    await self.garbage.collect()
            except SaritError as error:
                container.fail(error)
                return
            except Exception as error:  # a bug: fail the container, so that it recovers from log and index
                container.fail(error)
                raise
            finally:
                # Wake the present waiters.
                self._cycle_ended.set()
                self._cycle_ended.clear()

    def _seconds_until_due(self, began: float, idle: bool) -> float:
        """Return how many seconds to wait before the next evaluation; 0 or less when a cycle is due."""
        limits, factor = self._limits, self._interval_factor()
        wait = began + factor * limits.interval_seconds - self._container.env.clock.monotonic()
        if self._hurried:
            return limits.interval_seconds / _WAKEUPS_PER_INTERVAL if idle else 0.0
        # After an idle cycle wait all the same: appends in flight count as dirty, but cannot be flushed yet.
        if not idle and self._container.state.dirty.append_bytes >= factor * limits.trigger_bytes:
            return 0.0
        return wait if factor == 1 else min(wait, limits.interval_seconds / _WAKEUPS_PER_INTERVAL)

    async def _wait(self, seconds: float) -> None:
        """Wait until `wake`, at most `seconds`.  A wake during the last cycle counts."""
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()

    def _interval_factor(self) -> int:
        """Return the factor by which interval and dirty bytes are increased before the next checkpoint.

        The factor is above 1 while many segments have few dirty bytes each: a checkpoint now would write many small
        chunks, which a compaction must join later.  It is 1 when memory or disk runs short: a checkpoint frees both."""
        state, budget, limits = self._container.state, self._container.budget, self._limits
        size = state.dirty.append_bytes
        # Whether changed segments have less than one small extent of dirty bytes, on average.
        sparse = limits.trigger_bytes // 4 <= size < len(state.changed) * limits.small_extent_bytes
        short = budget.over_soft_limit or budget.disk_full or self._container.log.short_of_space
        return _INTERVAL_FACTOR if sparse and not short else 1

    # -- one checkpoint -----------------------------------------------------------------------

    def begin(self) -> bool:
        """Take the snapshot of the next `checkpoint`.  Returns false when there is nothing to do."""
        state = self._container.state
        # Many frames without a change (`GroupCommit.prove`) also call for a checkpoint: they take space of the log.
        unchanged = not state.changed and not state.garbage
        if unchanged and state.applied_frame - self.checkpoint_frame < MAX_UNCHANGED_FRAMES:
            return False
        assert not self._in_progress, "a checkpoint was cancelled: this one would truncate the log above its changes"
        # No `finally` resets `_in_progress`: after a cancellation or an error it must stay set (`interrupted`).
        self._in_progress = self._begun = True
        self._snapshot = state.begin_checkpoint()
        return True

    async def checkpoint(self) -> bool:
        """Make the index hold the applied state at `begin`, or now without one.  Returns false with nothing to do."""
        # 1. Take the snapshot.
        if not self._begun and not self.begin():
            return False
        state, snapshot, self._begun = self._container.state, self._snapshot, False
        assert snapshot is not None, self
        self._early_reclaim = EarlyReclaim(self._container)
        while snapshot.uncopied:
            snapshot.copy_next(self._limits.segments_per_turn)
            # Appends run here.  An append to a segment of the snapshot copies the segment first.
            await asyncio.sleep(0)
        segments = list(snapshot.segments.values())
        coverage_probe("checkpoint_snapshot_taken")
        # 2. Write the chunks, which are all durable when this returns.
        try:
            await self._write_runs(segments, snapshot.garbage)
        except ExceptionGroup as group:  # the first error of a task: the container has ended, or a bug
            raise group.exceptions[0] from None
        coverage_probe("checkpoint_chunks_written")
        # 3. Commit the batch, which is durable when this returns.
        assert snapshot.frame >= self.checkpoint_frame, (snapshot, self)
        clock = self._container.env.clock
        started = clock.monotonic()
        # No chunk is being written now, so each number up to `_sequence` is named by a commit, or garbage.
        batch = await self._builder.build(snapshot, self._sequence, self._failed_writes)
        self.garbage.add_deleted(batch)
        async with self._container.metadata.committed(batch):
            # The commit has recorded the failed writes.  Clear the set in place, since the compactor shares it.
            self._failed_writes.clear()
            self.statistics.commit_seconds.append(clock.monotonic() - started)
            self.statistics.checkpoints += 1
            coverage_probe("checkpoint_committed")
            # 4. Truncate the log and release memory, which only a durable commit allows.
            state.end_checkpoint(snapshot)
            await self._after_commit(segments, snapshot.frame)
        self._snapshot = None
        # Free the checkpoint's copies and its batch in slices: freed at once, they would block the event loop.
        del segments
        for held in (batch.puts, snapshot.segments):
            while held:
                for _ in range(min(len(held), ENTRIES_PER_TURN)):
                    held.popitem()
                await asyncio.sleep(0)
        unexamined = len(state.segments)
        while unexamined > 0 and self._container.metadata.evict():
            unexamined -= EVICTION_SCAN
            await asyncio.sleep(0)
        self._in_progress = False
        return True

    async def _compact(self) -> None:
        # `_in_progress` stays set if this is cancelled, as in `checkpoint`.
        self._in_progress = True
        await self.compactor.run(self._name_chunk)
        self._in_progress = False

    # -- chunks ---------------------------------------------------------------------------------

    async def _write_runs(self, snapshots: list[SegmentSnapshot], garbage: set[str]) -> None:
        """Write the bytes of all segments as chunks or inlined extents; all chunks are durable when this returns."""
        limits = self._limits
        pack: list[Run] = []
        packed = 0
        async with asyncio.TaskGroup() as tasks:
            async for item in in_turns(snapshots, limits.segments_per_turn):
                for blocks in adjacent_runs(item.blocks, limits.chunk_bytes):
                    run = Run(item.segment, blocks, blocks[-1].end - blocks[0].offset)
                    # Do not inline a run that begins within an event: an inlined extent has no field for `starts`.
                    if run.length < limits.inline_below_bytes and blocks[0].block.starts:
                        self._inline(item, blocks)
                    elif not limits.packs or run.length >= limits.small_extent_bytes:
                        await self._start_write(tasks, [run], garbage)
                    else:
                        if packed + run.length > limits.chunk_bytes:
                            await self._start_write(tasks, pack, garbage)
                            pack, packed = [], 0
                        pack.append(run)
                        packed += run.length
            await self._start_write(tasks, pack, garbage)
        # Add the extents now that every block that is not inlined has its chunk.
        async for item in in_turns(snapshots, self._limits.segments_per_turn):
            add_chunk_extents(item, self._limits.boundary_step_bytes)

    def _inline(self, item: SegmentSnapshot, run: list[BlockSnapshot]) -> None:
        """Copy the bytes of a small run for the index.  The blocks share the copy: memory holds them once."""
        data = b"".join([part for snapshot in run for part in snapshot.parts or ()])
        at, shared = 0, memoryview(data)
        for snapshot in run:
            block = snapshot.block
            snapshot.parts = (shared[at : at + block.length],)
            if not block.released:
                block.parts = snapshot.parts
            at += block.length
        item.extents.append(Extent(run[0].offset, len(data), inline=data))
        item.inlined.extend(snapshot.block for snapshot in run)

    async def _start_write(self, tasks: asyncio.TaskGroup, runs: list[Run], garbage: set[str]) -> None:
        if not runs:
            return
        slots = self._small_writes if length_of(runs) < self._limits.small_extent_bytes else self._writes
        await slots.acquire()  # here, not in the task, to bound the number of tasks
        tasks.create_task(self._write_chunk(runs, garbage, slots))

    async def _write_chunk(self, runs: list[Run], garbage: set[str], slots: asyncio.Semaphore) -> None:
        """Write a run as a chunk, or several as a pack, in as many attempts as it takes; then release `slots`."""
        container = self._container
        try:
            # Pass references to the bytes, which the blocks of the tail hold for readers.
            parts = [part for run in runs for snapshot in run.blocks for part in snapshot.parts or ()]
            delay = CHUNK_RETRY_SECONDS
            while True:
                await container.confirm()  # before each attempt: a late write of a former owner would stay for ever
                name, sequence = self._name_chunk([(run.segment, run.blocks[0].offset) for run in runs])
                checksums = PieceChecksums([run.length for run in runs], self._limits.checksum_block_bytes)
                try:
                    await container.storage.write(name, parts, container.rate_limiters.flush, checksums.add)
                    break
                except (Unavailable, Exists) as error:
                    self._report_storage(error)
                    # Use another name for the next attempt, and record this one as garbage: the write may still happen.
                    coverage_probe("chunk_write_retried")
                    garbage.add(name)
                    self._failed_writes.add(sequence)
                    self.statistics.storage_errors += 1
                    # Reclaim space before the next attempt, which needs it if storage is full.
                    await self._reclaim_early()
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, MAX_CHUNK_RETRY_SECONDS)
            self._report_storage(None)
            self.statistics.chunks += 1
            self.statistics.chunk_bytes += length_of(runs)
            for run, its_checksums in zip(runs, checksums.finish(), strict=True):
                self._assign_chunk(run.blocks, name, its_checksums)
        finally:
            slots.release()

    def _report_storage(self, error: SaritError | None) -> None:
        """Log once that long-term storage refuses chunks (writers may be throttled), and once that it accepts them."""
        known, self.storage_error = self.storage_error, "" if error is None else str(error)
        if bool(known) == bool(self.storage_error):
            return
        if error is None:
            _log.warning("container %d: long-term storage takes chunks again", self._container.number)
        else:
            _log.warning("container %d: long-term storage takes no chunks: %s", self._container.number, error)

    async def _reclaim_early(self) -> None:
        """Delete chunks that no reader can reach any more (`early_reclaim.py`), since storage may be full."""
        # Take the object instead of a lock, since other writes need not wait for the reclaim.
        reclaim, self._early_reclaim = self._early_reclaim, None
        if reclaim is None:
            return  # the task of another chunk reclaims
        state = self._container.state
        snapshot = self._snapshot
        assert snapshot is not None
        copied = [item.segment for item in snapshot.segments.values()]
        # Take segments of the snapshot and those changed since, whose chunks both wait for a checkpoint.
        deleted = [segment for segment in (*copied, *state.changed.values()) if segment.deleted]
        try:
            await reclaim.reclaim([*deleted, *snapshot.truncated.values(), *state.truncated.values()])
            await self.garbage.collect(storage_full=True)
        except SaritError as error:  # the index failed; do not raise it into the task group of the writes
            self._container.fail(error)
        finally:
            self._early_reclaim = reclaim

    def _name_chunk(self, pieces: Sequence[tuple[Segment, int]]) -> tuple[str, int]:
        """Return a new name, for a chunk of one segment from an offset or for a pack, and its number in this epoch."""
        self._sequence += 1
        prefix = epoch_prefix(self._container.number, self._container.log.epoch)
        if len(pieces) > 1:
            coverage_probe("pack_written")
            return pack_name(prefix, self._sequence), self._sequence
        ((segment, start),) = pieces
        return f"{prefix}/{self._sequence:012d}-s{segment.id}-{start}", self._sequence

    def _assign_chunk(self, run: list[BlockSnapshot], name: str, checksums: ChunkChecksums) -> None:
        """Record that the blocks of `run` are in chunk `name`; drop their bytes if the cache could not take them.

        Blocks that were released meanwhile (truncated, deleted) also get their offsets in the chunk: they existed at
        the snapshot, and extents have no gaps.  The next checkpoint removes them, and a chunk that has no others."""
        state = self._container.state
        charged = checksums.length + len(run) * BLOCK_OVERHEAD_BYTES
        # Decide for the whole run at once; retained bytes go to the cache after the commit.
        retained = self._container.budget.may_cache_written(charged)
        if retained:
            state.dirty.written_bytes += charged
        else:
            coverage_probe("written_bytes_dropped_early")
        at = dirty_blocks = dirty_bytes = 0
        for snapshot in run:
            block, length = snapshot.block, snapshot.block.length
            block.chunk = name
            block.checksums = checksums
            block.chunk_offset = at
            # The release of a block has removed its charge already.
            if not block.released:
                dirty_blocks += 1
                dirty_bytes += length
            snapshot.parts = None
            # Without the bytes, readers take the block from the chunk, although no extent is committed yet.
            if not retained:
                block.parts = None
            at += length
        assert at == checksums.length, (name, at, checksums)
        state.dirty.remove_blocks(dirty_blocks, dirty_bytes)
        if not dirty_blocks:
            coverage_probe("chunk_written_unreferenced")
            state.garbage.add(reference(name, checksums))
        self._container.account()

    # -- after the commit -----------------------------------------------------------------------

    async def _after_commit(self, snapshots: list[SegmentSnapshot], frame: int) -> None:
        """Update the live segments after the commit, truncate the log, and release memory.

        Appends and reads run between slices.  A segment that is not updated yet still has its bytes in its tail and its
        entries in `flushing`, where readers look first."""
        container = self._container
        async for item in in_turns(snapshots, self._limits.segments_per_turn):
            # Cache the entries before `_follow_commit` drops `flushing`, where readers look first.
            async for entry in in_turns(item.entries.values(), ENTRIES_PER_TURN):
                container.metadata.entries.committed(item.segment.id, entry)
            self._follow_commit(item)
        self.checkpoint_frame = frame
        # A crash before this costs only space: replay begins after the frame in the index.
        container.log.truncate(frame + 1)
        container.account()

    def _follow_commit(self, item: SegmentSnapshot) -> None:
        container, segment = self._container, item.segment
        if item.deleted:
            # `forget` leaves a newer segment of that name in `names`.
            container.state.forget(segment)
            self.compactor.forget(segment)
            return
        segment.committed = True
        if item.entries:
            segment.entry_bytes = item.entry_bytes
        # A segment that changed since the snapshot must not be evicted: its record is older.
        segment.saved = segment.id not in container.state.changed
        segment.flushing_attributes = set()
        if segment.table is not None:
            segment.table.flushing = SortedDict()
        if segment.deleted:
            # The blocks of a segment merged meanwhile are in the target's tail, in memory until its checkpoint.
            container.state.dirty.written_bytes += sum(
                snapshot.charged_bytes
                for snapshot in item.blocks
                if snapshot.block.chunk is not None and snapshot.block.parts is not None
            )
        else:
            self._drop_flushed(item)
            self.compactor.add_extents(segment, item.extents)

    def _drop_flushed(self, item: SegmentSnapshot) -> None:
        """Move the flushed blocks of a segment from its tail to the cache."""
        segment = item.segment
        # Remove the charge of inlined blocks; `_assign_chunk` has removed that of blocks in chunks.
        dirty = [block.length for block in item.inlined if not block.released and block.chunk is None]
        self._container.state.dirty.remove_blocks(len(dirty), sum(dirty))
        # Leave blocks appended after the snapshot to the next checkpoint.
        count = bisect_right(segment.tail, item.length, key=block_end)
        flushed = segment.tail[:count]
        del segment.tail[:count]
        if not segment.is_table:
            segment.flushed = max(segment.flushed, item.length)
        if segment.extents is not None:  # a merge is in flight
            segment.extents += item.extents
        self._container.budget.cache(segment.cache_flushed(flushed))
