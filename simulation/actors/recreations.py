"""Users who make a scope with a stream and a table, scan them, delete them, and make them again.

They share the names, so one deletes what another has just made.  Whatever is seen between two equal answers for the
creation id belongs to that id.  Two ids of one name must have no segment number in common: else a position in the
earlier one would be taken for one in the later.  A table keeps its segments, so one id has those of one table alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from checkers.log import Violation
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Unavailable
from sarit.core.names import StreamName
from simulation.actors.clients import connect_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.client.aio import Client
    from simulation.cluster import Cluster

_SCOPE: Final = "again"
_STREAM: Final = StreamName(_SCOPE, "orders")
_TABLE: Final = StreamName(_SCOPE, "pairs")
_ROUNDS: Final = 12
_USERS: Final = 2
_PARTITIONS: Final = 2
# Expected, since others change the same names, and where an answer was lost.
_EXPECTED: Final = (Conflict, Exists, Invalid, NotFound, Sealed, Unavailable)


class Recreations:
    """All users, and what they have seen."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.numbers: dict[StreamName, dict[bytes, set[int]]] = {}
        self.scans = 0

    def __repr__(self) -> str:
        return f"<Recreations, {self.scans} scans>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        users = range(_USERS if self.cluster.options.recreations else 0)
        return [self.cluster.spawn(_User(self, number).run(), f"recreation {number}") for number in users]

    def seen(self, name: StreamName, creation_id: bytes, numbers: set[int]) -> None:
        """Record which segment numbers one stream or table has."""
        self.scans += 1
        self.numbers.setdefault(name, {}).setdefault(creation_id, set()).update(numbers)

    def check(self) -> Iterator[Violation]:
        """Segment numbers that two of one name have had."""
        for name, found in self.numbers.items():
            used: dict[int, bytes] = {}
            for creation_id, numbers in found.items():
                for number in sorted(numbers):
                    other = used.setdefault(number, creation_id)
                    if other != creation_id:
                        what = f"{name} had segment number {number} as {other.hex()} and as {creation_id.hex()}"
                        yield Violation("recreated", what)
        for creation_id, numbers in self.numbers.get(_TABLE, {}).items():
            if len(numbers) != _PARTITIONS:  # they stay the same for ever
                yield Violation("recreated", f"{_TABLE} had the id {creation_id.hex()} twice: {sorted(numbers)}")
        ids = [creation_id for found in self.numbers.values() for creation_id in found]
        if len(ids) != len(set(ids)):
            yield Violation("recreated", "a stream and a table have the same creation id")


class _User:
    """One user."""

    def __init__(self, shared: Recreations, number: int) -> None:
        self._shared = shared
        self._cluster = shared.cluster
        self._rng = shared.cluster.rng(f"recreation {number}")
        self._name = f"recreation {number}"

    async def run(self) -> None:
        """A number of rounds."""
        client = await connect_client(self._cluster)
        for _ in range(_ROUNDS):
            await asyncio.sleep(self._rng.random() * 4 * self._cluster.options.think_seconds)
            for step in (self._make, self._scan, self._delete):
                try:
                    await step(client)
                except _EXPECTED as error:
                    self._cluster.trace.note(self._name, repr(error))
        await client.close()

    async def _make(self, client: Client) -> None:
        await client.create_scope(_SCOPE)
        await client.create_stream(_STREAM, segments=self._rng.randint(1, 3))
        await client.tables.create(_TABLE, primary_key_bytes=1, partitions=_PARTITIONS)
        if self._rng.random() < 0.3:
            await client.stream(_STREAM).scale(self._rng.randint(3, 4))

    async def _scan(self, client: Client) -> None:
        stream, table = client.stream(_STREAM), client.table(_TABLE)
        before = await stream.creation_id()
        segments = await stream.segments()
        if before is not None and segments and before == await stream.creation_id():
            self._shared.seen(_STREAM, before, {s.segment.number for s in segments})
        before = await client.tables.creation_id(_TABLE)
        partitions = await table.partitions()
        if before is not None and before == await client.tables.creation_id(_TABLE):
            self._shared.seen(_TABLE, before, {partition.number for partition in partitions})

    async def _delete(self, client: Client) -> None:
        draw = self._rng.random()
        if draw < 0.5:
            await client.delete_scope(_SCOPE, recursive=True)
            self._cluster.trace.probe("scope_deleted_to_be_made_again")
        elif draw < 0.7:
            await client.delete_stream(_STREAM, seal=True)
        elif draw < 0.8:
            await client.tables.delete(_TABLE)


__all__ = ["Recreations"]
