"""Clients of a key-value table of the Python client: conditional changes, batches, removals, reads and scans.

Every call is recorded for the search of `checkers/register.py`, by primary key: keys that share it change together.
All changes are conditional: an unconditional one may be applied twice, which no order of single calls explains
(src/sarit/client/tables/changes.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers import register
from checkers.register import UNKNOWN, Call, VersionedTable
from sarit.client.tables.changes import Insert, Remove, Replace
from sarit.core.errors import Conflict, Unavailable
from simulation.actors.clients import SCOPE, connect_client
from simulation.actors.readers import within_deadline
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.tables.table import Table
    from simulation.cluster import Cluster

TABLE: Final = f"{SCOPE}/pairs"
PRIMARY: Final = (b"aa", b"bb", b"cc")
SECONDARY: Final = (b"1", b"2", b"3")
_CALLS: Final = 30

Key = tuple[bytes, bytes]


class TableUsers:
    """All clients, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[Call] = []

    def __repr__(self) -> str:
        return f"<TableUsers, {len(self.calls)} calls>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        users = range(self.cluster.options.table_users)
        return [self.cluster.spawn(TableUser(self, number).run(), f"table user {number}") for number in users]

    def check(self) -> list[Violation]:
        """Histories that no order explains."""
        return register.check(self.calls, _model)

    async def read_again(self, name: str) -> None:
        """The whole table, after the faults."""
        if not self.cluster.options.table_users:
            return
        client = await connect_client(self.cluster)
        user = TableUser(self, -1)
        await within_deadline(user.scan(client.table(TABLE)), f"table {name}")
        await client.close()

    def record(self, process: str, on: Hashable, action: tuple[Any, ...], answer: Any, begun: float) -> None:
        """Record a call that ended now, or whose outcome stays unknown."""
        self.calls.append(Call(process, on, action, answer, begun, inf if answer is UNKNOWN else now()))


def _model(_: Hashable, calls: Sequence[Call]) -> register.Model:
    return VersionedTable(calls)


class TableUser:
    """One client."""

    def __init__(self, users: TableUsers, number: int) -> None:
        self._users = users
        self._cluster = users.cluster
        self._rng = users.cluster.rng(f"table user {number}")
        self._name = f"table user {number}"
        self._number = number
        self._count = 0

    async def run(self) -> None:
        """A drawn number of calls."""
        client = await connect_client(self._cluster)
        await self._create(client)
        table = client.table(TABLE)
        for _ in range(_CALLS):
            await asyncio.sleep(self._rng.random() * 4 * self._cluster.options.think_seconds)
            try:
                await (self.scan(table) if self._rng.random() < 0.15 else self._change(table))
            except Unavailable as error:
                self._cluster.trace.probe("table_change_uncertain")
                self._cluster.trace.note("table user", repr(error))
        await client.close()

    async def _create(self, client: Client) -> None:
        sizes = {"primary_key_bytes": len(PRIMARY[0]), "secondary_key_bytes": len(SECONDARY[0])}
        await client.tables.create(TABLE, partitions=2, **sizes)

    async def scan(self, table: Table) -> None:
        """Scan the table; recorded as one read of each key within the scan."""
        begun = now()
        entries = [entry async for entry in table.scan(page_entries=self._rng.choice((1, 4, 100)))]
        found = {(entry.primary, entry.secondary): (entry.value, entry.version) for entry in entries}
        if twice := [key for key, count in Counter((e.primary, e.secondary) for e in entries).items() if count > 1]:
            self._cluster.failures.append(f"scan-twice: {TABLE} showed {twice} twice")
        for primary in PRIMARY:
            for secondary in SECONDARY:
                self._got((primary, secondary), found.get((primary, secondary)), begun)

    async def _get(self, table: Table, key: Key) -> int | None:
        begun = now()
        entry = await table.get(key)
        self._got(key, None if entry is None else (entry.value, entry.version), begun)
        return None if entry is None else entry.version

    def _got(self, key: Key, found: tuple[bytes, int] | None, begun: float) -> None:
        self._users.record(self._name, key[0], ("get", (key[1],)), (found,), begun)

    async def _change(self, table: Table) -> None:
        """Read some keys of one primary key, then change all of them atomically."""
        primary = self._rng.choice(PRIMARY)
        keys = [(primary, secondary) for secondary in self._rng.sample(SECONDARY, self._rng.choice((1, 1, 2)))]
        versions = [await self._get(table, key) for key in keys]
        removes = self._rng.random() < 0.3 and None not in versions
        changes: list[Any] = []
        asked: list[tuple[bytes, bytes | None, Any]] = []
        for key, version in zip(keys, versions, strict=True):
            self._count += 1
            value = b"%d.%d" % (self._number, self._count)
            if version is None:
                changes.append(Insert(key, value))
                asked.append((key[1], value, VersionedTable.ABSENT))
            else:
                changes.append(Remove(key, version) if removes else Replace(key, value, version))
                asked.append((key[1], None if removes else value, version))
        begun = now()
        answer: Any = UNKNOWN
        try:
            answer = tuple(await table.update(changes))
        except Conflict:
            answer = None
            self._cluster.trace.probe("table_user_conflict")
        finally:
            self._users.record(self._name, primary, ("update", tuple(asked)), answer, begun)


__all__ = ["TABLE", "TableUsers"]
