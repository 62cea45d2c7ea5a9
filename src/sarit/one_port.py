"""Both protocols on one port.

The first byte tells them apart: the wire protocol begins with Hello, whose type −127 starts with 0xff;
HTTP/2 begins with "PRI".  The connection is handed to the right protocol with the bytes received so far.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_WIRE_FIRST_BYTE: Final = 0xFF


class OnePort(asyncio.Protocol):
    """Looks at the first byte of a connection and steps aside."""

    def __init__(self, wire: Callable[[], asyncio.BufferedProtocol], http: Callable[[], asyncio.Protocol]) -> None:
        self._wire = wire
        self._http = http
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for whoever takes over."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand over."""
        if data[0] == _WIRE_FIRST_BYTE:
            wire = self._wire()
            self._transport.set_protocol(wire)
            wire.connection_made(self._transport)
            feed(wire, data)
        else:
            http = self._http()
            self._transport.set_protocol(http)
            http.connection_made(self._transport)
            http.data_received(data)


def feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Give bytes to a buffered protocol, as a transport would."""
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
