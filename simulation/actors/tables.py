"""Clients of table segments: conditional updates and reads; every value is unique."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from checkers.table import ABSENT, ANY, Read, Update
from sarit.core.errors import Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.wire import commands as wire
from sarit.wire.limits import NO_VERSION
from simulation.actors.links import Link, SentAwayError
from simulation.world import now

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.events import History

KEYS = 6


class TableClient:
    """One client."""

    def __init__(self, cluster: Cluster, history: History, number: int, tables: list[str]) -> None:
        self._cluster = cluster
        self._history = history.table
        self._rng = cluster.rng(f"table {number}")
        self._link = Link(cluster, self._rng, f"table {number}")
        self._tables = tables
        self._number = number
        self._count = 0

    async def run(self) -> None:
        """A drawn number of operations."""
        for _ in range(self._cluster.options.table_updates):
            table = self._rng.choice(self._tables)
            keys = self._rng.sample(range(KEYS), self._rng.choice((1, 1, 2, 4)))
            await asyncio.sleep(self._rng.random() * 2 * self._cluster.options.think_seconds)
            try:
                versions = await self.read(table, keys)
                if self._rng.random() < 0.7:
                    await self._update(table, keys, versions)
            except Unavailable:
                continue

    async def read(self, table: str, keys: list[int]) -> list[int]:
        """Read and record; the versions."""
        names = [_name(key) for key in keys]
        begun = now()
        answer = await self._link.ask(
            lambda request: wire.ReadTable(request, table, "", tuple(wire.TableKey(name) for name in names))
        )
        if not isinstance(answer, wire.TableRead):
            raise AssertionError(f"read of {table}: {answer}")
        versions = []
        for entry in answer.entries:
            version = ABSENT if entry.version == NOT_EXISTS else entry.version
            self._history.reads.append(Read(_full(table, entry.key), bytes(entry.value), version, begun, now()))
            versions.append(version)
        return versions

    async def _update(self, table: str, keys: list[int], versions: list[int]) -> None:
        entries, puts, begun = [], [], now()
        for key, version in zip(keys, versions, strict=True):
            self._count += 1
            value = b"%d.%d" % (self._number, self._count)
            expected = ANY if self._rng.random() < 0.2 else version
            asked = NO_VERSION if expected == ANY else NOT_EXISTS if expected == ABSENT else expected
            entries.append(wire.TableEntry(_name(key), asked, value))
            puts.append((_full(table, _name(key)), value, expected))
        try:
            answer = await self._link.ask(lambda request: wire.UpdateTableEntries(request, table, "", tuple(entries)))
        except SentAwayError:  # nobody may ever read these values
            raise
        except BaseException:
            self._record(puts, None, begun, float("inf"))
            raise
        self._record(puts, answer, begun, now())

    def _record(self, puts: list[tuple[bytes, bytes, int]], answer: Any, begun: float, ended: float) -> None:
        if isinstance(answer, wire.TableEntriesUpdated):
            for (key, value, expected), version in zip(puts, answer.versions, strict=True):
                self._history.updates.append(Update(key, value, expected, version, begun, ended))
            return
        refused = isinstance(answer, wire.TableKeyBadVersion | wire.TableKeyDoesNotExist)
        if answer is not None and not refused:
            raise AssertionError(f"update of a table: {answer}")
        if refused:
            self._cluster.trace.probe("table_conflict")
        for key, value, expected in puts:
            self._history.updates.append(Update(key, value, expected, None, begun, ended, refused))


async def read_everything(cluster: Cluster, history: History, tables: list[str], name: str) -> None:
    """Every key once more, after the faults."""
    client = TableClient(cluster, history, -1, tables)
    for table in tables:
        await client._link.retry_forever(partial(client.read, table, list(range(KEYS))))
    client._link.drop()


def _name(key: int) -> bytes:
    return b"key %d" % key


def _full(table: str, key: Any) -> bytes:
    return table.encode() + b"/" + bytes(key)
