"""Serves both protocols on one port.

The first byte distinguishes them: the wire protocol begins with Hello, whose type −127 starts with 0xff;
HTTP/2 begins with "PRI".  The connection is handed to the right protocol with the bytes received so far.  A connection
that has sent none for GRPC_FIRST_BYTES_SECONDS is closed.  When too many are silent, the oldest of the host that has
most gives way to a new one: a client speaks at once, so it is hardly one of a client that means to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.rpc.limits import GRPC_FIRST_BYTES_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

_WIRE_FIRST_BYTE: Final = 0xFF

_log = logging.getLogger("sarit.process")


class PortMux:
    """Makes the protocol of each new connection; at most `most` of them may have sent no byte yet."""

    def __init__(
        self, wire: Callable[[], asyncio.BufferedProtocol], http: Callable[[], asyncio.Protocol], most: int
    ) -> None:
        self.wire = wire
        self.http = http
        self._most = most
        # Until their first byte.  After that the limits of the chosen protocol apply.
        self._silent: PlacesByHost[_ProtocolDetector] = PlacesByHost()
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        return f"<PortMux, {len(self._silent)} silent connections>"

    def connection(self) -> asyncio.Protocol:
        """Return the protocol for a new connection."""
        return _ProtocolDetector(self)

    def connected(self, host: str, connection: _ProtocolDetector) -> None:
        """Give a connection that has sent nothing a place, if need be that of another one."""
        if len(self._silent) >= self._most and (oldest := self._silent.pop_oldest()) is not None:
            self._repeated.error("full", f"{self._most} connections have sent nothing, which is the limit: the oldest "
                                         f"of {oldest[0]}, which has most, give way to new ones")  # fmt: skip
            oldest[1].give_way()
        self._silent.enter(host, connection)

    def detected(self, host: str, connection: _ProtocolDetector) -> None:
        """Free the place of a connection that sent its first byte, or was closed."""
        self._silent.leave(host, connection)


class _ProtocolDetector(asyncio.Protocol):
    """Reads the first byte of a connection and hands it to the right protocol."""

    def __init__(self, port: PortMux) -> None:
        self._port = port
        self._host = "?"
        self._transport: asyncio.Transport
        self._first_byte_timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, and start the timer for the first byte."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._host = str(peer[0])
        self._port.connected(self._host, self)
        self._first_byte_timer = asyncio.get_running_loop().call_later(GRPC_FIRST_BYTES_SECONDS, self._transport.abort)

    def give_way(self) -> None:
        """End the connection for a new one."""
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed before its first byte."""
        self._first_byte_timer.cancel()
        self._port.detected(self._host, self)

    def data_received(self, data: bytes) -> None:
        """Hand the connection over with the bytes received."""
        self._first_byte_timer.cancel()
        self._port.detected(self._host, self)
        if data[0] == _WIRE_FIRST_BYTE:
            wire = self._port.wire()
            # The transport reports later events to the new protocol alone, but not that it is connected.
            self._transport.set_protocol(wire)
            wire.connection_made(self._transport)
            feed(wire, self._transport, data)
        else:
            http = self._port.http()
            self._transport.set_protocol(http)
            http.connection_made(self._transport)
            http.data_received(data)


def feed(protocol: asyncio.BufferedProtocol, transport: asyncio.Transport, data: bytes) -> None:
    """Pass bytes to a buffered protocol, as a transport would; none once the transport is closing."""
    view = memoryview(data)
    while view and not transport.is_closing():
        # The protocol may offer less than asked for.
        buffer = memoryview(protocol.get_buffer(len(view)))
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
