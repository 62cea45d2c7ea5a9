"""Processes that share a counter, a map, a list and a priority queue: they crash, and come again with new copies.

Histories of the first three are searched for an order (`checkers/register.py`); the queue has rules of its own
(`checkers/structures.py`).
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkers import register
from checkers.register import UNKNOWN, Call
from checkers.structures import REFUSED, Put, QueueHistory, SharedEntries, SharedNumber, SharedSequence, Take
from sarit.client.structures import shared_queue
from sarit.client.structures.table_head import ITEM
from sarit.core.errors import Conflict
from simulation.actors.clients import SCOPE, call_and_crash, connect_client
from simulation.actors.readers import within_deadline
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.structures.counter import SharedCounter
    from sarit.client.structures.shared_list import SharedList
    from sarit.client.structures.shared_map import SharedMap
    from sarit.client.structures.shared_queue import SharedQueue
    from simulation.cluster import Cluster

COUNTER, MAP, LIST, QUEUE = (f"{SCOPE}/{name}" for name in ("a-counter", "a-map", "a-list", "a-queue"))
_KEYS: Final = ("a", "b", "c")
_LEASE: Final = 2.0
_CALLS: Final = 25
_MODELS: Final[dict[str, Callable[[], register.Model]]] = {
    COUNTER: SharedNumber,
    MAP: SharedEntries,
    LIST: SharedSequence,
}


class Copies(NamedTuple):
    """What one process has opened."""

    counter: SharedCounter
    map: SharedMap
    list: SharedList
    queue: SharedQueue


async def open_copies(client: Client) -> Copies:
    """Open all four structures."""
    made = client.structures
    return Copies(
        await made.counter(COUNTER), await made.map(MAP), await made.list(LIST),
        await made.queue(QUEUE, lease_seconds=_LEASE),
    )  # fmt: skip


class StructureActors:
    """All processes, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[Call] = []
        self.queue = QueueHistory(_LEASE)
        self._left: dict[tuple[int, int], Any] | None = None

    def __repr__(self) -> str:
        return f"<StructureActors, {self.progress} calls>"

    @property
    def progress(self) -> int:
        """A number that grows with progress."""
        return len(self.calls) + len(self.queue.puts) + len(self.queue.takes)

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        users = range(self.cluster.options.structure_users)
        return [self.cluster.spawn(StructureActor(self, number).run(), f"structure user {number}") for number in users]

    def check(self) -> list[Violation]:
        """Histories that no order explains."""
        return register.check(self.calls, _model) + self.queue.check(self._left)

    async def read_again(self, name: str) -> None:
        """New copies, from what is stored now."""
        if not self.cluster.options.structure_users:
            return
        client = await connect_client(self.cluster)
        reader = StructureActor(self, -1)
        copies = await within_deadline(open_copies(client), f"copies {name}")
        await within_deadline(reader.read_all(copies), f"structures {name}")
        rows = within_deadline(_rows(client), f"queue {name}")
        self._left = dict(await rows)
        await client.close()

    def record(self, process: str, on: Hashable, action: tuple[Any, ...], answer: Any, begun: float) -> None:
        """Record a call that ended now, or whose outcome stays unknown."""
        self.calls.append(Call(process, on, action, answer, begun, inf if answer is UNKNOWN else now()))


def _model(on: Hashable, calls: Sequence[Call]) -> register.Model:
    return _MODELS[str(on)]()


async def _rows(client: Client) -> list[tuple[tuple[int, int], bytes]]:
    rows = client.table(QUEUE).scan(prefix=ITEM)
    return [(shared_queue.place_of(row.primary), shared_queue.decode_row(row.value).data) async for row in rows]


class StructureActor:
    """One process."""

    def __init__(self, shared: StructureActors, number: int) -> None:
        self._shared = shared
        self._cluster = shared.cluster
        self._rng = shared.cluster.rng(f"structure user {number}")
        self._name = f"structure user {number}"
        self._number = number
        self._count = 0

    async def run(self) -> None:
        """A number of calls; after a crash, with a new client."""
        await call_and_crash(self._cluster, self._rng, _CALLS, "structure user", open_copies, self._call)

    def _call(self, copies: Copies) -> Awaitable[None]:
        chance = self._rng.random()
        if chance < 0.15:
            return self._add(copies.counter)
        if chance < 0.4:
            return self._change_map(copies.map)
        if chance < 0.55:
            return self._append(copies.list)
        if chance < 0.65:
            return self.read_all(copies)
        return self._put(copies.queue) if chance < 0.8 else self._take(copies.queue)

    def _value(self) -> bytes:
        self._count += 1
        return b"%d.%d" % (self._number, self._count)

    async def _answered(self, on: str, action: tuple[Any, ...], call: Awaitable[Any]) -> Any:
        begun = now()
        answer: Any = UNKNOWN
        try:
            answer = await call
        except Conflict:
            answer = REFUSED
        finally:
            self._shared.record(self._name, on, action, answer, begun)
        return answer

    async def _add(self, counter: SharedCounter) -> None:
        amount = self._rng.choice((1, 1, -2, 10))
        await self._answered(COUNTER, ("add", amount), counter.add(amount))

    async def _change_map(self, shared: SharedMap) -> None:
        key, value = self._rng.choice(_KEYS), self._value()
        if self._rng.random() < 0.3:
            await self._answered(MAP, ("remove", key), shared.remove(key))
            return
        entry = await shared.get(key, fresh=False)
        known = 0 if entry is None else entry.version
        expected = self._rng.choice((None, known))
        await self._answered(MAP, ("put", key, value, expected), shared.put(key, value, expected))

    async def _append(self, shared: SharedList) -> None:
        values = tuple(self._value() for _ in range(self._rng.choice((1, 1, 3))))
        await self._answered(LIST, ("append", values), shared.extend(values))

    async def read_all(self, copies: Copies) -> None:
        """Read what has an order."""
        await self._answered(COUNTER, ("get",), copies.counter.value())
        await self._answered(MAP, ("items",), _entries(copies.map))
        await self._answered(LIST, ("items",), _items(copies.list))

    async def _put(self, queue: SharedQueue) -> None:
        put = Put(self._value(), self._rng.choice((0, 0, 1, -1)), now())
        self._shared.queue.puts.append(put)
        await queue.put(put.value, put.priority)
        put.ended = now()

    async def _take(self, queue: SharedQueue) -> None:
        take = Take(now())
        self._shared.queue.takes.append(take)
        item = await queue.take(timeout=self._rng.choice((0, 0, 3 * _LEASE)))
        take.ended = now()
        if item is None:
            return
        take.value, take.place, take.takes = item.value, (item.priority, item.number), item.takes
        if item.takes > 1:
            self._cluster.trace.probe("queue_item_taken_again")
        try:
            await asyncio.sleep(self._rng.random() * 2 * _LEASE)  # perhaps longer than its lease
            if self._rng.random() < 0.3:
                begun = now()
                await queue.renew(item)
                take.renewed.append(begun)
                await asyncio.sleep(self._rng.random() * _LEASE)
            chance = self._rng.random()
            if chance < 0.2:
                return  # its taker forgets it
            if chance < 0.4:
                take.given_back = now()
                await queue.give_back(item)
            else:
                take.finish_begun = now()
                await queue.done(item)
                take.finished = now()
        except Conflict:
            self._cluster.trace.probe("queue_lease_lost")


async def _entries(shared: SharedMap) -> tuple[tuple[str, bytes, int], ...]:
    return tuple((entry.key, entry.value, entry.version) for entry in await shared.items())


async def _items(shared: SharedList) -> tuple[bytes, ...]:
    return tuple([item.value async for item in shared.items()])


__all__ = ["StructureActors"]
