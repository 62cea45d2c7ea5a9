"""A cluster, as a backup sees it: who owns which container, and a connection to each of those stores.

Everything is read from where the cluster keeps it: long-term storage, and the indexes.  Stores are asked over their own
port, by internal commands, which take the secret of the cluster.  Whoever reads the description of the cluster in
ZooKeeper has it: so this is for its administrators.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.cluster.status import view_cluster
from sarit.core.errors import Invalid, SaritError
from sarit.ops.backup.indexes import SlateIndexes, SqliteIndexes
from sarit.ops.backup.limits import COPY_CACHE_BYTES
from sarit.ops.backup.moment import check_whole
from sarit.ops.backup.node_connection import Refused, TryAgain
from sarit.process.places.indexes import open_shared_indexes
from sarit.process.store_calls.store_connections import FixedRouter, StoreConnections
from sarit.store.backup_session import PROTOCOL
from sarit.store.limits import BACKUP_IDLE_SECONDS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.coordination.container_map import ContainerMap
    from sarit.env.ports import Env, Worker
    from sarit.ops.backup.indexes import Indexes
    from sarit.ops.backup.moment import StoreConnection

_PURPOSE: Final = "backup"


class RemoteStore:
    """A store over the network.  Its containers are what it says, not what the map says."""

    def __init__(self, stores: StoreConnections, address: tuple[str, int], advice: str) -> None:
        self._stores = stores
        self._address = address
        self._advice = advice
        self.containers: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<RemoteStore {self._address[0]}:{self._address[1]}>"

    async def begin(self) -> None:
        """Begin a backup.  Raises TryAgain, Unavailable."""
        try:
            found = await self.ask(BACKUP_IDLE_SECONDS, backup=PROTOCOL)
        except TryAgain as error:
            raise TryAgain(f"{error}; {self._advice}" if self._advice else str(error)) from error
        self.containers = frozenset(map(int, found["containers"]))

    async def ask(self, timeout_seconds: float, **message: object) -> dict[str, Any]:
        name = f"the store at {self._address[0]}:{self._address[1]}"
        make = partial(wire.BackupStep, step=json.dumps(message))
        try:
            async with asyncio.timeout(timeout_seconds):
                reply = await self._stores.ask_at(self._address, make, _PURPOSE)
        except TimeoutError:
            raise TryAgain(f"{name} did not answer for {timeout_seconds:.0f} s") from None
        except (SaritError, OSError) as error:
            raise TryAgain(f"{name}: {error}") from error
        if not isinstance(reply, wire.BackupStepDone):
            raise Refused(f"{name} takes no part in backups: {reply}")
        found: dict[str, Any] = json.loads(reply.answer)
        if "error" in found:
            raise (TryAgain if found.get("again") else Refused)(f"{name} ended the backup: {found['error']}")
        return found

    async def close(self) -> None:
        await self._stores.close()


class ClusterSource:
    """A `Source`.  `meta`: what the cluster was made with.  `work`: a folder for copies of indexes.

    `advice`: what may be wrong if a store cannot be reached."""

    def __init__(self, env: Env, address: ClusterAddress, meta: ClusterMeta, work: str, advice: str = "") -> None:
        self._env = env
        self._address = address
        self._meta = meta
        self.node = meta.cluster
        self.containers = meta.containers
        self.storage_url = meta.storage
        self.places = [meta.storage, meta.index, meta.log]
        self.work = work
        self._advice = advice

    def __repr__(self) -> str:
        return f"<ClusterSource {self._address}>"

    async def connect(self) -> Sequence[StoreConnection]:
        async with view_cluster(self._address, self._env) as view:
            found = (await view.status()).map
        connections: list[RemoteStore] = []
        try:
            # Connects to the stores in a fixed order: of two backups, the one that gets the first store continues.
            for address in addresses_of(found, self.containers):
                stores = StoreConnections(
                    self._env, FixedRouter(self.containers, [address]), bytes.fromhex(self._meta.secret)
                )
                connections.append(RemoteStore(stores, address, self._advice))
                await connections[-1].begin()
            check_whole((each.containers for each in connections), self.containers)
        except BaseException:
            for each in connections:
                await each.close()
            raise
        return connections

    def indexes(self, worker: Worker) -> Indexes:
        directory = self._meta.index_directory
        if directory is None:
            return SlateIndexes(self._env, worker, open_shared_indexes(self._meta.index, COPY_CACHE_BYTES))
        return SqliteIndexes(self._env.files, worker, lambda number: f"{directory}/container-{number}.db")


def addresses_of(record: ContainerMap | None, containers: int) -> list[tuple[str, int]]:
    """Return the stores that have a container, in one order.  Raises TryAgain: one has no owner now."""
    found = set()
    for number in range(containers):
        store = None if record is None else record.address(number)
        if store is None:
            raise TryAgain(f"container {number} has no store now")
        found.add((store.host, store.port))
    return sorted(found)


async def describe_cluster(
    env: Env, address: ClusterAddress, machine: str, work: str, advice: str = ""
) -> ClusterSource:
    """Return the cluster at an address; `machine`: this one; `work`, `advice`: see `ClusterSource`.

    Raises Invalid (there is none; its index is elsewhere)."""
    async with view_cluster(address, env) as view:
        meta = (await view.status()).meta
    if meta.index_directory is not None and machine != meta.machine:
        raise Invalid(
            f"the index of this cluster is a directory of the machine {meta.machine} ({meta.index}), and this is "
            f"{machine}: run the backup there (--machine names a machine, if the host name does not)"
        )
    return ClusterSource(env, address, meta, work, advice)
