"""The connection of a process to its cluster: a session with ZooKeeper, and the cluster's description."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from sarit.cluster.creation import read_meta
from sarit.cluster.limits import STORE_INCARNATION_BYTES, ZOOKEEPER_START_SECONDS
from sarit.cluster.release import check_clock, raise_release
from sarit.coordination.limits import STORE_LEASE_SECONDS
from sarit.coordination.zookeeper import ZooKeeper, server_ms
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.env.ports import Env


class ClusterConnection:
    """The session of a process with ZooKeeper, and the ports of its cluster on it."""

    def __init__(self, zookeeper: ZooKeeper, cluster: ClusterAddress, meta: ClusterMeta) -> None:
        self.zookeeper = zookeeper
        self.cluster = cluster
        self.meta = meta
        self.registers = ZooKeeperRegisters(zookeeper, cluster.root)

    def __repr__(self) -> str:
        return f"<ClusterConnection {self.cluster}>"

    @classmethod
    async def open(cls, config: ProcessConfig, env: Env) -> ClusterConnection:
        """Connect, and read the cluster's description.  Raises Unavailable, Invalid."""
        # Read the description in another session first: it has the length to request for this session.
        meta = await read_cluster(config.cluster, env)
        meta.compare(config.given)
        hosts, wait = config.cluster.hosts, ZOOKEEPER_START_SECONDS
        zookeeper = await ZooKeeper.connect(hosts, meta.lease_seconds, env, wait_seconds=wait)
        if zookeeper.session_seconds != meta.lease_seconds:
            found = zookeeper.session_seconds
            await zookeeper.close()
            raise Invalid(
                f"ZooKeeper at {config.cluster.hosts} gives sessions of {found:g} s, and the lease of this cluster is "
                f"{meta.lease_seconds:g} s: set tickTime, minSessionTimeout and maxSessionTimeout of ZooKeeper so that "
                "it is allowed"
            )
        connection = cls(zookeeper, config.cluster, meta)
        try:
            await raise_release(connection.registers, version("sarit"))
            nonce, before = env.random.bytes(STORE_INCARNATION_BYTES).hex(), env.clock.wall_ms()
            check_clock(before, await server_ms(zookeeper, f"{config.cluster.root}/clock/{nonce}"), env.clock.wall_ms())
        except BaseException:
            await zookeeper.close()
            raise
        return connection

    def members(self, kind: str) -> ZooKeeperMembers:
        """Return the members of one kind, as "stores"."""
        return ZooKeeperMembers(self.zookeeper, f"{self.cluster.root}/{kind}")

    async def close(self) -> None:
        """End the session."""
        await self.zookeeper.close()


async def read_cluster(cluster: ClusterAddress, env: Env) -> ClusterMeta:
    """Read a cluster's description.  Raises Unavailable, Invalid.

    Waits for ZooKeeper, which may be starting at the same time, as after a power cut."""
    zookeeper = await ZooKeeper.connect(cluster.hosts, STORE_LEASE_SECONDS, env, wait_seconds=ZOOKEEPER_START_SECONDS)
    try:
        return await read_meta(ZooKeeperRegisters(zookeeper, cluster.root), cluster)
    finally:
        await zookeeper.close()
