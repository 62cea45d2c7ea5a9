"""The segment store's listener: admits connections, bounds their memory, closes those of a failed container."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.core.admission import Admission
from sarit.core.bucket import HostBuckets
from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.store.limits import (
    FIRST_REQUEST_SECONDS,
    HOST_REFUSALS,
    HOST_REFUSALS_PER_SECOND,
    MAX_CONNECTIONS,
    MAX_FRAME_WAIT_SECONDS,
    MAX_REFUSED_HOSTS,
    REAP_INTERVAL_SECONDS,
)
from sarit.store.server.connection import StoreConnection
from sarit.store.server.connection_reaper import ConnectionReaper, unacked_limit, unsent_limit
from sarit.store.server.control_handler import ControlHandler
from sarit.store.server.incomplete_frames import IncompleteFrames, incomplete_frames_limit
from sarit.wire.frames import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.store.container.container import Container
    from sarit.store.server.access import TokenChecks
    from sarit.store.server.control_handler import AskOwner
    from sarit.store.server.internal_handler import InternalHandler
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.store.server.listener")


class StoreListener:
    """Accepts connections of the wire protocol for one store."""

    def __init__(
        self,
        store: SegmentStore,
        reaper: ConnectionReaper[StoreConnection] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        internal: InternalHandler | None = None,
        ask_owner: AskOwner | None = None,
        checks: Callable[[str], TokenChecks] | None = None,
    ) -> None:
        """`internal`: the handler of internal commands, if the controllers are other processes.

        `ask_owner`: forwards requests on tables that have moved (`ControlHandler.forward`).  `checks`: returns the
        access checks for a connection from an address; None: no tokens are required."""
        self._checks = checks
        self._store = store
        self._control = ControlHandler(store, ask_owner)
        self.internal = internal
        self._connections: dict[StoreConnection, None] = {}  # in order of arrival, the same in every run
        self._server: asyncio.AbstractServer | None = None
        self._reaping: asyncio.Task[None] | None = None
        self._memory_bytes = store.limits.connections_bytes
        self._reaper: ConnectionReaper[StoreConnection] = reaper or ConnectionReaper(max_bytes=self._memory_bytes)
        self._incomplete: IncompleteFrames[StoreConnection] = IncompleteFrames(
            incomplete_frames_limit(self._memory_bytes)
        )
        self._admission = Admission(max_connections)
        self._window = Window()
        # Connections without a valid request yet, by host, which are ended first at the limit of connections.
        self._strangers: PlacesByHost[StoreConnection] = PlacesByHost()
        self.refusals = HostBuckets(
            HOST_REFUSALS,
            HOST_REFUSALS_PER_SECOND,
            MAX_REFUSED_HOSTS,
            HOST_REFUSALS_PER_SECOND * MAX_FRAME_WAIT_SECONDS,
        )
        self.floods = RepeatedLog(_log, store.env.clock.monotonic)
        self._accepting = 0  # connections admitted and not open yet: a burst is admitted before the first one opens
        self._memory_limits = self._limits_of_one(1)
        store.watch_failures(self._container_failed)
        store.quotas.when_switched(self._quotas_switched)

    def __repr__(self) -> str:
        return f"<StoreListener {len(self._connections)} connections>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def listen(self, host: str, port: int) -> int:
        """Listen on an address.  Returns the port (a free one if `port` is 0).  Raises OSError."""
        self._server = await self._store.env.network.serve(self.connection, host, port)
        self.start_reaper()
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else port

    def connection(self) -> asyncio.BufferedProtocol:
        """Return a protocol for a new connection."""
        count = len(self._connections) + self._accepting
        if not self._admission.admits(count):
            self._store.statistics.connections_refused += 1
            stranger = self._strangers.pop_oldest()
            if self._admission.should_report():
                _log.error("%d connections are open, which is the limit: %s", count, "new ones are closed"
                           if stranger is None else f"those that ask for nothing give way, first of {stranger[0]}")  # fmt: skip  # noqa: E501
            if stranger is None:
                return _RefusedConnection()
            stranger[1].abort()
        self._accepting += 1
        return StoreConnection(self._store, self._control, self, self._window, self.internal, self._checks)

    def connection_opened(self, connection: StoreConnection) -> None:
        """Add an open connection, and adjust the memory limits of all to the number of connections."""
        # The dict counts the connection from here on, instead of `_accepting`.
        self._accepting -= 1
        self._store.statistics.connections_accepted += 1
        self._connections[connection] = None
        self._strangers.enter(connection.host, connection)
        self._update_memory_limits()
        # Set the limits of the new connection even if they did not change for the others.
        connection.set_memory_limits(*self._memory_limits)

    def connection_admitted(self, connection: StoreConnection) -> None:
        self._strangers.leave(connection.host, connection)

    def connection_closed(self, connection: StoreConnection) -> None:
        self._connections.pop(connection, None)
        self._strangers.leave(connection.host, connection)
        self._incomplete.holds(connection, 0, new_frame=False)
        self._update_memory_limits()

    def incomplete_frame(self, connection: StoreConnection, held_bytes: int, *, new_frame: bool) -> None:
        """Note how many bytes a connection holds of an incomplete frame.  When all connections hold too much, those
        with the oldest incomplete frames are ended."""
        self._incomplete.holds(connection, held_bytes, new_frame=new_frame)
        for oldest, size in self._incomplete.to_end():
            oldest.abort(f"held {size} bytes for the oldest incomplete frame; all connections hold too much of those")

    def _update_memory_limits(self) -> None:
        limits = self._limits_of_one(len(self._connections))
        if limits != self._memory_limits:
            self._memory_limits = limits
            for connection in self._connections:
                connection.set_memory_limits(*limits)

    def _limits_of_one(self, connections: int) -> tuple[int, int]:
        return unsent_limit(connections, self._memory_bytes), unacked_limit(connections, self._memory_bytes)

    def start_reaper(self) -> None:
        """Start the task that ends stalled connections, every REAP_INTERVAL_SECONDS."""
        if self._reaping is None:
            self._reaping = asyncio.ensure_future(self._reap_periodically())

    async def _reap_periodically(self) -> None:
        while True:
            await asyncio.sleep(REAP_INTERVAL_SECONDS)
            self.reap(self._store.env.clock.monotonic())

    def reap(self, now: float) -> None:
        """End connections that are stalled, hold too much together, or sent no request; `now`: monotonic seconds."""
        silent = self._reaper.select_silent(list(self._connections), now)
        if silent:  # log one line for all, since there may be thousands
            _log.warning("%d connections sent no valid request in %.0f s and were closed; the first: %s", len(silent),
                         FIRST_REQUEST_SECONDS, silent[0].peer)  # fmt: skip
        for connection in silent:
            connection.close()
        for connection, reason in self._reaper.select(list(self._connections), now):
            # Abort, since `close` would wait for a client that does not take its replies.
            connection.abort(reason)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._reaping is not None:
            self._reaping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    def _quotas_switched(self) -> None:
        for connection in self._connections:
            connection.choose_entrance()

    def _container_failed(self, container: Container) -> None:
        for connection in list(self._connections):
            if connection.writes_to(container):
                connection.close()


class _RefusedConnection(asyncio.BufferedProtocol):
    """The protocol of a connection over the limit, which is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        # Return at least one byte: asyncio passes -1 for any size, and treats an empty buffer as an error.
        return memoryview(bytearray(max(1, sizehint)))
