"""Compaction: joins small extents of segments into larger chunks, in the background.

Compaction runs between two checkpoints of a container, never during one: nobody else changes extents in the index
meanwhile.  Dirty bytes accumulate until it ends, so over the soft limit of the memory budget it joins only what is
urgent.

*What to join.*  A checkpoint counts the small extents that it adds to each segment (`_counts`).  Counts are only in
memory, and bounded.  So the sweep (`compaction_sweep.py`) goes through the extents in the index all the time, a page in
each cycle, and finds the segments that were forgotten: after a restart, or when too many segments were counted.
A segment that is not in memory is loaded.

*How much.*  Each cycle may join several times the bytes of small extents that checkpoints have added since the last
one (KEEP_UP_FACTOR), as a byte is rewritten a few times until its extent is large.  So compaction keeps up with any
load, however short memory is: appends are throttled before small extents accumulate.  A segment has at most
MAX_SMALL_EXTENTS adjacent small extents, plus those of one checkpoint.

*Packs.*  With `packs`, a run that is still small after a join is written as a piece of a pack, and a cycle joins the
small extents of several checkpoints, after an interval.  A pack of which little is needed is emptied (`pack_sweep.py`).

*How.*  Segments are compacted in groups, within a bound of bytes: read, write the new chunks concurrently, and commit
(with packs, once for a whole group).
The order matters: the new chunk is durable before the commit that names it.  The old chunks become garbage in the same
commit and are deleted after it.  A read that holds an old extent finds its chunk gone and looks the extent up again.

A segment is not merged into another during its compaction (`Segment.compacting`), because the merge would move extents
that are about to be replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Exists, Moved, NotFound, Unavailable
from sarit.index.port import WriteBatch
from sarit.storage import starts as append_starts
from sarit.storage.checksums import DamagedChunk, missing
from sarit.storage.layout import JOIN_EXTENTS, Extent, load_inlined_extent, plan_compaction
from sarit.storage.names import is_pack
from sarit.storage.packs import PieceChecksums
from sarit.store.container.damage_report import note_damage
from sarit.store.limits import MAX_COMPACTED_BYTES_PER_CYCLE
from sarit.store.tiering.checkpoint import record_resolved_chunks
from sarit.store.tiering.compaction_sweep import CompactionSweep, neighbourhood
from sarit.store.tiering.pack_reader import PackReader
from sarit.store.tiering.pack_sweep import PackSweep
from sarit.store.tiering.references import drop_references, put_extent, stored_key

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from sarit.env.ports import Buffer
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment
    from sarit.store.tiering.checkpoint import FlushLimits

T = TypeVar("T")

# A function that returns the name and number of the next object, for the segments and offsets of its pieces.
NameChunk = Callable[["Sequence[tuple[Segment, int]]"], tuple[str, int]]

_log = logging.getLogger("sarit.store")

# The small extents of a segment are joined even while memory is short if there are so many.
URGENT_EXTENTS: Final = 4 * JOIN_EXTENTS
MAX_SMALL_EXTENTS: Final = 8 * JOIN_EXTENTS
# How often the bytes of small extents may be rewritten: an extent of some kilobytes is, three times, until it is large.
KEEP_UP_FACTOR: Final = 4
MAX_COUNTED_SEGMENTS: Final = 50_000
# How many segments are planned at once: on an object store, all of them may fetch a block of the index that the first
# one would bring into the cache.
PLANNED_AT_ONCE: Final = 8


class StorageUnavailable(Exception):
    """Long-term storage failed a read or a write; a later cycle tries again."""


@dataclass(slots=True)
class _Join:
    """Adjacent extents of a segment (`run`), and the extent that replaces them once its chunk is written."""

    segment: Segment
    run: list[Extent]
    # The chunks or pieces that extents next to the run also name, so that they are no garbage.
    live: set[str]
    parts: list[Buffer] = field(default_factory=list)
    joined: Extent | None = None

    @property
    def bytes(self) -> int:
        return sum(extent.length for extent in self.run)


class Compactor:
    """The compaction of one container, which counts small extents by segment, and joins them when there are enough."""

    def __init__(self, container: Container, failed_writes: set[int], limits: FlushLimits) -> None:
        self._container = container
        self._failed_writes = failed_writes
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.concurrent_small_writes)
        # The number of small extents that each segment got since its last compaction.
        self._counts: dict[int, int] = {}
        self._sweep = CompactionSweep(
            container.index, container.env.clock, limits.small_extent_bytes, limits.sweep_interval_seconds
        )
        self._pack_sweep = PackSweep(container.index, container.env.clock, limits.sweep_interval_seconds)
        self._damaged: set[int] = set()
        # The bytes that this and later cycles may join however short memory is.
        self._owed = 0
        self._last_number = 0
        # When the next cycle may join what is not urgent, by the monotonic clock: later checkpoints add to it.
        self._due = container.env.clock.monotonic()
        self.joined = 0

    def __repr__(self) -> str:
        return f"<Compactor of {self._container!r}: {len(self._counts)} segments with small extents>"

    def add_extents(self, segment: Segment, extents: list[Extent]) -> None:
        """Count the small ones of the extents of a segment that a checkpoint committed."""
        small = [extent.length for extent in extents if extent.length < self._limits.small_extent_bytes]
        if small:
            # Move the segment to the end, so that segments that do not grow are forgotten first.
            self._counts[segment.id] = self._counts.pop(segment.id, 0) + len(small)
            self._owed += KEEP_UP_FACTOR * sum(small)
            if len(self._counts) > MAX_COUNTED_SEGMENTS:
                coverage_probe("compaction_forgot_counts")
                del self._counts[next(iter(self._counts))]
                self._sweep.hurry()

    @property
    def backlog(self) -> int:
        """How many segments are known to have enough small extents to be joined."""
        return sum(count >= JOIN_EXTENTS for count in self._counts.values()) + len(self._sweep.found)

    def forget(self, segment: Segment) -> None:
        """Forget a segment that was deleted."""
        self._counts.pop(segment.id, None)
        self._sweep.found.pop(segment.id, None)
        self._pack_sweep.found.pop(segment.id, None)
        self._damaged.discard(segment.id)

    async def run(self, next_name: NameChunk) -> None:
        """Join small extents, up to the bounds of one cycle.  Raises what the index raises."""
        await self._sweep.advance()
        if self._limits.packs:
            await self._pack_sweep.advance()
        now = self._container.env.clock.monotonic()
        if now < self._due and max(self._counts.values(), default=0) < URGENT_EXTENTS:
            return
        self._due = now + self._limits.compaction_interval_seconds
        done = 0
        ready = self._ready(JOIN_EXTENTS)
        while ready:
            if self._container.budget.over_soft_limit:
                ready = [segment for segment in ready if self._counts.get(segment, 0) >= URGENT_EXTENTS]
                if not ready or done >= self._owed:
                    coverage_probe("compaction_yielded")
                    break
            if done >= max(self._owed, MAX_COMPACTED_BYTES_PER_CYCLE):
                break
            group, ready = ready[: self._limits.compaction_segments], ready[self._limits.compaction_segments :]
            try:
                joined = await self._compact(group, next_name)
                done += joined
                self._container.statistics.compacted_bytes += joined
            # Leave the next segments to a later cycle, since storage would most likely fail for them, too.
            except StorageUnavailable:
                return
        self._owed = max(0, self._owed - done) if ready else 0

    def _ready(self, count: int) -> list[int]:
        """Return the segments with `count` small extents or more, most first, then those that the sweeps have found."""
        counted = [segment for segment, number in self._counts.items() if number >= count]
        counted.sort(key=lambda segment: -self._counts[segment])
        swept = dict.fromkeys([*self._sweep.found, *self._pack_sweep.found])
        return [*counted, *(segment for segment in swept if self._counts.get(segment, 0) < count)]

    async def _compact(self, group: list[int], next_name: NameChunk) -> int:
        """Join small extents of a group of segments.  Returns how many bytes were joined."""
        container = self._container
        with ExitStack() as compacting:
            segments = []
            for segment in await container.metadata.load(group):
                if segment.assigned_deleted or segment.is_table or segment.id in self._damaged or segment.compacting:
                    continue
                compacting.enter_context(container.compaction(segment))
                segments.append(segment)
            # Forget segments that do not exist any more, or cannot be compacted.
            for number in set(group) - {segment.id for segment in segments}:
                self._done_with(number)
            # Sort by id, as the index and the packs of checkpoints are, so that neighbours are read together.
            segments.sort(key=lambda segment: segment.id)
            joins: list[_Join] = []
            for first in range(0, len(segments), PLANNED_AT_ONCE):
                for found in await _all(map(self._plan, segments[first : first + PLANNED_AT_ONCE])):
                    joins += found
            unavailable = False
            written: list[_Join] = []
            for batch in self._batches(joins):
                unavailable = await self._write_joined(batch, next_name)
                written += [join for join in batch if join.joined is not None]
                # Commit each batch to free the replaced chunks early, but with packs, where a commit costs money.
                if not self._limits.packs:
                    await self._commit(written)
                    written = []
                if unavailable:
                    break
            await self._commit(written)
            if unavailable:
                for join in joins:
                    if join.joined is None:
                        self._counts[join.segment.id] = max(self._counts.get(join.segment.id, 0), JOIN_EXTENTS)
                raise StorageUnavailable
            return sum(join.bytes for join in joins)

    def _batches(self, joins: list[_Join]) -> Iterator[list[_Join]]:
        batch: list[_Join] = []
        size = 0
        for join in joins:
            if batch and size + join.bytes > self._limits.compaction_bytes:
                yield batch
                batch, size = [], 0
            batch.append(join)
            size += join.bytes
        if batch:
            yield batch

    def _done_with(self, segment: int) -> None:
        self._counts.pop(segment, None)
        self._sweep.found.pop(segment, None)
        self._pack_sweep.found.pop(segment, None)

    async def _plan(self, segment: Segment) -> list[_Join]:
        """Return the runs of a segment to join now, and keep the segment ready if there may be more."""
        limits = self._limits
        at = self._sweep.found.get(segment.id)
        try:
            extents, whole = await neighbourhood(self._container.index, segment.id, at)
        except Corrupt as error:
            self._cannot(segment, error)
            return []
        self._sweep.found.pop(segment.id, None)
        if at is None or whole[1]:
            self._counts.pop(segment.id, None)
        # Leave out the first and last extent if others may be beyond, with which they may share a chunk.
        first, last = 0 if whole[0] else 1, len(extents) if whole[1] else len(extents) - 1
        runs = plan_compaction(
            extents[first:last], small_bytes=limits.small_extent_bytes, target_bytes=limits.compaction_bytes
        )
        if runs and not whole[1]:
            self._sweep.found[segment.id] = extents[-1].start
        elif runs and not whole[0]:
            self._counts[segment.id] = JOIN_EXTENTS
        joins = []
        for run in runs:
            begin, end = run[0].start, run[-1].end
            live = {extent.reference for extent in extents if extent.end <= begin or extent.start >= end}
            joins.append(_Join(segment, run, live))
        return joins + await self._plan_sparse(segment, {extent.start for run in runs for extent in run})

    async def _plan_sparse(self, segment: Segment, joined: set[int]) -> list[_Join]:
        """Return the extents of a segment in sparse packs, except the `joined` ones, each to be rewritten alone."""
        joins: list[_Join] = []
        for start in sorted(self._pack_sweep.found.pop(segment.id, set()) - joined):
            try:
                extents, whole = await neighbourhood(self._container.index, segment.id, start)
            except Corrupt as error:
                self._cannot(segment, error)
                return joins
            at = next((at for at, extent in enumerate(extents) if extent.start == start), -1)
            # Skip an extent that is gone since, or whose neighbours are not known: the next pass finds it again.
            if at < 0 or not is_pack(extents[at].chunk) or not (at or whole[0]):
                continue
            live = {extent.reference for extent in extents if extent.start != start}
            if extents[at].reference not in live:
                coverage_probe("sparse_piece_rewritten")
                joins.append(_Join(segment, [extents[at]], live))
        return joins

    def _cannot(self, segment: Segment, error: Corrupt) -> None:
        # Do not fail the container: only readers of the damaged bytes get the error.
        self._done_with(segment.id)
        if segment.id not in self._damaged:
            self._damaged.add(segment.id)
            _log.error("segment %s cannot be compacted: %s", segment.name, error)

    async def _write_joined(self, joins: list[_Join], next_name: NameChunk) -> bool:
        """Read all runs and write their chunks.  Returns whether long-term storage was unavailable for some."""
        extents = [extent for join in joins for extent in join.run]
        packs = PackReader(self._container.storage, extents, self._limits.compaction_bytes)
        unavailable = await _all(self._write_alone(join, packs, next_name) for join in joins)
        unavailable += await _all(self._write(pack, next_name) for pack in self._packs(joins))
        for join in joins:
            join.parts = []
        return any(unavailable)

    async def _commit(self, joins: list[_Join]) -> None:
        """Commit the extents that replace the runs of `joins`, whose chunks are written; do nothing without any.

        A crash before the commit leaves chunks whose numbers no commit resolved: the orphan sweep deletes them."""
        if not joins:
            return
        container = self._container
        batch, dropped = WriteBatch(), set[str]()
        for join in joins:
            assert join.joined is not None
            batch.deletes.update(stored_key(join.segment.id, extent) for extent in join.run)
            put_extent(batch, join.segment.id, join.joined)
            dropped |= {extent.reference for extent in join.run if extent.chunk} - join.live
        await drop_references(batch, container.index, dropped)
        # No chunk is being written now, so all numbers that were given are resolved.
        record_resolved_chunks(batch, container, self._last_number, self._failed_writes)
        coverage_probe("extents_joined")
        await container.metadata.commit(batch)
        for join in joins:
            container.metadata.extents.cache.drop(join.segment.id)
            # Discard extents that a waiting merge has loaded: it loads them again.
            join.segment.extents = None
            self.joined += len(join.run)

    async def _write_alone(self, join: _Join, packs: PackReader, next_name: NameChunk) -> bool:
        """Read a run, and write its chunk unless the run belongs in a pack.

        Returns whether long-term storage was unavailable."""
        async with self._slots:
            try:
                join.parts = await self._read(join.segment, join.run, packs)
            except (Unavailable, Moved):  # Moved: a chunk is missing, and another store owns the container
                return True
            except Corrupt as error:
                # Never rewrite damaged bytes: new checksums would hide the damage for ever.
                self._cannot(join.segment, error)
                return False
            assert sum(map(len, join.parts)) == join.bytes, join
            limits = self._limits
            if limits.packs and join.bytes < max(limits.small_extent_bytes, limits.packed_below_bytes):
                return False
            return await self._write([join], next_name)

    def _packs(self, joins: list[_Join]) -> Iterator[list[_Join]]:
        """Yield the joins that were read and not written, grouped into packs."""
        pack: list[_Join] = []
        size = 0
        for join in joins:
            if not join.parts:
                continue
            if pack and size + join.bytes > self._limits.chunk_bytes:
                yield pack
                pack, size = [], 0
            pack.append(join)
            size += join.bytes
        if pack:
            yield pack

    async def _write(self, joins: list[_Join], next_name: NameChunk) -> bool:
        """Write one run as a chunk, or several as a pack.  Returns whether long-term storage was unavailable."""
        container = self._container
        await container.confirm()  # a late write of a former owner would leave a chunk for ever
        name, number = next_name([(join.segment, join.run[0].start) for join in joins])
        self._last_number = number
        checksums = PieceChecksums([join.bytes for join in joins], self._limits.checksum_block_bytes)
        parts = [part for join in joins for part in join.parts]
        for join in joins:
            join.parts = []
        try:
            await container.storage.write(name, parts, container.rate_limiters.flush, checksums.add)
        except (Unavailable, Exists):
            container.state.garbage.add(name)  # the write may have happened
            self._failed_writes.add(number)
            return True
        # The new chunk is durable, so the index may name it from here on.
        for join, its_checksums in zip(joins, checksums.finish(), strict=True):
            begin = join.run[0].start
            starts = append_starts.join(
                ((extent.start - begin, extent.starts) for extent in join.run), join.bytes,
                self._limits.boundary_step_bytes,
            )  # fmt: skip
            join.joined = Extent(begin, join.bytes, name, checksums=its_checksums, starts=starts)
        return False

    async def _read(self, segment: Segment, run: list[Extent], packs: PackReader) -> list[Buffer]:
        """Return the bytes of a run, by extent; appends, truncations and deletions go on meanwhile.

        Raises Unavailable (long-term storage is unavailable, or the container has failed), Moved, Corrupt."""
        inlined = [extent for extent in run if not extent.chunk]
        try:
            rows = await self._container.index.get([stored_key(segment.id, extent) for extent in inlined])
        except Unavailable as error:
            self._container.fail(error)
            raise
        stored = dict(zip((extent.start for extent in inlined), rows, strict=True))
        parts: list[Buffer] = []
        for extent in run:
            if extent.chunk:
                parts.append(await self._read_chunk(segment, extent, packs))
                continue
            row = stored[extent.start]
            if row is None or len(row) != extent.length:
                raise Corrupt(f"the index has lost the inlined extent of segment {segment.name} at {extent.start}")
            parts.append(load_inlined_extent(extent.start, row).inline)
        return parts

    async def _read_chunk(self, segment: Segment, extent: Extent, packs: PackReader) -> Buffer:
        try:
            return await packs.read(extent)
        except NotFound:
            # The chunk is lost: only a checkpoint would drop the extent, and none runs during compaction.
            error = missing(extent.chunk, extent.object_offset)
        except DamagedChunk as damaged:
            error = damaged
        offset = extent.start + max(0, error.offset - extent.object_offset)
        raise await note_damage(self._container, segment.name, offset, error) from None


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results.  Raises the first error when all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    out: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        out.append(result)
    return out
