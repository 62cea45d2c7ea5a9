"""Shows the members of a cluster and which store has which container, and drains stores."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.cluster.controller_members import CONTROLLERS, WORKERS, decode
from sarit.cluster.creation import read_meta
from sarit.cluster.limits import DRAIN_POLL_SECONDS
from sarit.cluster.object_requests import on_object_store, read_report
from sarit.cluster.store import DRAINED
from sarit.cluster.store_report import read_store_report
from sarit.cluster.verdict import Received, judge
from sarit.coordination.container_map import ContainerMap, StoreAddress, decode_store
from sarit.coordination.limits import STORE_LEASE_SECONDS
from sarit.coordination.map_register import STORES, read_map
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Exists, NotFound
from sarit.core.nearest_names import nearest
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from sarit.cluster.object_requests import RequestReport
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.cluster.verdict import Verdict
    from sarit.env.ports import Clock, Env


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at one moment.  `map`: None: there is no map yet.

    `requests`: by store, its report of requests to object storage; None: it has no recent report.  Empty if nothing is
    on an object store.  `received`: by store, the report of its health.  Without reports both are empty.
    `workers`: the processes that run background jobs."""

    meta: ClusterMeta
    stores: Mapping[str, StoreAddress]
    controllers: tuple[tuple[str, int], ...]
    map: ContainerMap | None
    requests: Mapping[str, RequestReport | None]
    received: Mapping[str, Received | None] = field(default_factory=dict)
    workers: tuple[tuple[str, int], ...] = ()

    def verdict(self) -> Verdict:
        """Return the verdict on the cluster.  Needs a status with reports."""
        return judge(self.map, self.received, controllers=len(self.controllers))

    def containers_of(self, store: str) -> list[int]:
        """Return the containers that a store serves, those that move away from it included."""
        found = self.map
        return [] if found is None else [n for n in range(len(found.owners)) if found.serving(n) == store]


class ClusterView:
    """The view of a cluster for an operator's commands."""

    def __init__(self, zookeeper: ZooKeeper, cluster: ClusterAddress, clock: Clock) -> None:
        self._clock = clock
        self.registers = ZooKeeperRegisters(zookeeper, cluster.root)
        self._cluster = cluster
        self._stores = ZooKeeperMembers(zookeeper, f"{cluster.root}/{STORES}")
        self._controllers = ZooKeeperMembers(zookeeper, f"{cluster.root}/{CONTROLLERS}")
        self._workers = ZooKeeperMembers(zookeeper, f"{cluster.root}/{WORKERS}")

    def __repr__(self) -> str:
        return f"<ClusterView {self._cluster}>"

    async def status(self, *, with_reports: bool = False) -> ClusterStatus:
        """Return the present status.  `with_reports`: with the stores' reports of requests and health.

        Raises Invalid (there is no such cluster), Unavailable."""
        meta = await read_meta(self.registers, self._cluster)
        stores = {name: decode_store(value) for name, value in (await self._stores.list()).items()}
        controllers, workers = [
            tuple(sorted(decode(value) for value in (await members.list()).values()))
            for members in (self._controllers, self._workers)
        ]
        found = await read_map(self.registers)
        record = None if found is None else found[0]
        requests = await self._requests(stores) if with_reports and on_object_store(meta) else {}
        received = await self._received(record.stores) if with_reports and record is not None else {}
        return ClusterStatus(meta, stores, controllers, record, requests, received, workers)

    async def _received(self, stores: Iterable[str]) -> dict[str, Received | None]:
        reports = await gather(*(read_store_report(self.registers, name) for name in stores))
        now = self._clock.wall_ms()
        # The age is absolute: a report from the future is from a wrong clock, and must not count as new.
        return {
            name: None if report is None else Received(report, abs(now - report.at_ms) / 1000)
            for name, report in zip(stores, reports, strict=True)
        }

    async def _requests(self, stores: Iterable[str]) -> dict[str, RequestReport | None]:
        now = self._clock.wall_ms()
        reports = await gather(*(read_report(self.registers, name, now) for name in stores))
        return dict(zip(stores, reports, strict=True))

    async def drain(self, store: str, report: Callable[[int], None]) -> None:
        """Move all containers away from a store.  `report`: called with the number of containers that are left.

        Raises NotFound (no such store), Unavailable."""
        stores = (await self.status()).stores
        if store not in stores:
            known = nearest(store, stores) if stores else "it has no store now"
            raise NotFound(f"the cluster has no store {store}; {known}")
        with suppress(Exists):
            await self.registers.create(f"{DRAINED}/{store}", b"")
        before = None
        while left := len((await self.status()).containers_of(store)):
            if left != before:
                report(left)
                before = left
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def undrain(self, store: str) -> None:
        """Allow a drained store to have containers again.  Raises NotFound, Unavailable."""
        found = await self.registers.get(f"{DRAINED}/{store}")
        if found is None:
            raise NotFound(f"the store {store} is not drained")
        await self.registers.delete(f"{DRAINED}/{store}", found.version)


@asynccontextmanager
async def view_cluster(cluster: ClusterAddress, env: Env) -> AsyncIterator[ClusterView]:
    """Yield a view of a cluster to a block.  Raises Unavailable."""
    zookeeper = await ZooKeeper.connect(cluster.hosts, STORE_LEASE_SECONDS, env)
    try:
        yield ClusterView(zookeeper, cluster, env.clock)
    finally:
        await zookeeper.close()
