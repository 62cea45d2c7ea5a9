"""One actor's connections to the segment stores, one to each, reconnected whenever one is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.client.core.connection import Connection
from sarit.core.errors import Unavailable
from sarit.wire import commands as wire
from simulation.cluster import SECRET

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from simulation.cluster import Cluster

T = TypeVar("T")
ANSWER_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 5.0
_READS: Final = (
    wire.GetStreamSegmentInfo, wire.GetSegmentAttribute, wire.ReadSegment, wire.LocateOffset, wire.GetTableSegmentInfo,
    wire.ReadTable, wire.ReadTableKeys, wire.ReadTableEntries, wire.ReadTableEntriesDelta,
)  # fmt: skip


class SentAwayError(Unavailable):
    """The store does not own the segment (any more): what was asked for has not happened."""


class Link:
    """Connects when asked to; `as_controller`: makes requests that are refused to clients."""

    def __init__(self, cluster: Cluster, rng: random.Random, name: str, *, as_controller: bool = False) -> None:
        self._as_controller = as_controller
        self._cluster = cluster
        self._rng = rng
        self._name = name
        self._connections: dict[tuple[str, int], Connection] = {}

    async def connection(self, segment: str, *, reading: bool = False) -> Connection:
        """An open connection to the store of a segment, as this client knows it; retries until there is one."""
        delay = 0.01
        while True:
            address = self._cluster.store_address(segment, reading=reading)
            connection = self._connections.get(address)
            if connection is not None and not connection.closed:
                return connection
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    _, made = await self._cluster.clients.env.network.connect(lambda: Connection(self._name), *address)
                    await made.greeted
                    if self._as_controller:
                        await made.ask(lambda request: wire.Introduce(request, SECRET))
                self._connections[address] = made
                continue
            except (OSError, Unavailable, TimeoutError):
                await asyncio.sleep(delay * (0.5 + self._rng.random()))
                delay = min(delay * 2, 0.5)

    async def ask(self, command: Callable[[int], Any]) -> Any:
        """One request.  Raises Unavailable: whether it was executed is unknown; SentAwayError: it was not."""
        example = command(0)
        connection = await self.connection(_segment_of(example), reading=isinstance(example, _READS))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await connection.ask(command)
        except TimeoutError:
            connection.abort("no answer")
            raise Unavailable("no answer") from None
        if isinstance(answer, wire.OutcomeUnknown):
            raise Unavailable(answer.message)
        if isinstance(answer, wire.WrongHost):
            self._cluster.trace.probe("wrong_host")
            raise SentAwayError("another store has the segment")
        return answer

    async def retry_forever(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the store is unavailable."""
        while True:
            try:
                return await call()
            except Unavailable:
                await asyncio.sleep(0.02 + 0.05 * self._rng.random())

    def drop(self) -> None:
        """Abandon the connections; requests in flight may still arrive."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            if not connection.closed:
                connection.abort("given up")


def _segment_of(command: Any) -> str:
    """The segment that decides which store a request goes to."""
    for field in ("segment", "target", "parent_segment"):
        if name := getattr(command, field, ""):
            return str(name)
    raise AssertionError(command)
