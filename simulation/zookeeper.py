"""A client of kazoo for the simulation: what `sarit.coordination.zookeeper` calls, on simulated servers.

It loses connections with calls in flight, whose outcome is then unknown, connects again to another server, and learns
only then that its session has ended.  Of kazoo it has the calls, results, states and watches that the product uses.
An attempt to connect ends within moments, as one, so that the time at which it was asked for is known.
"""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from simulation.zookeeper_values import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.zookeeper_servers import Connection, ZooKeeperServers

_RETRY_SECONDS: Final = 0.5
_EVENT: Final = SimpleNamespace(type="CHANGED")


class SimulatedKazoo:
    """See the head of the module.  `host`: the machine whose process it is part of; it is made in this process."""

    client_state = "CONNECTED"  # kazoo never gives up here

    def __init__(self, servers: ZooKeeperServers, host: str, session_seconds: float) -> None:
        self.host = host
        self.context = contextvars.copy_context()
        self.handler = SimpleNamespace(async_result=Answer)
        # `report_sessions` replaces this call by one that notes when it was made.  kazoo reads for two thirds of a
        # session.
        self._connection = SimpleNamespace(_connect=lambda: (session_seconds * 1000 * 2 / 3, 1000.0))
        self._servers = servers
        self._session_seconds = session_seconds
        self._listeners: list[Callable[[str], None]] = []
        self._state = ""
        self._session = 0
        self._connected: Connection | None = None
        self._attempt = 0
        self._queue: list[Request] = []
        self._sent: list[Request] = []
        self._ended = False

    def __repr__(self) -> str:
        return f"<SimulatedKazoo of {self.host}, session {self._session} {self._state}>"

    # -- what the product calls -------------------------------------------------------------------

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call with each state."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Connect."""
        self._connect()

    def stop(self) -> None:
        """End the session."""
        connection, self._ended = self._connected, True
        if connection is not None:
            self._transmit(connection, Request("close", "/", Answer()))
        self._connected = None

    def close(self) -> None:
        """Nothing is open."""

    def die(self) -> None:
        """The process died: its session lives until ZooKeeper has not heard of it for its length."""
        self._ended = True
        if self._connected is not None:
            self._connected.server.drop(self._connected)
        self._connected = None

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Answer:
        """See kazoo."""
        return self._ask(Request("get", path, Answer(), watch=watch))

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Answer:
        """See kazoo."""
        return self._ask(Request("exists", path, Answer(), watch=watch))

    def get_children_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Answer:
        """See kazoo."""
        return self._ask(Request("children", path, Answer(), watch=watch))

    def create_async(self, path: str, value: bytes, **flags: bool) -> Answer:
        """See kazoo."""
        given = frozenset(name for name, on in flags.items() if on)
        return self._ask(Request("create", path, Answer(), value, flags=given))

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        """See kazoo."""
        return self._ask(Request("set", path, Answer(), value, version))

    def delete_async(self, path: str, version: int) -> Answer:
        """See kazoo."""
        return self._ask(Request("delete", path, Answer(), version=version))

    def sync_async(self, path: str) -> Answer:
        """See kazoo."""
        return self._ask(Request("sync", path, Answer()))

    def _call(self, request: Any, answer: Answer) -> None:
        """The only request that is made so: drop the connection."""
        if self._connected is not None:
            self.lost(self._connected)

    # -- the connection ---------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._ended or self._connected is not None:
            return
        self._attempt += 1
        servers, loop = self._servers, asyncio.get_running_loop()
        if not servers.reaches(self.host, answers=True):
            loop.call_later(servers.delay(), self.refused, self._attempt, context=self.context)
            return
        loop.call_later(
            servers.delay(), servers.accept, self, self._attempt, self._session, self._session_seconds,
            context=servers.context,
        )  # fmt: skip

    def refused(self, attempt: int) -> None:
        """Called by the servers: try again."""
        if attempt == self._attempt and not self._ended:
            pause = self._servers.rng.random() * _RETRY_SECONDS
            asyncio.get_running_loop().call_later(pause, self._connect, context=self.context)

    def expired(self, attempt: int) -> None:
        """Called by the servers: the session has ended."""
        if attempt == self._attempt and not self._ended:
            self._session = 0
            self._change("LOST")
            self._fail_all(SessionExpiredError())
            self._connect()

    def accepted(self, attempt: int, connection: Connection) -> None:
        """Called by the servers: connected."""
        if attempt != self._attempt or self._ended or connection.gone:
            connection.server.drop(connection)
            self.refused(attempt)
            return
        self._connected, self._session = connection, connection.session.number
        self._connection._connect()
        queue, self._queue = self._queue, []
        for request in queue:
            self._transmit(connection, request)
        self._change("CONNECTED")
        self._check(connection)

    def lost(self, connection: Connection) -> None:
        """The connection is lost: what is not answered has an unknown outcome."""
        if connection is not self._connected or self._ended:
            return
        self._connected = None
        loop = asyncio.get_running_loop()
        loop.call_later(self._servers.delay(), connection.server.drop, connection, context=self._servers.context)
        self._change("SUSPENDED")
        self._fail_all(ConnectionLoss())
        self._attempt += 1
        self.refused(self._attempt)

    def _check(self, connection: Connection) -> None:
        """Lose a connection that does not answer."""
        if connection is not self._connected:
            return
        limit, loop = self._session_seconds * 2 / 3, asyncio.get_running_loop()
        if self._sent and self._sent[0].sent_at <= loop.time() - limit:
            self.lost(connection)
        else:
            loop.call_later(limit / 4, self._check, connection, context=self.context)

    def _change(self, state: str) -> None:
        if state != self._state:
            self._state = state
            for listener in self._listeners:
                listener(state)

    def _fail_all(self, error: Exception) -> None:
        failed, self._sent, self._queue = [*self._sent, *self._queue], [], []
        for request in failed:
            request.answer.set(None, error)

    # -- requests ---------------------------------------------------------------------------------

    def _ask(self, request: Request) -> Answer:
        if self._ended:
            asyncio.get_running_loop().call_soon(request.answer.set, None, ConnectionLoss(), context=self.context)
        elif self._connected is None:
            self._queue.append(request)
        else:
            self._transmit(self._connected, request)
        return request.answer

    def _transmit(self, connection: Connection, request: Request) -> None:
        servers, loop = self._servers, asyncio.get_running_loop()
        request.sent_at = loop.time()
        self._sent.append(request)
        connection.arrives = max(connection.arrives, loop.time() + servers.delay())
        loop.call_at(connection.arrives, servers.arrive, connection, request, context=servers.context)

    def answered(self, connection: Connection, request: Request, value: Any, error: Exception | None) -> None:
        """Called by the servers."""
        if connection is self._connected and not self._ended and request in self._sent:
            self._sent.remove(request)
            request.answer.set(value, error)

    def fired(self, watch: Callable[[Any], None]) -> None:
        """Called by the servers: a watch."""
        if not self._ended:
            watch(_EVENT)


__all__ = ["SimulatedKazoo"]
