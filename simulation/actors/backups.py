"""Backups of all stores while they serve: their snapshots of one moment, their hold on chunks, and a copy of what the
indexes name.

The sides of the stores (`store/backup_session.py`, `process/backup_source.py`) and of the command
(`ops/backup/moment.py`, `ops/backup/node_connection.py`) are production code; a connection of the simulated network
takes the place of the Unix socket.  The indexes are in memory, so a copy of their records takes the place of
`IndexSnapshot`, at the same step.
Chunks are read and compared as `sarit backup create` does, and those of an earlier attempt are not copied again.

A chunk that is gone or damaged while the stores hold it is a fault.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Invalid, NotFound, Unavailable
from sarit.index import keys
from sarit.ops.backup.index_copy import check_chunk, length_of
from sarit.ops.backup.moment import Stores
from sarit.ops.backup.node_connection import NodeConnection
from sarit.ops.backup.pacer import for_each
from sarit.storage.layout import load_chunk_extent
from sarit.store.backup_session import PROTOCOL
from sarit.store.limits import BACKUP_IDLE_SECONDS
from simulation.backup_port import BACKUP_PORT
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage
    from simulation.cluster import Cluster

_PAUSES: Final = (0.5, 5.0)
_CONNECT_SECONDS: Final = 2.0
_RETAINED: Final = 3

Rows = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup: records of the indexes by container, and chunks.  Its moment lies between `begun` and `ended`."""

    begun: float
    ended: float
    rows: Mapping[int, Rows]
    chunks: Mapping[str, bytes]


class Backups:
    """Takes one backup after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.rng("backups")
        self._pause = self._rng.choice(_PAUSES)
        self._place: dict[str, bytes] = {}
        self.taken: list[Taken] = []

    def __repr__(self) -> str:
        return f"<Backups, {len(self.taken)} taken>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks to cancel."""
        return [self._cluster.spawn(self._run(), "backups")] if self._cluster.options.backups else []

    async def _run(self) -> None:
        """While the faults last, and until there is one.  Later ones show less: nothing is written any more."""
        trace, count = self._cluster.trace, 0
        while not self.taken or not self._cluster.quiet:
            await asyncio.sleep(self._rng.random() * self._pause)
            try:
                taken = await self._take()
            except (Unavailable, OSError, TimeoutError) as error:
                trace.probe("backup_failed")
                trace.note("backup", repr(error))
                continue
            trace.probe("backup_taken")
            trace.note("backup", f"taken, {len(taken.chunks)} chunks, of {taken.begun:.6f} to {taken.ended:.6f}")
            # Each one is retained with the same chance.
            count += 1
            if len(self.taken) < _RETAINED:
                self.taken.append(taken)
            elif (at := self._rng.randrange(count)) < _RETAINED:
                self.taken[at] = taken

    async def _take(self) -> Taken:
        """Raises Unavailable, OSError, TimeoutError."""
        begun, storage = now(), self._cluster.storage
        if storage is None:
            raise Unavailable("no node serves")
        connections: list[NodeConnection] = []
        try:
            for host in self._cluster.store_hosts:
                connections.append(await _begin(host))  # noqa: PERF401
            stores = Stores(connections, self._cluster.options.containers)
            return await stores.while_kept(self._work(stores, begun, storage))
        except (Corrupt, Invalid) as error:  # the stores hold their chunks, and no fault damages one
            raise AssertionError(f"backup: {error}") from error
        finally:
            for connection in connections:
                await connection.close()

    async def _work(self, stores: Stores, begun: float, storage: ChunkStorage) -> Taken:
        await stores.take()
        rows: dict[int, Rows] = {}
        for number in range(self._cluster.options.containers):
            rows[number] = self._index(number, await stores.committed(number))
            await stores.read(number)
        ended = now()
        return Taken(begun, ended, rows, await self._copy(rows, storage))

    def _index(self, number: int, frame: int) -> Rows:
        """Raises Unavailable: it does not show the checkpoint of `frame`, as `IndexSnapshot` finds."""
        rows = self._cluster.indexes.snapshot(number)
        value = rows.get(keys.meta_key("frame"))
        found = 0 if value is None else keys.parse_attribute_value(value)
        if found != frame:
            raise Unavailable(f"the index of container {number} shows frame {found}, not {frame}")
        return rows

    async def _copy(self, rows: Mapping[int, Rows], storage: ChunkStorage) -> dict[str, bytes]:
        named: dict[str, list[Extent]] = {}
        for records in rows.values():
            for key, value in records.items():
                if key.startswith(keys.EXTENT):
                    extent = load_chunk_extent(keys.parse_extent_key(key)[1], value)
                    named.setdefault(extent.chunk, []).append(extent)
        missing = [name for name, extents in named.items() if len(self._place.get(name, b"")) != length_of(extents)]
        self._rng.shuffle(missing)
        await for_each(missing, lambda name: self._copy_chunk(name, named[name], storage))
        return {name: self._place[name] for name in named}

    async def _copy_chunk(self, name: str, extents: list[Extent], storage: ChunkStorage) -> None:
        """Raises Corrupt, Unavailable."""
        await asyncio.sleep(self._rng.random() * self._cluster.options.storage_latency)
        try:
            data = bytes(await storage.read(name, 0, length_of(extents)))
        except NotFound:
            raise Corrupt(f"chunk {name} is missing") from None
        check_chunk(name, extents, memoryview(data))
        self._place[name] = data


async def _begin(host: str) -> NodeConnection:
    """As `NodeConnection.open`.  Raises Unavailable, OSError, TimeoutError."""
    async with asyncio.timeout(_CONNECT_SECONDS):
        connection = NodeConnection(*await asyncio.open_connection(host, BACKUP_PORT))
    try:
        found = await connection.ask(BACKUP_IDLE_SECONDS, backup=PROTOCOL)
    except BaseException:
        await connection.close()
        raise
    connection.containers = frozenset(map(int, found["containers"]))
    return connection
