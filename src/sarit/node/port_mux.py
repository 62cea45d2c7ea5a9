"""Serves both protocols on one port.

The first byte distinguishes them: the wire protocol begins with Hello, whose type −127 starts with 0xff;
HTTP/2 begins with "PRI".  The connection is handed to the right protocol with the bytes received so far.  A connection
that has sent none for GRPC_FIRST_BYTES_SECONDS is closed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from sarit.core.admission import Admission
from sarit.core.limits import GRPC_FIRST_BYTES_SECONDS
from sarit.rpc.grpc_server import ClosedAtOnce

if TYPE_CHECKING:
    from collections.abc import Callable

_WIRE_FIRST_BYTE: Final = 0xFF

_log = logging.getLogger("sarit.node")


class PortMux:
    """Makes the protocol of each new connection; at most `most` of them may have sent no byte yet."""

    def __init__(
        self, wire: Callable[[], asyncio.BufferedProtocol], http: Callable[[], asyncio.Protocol], most: int
    ) -> None:
        self.wire = wire
        self.http = http
        self._admission = Admission(most)
        self._waiting = 0

    def __repr__(self) -> str:
        return f"<PortMux, {self._waiting} connections undetected>"

    def connection(self) -> asyncio.Protocol:
        """The protocol for a new connection."""
        if not self._admission.admits(self._waiting):
            if self._admission.should_report():
                _log.error("%d connections have sent nothing, which is the limit: new ones are closed", self._waiting)
            return ClosedAtOnce()
        # Counted until its first byte.  After that the limits of the chosen protocol apply.
        self._waiting += 1
        return _ProtocolDetector(self)

    def detected(self) -> None:
        """A connection sent its first byte, or was closed."""
        self._waiting -= 1


class _ProtocolDetector(asyncio.Protocol):
    """Reads the first byte of a connection and hands it to the right protocol."""

    def __init__(self, port: PortMux) -> None:
        self._port = port
        self._transport: asyncio.Transport
        self._first_byte_timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer for the first byte."""
        self._transport = cast("asyncio.Transport", transport)
        self._first_byte_timer = asyncio.get_running_loop().call_later(GRPC_FIRST_BYTES_SECONDS, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        """Closed before its first byte."""
        self._first_byte_timer.cancel()
        self._port.detected()

    def data_received(self, data: bytes) -> None:
        """Hand the connection over with the bytes received."""
        self._first_byte_timer.cancel()
        self._port.detected()
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
