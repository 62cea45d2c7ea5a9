"""Deletes chunks that the index references no more.

The commit that drops the last reference to a chunk puts a garbage record of the chunk in the same batch.  The chunk is
deleted only after that commit, and its record only after the deletion: a crash in between repeats the deletion.

Where each commit costs money (`with_checkpoints`), the next checkpoint deletes the records.

A backup copies the chunks that an index named at one moment, which takes longer than garbage chunks would last.  While
its `DeletionHold` is active, no chunk is deleted; the garbage records wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Unavailable
from sarit.env.background import gather
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.scans import scan_page
from sarit.store.limits import CHUNK_GC_CYCLE_SECONDS, MAX_CHUNK_DELETIONS_IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.storage.port import ChunkStorage
    from sarit.store.container.container import Container

T = TypeVar("T")

_log = logging.getLogger("sarit.store")

_MAX_CHUNKS_PER_CYCLE: Final = 1000
_MAX_FAILURES_PER_CYCLE: Final = 3
_MAX_DELETED: Final = _MAX_CHUNKS_PER_CYCLE // 2


async def delete_chunks(storage: ChunkStorage, names: Sequence[str]) -> list[Unavailable | None]:
    """Delete chunks concurrently, at most MAX_CHUNK_DELETIONS_IN_FLIGHT (one of the `deletion_groups`).

    Returns for each the error that prevented the deletion, None when the chunk is gone."""

    assert len(names) <= MAX_CHUNK_DELETIONS_IN_FLIGHT, len(names)

    async def delete(name: str) -> Unavailable | None:
        try:
            await storage.delete(name)
        except Unavailable as error:
            return error
        return None

    return await gather(*map(delete, names))


def deletion_groups(names: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield groups for `delete_chunks`, to be deleted one after the other."""
    for at in range(0, len(names), MAX_CHUNK_DELETIONS_IN_FLIGHT):
        yield names[at : at + MAX_CHUNK_DELETIONS_IN_FLIGHT]


class DeletionHold:
    """A hold, which prevents the deletion of chunks until it ends.  An ended hold never becomes active again."""

    def __init__(self) -> None:
        self.ended = ""

    def __repr__(self) -> str:
        return f"<DeletionHold {self.ended or 'active'}>"

    def end(self, reason: str) -> None:
        """End the hold, so that chunks are deleted again.  Only the first call's reason counts."""
        self.ended = self.ended or reason


class ChunkGC:
    """The garbage collection of the chunks of one container."""

    def __init__(self, container: Container, *, with_checkpoints: bool = False) -> None:
        self._container = container
        self._with_checkpoints = with_checkpoints
        # The keys of garbage records whose chunks are deleted, for the next checkpoint.
        self._deleted: set[bytes] = set()
        # The key of the garbage record at which the next cycle begins; None: the first.
        self._next: bytes | None = None
        # The keys of damaged garbage records that were logged.
        self._reported: set[bytes] = set()
        self.hold: DeletionHold | None = None

    def __repr__(self) -> str:
        return f"<ChunkGC of {self._container!r}>"

    def add_deleted(self, batch: WriteBatch) -> None:
        """Add to a checkpoint's batch the deletion of the garbage records whose chunks are deleted."""
        batch.deletes |= self._deleted
        self._deleted = set()

    async def collect(self, *, storage_full: bool = False) -> None:
        """Delete garbage chunks for at most CHUNK_GC_CYCLE_SECONDS; later cycles continue and retry.

        Nothing is deleted while a hold is active.  `storage_full` ends the hold: a backup must not stop the writers."""
        container = self._container
        if storage_full and self.hold is not None:
            self.hold.end("long-term storage took no chunk and may be full")
        if self.hold is not None and not self.hold.ended:
            coverage_probe("deletion_held_for_a_backup")
            return
        low, high = keys.kind_range(keys.GARBAGE)
        rows, damaged = await scan_page(container.index, self._next or low, high, _MAX_CHUNKS_PER_CYCLE)
        clock, failures = container.env.clock, 0
        end = clock.monotonic() + CHUNK_GC_CYCLE_SECONDS
        batch = WriteBatch()
        self._next = None
        if damaged is not None:
            # Delete nothing by a damaged record, whose key may name a chunk in use.  Begin after it next time.
            self._next = damaged.resume if damaged.resume < high else None
            if damaged.key not in self._reported:
                self._reported.add(damaged.key)
                _log.error("container %d: a chunk is not deleted: %s", container.number, damaged)
        # Bound failures and time, since the next checkpoint waits for this cycle, even if storage is unavailable.
        for group in deletion_groups([key for key, _ in rows if key not in self._deleted]):
            if failures >= _MAX_FAILURES_PER_CYCLE or clock.monotonic() >= end:
                self._next = group[0]  # begin there next time: chunks that cannot be deleted must not block the others
                break
            # A crash before the commit below repeats this deletion: deleting a missing chunk succeeds.
            errors = await delete_chunks(container.storage, [*map(keys.parse_garbage_key, group)])
            batch.deletes.update(key for key, error in zip(group, errors, strict=True) if error is None)
            # The record of a failed deletion stays.
            failures += len(errors) - errors.count(None)
        if not batch.deletes:
            return
        coverage_probe("garbage_deleted")
        if self._with_checkpoints and len(self._deleted) + len(batch.deletes) <= _MAX_DELETED:
            self._deleted |= batch.deletes
            return
        self.add_deleted(batch)
        await container.index.commit(batch)
