"""The segment store: all containers of a node.

It maps each segment to its container, opens the containers, and recovers one that failed while the others serve on.
It watches what they share: the memory budget and the free space of the disk.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, SaritError, Unavailable
from sarit.core.limits import (
    CACHE_BYTES,
    FREE_SPACE_INTERVAL_SECONDS,
    LAST_CHECKPOINT_TIMEOUT_SECONDS,
    LATE_WRITES_SECONDS,
    LOG_FILE_BYTES,
    MAX_CACHED_PLACEMENTS,
    MAX_DIRTY_BYTES,
    MAX_REOPEN_SECONDS,
    MIB,
    ORPHAN_SWEEP_RETRY_SECONDS,
    REOPEN_SECONDS,
)
from sarit.core.names import placement_key
from sarit.store.container.container import Container, ContainerLimits
from sarit.store.container.reads import ChunkReader, Reads
from sarit.store.container.recovery import delete_transients, read_checkpoint, replay_log
from sarit.store.container.tables import Tables
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.flow_control.read_limiter import ReadRateLimiter
from sarit.store.flow_control.write_limiter import FlushRateLimiter, RateLimiters
from sarit.store.tiering.flusher import Flusher, FlushLimits
from sarit.store.tiering.orphan_sweep import OrphanSweep

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.store")


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Sizes that tests or operators set, in bytes and seconds."""

    containers: int = 4
    max_dirty_bytes: int = MAX_DIRTY_BYTES
    cache_bytes: int = CACHE_BYTES
    chunk_cache_bytes: int = 64 * MIB
    disk_reserve_bytes: int = 64 * MIB
    late_writes_seconds: float = LATE_WRITES_SECONDS
    container: ContainerLimits = field(default_factory=ContainerLimits)
    flush: FlushLimits = field(default_factory=FlushLimits)


@dataclass(frozen=True, slots=True)
class Opened:
    """A container that serves, and the background work that its owner must run."""

    container: Container
    flusher: Flusher
    orphan_sweep: OrphanSweep


async def open_container(
    number: int, env: Env, logs: LogProvider, indexes: IndexProvider, storage: ChunkStorage, budget: MemoryBudget,
    rate_limiters: RateLimiters, limits: ContainerLimits, flush: FlushLimits,
    on_failure: Callable[[Container, BaseException], None],
) -> Opened:  # fmt: skip
    """Recover a container and let it serve.  Raises Corrupt, Unavailable, Fenced."""
    # The log first: its new epoch fences every earlier owner before anything is read.
    log = await logs.open(number)
    index = None
    try:
        index = await indexes.open(number)
        checkpoint = await read_checkpoint(index)
        container = Container(number, env, log, index, storage, budget, rate_limiters, limits, on_failure)
        # All of the log after the checkpoint, before the first operation: numbers of frames and offsets continue there.
        await replay_log(container, checkpoint)
        container.serve()
        flusher = Flusher(container, flush, checkpoint.chunk_sequence)
        # The flusher does not run yet: the owner starts it when this returns.
        container.wake_flusher = flusher.wake
        flusher.checkpoint_frame = checkpoint.frame
        # After `serve`: deletions go through the log.
        await delete_transients(container)
        return Opened(container, flusher, OrphanSweep(container, checkpoint))
    # Cancellation, too: files that stay open would make the next attempt fail.
    except BaseException:
        await log.close()
        if index is not None:
            await index.close()
        budget.forget(number)  # a container that had served had reported its charge
        raise


class HostedContainer:
    """One container number, and the container that serves it now, if any."""

    __slots__ = ("opened", "reads", "tables", "tasks")

    def __init__(self) -> None:
        self.opened: Opened | None = None
        self.reads: Reads | None = None
        self.tables: Tables | None = None
        self.tasks: list[asyncio.Task[None]] = []


@lru_cache(MAX_CACHED_PLACEMENTS)  # every request asks
def container_of(segment: str, containers: int) -> int:
    """The number of the container of a segment; transactions and transient segments belong to that of their parent."""
    # Not `hash`: placement must be the same in every process.
    digest = blake2b(placement_key(segment).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % containers


class SegmentStore:
    """All containers of a node."""

    def __init__(
        self,
        env: Env,
        logs: LogProvider,
        indexes: IndexProvider,
        storage: ChunkStorage,
        limits: StoreLimits,
        data_dir: str | None = None,
    ) -> None:
        self.env = env
        self.limits = limits
        self.budget = MemoryBudget(limits.max_dirty_bytes, limits.cache_bytes)
        self.budget.on_over_append_limit = self._wake_flushers
        self.on_failure: Callable[[Container], None] | None = None
        self._rate_limiters = RateLimiters(FlushRateLimiter(env.clock, self.budget), ReadRateLimiter(env.clock))
        self._logs = logs
        self._indexes = indexes
        self._storage = storage
        self._data_dir = data_dir
        self._chunks = ChunkReader(storage, limits.chunk_cache_bytes, self._rate_limiters.read)
        self._hosted = [HostedContainer() for _ in range(limits.containers)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._flush_skipped = asyncio.Event()

    def __repr__(self) -> str:
        serving = sum(hosted.opened is not None for hosted in self._hosted)
        return f"<SegmentStore {serving} of {len(self._hosted)} containers serve, {self.budget!r}>"

    async def start(self) -> None:
        """Recover every container.  Raises Corrupt, Unavailable."""
        opening = [asyncio.ensure_future(self._open(number)) for number in range(len(self._hosted))]
        try:
            await asyncio.gather(*opening)
        except BaseException:
            await _cancel(opening)  # otherwise one could open after `stop`
            raise
        self._spawn(self._watch_disk())

    def skip_flush(self) -> None:
        """Let `stop` end its flushes: what is not in long-term storage stays in the log."""
        self._flush_skipped.set()

    async def stop(self) -> None:
        """Checkpoint and close all containers concurrently, within LAST_CHECKPOINT_TIMEOUT_SECONDS."""
        # First: a container that fails from now on is not opened again.
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        serving = [(hosted, hosted.opened) for hosted in self._hosted if hosted.opened is not None]
        # `tasks[0]` is the flusher's (`_open`).
        flushes = [asyncio.ensure_future(_last_checkpoint(opened, hosted.tasks[0])) for hosted, opened in serving]
        for hosted, _ in serving:
            # Requests find no container from here on.  The flushes have not begun: a task starts in a later turn of the
            # loop.
            hosted.opened = hosted.reads = hosted.tables = None
        flushed = asyncio.gather(*flushes, return_exceptions=True)
        skipped = asyncio.ensure_future(self._flush_skipped.wait())
        try:
            await asyncio.wait(
                (flushed, skipped), timeout=LAST_CHECKPOINT_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for flush, (_, opened) in zip(flushes, serving, strict=True):
                if not flush.done():
                    _log_not_flushed(opened, "the flush was skipped" if skipped.done() else "the flush timed out")
        finally:
            # Nobody may write to a log or an index when it is closed.
            await _cancel([skipped, *flushes, *(task for hosted, _ in serving for task in hosted.tasks)])
        closed = await asyncio.gather(*(_close(opened) for _, opened in serving), return_exceptions=True)
        await self._storage.close()
        # Everything is closed by now: an error of one container does not keep the others open.
        for error in (*(await flushed), *closed):
            if isinstance(error, Exception):
                raise error

    # -- where a segment is -------------------------------------------------------------------

    def container(self, segment: str) -> Container:
        """Raises Unavailable while the container recovers."""
        opened = self._hosting(segment).opened
        if opened is None:
            raise Unavailable("the container of this segment is recovering, try again")
        return opened.container

    def reads(self, segment: str) -> Reads:
        """The read side of a segment's container.  Raises Unavailable."""
        reads = self._hosting(segment).reads
        if reads is None:
            raise Unavailable("the container of this segment is recovering, try again")
        return reads

    def tables(self, segment: str) -> Tables:
        """The tables of a segment's container.  Raises Unavailable."""
        tables = self._hosting(segment).tables
        if tables is None:
            raise Unavailable("the container of this segment is recovering, try again")
        return tables

    def serving(self) -> list[Container]:
        """The containers that serve now."""
        return [opened.container for opened in self.opened()]

    def opened(self) -> list[Opened]:
        """The containers that serve now, with their background work."""
        return [hosted.opened for hosted in self._hosted if hosted.opened is not None]

    def _hosting(self, segment: str) -> HostedContainer:
        return self._hosted[container_of(segment, len(self._hosted))]

    # -- opening and failing ------------------------------------------------------------------

    async def _open(self, number: int) -> None:
        hosted = self._hosted[number]
        opened = await open_container(
            number, self.env, self._logs, self._indexes, self._storage, self.budget, self._rate_limiters,
            self.limits.container, self.limits.flush, self._failed,
        )  # fmt: skip
        # Without an await: a request finds all parts of the container or none.
        hosted.opened = opened
        hosted.reads = Reads(opened.container, self._chunks)
        hosted.tables = Tables(opened.container)
        hosted.tasks = [asyncio.ensure_future(opened.flusher.run()), asyncio.ensure_future(self._sweep(opened))]

    def _failed(self, container: Container, error: BaseException) -> None:
        hosted = self._hosted[container.number]
        # Not served (it is being opened, or the store stops), or replaced by a newer one.
        if hosted.opened is None or hosted.opened.container is not container:
            return
        _log.error("container %d failed and recovers: %s", container.number, error)
        coverage_probe("container_failed")
        hosted.opened = hosted.reads = hosted.tables = None
        # Its segments leave memory with it.  The next object recovers its own, and reports its own charge.
        self.budget.forget_cached({id(segment) for segment in container.state.segments.values()})
        self.budget.forget(container.number)
        if not self._stopping:
            self._spawn(self._reopen(container, hosted.tasks))
        if self.on_failure is not None:  # last: if it raises, the container is recovered all the same
            self.on_failure(container)

    async def _reopen(self, failed: Container, tasks: list[asyncio.Task[None]]) -> None:
        # The flusher and the sweep of the old epoch end before the new epoch begins.
        await _cancel(tasks)
        for part in (failed.log, failed.index):
            try:
                await part.close()
            except Exception as error:  # if it still holds a resource, the opening fails and is retried
                _log.warning("container %d: %r cannot be closed: %s", failed.number, part, error)
        delay = REOPEN_SECONDS
        while True:
            try:
                await self._open(failed.number)
                return
            # Not retried: the next attempt would read the same bytes.  The others serve on.
            except Corrupt:
                _log.critical("container %d cannot recover: stored bytes are damaged", failed.number, exc_info=True)
                return
            except (SaritError, OSError) as error:
                _log.warning("container %d cannot recover yet: %s", failed.number, error)
            except Exception:  # log it now: this task is not awaited
                _log.critical("container %d cannot recover: internal error", failed.number, exc_info=True)
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_REOPEN_SECONDS)

    async def _sweep(self, opened: Opened) -> None:
        """Delete orphan chunks twice: a write of a lost owner may reach long-term storage after the first sweep.

        The second sweep is retried until every orphan is deleted.  The same error is logged once."""
        number, record_swept, reported = opened.container.number, False, ""
        while True:
            try:
                swept = await opened.orphan_sweep.run(record_swept=record_swept)
                if swept:
                    _log.info("container %d: deleted %d chunks never referenced", number, swept)
                if record_swept:
                    return
            except SaritError as error:
                if str(error) != reported:
                    _log.warning("container %d: chunks never referenced are not all deleted yet: %s", number, error)
                reported = str(error)
            # The long wait is for writes of a lost owner that are still under way; only then is the sweep recorded.
            await asyncio.sleep(ORPHAN_SWEEP_RETRY_SECONDS if record_swept else self.limits.late_writes_seconds)
            record_swept = True

    async def _watch_disk(self) -> None:
        """Find out on a timer what nothing notifies us of: free disk space, for the node and for each log.

        What it finds is notified like memory: by `MemoryBudget.disk_full` and `ControlLimit.recheck`."""
        reported = False
        # A thread of its own: the query may block as long as the disk does.
        worker = self.env.threads.worker("disk-watch")
        try:
            while True:
                if self._data_dir is not None:
                    try:
                        self._evaluate_free_space(await worker.run(self._free_bytes))
                        reported = False
                    except OSError as error:  # the last known value stays
                        if not reported:
                            _log.warning("the free space of %s is unknown: %s", self._data_dir, error)
                        reported = True
                for opened in self.opened():
                    # Nobody notifies of the space of a log; memory notifies by itself.
                    opened.container.control_limit.recheck()
                if self.budget.over_append_limit:  # a flusher may have missed its wake-up between two cycles
                    self._wake_flushers()
                await asyncio.sleep(FREE_SPACE_INTERVAL_SECONDS)
        finally:
            await worker.close()

    def _wake_flushers(self) -> None:
        for opened in self.opened():
            opened.flusher.wake()

    def _free_bytes(self) -> int:
        assert self._data_dir is not None
        return self.env.files.free_bytes(self._data_dir)

    def _evaluate_free_space(self, free_bytes: int) -> None:
        # Reserve a next file for each log: seals, truncations, deletions and system tables need it.
        reserve = self.limits.disk_reserve_bytes + self.limits.containers * LOG_FILE_BYTES
        full = free_bytes < reserve
        if full and not self.budget.disk_full:
            _log.error("the disk is full (%d MiB left): appends wait until there is space", free_bytes // MIB)
        elif self.budget.disk_full and not full:
            _log.warning("the disk has space again: appends continue")
        self.budget.disk_full = full
        if full:
            for opened in self.opened():
                # Spares of LOG_FILE_BYTES each, which save the log some work: the disk needs the space more.
                opened.container.log.release_recycled_files()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.critical(
                "a background task of the store failed: internal error; restart the node", exc_info=task.exception()
            )


async def _last_checkpoint(opened: Opened, running: asyncio.Task[None]) -> None:
    """Let the flusher finish its cycle, then make a last checkpoint."""
    flusher = opened.flusher
    flusher.finish()
    # `wait` raises neither an error nor the cancellation of that task: both are checked below.
    await asyncio.wait((running,))
    if opened.container.failure is not None:
        return
    if flusher.interrupted:
        _log_not_flushed(opened, "its last checkpoint was cancelled")
        return
    try:
        # What is in flight becomes durable and applied, so that the checkpoint covers it.
        await opened.container.group_commit.wait_durable()
        await flusher.checkpoint()
        await flusher.garbage.collect()
    except SaritError as error:
        _log_not_flushed(opened, str(error))


def _log_not_flushed(opened: Opened, reason: str) -> None:
    _log.warning("container %d: not flushed on stop (%s); the log has it", opened.container.number, reason)


async def _close(opened: Opened) -> None:
    await opened.container.log.close()
    await opened.container.index.close()


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
