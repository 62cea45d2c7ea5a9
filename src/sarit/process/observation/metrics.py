"""The metrics of a process: which parts it has, and what they have counted."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from sarit.index.statistics import IndexStatistics
from sarit.log.statistics import LogStatistics
from sarit.storage.metered_storage import MeteredStorage, StorageStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sarit.admin.exposition import Sample
    from sarit.client.aio import Client
    from sarit.controller.assembly import Controller
    from sarit.env.ports import Clock
    from sarit.process.observation.gc_scheduler import GcScheduler
    from sarit.process.observation.group_lag import GroupLag
    from sarit.process.observation.loop_delay import LoopDelay
    from sarit.rpc.grpc_server import GrpcListener
    from sarit.storage.port import ChunkStorage
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.server.listener import StoreListener
    from sarit.store.store import SegmentStore


class Metrics:
    """Parts become known when they exist; a part that the process does not have has no metrics.

    `log`, `index`, `storage`: what the logs, the indexes and the storage of the process are to count in."""

    def __init__(self, clock: Clock) -> None:
        self.log = LogStatistics()
        self.index = IndexStatistics()
        self.storage = StorageStatistics()
        self.store: SegmentStore | None = None
        self.listener: StoreListener | None = None
        self.meters: LoadMeters | None = None
        self.controller: Controller | None = None
        self.api: GrpcListener | None = None
        self.gc: GcScheduler | None = None
        self.runs_jobs_alone = False  # a process with neither store nor controller
        self._clock = clock
        self._sources: list[Callable[[], Iterable[Sample]]] = []
        self._loop_delay: LoopDelay | None = None
        self._lag: GroupLag | None = None
        self._lag_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Metrics of a {self.role}>"

    @property
    def role(self) -> str:
        """Of the process: node, store, controller or worker."""
        if self.store is None:
            return "worker" if self.runs_jobs_alone else "controller"
        return "store" if self.controller is None else "node"

    def has_store(self, store: SegmentStore, listener: StoreListener, meters: LoadMeters) -> None:
        """Add the metrics of the store that this process has."""
        self.store, self.listener, self.meters = store, listener, meters

    def has_controller(self, controller: Controller, api: GrpcListener) -> None:
        """Add the metrics of the controller that this process has."""
        self.controller, self.api = controller, api

    def add(self, source: Callable[[], Iterable[Sample]]) -> None:
        """Add the metrics of another part; `source` is called at each scrape."""
        self._sources.append(source)

    def metered(self, storage: ChunkStorage) -> ChunkStorage:
        """Return the same storage; its requests are counted."""
        return MeteredStorage(storage, self._clock, self.storage)

    def start(self) -> None:
        """Measure what nobody measures otherwise: somebody will read it."""
        from sarit.process.observation.loop_delay import LoopDelay

        self._loop_delay = LoopDelay(self._clock.monotonic)
        self._loop_delay.start()

    def serve(self, client: Client) -> None:
        """Begin to measure the lag of groups, since the controller of this process serves; `client`: one of it."""
        from sarit.process.observation.group_lag import GroupLag

        if self.controller is not None:
            self._lag = GroupLag(self._clock, self.controller.assignment.is_mine)
            self._lag_task = asyncio.ensure_future(self._lag.run(client))

    async def stop(self) -> None:
        """Stop the HTTP server and the tasks that sample."""
        if self._lag_task is not None:
            self._lag_task.cancel()
            await asyncio.gather(self._lag_task, return_exceptions=True)

    def samples(self) -> Iterator[Sample]:
        """Return samples of all metrics now."""
        # Here and not above: a process without the HTTP port does not need it.
        from sarit.admin import collectors

        yield "sarit_build_info", (version("sarit"), self.role), 1
        if self.store is not None:
            yield from collectors.store_samples(self.store)
            yield from collectors.quota_samples(self.store.quotas)
            yield from collectors.log_samples(self.log)
            yield from collectors.storage_samples(self.storage)
            yield from collectors.index_samples(self.index)
        if self.listener is not None:
            yield from collectors.listener_samples(self.listener)
        if self.meters is not None:
            yield from collectors.rate_samples(self.meters)
        if self.controller is not None:
            yield from collectors.controller_samples(self.controller)
        if self.api is not None:
            yield from collectors.api_samples(self.api)
        for source in self._sources:
            yield from source()
        yield from self._of_process()

    def _of_process(self) -> Iterator[Sample]:
        if self._loop_delay is not None:
            yield "sarit_loop_delay_seconds", (), self._loop_delay.delays
            yield "sarit_loop_longest_delay_seconds", (), self._loop_delay.longest
        if self.gc is not None:
            yield "sarit_gc_pause_seconds", (), self.gc.pauses
            yield "sarit_gc_full_collections_total", (), self.gc.full_collections
        if self._lag is not None:
            for name, lag in self._lag.lags.items():
                yield "sarit_reader_group_lag_bytes", (name,), lag.unread_bytes
                yield "sarit_reader_group_readers", (name,), lag.readers
            yield "sarit_reader_groups_not_measured", (), self._lag.not_measured
