"""Deletes orphans: chunks that older epochs of a container wrote and never committed.

A chunk of an older epoch is an orphan in three cases:
1. Its number is above the highest number that a commit of its epoch resolved (referenced or recorded as garbage).
2. Its epoch committed nothing.
3. Its write was reported as failed.  The chunk was recorded as garbage, but may have appeared after the garbage was
   deleted.

The numbers are records of the index, and a record may be damaged or lost.  So before an orphan is deleted, all extents
are read, to check that none of them names it.  An extent that cannot be read may name any chunk: then nothing is
deleted.

A write of a former owner may arrive late.  So epochs are swept at least twice, and recorded as swept only when no
write of theirs can arrive any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Unavailable
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.storage.layout import load_chunk_extent
from sarit.storage.names import epoch_prefix
from sarit.store.tiering.checkpoint import failed_write_key, resolved_key
from sarit.store.tiering.chunk_gc import delete_chunks, deletion_groups

if TYPE_CHECKING:
    from sarit.store.container.container import Container
    from sarit.store.container.recovery import Checkpoint

_SCAN_ROWS = 1000


class OrphanSweep:
    """The sweep for orphans of one container, which was recovered from `checkpoint`."""

    def __init__(self, container: Container, checkpoint: Checkpoint) -> None:
        self._container = container
        self._checkpoint = checkpoint
        # Run one sweep at a time: a sweep that records epochs as swept deletes the numbers that another would read.
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<OrphanSweep of {self._container!r}>"

    async def run(self, *, record_swept: bool = True) -> int:
        """Delete the orphans of older epochs.  Returns how many were deleted.

        `record_swept`: record that these epochs need no other sweep, since none of their writes can still arrive.  A
        chunk that cannot be deleted does not block the others.

        Raises Unavailable when long-term storage is unavailable or some chunks cannot be deleted: try again."""
        async with self._lock:
            return await self._sweep(record_swept)

    async def _sweep(self, record_swept: bool) -> int:
        container, swept_key = self._container, keys.meta_key("swept-epoch")
        # Read the swept epoch at each sweep, since an earlier sweep may have recorded it.
        (row,) = await container.index.get([swept_key])
        before = 0 if row is None else keys.parse_attribute_value(row)
        if before >= container.log.epoch - 1:
            return 0  # also if the log was lost and its epochs began again: those were not swept
        swept, failed = 0, list[Unavailable]()
        # Do not sweep this epoch, whose chunks above the last commit may be those of the checkpoint in progress.
        for epoch in range(before + 1, container.log.epoch):
            orphans = await self._orphans(epoch)
            await self._check_unreferenced(orphans)
            for names in deletion_groups(orphans):
                errors = [error for error in await delete_chunks(container.storage, names) if error is not None]
                swept += len(names) - len(errors)
                failed += errors
        # Record nothing after a failure, so that the next sweep tries all epochs again.
        if failed:
            raise Unavailable(f"{len(failed)} cannot be deleted: {failed[0]}") from failed[0]
        if not record_swept:
            return swept
        batch = WriteBatch()
        batch.puts[swept_key] = keys.attribute_value(container.log.epoch - 1)
        # Keep the rows of this epoch, which are beyond the end of both ranges: a later epoch needs them.
        batch.range_deletes.append((resolved_key(0), resolved_key(container.log.epoch)))
        batch.range_deletes.append((failed_write_key(0, 0), failed_write_key(container.log.epoch, 0)))
        await container.index.commit(batch)
        return swept

    async def _orphans(self, epoch: int) -> list[str]:
        """Return the chunks of an older epoch that nothing references."""
        resolved, failed = await self._resolved(epoch), await self._failed_writes(epoch)
        orphans = []
        async for name, _ in self._container.storage.list(epoch_prefix(self._container.number, epoch)):
            sequence = name.rpartition("/")[2].partition("-")[0]
            if not sequence.isdigit():
                raise Corrupt(f"long-term storage holds {name!r}, which is no chunk of this node")
            if int(sequence) > resolved or int(sequence) in failed:
                orphans.append(name)
        if orphans:
            coverage_probe("orphans_swept")
        return orphans

    async def _check_unreferenced(self, orphans: list[str]) -> None:
        """Check that no extent names an orphan.  Raises Corrupt, also when an extent cannot be read."""
        if not orphans:
            return
        wanted = set(orphans)
        at, end = keys.kind_range(keys.EXTENT)
        while True:
            rows = await self._container.index.scan(at, end, _SCAN_ROWS)
            for key, value in rows:
                segment, start = keys.parse_extent_key(key)
                chunk = load_chunk_extent(start, value).chunk
                if chunk in wanted:
                    raise Corrupt(
                        f"chunk {chunk} counts as never referenced, and segment {segment} has it at offset {start}: "
                        "records of the index are lost"
                    )
            if len(rows) < _SCAN_ROWS:
                return
            at = keys.after(rows[-1][0])

    async def _resolved(self, epoch: int) -> int:
        """Return the highest chunk number that commits of an older epoch resolved; 0 when it committed nothing."""
        (row,) = await self._container.index.get([resolved_key(epoch)])
        if row is not None:
            return keys.parse_attribute_value(row)
        # Without a row, the epoch committed nothing, or a version of Sarit wrote it that recorded no numbers.
        since = self._checkpoint.resolved_from
        # Epochs before `since` recorded none: of them, no number above the highest of all is referenced.
        return 0 if since is not None and epoch >= since else self._checkpoint.chunk_sequence

    async def _failed_writes(self, epoch: int) -> set[int]:
        """Return the chunk numbers of an older epoch whose writes were reported as failed."""
        numbers: set[int] = set()
        at, end = failed_write_key(epoch, 0), failed_write_key(epoch + 1, 0)
        # Read pages, since a long outage of storage leaves a row for each write that failed.
        while True:
            rows = await self._container.index.scan(at, end, _SCAN_ROWS)
            numbers.update(int(keys.parse_meta_key(key).rpartition("/")[2]) for key, _ in rows)
            if len(rows) < _SCAN_ROWS:
                return numbers
            at = keys.after(rows[-1][0])
