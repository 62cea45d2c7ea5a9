"""Builds the batch that a checkpoint commits to the index, from the snapshot of each changed segment."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.limits import BOUNDARY_STEP_BYTES, NULL_ATTRIBUTE_VALUE
from sarit.core.names import is_transient
from sarit.index import keys
from sarit.index.port import DamagedRecord, WriteBatch
from sarit.storage.layout import Extent
from sarit.storage.limits import CHECKSUM_BLOCK_BYTES, CHUNK_TARGET_BYTES, SMALL_EXTENT_BYTES
from sarit.storage.starts import FIRST, thin, unpack
from sarit.store.container.operations import serialized_bytes
from sarit.store.container.recovery import aside_range
from sarit.store.container.segment import with_entry_bytes
from sarit.store.limits import (
    COMPACTION_BYTES,
    COMPACTION_SWEEP_SECONDS,
    FLUSH_INTERVAL_SECONDS,
    FLUSH_TRIGGER_BYTES,
    INLINE_BELOW_BYTES,
)
from sarit.store.tiering.references import drop_references, put_extent, stored_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence, Set

    from sarit.storage.checksums import ChunkChecksums
    from sarit.store.container.container import Container
    from sarit.store.container.operations import Entry
    from sarit.store.container.segment import Block, BlockSnapshot, Segment, SegmentSnapshot
    from sarit.store.container.state import Snapshot

T = TypeVar("T")

_log = logging.getLogger("sarit.store")

# How many segments and table entries one turn of the event loop handles, which all connections wait for.
SEGMENTS_PER_TURN: Final = 32
ENTRIES_PER_TURN: Final = 500
SEGMENTS_PER_COMPACTION: Final = 64


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """The settings of a flusher: when to flush, and which runs and extents count as small.

    `packs`: whether small extents are pieces of packs and compaction collects those of several checkpoints, as each
    write costs money.  `packed_below_bytes`: a joined run below this is a piece of a pack, even if it is not small."""

    interval_seconds: float = FLUSH_INTERVAL_SECONDS
    trigger_bytes: int = FLUSH_TRIGGER_BYTES
    chunk_bytes: int = CHUNK_TARGET_BYTES
    inline_below_bytes: int = INLINE_BELOW_BYTES
    concurrent_writes: int = 3
    concurrent_small_writes: int = 16
    small_extent_bytes: int = SMALL_EXTENT_BYTES
    segments_per_turn: int = SEGMENTS_PER_TURN
    compaction_bytes: int = COMPACTION_BYTES
    sweep_interval_seconds: float = COMPACTION_SWEEP_SECONDS
    checksum_block_bytes: int = CHECKSUM_BLOCK_BYTES
    boundary_step_bytes: int = BOUNDARY_STEP_BYTES
    packs: bool = False
    compaction_interval_seconds: float = 0.0
    compaction_segments: int = SEGMENTS_PER_COMPACTION
    packed_below_bytes: int = 0


async def in_turns(items: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """Yield the items, and yield to the event loop after every `per_turn` of them."""
    for count, item in enumerate(items, 1):
        yield item
        if count % per_turn == 0:
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent blocks of a segment that become one extent in a chunk or in a pack."""

    segment: Segment
    blocks: list[BlockSnapshot]
    length: int


def length_of(runs: Sequence[Run]) -> int:
    """Return the number of bytes of all runs."""
    return sum(run.length for run in runs)


def adjacent_runs(blocks: list[BlockSnapshot], limit: int) -> list[list[BlockSnapshot]]:
    """Return the blocks that no chunk holds, as runs of adjacent blocks of at most `limit` bytes (or of one block)."""
    runs: list[list[BlockSnapshot]] = []
    run: list[BlockSnapshot] = []
    end = most = -1
    for snapshot in blocks:
        block = snapshot.block
        # End the run at a block that a chunk holds already, as blocks of a merged segment may be.
        if block.chunk is not None or snapshot.parts is None:
            end = -1
            continue
        at, after = snapshot.offset, snapshot.offset + block.length
        if end != at or after > most:
            run, most = [], at + limit
            runs.append(run)
        run.append(snapshot)
        end = after
    return runs


def add_chunk_extents(item: SegmentSnapshot, boundary_step_bytes: int) -> None:
    """Add the extents of the blocks in chunks, adjacent blocks joined, in order with the inlined extents."""
    at = chunk_at = length = 0
    before: Block | None = None
    chunk: str | None = None
    checksums: ChunkChecksums | None = None
    starts: list[int] = []
    for snapshot in item.blocks:
        offset, block = snapshot.offset, snapshot.block
        if block.chunk is None and chunk is None:
            continue
        # Join a block that is in the same chunk, and adjacent both in the segment and in the chunk.  Blocks that were
        # written together share their checksums: their names need no comparison.
        same = block.checksums is checksums is not None or (before is not None and block.is_in_chunk_of(before))
        before = block
        if not (same and at + length == offset and chunk_at + length == block.chunk_offset):
            if chunk is not None:
                places = thin(starts, length, boundary_step_bytes)
                item.extents.append(Extent(at, length, chunk, chunk_at, b"", checksums, places))
            at, length, chunk, chunk_at, checksums = offset, 0, block.chunk, block.chunk_offset, block.checksums
            starts = []
        # A block is mostly one append; a block of a merged segment may have several or none.
        if block.starts is FIRST:
            starts.append(length)
        else:
            starts.extend(length + start for start in unpack(block.starts))
        length += block.length
    if chunk is not None:
        places = thin(starts, length, boundary_step_bytes)
        item.extents.append(Extent(at, length, chunk, chunk_at, b"", checksums, places))
    # Sort, since `Flusher._inline` has added the inlined extents before.
    item.extents.sort(key=lambda extent: extent.start)


def record_resolved_chunks(batch: WriteBatch, container: Container, sequence: int, failed: Set[int]) -> None:
    """Record that after this commit every chunk of this epoch up to number `sequence` is referenced or garbage.

    Every commit that names new chunks must call this.  The orphan sweep of a later epoch deletes the chunks with higher
    numbers, and those with the numbers in `failed`: a failed write may still take effect after its chunk was deleted
    as garbage."""
    batch.puts[keys.meta_key("chunk-sequence")] = keys.attribute_value(sequence)
    batch.puts[resolved_key(container.log.epoch)] = keys.attribute_value(sequence)
    batch.puts[keys.meta_key("settled-from")] = keys.attribute_value(container.resolved_from)
    batch.puts.update((failed_write_key(container.log.epoch, number), b"") for number in sorted(failed))


def resolved_key(epoch: int) -> bytes:
    """Return the key of the highest chunk number that the commits of an epoch resolved; the sweep deletes it."""
    return keys.meta_key(f"settled/{epoch:010d}")


def failed_write_key(epoch: int, sequence: int) -> bytes:
    """Return the key whose record says that the write of a chunk was reported as failed; the sweep deletes it."""
    return keys.meta_key(f"failed/{epoch:010d}/{sequence:012d}")


class BatchBuilder:
    """Builds the batches of one container."""

    def __init__(self, container: Container, segments_per_turn: int = SEGMENTS_PER_TURN) -> None:
        self._container = container
        self._segments_per_turn = segments_per_turn

    async def build(self, snapshot: Snapshot, sequence: int, failed: Set[int]) -> WriteBatch:
        """Return the batch that makes the index hold the snapshot, whose segments are all copied.

        `sequence` is the highest chunk number of this epoch, `failed` are the numbers whose writes failed.  Chunks
        that the batch leaves without a reference are added to `snapshot.garbage`."""
        assert not snapshot.uncopied, snapshot
        batch, garbage = WriteBatch(), snapshot.garbage
        # Appends run between two turns, but do not change the copies: the batch is of one frame.
        async for item in in_turns(snapshot.segments.values(), self._segments_per_turn):
            if item.deleted:
                await self._add_deleted(item, batch, garbage)
            else:
                await self._add_segment(item, batch, garbage)
        await drop_references(batch, self._container.index, garbage)
        # Put the frame into the same batch, since recovery replays the log after it on top of these records.
        batch.puts[keys.meta_key("frame")] = keys.attribute_value(snapshot.frame)
        batch.puts[keys.meta_key("next-segment")] = keys.attribute_value(snapshot.next_segment_id)
        record_resolved_chunks(batch, self._container, sequence, failed)
        batch.puts[keys.meta_key("epoch")] = keys.attribute_value(self._container.log.epoch)
        return batch

    async def _add_deleted(self, item: SegmentSnapshot, batch: WriteBatch, garbage: set[str]) -> None:
        segment = item.segment
        if not segment.committed:
            # The index has nothing of a segment that was created and deleted between two checkpoints.
            return
        if not item.merged:  # also for tables, since earlier versions accepted appends to tables
            extents, unreadable = await self._container.metadata.extents.readable(segment.id)
            garbage.update(extent.reference for extent in extents if extent.chunk)
            if unreadable:  # the chunks of unreadable extents are unknown and stay: `sarit verify` lists them
                _log.error(
                    "segment %s is deleted; %d of its extents cannot be read, and their chunks stay: %s",
                    segment.name, len(unreadable), next(iter(unreadable.values())),
                )  # fmt: skip
        # A new segment of that name may put the key in the same batch: puts take effect after deletes.
        batch.deletes.add(keys.name_key(segment.name))
        batch.deletes.add(keys.segment_key(segment.id))
        batch.range_deletes.extend(keys.ranges_of_segment(segment.id))
        if self._container.state.unreadable.pop(segment.id, None) is not None:
            batch.range_deletes.append(aside_range(segment.id))
        if is_transient(segment.name):
            batch.deletes.add(keys.meta_key("transient/" + segment.name))

    async def _add_segment(self, item: SegmentSnapshot, batch: WriteBatch, garbage: set[str]) -> None:
        segment = item.segment
        batch.puts[keys.segment_key(segment.id)] = item.record
        if not segment.committed:
            # Put name and id once, since they do not change.
            batch.puts[keys.name_key(segment.name)] = keys.id_value(segment.id)
            if is_transient(segment.name):
                batch.puts[keys.meta_key("transient/" + segment.name)] = b""
        for attribute, value in item.attributes.items():
            key = keys.attribute_key(segment.id, attribute)
            if value == NULL_ATTRIBUTE_VALUE:
                batch.deletes.add(key)
            else:
                batch.puts[key] = keys.attribute_value(value)
        if item.truncated and segment.committed:
            await self._add_truncated(item, batch, garbage)
        for extent in item.extents:
            if extent.end > item.start:
                put_extent(batch, segment.id, extent)
            elif extent.chunk:
                garbage.add(extent.reference)
        if item.entries:
            await self._add_entries(item, batch)
            batch.puts[keys.segment_key(segment.id)] = with_entry_bytes(item.record, item.entry_bytes)

    async def _add_truncated(self, item: SegmentSnapshot, batch: WriteBatch, garbage: set[str]) -> None:
        """Delete extents wholly below the new start; their chunks are garbage unless another extent names them."""
        stored, unreadable = await self._container.metadata.extents.readable(item.segment.id, item.start)
        # Rows come in the order of their offsets, so the dropped ones are the first.
        dropped = [extent for extent in stored if extent.end <= item.start]
        batch.deletes.update(stored_key(item.segment.id, extent) for extent in dropped)
        if unreadable:
            # An unreadable extent may name any chunk, so no chunk of this segment becomes garbage while there is one.
            # Delete the unreadable extents that end below the new start, so that the segment can be read again.
            ends = sorted(extent.start for extent in (*stored, *item.extents))
            batch.deletes.update(key for key in unreadable if _ends_below(key, ends, item.start))
            return
        # Keep a chunk that an extent above the new start also names; such extents are neighbours.
        live = {extent.reference for extent in (*stored[len(dropped) :], *item.extents) if extent.end > item.start}
        garbage.update(extent.reference for extent in dropped if extent.chunk and extent.reference not in live)

    async def _add_entries(self, item: SegmentSnapshot, batch: WriteBatch) -> None:
        """Put the new entries of a table, and delete the version rows of the entries that they replace."""
        segment = item.segment
        size = segment.entry_bytes
        changed = list(item.entries.values())
        for at in range(0, len(changed), ENTRIES_PER_TURN):
            page = changed[at : at + ENTRIES_PER_TURN]
            await asyncio.sleep(0)
            stored: dict[bytes, Entry | None] = {}
            # Without a committed record the index has no entry of the table to replace.
            if segment.committed:
                stored = await self._stored_entries(segment, [entry.key for entry in page])
            for entry in page:
                # Delete the row of the old version, which the new one does not overwrite, since each has another key.
                old = stored.get(entry.key)
                if old is not None:
                    batch.deletes.add(keys.version_key(segment.id, old.version))
                    size -= serialized_bytes(old)
                key = keys.entry_key(segment.id, entry.key)
                if entry.value is None:
                    batch.deletes.add(key)
                else:
                    batch.puts[key] = keys.entry_value(entry.version, entry.value)
                    batch.puts[keys.version_key(segment.id, entry.version)] = entry.key
                    size += serialized_bytes(entry)
        # The sum may fall below 0, as earlier versions of Sarit did not count the bytes of entries.
        item.entry_bytes = max(0, size)

    async def _stored_entries(self, segment: Segment, wanted: list[bytes]) -> dict[bytes, Entry | None]:
        """Return the entries that a checkpoint replaces, without damaged ones, whose version rows stay."""
        try:
            return await self._container.metadata.stored_entries(segment, wanted)
        except DamagedRecord:
            if len(wanted) == 1:
                return {}
            half = len(wanted) // 2
            return await self._stored_entries(segment, wanted[:half]) | await self._stored_entries(
                segment, wanted[half:]
            )


def _ends_below(key: bytes, starts: list[int], offset: int) -> bool:
    """Return whether an unreadable extent ends at or below `offset`.  It ends where the next extent starts."""
    at = bisect_right(starts, int.from_bytes(key[-8:], "big"))
    return at < len(starts) and starts[at] <= offset
