"""Connections of the controller API: how many there may be, and what ends one.

grpclib speaks HTTP/2 and gRPC; it has no bound on connections, passes on what its HTTP/2 library raises, and says
nothing of a client that broke the protocol.  So each connection is a `_GrpcConnection` that hands bytes on to grpclib's
protocol and ends the connection, with one line in the log, when the client

- sends what is no HTTP/2, or a request that grpclib cannot handle;
- leaves replies untaken for STALLED_SECONDS;
- has not begun to speak HTTP/2 GREETING_SECONDS after it came;
- sends nothing for QUIET_SECONDS and then does not answer a ping within PING_SECONDS: it went without a word, or its
  path did.  One that answers may keep an idle connection for ever, as the official clients do.

Frames of a type that HTTP/2 does not know are passed over (RFC 9113 par. 5.5).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from grpclib.config import Configuration
from grpclib.metadata import decode_metadata
from grpclib.server import Server
from h2.events import RemoteSettingsChanged, RequestReceived

from sarit.core.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_log = logging.getLogger("sarit.controller.connection")

STALLED_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 10.0
GREETING_SECONDS: Final = 20.0
QUIET_SECONDS: Final = 60.0
PING_SECONDS: Final = 60.0  # over a slow path it stands behind replies
_PING: Final = b"anybody?"
# What a client may send ahead of what is taken: the least that HTTP/2 allows, as every connection may use it up.
WINDOW_BYTES: Final = 65_535


class GrpcListener:
    """Makes the protocol of each new connection; at most `most` of them are open at once."""

    def __init__(self, services: Collection[Any], most: int) -> None:
        windows = Configuration(http2_connection_window_size=WINDOW_BYTES, http2_stream_window_size=WINDOW_BYTES)
        server: Any = Server(services, config=windows)
        self._http = server._protocol_factory
        self._admission = Admission(most)
        self._inside = 0

    def __repr__(self) -> str:
        return f"<Door, {self._inside} connections>"

    def connection(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        if not self._admission.admits(self._inside):
            if self._admission.first_refusal():
                _log.error("%d API connections are open, the most allowed: new ones are closed", self._inside)
            return Refused()
        self._inside += 1
        return _GrpcConnection(self, self._http())

    def left(self) -> None:
        """A connection has ended."""
        self._inside -= 1


class _GrpcConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, door: GrpcListener, inner: Any) -> None:
        self._door = door
        self._inner = inner  # a grpclib.protocol.H2Protocol
        self._transport: asyncio.Transport
        self._stalled: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._greeted = self._heard = self._pinged = False
        self._peer = "?"
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._inner.connection_made(_Gathering(self._transport))
        self._watch_in(GREETING_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._ended or self._inner.connection.is_closing():
            return
        self._heard, self._pinged = True, False
        connection, processor = self._inner.connection, self._inner.processor
        try:
            events = connection.feed(data)
        except Exception as error:  # its own ProtocolError, and whatever bytes make its parsers raise
            self._end(f"broke the protocol: {_one_line(error)}")
            return
        connection.flush()
        for event in events:
            if type(event) is RequestReceived and (wrong := _wrong_with(event.headers)) is not None:
                self._end(wrong)
                return
            if type(event) is RemoteSettingsChanged:
                self._greeted = True
            if type(event) in getattr(processor, "processors", ()):  # it drops them when it closes
                processor.process(event)
        if not connection.is_closing():
            connection.flush()

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._stalled = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._stall)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stalled, self._closing, self._watching):
            if timer is not None:
                timer.cancel()
        self._door.left()
        self._inner.connection_lost(exc)

    def _watch_in(self, seconds: float) -> None:
        self._watching = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _watch(self) -> None:
        """See whether there is somebody still."""
        if self._ended:
            return
        if self._inner.connection.is_closing():
            self._transport.abort()  # or it would wait until the client has taken what was sent, for ever if need be
        elif not self._greeted:
            self._end(f"did not begin to speak HTTP/2 for {GREETING_SECONDS:.0f} s")
        elif self._heard:
            self._heard = False
            self._watch_in(QUIET_SECONDS)
        elif not self._pinged:
            self._pinged = True
            self._watch_in(PING_SECONDS)
            self._inner.connection._connection.ping(_PING)
            self._inner.connection.flush()
        else:
            self._end(f"did not answer a ping for {PING_SECONDS:.0f} s")

    def _stall(self) -> None:
        if not (self._ended or self._transport.is_closing()):
            self._ended = True
            self._tell(f"did not take replies for {STALLED_SECONDS:.0f} s")
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self._ended = True
        self._tell(reason)
        self._inner.connection.flush()  # HTTP/2's own farewell
        self._inner.processor.close(reason)
        # The transport waits until the client has taken what was sent, for ever if need be.
        self._closing = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)

    def _tell(self, reason: str) -> None:
        _log.warning("API connection %s closed: it %s", self._peer, reason)


class _Gathering:
    """A transport that hands on at the end of the loop's turn what was written in it.

    grpclib writes a reply in three parts, and many replies may come of one turn: each write would be a call of the
    system, and wake the client once more."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._hand_on)
        self._parts.append(data)

    def close(self) -> None:
        self._hand_on()
        self._transport.close()

    def _hand_on(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            if not self._transport.is_closing():
                self._transport.write(data)


class Refused(asyncio.Protocol):
    """Closes a connection over the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _wrong_with(headers: Sequence[tuple[Any, Any]]) -> str | None:
    """What makes grpclib stumble over a request, if anything does."""
    names = {name for name, _ in headers}
    for name in (":method", ":path"):
        if name not in names:
            return f"sent a request without {name}"
    try:
        decode_metadata(headers)
    except ValueError as error:
        return f"sent metadata that cannot be read: {_one_line(error)}"
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]
