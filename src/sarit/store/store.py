"""The segment store: all containers of a node.

The store maps each segment to its container, opens the containers, and recovers one that failed while the others serve
on.  It watches what the containers share: the memory budget and the free space of the disk.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Corrupt, Invalid, SaritError
from sarit.core.limits import MIB
from sarit.core.names import placement_key
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background, gather
from sarit.index.limits import INDEX_CACHE_BYTES
from sarit.log.limits import LOG_FILE_BYTES
from sarit.store.container.container import Container, ContainerLimits
from sarit.store.container.reads import ChunkReader, Reads
from sarit.store.flow_control.free_space import FreeSpace, reserve_bytes
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.flow_control.read_limiter import ReadRateLimiter
from sarit.store.flow_control.write_limiter import FlushRateLimiter, RateLimiters
from sarit.store.hosting.health import ContainerHealth, HealthState, refusal
from sarit.store.hosting.hosted_container import HostedContainer, SharedParts, cancel, close
from sarit.store.hosting.open_slots import OpenSlots
from sarit.store.hosting.states import Event, State
from sarit.store.limits import (
    CACHE_BYTES,
    CHUNK_CACHE_BYTES,
    FREE_SPACE_INTERVAL_SECONDS,
    LAST_CHECKPOINT_TIMEOUT_SECONDS,
    LATE_WRITES_SECONDS,
    MAX_CACHED_PLACEMENTS,
    MAX_CONNECTIONS_MEMORY_BYTES,
    MAX_DIRTY_BYTES,
    SCRUB_BYTES_PER_SECOND,
    SCRUB_INTERVAL_SECONDS,
)
from sarit.store.metering.scope_use import TablesOfClients
from sarit.store.metering.tenant_quotas import TenantQuotas
from sarit.store.statistics import StoreStatistics
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.store.tiering.scrub import ScrubRateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.tables import Tables
    from sarit.store.hosting.container_opening import Opened
    from sarit.store.hosting.hosted_container import Placement

_log = logging.getLogger("sarit.store")


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Sizes that tests or operators set, in bytes and seconds.

    `connections_bytes`: the bound of replies that clients do not take, and that of appends and requests that wait.
    `index_cache_bytes`: the cache of SQLite for each container.
    `scrub_bytes_per_second`: the rate of the scrub for all containers together; 0: no scrub."""

    containers: int = 4
    max_dirty_bytes: int = MAX_DIRTY_BYTES
    cache_bytes: int = CACHE_BYTES
    chunk_cache_bytes: int = CHUNK_CACHE_BYTES
    connections_bytes: int = MAX_CONNECTIONS_MEMORY_BYTES
    index_cache_bytes: int = INDEX_CACHE_BYTES
    disk_reserve_bytes: int = 64 * MIB
    log_file_bytes: int = LOG_FILE_BYTES
    late_writes_seconds: float = LATE_WRITES_SECONDS
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    scrub_interval_seconds: float = SCRUB_INTERVAL_SECONDS
    container: ContainerLimits = field(default_factory=ContainerLimits)
    flush: FlushLimits = field(default_factory=FlushLimits)


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """The risks that an operator allows at a start, once.

    `accept_data_loss`: open containers without their missing or damaged data.  `allow_damaged`: serve the containers
    that are not damaged; the others answer as failed.  `damaged`: containers that are known to be damaged before they
    are opened, with the reason."""

    accept_data_loss: bool = False
    allow_damaged: bool = False
    damaged: Mapping[int, str] = field(default_factory=dict)


@lru_cache(MAX_CACHED_PLACEMENTS)  # every request asks
def container_of(segment: str, containers: int) -> int:
    """Return the number of the container of a segment; transactions and transient segments belong to that of their
    parent."""
    # Python's `hash` would differ from process to process.
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
        policy: StartPolicy = StartPolicy(),
        storage_dir: str | None = None,
        owned: frozenset[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        """`owned`: the containers that `start` opens; None: all.  `placement`: gives others to the store later."""
        self.env = env
        self.limits = limits
        self.statistics = statistics = StoreStatistics()
        self.budget = MemoryBudget(
            limits.max_dirty_bytes, limits.cache_bytes, self._throttled,
            lambda: statistics.release(env.clock.monotonic()),
        )  # fmt: skip
        self.quotas = TenantQuotas(env.clock, TablesOfClients(self))
        self._failure_watchers: list[Callable[[Container], None]] = []
        rate_limiters = RateLimiters(FlushRateLimiter(env.clock, self.budget), ReadRateLimiter(env.clock))
        # Only the first directory, DATA, lets appends wait when its disk is full.
        self._disks: list[tuple[str, FreeSpace]] = []
        if data_dir is not None:
            reserve = reserve_bytes(limits.containers, limits.log_file_bytes, limits.disk_reserve_bytes)
            self._disks.append((data_dir, FreeSpace(data_dir, reserve, "appends wait", env.clock.monotonic)))
        if storage_dir is not None:
            waits = "chunks are not written, and appends wait once memory is short"
            space = FreeSpace(storage_dir, limits.disk_reserve_bytes, waits, env.clock.monotonic)
            self._disks.append((storage_dir, space))
        self._policy = policy
        self.parts = SharedParts(
            env, logs, indexes, storage, self.budget, rate_limiters,
            ChunkReader(storage, limits.chunk_cache_bytes, rate_limiters.read, statistics),
            ScrubRateLimiter(env.clock, limits.scrub_bytes_per_second),
            limits.container, limits.flush, limits.late_writes_seconds, limits.scrub_interval_seconds, statistics,
        )  # fmt: skip
        self.placed = owned is not None
        self.placement = placement
        self.open_slots = OpenSlots()
        # The containers to open before all others: they hold tables that controllers wait for.
        self.opened_first: frozenset[int] = frozenset()
        self._owned = frozenset(range(limits.containers)) if owned is None else owned
        self._hosted = [
            HostedContainer(number, self, owned=number in self._owned) for number in range(limits.containers)
        ]
        self._background = Background.critical(_log, "a background task of the store")
        self.stopping = False
        self._flush_skipped = asyncio.Event()

    def __repr__(self) -> str:
        serving = sum(hosted.opened is not None for hosted in self._hosted)
        return f"<SegmentStore {serving} of {len(self._hosted)} containers serve, {self.budget!r}>"

    async def start(self) -> None:
        """Recover every container that the store owns.

        Raises Corrupt (naming the options with which a start is possible), Invalid, Unavailable."""
        opening = [asyncio.ensure_future(self._open_at_start(number)) for number in sorted(self._owned)]
        try:
            await gather(*opening)
        except BaseException:
            await cancel(opening)  # otherwise a container could open after `stop`
            raise
        failed = [health for health in self.health() if health.state is HealthState.FAILED]
        # With other stores in the installation, a store whose own containers are all damaged may still start.
        useless = len(failed) == len(self._hosted)
        if failed and (not self._policy.allow_damaged or useless):
            raise Corrupt(refusal(failed, len(self._owned)))
        for health in failed:
            _log.critical("%s; its segments answer so, the other containers are served (--allow-damaged)", health)
        self.spawn(self._watch_disk())

    async def _open_at_start(self, number: int) -> None:
        hosted = self._hosted[number]
        reason = self._policy.damaged.get(number)
        if not reason:
            try:
                await hosted.open_once(accept_loss=self._policy.accept_data_loss)
            except (Corrupt, Invalid) as error:
                # Invalid: the data is of another version of Sarit.  That ends the start, unless damage is allowed.
                if isinstance(error, Invalid) and not self._policy.allow_damaged:
                    raise
                reason = str(error)
        if reason:
            hosted.health.fail(reason)
        hosted.started(Event.DAMAGED if reason else Event.OPENED)

    def health(self) -> list[ContainerHealth]:
        """Return the state of every container, by number."""
        return [hosted.health for hosted in self._hosted]

    def watch_failures(self, failed: Callable[[Container], None]) -> None:
        """Call `failed` with each container that ends by a failure, once requests do not find it any more."""
        self._failure_watchers.append(failed)

    def report_failure(self, container: Container) -> None:
        """Call every watcher of failures with a container that has failed."""
        for failed in self._failure_watchers:
            failed(container)

    def change_scrub(self, bytes_per_second: int) -> None:
        """Change the rate of the scrub; 0 stops it."""
        self.parts.scrub_rate.change(bytes_per_second)

    def skip_flush(self) -> None:
        """Let `stop` end its flushes: what is not in long-term storage stays in the log."""
        self._flush_skipped.set()

    async def stop(self) -> None:
        """Checkpoint and close all containers concurrently, within LAST_CHECKPOINT_TIMEOUT_SECONDS."""
        # Set `stopping` before anything is closed, so that a container that fails meanwhile is not opened again.
        self.stopping = True
        await self._background.close()
        await gather(*(hosted.stop() for hosted in self._hosted if hosted.opened is None))
        serving = [(hosted, hosted.opened) for hosted in self._hosted if hosted.opened is not None]
        # `tasks[0]` is the task of the flusher (`HostedContainer._open`).
        flushes = [asyncio.ensure_future(_last_checkpoint(opened, hosted.tasks[0])) for hosted, opened in serving]
        for hosted, _ in serving:
            # Hide the container from requests before its flush begins: the task starts in a later turn of the loop.
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
            # Cancel all background tasks before the close: none may write to a closed log or index.
            await cancel([skipped, *flushes, *(task for hosted, _ in serving for task in hosted.tasks)])
        closed = await asyncio.gather(*(close(opened) for _, opened in serving), return_exceptions=True)
        await self.parts.storage.close()
        # Raise only after everything is closed: an error of one container must not keep the others open.
        for error in (*(await flushed), *closed):
            if isinstance(error, Exception):
                raise error

    def disks(self) -> dict[str, FreeSpace]:
        """Return the disks whose free space the store watches: data, and chunks if a disk of this machine has them."""
        return dict(zip(("data", "chunks"), (space for _, space in self._disks), strict=False))

    # -- where a segment is -------------------------------------------------------------------

    def container(self, segment: str) -> Container:
        """Return the container of a segment.

        Raises Moved when another store owns the container, Opening while it opens or leaves, Unavailable while it
        recovers, Corrupt when it has failed."""
        hosted = self._hosting(segment)
        if hosted.opened is None:
            raise hosted.error()
        return hosted.opened.container

    def reads(self, segment: str) -> Reads:
        """Return the read side of a segment's container.  Raises as `container`."""
        hosted = self._hosting(segment)
        if hosted.reads is None:
            raise hosted.error()
        return hosted.reads

    def tables(self, segment: str) -> Tables:
        """Return the tables of a segment's container.  Raises as `container`."""
        hosted = self._hosting(segment)
        if hosted.tables is None:
            raise hosted.error()
        return hosted.tables

    def serving(self) -> list[Container]:
        """Return the containers that serve now."""
        return [opened.container for opened in self.opened()]

    def opened(self) -> list[Opened]:
        """Return the containers that serve now, with their background tasks."""
        return [hosted.opened for hosted in self._hosted if hosted.opened is not None]

    def _hosting(self, segment: str) -> HostedContainer:
        return self._hosted[container_of(segment, len(self._hosted))]

    # -- ownership ----------------------------------------------------------------------------

    def own(self, number: int, map_version: int) -> None:
        """Open a container in the background, unless it is open or opening; cancel its departure if it was leaving.

        A container that another store fenced opens again on a newer `map_version` only."""
        self._hosted[number].own(map_version)

    def release(self, number: int, *, graceful: bool) -> None:
        """Close a container in the background, and report that to the placement, also when it was closed already.

        `graceful`: flush it first, wait until operations in flight are durable, and let later requests wait until it
        is closed.  Otherwise close it at once, without a checkpoint."""
        self._hosted[number].on(Event.RELEASE if graceful else Event.DROP)

    def count_opening(self, more: frozenset[int]) -> int:
        """Return how many containers are opening or are in `more`, which are about to open.

        A container whose opening has failed before does not count: its retries may take for ever."""
        opening = {
            hosted.number
            for hosted in self._hosted
            if hosted.hosting.state is State.OPENING and not hosted.health.attempts
        }
        return len(opening | more)

    def lost(self) -> None:
        """Close every container at once, without a checkpoint: the membership of this store ended."""
        for hosted in self._hosted:
            if hosted.hosting.state is not State.ABSENT:
                hosted.on(Event.DROP)

    # -- background work ----------------------------------------------------------------------

    async def _watch_disk(self) -> None:
        """Query the free space of the disks and of each log on a timer, since nothing notifies of it.

        A full disk lets appends wait (`MemoryBudget.disk_full`), a log without space lets changes wait
        (`ControlLimit.recheck`)."""
        repeated = RepeatedLog(_log, self.env.clock.monotonic, counted=False)
        # A thread of its own: the query may block as long as the disk does.
        worker = self.env.threads.worker("disk-watch")
        try:
            while True:
                for number, (directory, space) in enumerate(self._disks):
                    try:
                        free = await worker.run(partial(self.env.files.free_bytes, directory))
                    except OSError as error:  # the last known value stays
                        repeated.warning(directory, f"the free space of {directory} is unknown: {error}")
                        continue
                    repeated.ended(directory)
                    full = space.update(free)
                    if number == 0:
                        self._data_disk_full(full)
                for opened in self.opened():
                    # Changes that wait for space of the log must ask again: nothing notifies of that space.
                    opened.container.control_limit.recheck()
                if self.budget.over_append_limit:  # a flusher may have missed its wake-up between two cycles
                    self._wake_flushers()
                await asyncio.sleep(FREE_SPACE_INTERVAL_SECONDS)
        finally:
            await worker.close()

    def _throttled(self) -> None:
        self.statistics.throttle(self.env.clock.monotonic())
        self._wake_flushers()

    def _wake_flushers(self) -> None:
        for opened in self.opened():
            opened.flusher.wake()

    def _data_disk_full(self, full: bool) -> None:
        self.budget.disk_full = full
        if full:
            for opened in self.opened():
                opened.container.log.release_recycled_files()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task that ends with the store."""
        self._background.spawn(work)


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
        # Wait until operations in flight are durable and applied, so that the checkpoint covers them.
        await opened.container.group_commit.wait_durable()
        await flusher.checkpoint()
        await flusher.garbage.collect()
    except SaritError as error:
        _log_not_flushed(opened, str(error))


def _log_not_flushed(opened: Opened, reason: str) -> None:
    _log.warning("container %d: not flushed on stop (%s); the log has it", opened.container.number, reason)
