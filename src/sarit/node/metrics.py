"""The metrics of a process: which parts it has, and what they have counted."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from sarit.index.statistics import IndexStatistics
from sarit.log.statistics import LogStatistics
from sarit.storage.metered import MeteredStorage, StorageStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.client.aio import Client
    from sarit.controller.server import Controller
    from sarit.env.ports import Clock
    from sarit.node.gc_scheduler import GcScheduler
    from sarit.node.group_lag import GroupLag
    from sarit.node.loop_delay import LoopDelay
    from sarit.node.map_watch import MapWatch
    from sarit.node.member import Member
    from sarit.rpc.grpc_server import GrpcListener
    from sarit.storage.port import ChunkStorage
    from sarit.store.flow_control.load_meters import LoadMeters
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
        self.map: MapWatch | None = None
        self.member: Member | None = None
        self.gc: GcScheduler | None = None
        self._clock = clock
        self._loop_delay: LoopDelay | None = None
        self._lag: GroupLag | None = None
        self._lag_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Metrics of a {self.role}>"

    @property
    def role(self) -> str:
        """Of the process: node, store or controller."""
        if self.store is None:
            return "controller"
        return "store" if self.controller is None else "node"

    def has_controller(self, controller: Controller, api: GrpcListener, watch: MapWatch | None = None) -> None:
        """The process has this controller; `watch`: of the container map, if there is one."""
        self.controller, self.api, self.map = controller, api, watch

    def metered(self, storage: ChunkStorage) -> ChunkStorage:
        """The same storage; its requests are counted."""
        return MeteredStorage(storage, self._clock, self.storage)

    def start(self) -> None:
        """Measure what nobody measures otherwise: somebody will read it."""
        from sarit.node.loop_delay import LoopDelay

        self._loop_delay = LoopDelay(self._clock.monotonic)
        self._loop_delay.start()

    def serve(self, client: Client) -> None:
        """The controller of this process serves; `client`: of it, for as long as this runs."""
        from sarit.node.group_lag import GroupLag

        if self.controller is not None:
            self._lag = GroupLag(self._clock, self.controller.assignment.is_mine)
            self._lag_task = asyncio.ensure_future(self._lag.run(client))

    async def stop(self) -> None:
        """End what `serve` began."""
        if self._lag_task is not None:
            self._lag_task.cancel()
            await asyncio.gather(self._lag_task, return_exceptions=True)

    def samples(self) -> Iterator[Sample]:
        """All metrics now."""
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
        yield from self._of_cluster()
        yield from self._of_process()

    def _of_cluster(self) -> Iterator[Sample]:
        now = self._clock.monotonic()
        watch = self.map if self.member is None else self.member.watch
        if watch is not None and watch.map is not None:
            record = watch.map
            yield "sarit_cluster_map_version", (), record.version
            yield "sarit_cluster_map_age_seconds", (), now - watch.read_at
            yield "sarit_cluster_moving_containers", (), len(record.moving)
            yield "sarit_cluster_stores", (), sum(store.usable for store in record.stores.values())
        if self.member is not None:
            yield "sarit_cluster_lease_left_seconds", (), self.member.lease_left()
            yield "sarit_cluster_containers_moved_total", (), self.member.moved_away
            yield "sarit_cluster_containers_fenced_total", (), self.member.fences

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
