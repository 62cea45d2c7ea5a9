"""The segment store's server: listens, and closes what a failed container leaves behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.core.limits import MAX_CONNECTIONS
from sarit.store.connection import StoreConnection
from sarit.store.requests import Requests

if TYPE_CHECKING:
    from sarit.store.container import Container
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.store.server")


class StoreServer:
    """Accepts connections of the wire protocol for one store."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._requests = Requests(store)
        self._connections: dict[StoreConnection, None] = {}  # in order of arrival, the same in every run
        self._server: asyncio.AbstractServer | None = None
        store.on_failure = self._container_failed

    def __repr__(self) -> str:
        return f"<StoreServer {len(self._connections)} connections>"

    async def listen(self, host: str, port: int) -> int:
        """Start; the port (the one found, when `port` is 0).  Raises OSError."""
        self._server = await self._store.env.network.serve(self.connection, host, port)
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else port

    def connection(self) -> asyncio.BufferedProtocol:
        """A protocol for a new connection."""
        if len(self._connections) >= MAX_CONNECTIONS:
            _log.error("%d connections are open, the most allowed: a new one is closed", MAX_CONNECTIONS)
            return _Refused()
        return StoreConnection(self._store, self._requests, self._connections)

    async def close(self) -> None:
        """Stop listening and end all connections."""
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
