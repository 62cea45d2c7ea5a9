"""One actor's connection to the segment store, reconnected whenever it is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.client.core.connection import Connection
from sarit.core.errors import Unavailable
from simulation.cluster import NODE, STORE_PORT

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from simulation.cluster import Cluster

T = TypeVar("T")
ANSWER_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 5.0


class Link:
    """Connects when asked to."""

    def __init__(self, cluster: Cluster, rng: random.Random, name: str) -> None:
        self._cluster = cluster
        self._rng = rng
        self._name = name
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """An open connection; retries until there is one."""
        delay = 0.01
        while self._connection is None or self._connection.closed:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    _, connection = await self._cluster.clients.env.network.connect(
                        lambda: Connection(self._name), NODE, STORE_PORT
                    )
                    await connection.greeted
                self._connection = connection
            except (OSError, Unavailable, TimeoutError):
                await asyncio.sleep(delay * (0.5 + self._rng.random()))
                delay = min(delay * 2, 0.5)
        return self._connection

    async def ask(self, command: Callable[[int], Any]) -> Any:
        """One request.  Raises Unavailable: whether it was executed is unknown."""
        connection = await self.connection()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await connection.ask(command)
        except TimeoutError:
            connection.abort("no answer")
            raise Unavailable("no answer") from None

    async def retry_forever(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the store is unavailable."""
        while True:
            try:
                return await call()
            except Unavailable:
                await asyncio.sleep(0.02 + 0.05 * self._rng.random())

    def drop(self) -> None:
        """Abandon the connection; requests in flight may still arrive."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            connection.abort("given up")
