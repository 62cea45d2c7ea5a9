"""The segment store's server: listens, and closes what a failed container leaves behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.core.admission import Admission
from sarit.core.limits import MAX_CONNECTIONS
from sarit.store.server.connection import StoreConnection
from sarit.store.server.connection_reaper import LOOK_SECONDS, ConnectionReaper, unacked_share, unsent_share
from sarit.store.server.control_handler import ControlHandler
from sarit.wire.frames import Window

if TYPE_CHECKING:
    from sarit.store.container.container import Container
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.store.server.listener")


class StoreListener:
    """Accepts connections of the wire protocol for one store."""

    def __init__(
        self,
        store: SegmentStore,
        patience: ConnectionReaper[StoreConnection] | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._store = store
        self._requests = ControlHandler(store)
        self._connections: dict[StoreConnection, None] = {}  # in order of arrival, the same in every run
        self._server: asyncio.AbstractServer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._patience: ConnectionReaper[StoreConnection] = patience or ConnectionReaper()
        self._admission = Admission(max_connections)
        self._window = Window()
        self._coming = 0  # let in, but not open yet: a burst is accepted before the first of it is open
        self._shares = unsent_share(1), unacked_share(1)
        store.on_failure = self._container_failed

    def __repr__(self) -> str:
        return f"<StoreServer {len(self._connections)} connections>"

    async def listen(self, host: str, port: int) -> int:
        """Start; the port (the one found, when `port` is 0).  Raises OSError."""
        self._server = await self._store.env.network.serve(self.connection, host, port)
        self.watch()
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else port

    def connection(self) -> asyncio.BufferedProtocol:
        """A protocol for a new connection."""
        inside = len(self._connections) + self._coming
        if not self._admission.admits(inside):
            if self._admission.first_refusal():
                _log.error("%d connections are open, the most allowed: new ones are closed", inside)
            return _Refused()
        self._coming += 1
        return StoreConnection(self._store, self._requests, self, self._window)

    def opened(self, connection: StoreConnection) -> None:
        """See `Registry`: shares what all may hold anew, when their number asks for it."""
        self._coming -= 1
        self._connections[connection] = None
        self._share_anew()
        connection.limit_held(*self._shares)

    def closed(self, connection: StoreConnection) -> None:
        """See `Registry`."""
        self._connections.pop(connection, None)
        self._share_anew()

    def _share_anew(self) -> None:
        shares = unsent_share(len(self._connections)), unacked_share(len(self._connections))
        if shares != self._shares:
            self._shares = shares
            for one in self._connections:
                one.limit_held(*shares)

    def watch(self) -> None:
        """Begin to look after connections that stand still."""
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._look_after())

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(self._store.env.clock.monotonic())

    def look(self, now: float) -> None:
        """End the connections that stand still too long, or hold too much together; `now` in seconds."""
        for connection, reason in self._patience.look(list(self._connections), now):
            connection.drop(reason)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    def _container_failed(self, container: Container) -> None:
        for connection in list(self._connections):
            if connection.serves(container):
                connection.close()


class _Refused(asyncio.BufferedProtocol):
    """Closes a connection over the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(max(1, sizehint)))
