"""What the members of a cluster are, and which store has which container; and draining a store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.coordination.container_map import ContainerMap, StoreAddress, decode_store
from sarit.coordination.map_register import STORES, read_map
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Exists, NotFound
from sarit.core.limits import STORE_LEASE_SECONDS
from sarit.env.background import gather
from sarit.node.cluster import DRAINED
from sarit.node.cluster_init import read_meta
from sarit.node.controller_members import CONTROLLERS, decode
from sarit.node.limits import DRAIN_POLL_SECONDS
from sarit.node.object_requests import on_object_store, read_report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from sarit.env.ports import Clock, Env
    from sarit.node.cluster_settings import ClusterAddress, ClusterMeta
    from sarit.node.object_requests import RequestReport


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at one moment.  `map`: None before the first one.

    `requests`: of the stores to object storage; None of a store that has reported none for a while.  Empty where
    they were not asked for, and where nothing is on an object store."""

    meta: ClusterMeta
    stores: Mapping[str, StoreAddress]
    controllers: tuple[tuple[str, int], ...]
    map: ContainerMap | None
    requests: Mapping[str, RequestReport | None]

    def containers_of(self, store: str) -> list[int]:
        """What a store has open, also what moves away from it."""
        found = self.map
        return [] if found is None else [n for n in range(len(found.owners)) if found.serving(n) == store]


class ClusterView:
    """A cluster, seen by an operator."""

    def __init__(self, zookeeper: ZooKeeper, cluster: ClusterAddress, clock: Clock) -> None:
        self._clock = clock
        self.registers = ZooKeeperRegisters(zookeeper, cluster.root)
        self._cluster = cluster
        self._stores = ZooKeeperMembers(zookeeper, f"{cluster.root}/{STORES}")
        self._controllers = ZooKeeperMembers(zookeeper, f"{cluster.root}/{CONTROLLERS}")

    def __repr__(self) -> str:
        return f"<ClusterView {self._cluster}>"

    async def status(self, *, with_requests: bool = False) -> ClusterStatus:
        """Now; the requests to an object store only when asked for.

        Raises Invalid (there is no such cluster), Unavailable."""
        meta = await read_meta(self.registers, self._cluster)
        stores = {name: decode_store(value) for name, value in (await self._stores.list()).items()}
        controllers = tuple(sorted(decode(value) for value in (await self._controllers.list()).values()))
        found = await read_map(self.registers)
        requests = await self._requests(stores) if with_requests and on_object_store(meta) else {}
        return ClusterStatus(meta, stores, controllers, None if found is None else found[0], requests)

    async def _requests(self, stores: Iterable[str]) -> dict[str, RequestReport | None]:
        now = self._clock.wall_ms()
        reports = await gather(*(read_report(self.registers, name, now) for name in stores))
        return dict(zip(stores, reports, strict=True))

    async def drain(self, store: str, report: Callable[[int], None]) -> None:
        """Have all containers moved away from a store; `report` is called with the number of those that are left.

        Raises NotFound (no such store), Unavailable."""
        if store not in (await self.status()).stores:
            raise NotFound(f"the cluster has no store {store}: `sarit cluster status` names them")
        with suppress(Exists):
            await self.registers.create(f"{DRAINED}/{store}", b"")
        before = None
        while left := len((await self.status()).containers_of(store)):
            if left != before:
                report(left)
                before = left
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def undrain(self, store: str) -> None:
        """Let a store have containers again.  Raises NotFound, Unavailable."""
        found = await self.registers.get(f"{DRAINED}/{store}")
        if found is None:
            raise NotFound(f"the store {store} is not drained")
        await self.registers.delete(f"{DRAINED}/{store}", found.version)


@asynccontextmanager
async def view_cluster(cluster: ClusterAddress, env: Env) -> AsyncIterator[ClusterView]:
    """A view, until the end of the block.  Raises Unavailable."""
    zookeeper = await ZooKeeper.connect(cluster.hosts, STORE_LEASE_SECONDS, env)
    try:
        yield ClusterView(zookeeper, cluster, env.clock)
    finally:
        await zookeeper.close()
