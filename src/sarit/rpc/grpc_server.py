"""Connections of the controller API: how many there may be, and what ends one.

grpclib speaks HTTP/2 and gRPC; it has no bound on connections, passes on what its HTTP/2 library raises, and says
nothing of a client that broke the protocol.  So each connection is a `_GrpcConnection` that hands bytes on to grpclib's
protocol and ends the connection, with one line in the log, when the client

- sends what is no HTTP/2, or a request that grpclib cannot handle;
- leaves replies untaken for STALLED_SECONDS;
- has not begun to speak HTTP/2 FIRST_BYTES_SECONDS after it came;
- sends nothing for IDLE_SECONDS and then does not answer a ping within PING_SECONDS: it went without a word, or its
  path did.  One that answers may keep an idle connection for ever, as the official clients do.

Frames of a type that HTTP/2 does not know are passed over (RFC 9113 par. 5.5).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.message import DecodeError
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_metadata
from grpclib.server import Server
from h2.events import RemoteSettingsChanged, RequestReceived

from sarit.core.admission import Admission
from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound, SaritError, Sealed, Unavailable
from sarit.core.limits import KIB, MAX_CALLS, MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence

_log = logging.getLogger("sarit.controller.connection")

STALLED_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 10.0
FIRST_BYTES_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 60.0
PING_SECONDS: Final = 60.0  # over a slow path it stands behind replies
_PING: Final = b"anybody?"
# What a client may send ahead of what is taken: the least that HTTP/2 allows, as every connection may use it up.
HTTP2_WINDOW_BYTES: Final = 65_535


class GrpcListener:
    """Makes the protocol of each new connection; at most `most` of them are open at once."""

    def __init__(self, services: Collection[Any], most: int) -> None:
        windows = Configuration(
            http2_connection_window_size=HTTP2_WINDOW_BYTES, http2_stream_window_size=HTTP2_WINDOW_BYTES
        )
        server: Any = Server(services, config=windows)
        self._http = server._protocol_factory
        self._admission = Admission(most)
        self._open = 0

    def __repr__(self) -> str:
        return f"<GrpcListener, {self._open} connections>"

    def connection(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        if not self._admission.admits(self._open):
            if self._admission.should_report():
                _log.error("%d API connections are open, the most allowed: new ones are closed", self._open)
            return ClosedAtOnce()
        self._open += 1
        return _GrpcConnection(self, self._http())

    def closed(self) -> None:
        """A connection has ended."""
        self._open -= 1


class _GrpcConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, listener: GrpcListener, inner: Any) -> None:
        self._listener = listener
        self._inner = inner  # a grpclib.protocol.H2Protocol
        self._transport: asyncio.Transport
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._liveness_timer: asyncio.TimerHandle | None = None
        self._speaks_http2 = self._received = self._pinged = False
        self._peer = "?"
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._inner.connection_made(_WriteCoalescer(self._transport))
        self._check_liveness_in(FIRST_BYTES_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._ended or self._inner.connection.is_closing():
            return
        self._received, self._pinged = True, False
        connection, processor = self._inner.connection, self._inner.processor
        try:
            events = connection.feed(data)
        except Exception as error:  # its own ProtocolError, and whatever bytes make its parsers raise
            self._end(f"broke the protocol: {_one_line(error)}")
            return
        connection.flush()
        for event in events:
            if type(event) is RequestReceived and (wrong := _rejection_reason(event.headers)) is not None:
                self._end(wrong)
                return
            if type(event) is RemoteSettingsChanged:
                self._speaks_http2 = True
            if type(event) in getattr(processor, "processors", ()):  # it drops them when it closes
                processor.process(event)
        if not connection.is_closing():
            connection.flush()

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._stall_timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._stall)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stall_timer, self._close_timer, self._liveness_timer):
            if timer is not None:
                timer.cancel()
        self._listener.closed()
        self._inner.connection_lost(exc)

    def _check_liveness_in(self, seconds: float) -> None:
        self._liveness_timer = asyncio.get_running_loop().call_later(seconds, self._check_liveness)

    def _check_liveness(self) -> None:
        """See whether there is somebody still."""
        if self._ended:
            return
        if self._inner.connection.is_closing():
            self._transport.abort()  # or it would wait until the client has taken what was sent, for ever if need be
        elif not self._speaks_http2:
            self._end(f"did not begin to speak HTTP/2 for {FIRST_BYTES_SECONDS:.0f} s")
        elif self._received:
            self._received = False
            self._check_liveness_in(IDLE_SECONDS)
        elif not self._pinged:
            self._pinged = True
            self._check_liveness_in(PING_SECONDS)
            self._inner.connection._connection.ping(_PING)
            self._inner.connection.flush()
        else:
            self._end(f"did not answer a ping for {PING_SECONDS:.0f} s")

    def _stall(self) -> None:
        if not (self._ended or self._transport.is_closing()):
            self._ended = True
            self._report(f"did not take replies for {STALLED_SECONDS:.0f} s")
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self._ended = True
        self._report(reason)
        self._inner.connection.flush()  # HTTP/2's own farewell
        self._inner.processor.close(reason)
        # The transport waits until the client has taken what was sent, for ever if need be.
        self._close_timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)

    def _report(self, reason: str) -> None:
        _log.warning("API connection %s closed: it %s", self._peer, reason)


class _WriteCoalescer:
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
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            if not self._transport.is_closing():
                self._transport.write(data)


class ClosedAtOnce(asyncio.Protocol):
    """Closes a connection over the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _rejection_reason(headers: Sequence[tuple[Any, Any]]) -> str | None:
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


# -- requests and replies

MAX_REQUEST_BYTES: Final = 4 * MIB
MAX_BUFFERED_BYTES: Final = 64 * MIB
MESSAGE_TIMEOUT_SECONDS: Final = 60.0
_REQUEST_PIECE_BYTES: Final = 64 * KIB
_HEAD: Final = struct.Struct(">BI")  # compressed or not, length


class RequestLimiter:
    """Shared by all calls of a server; `stream` is a grpclib server's."""

    def __init__(
        self,
        *,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        max_calls: int = MAX_CALLS,
        timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
    ) -> None:
        self._max_buffered_bytes = max_buffered_bytes
        self._max_calls = max_calls
        self._timeout_seconds = timeout_seconds
        self._buffered_bytes = 0
        self._calls = 0

    def __repr__(self) -> str:
        return f"<RequestLimiter, {self._calls} calls, {self._buffered_bytes} bytes of unfinished requests>"

    @contextmanager
    def call(self) -> Iterator[None]:
        """One more call is under way.  Raises GRPCError when there are too many."""
        if self._calls >= self._max_calls:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{self._calls} calls are under way: try again")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def receive(self, stream: Any) -> Any:
        """The request.  Raises GRPCError when there is none, or none that can be."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                data = await self._receive(stream._stream)
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, f"no whole request in {self._timeout_seconds:.0f} s") from None
        except AssertionError:  # that is how grpclib tells of an early end
            raise GRPCError(Status.INVALID_ARGUMENT, "the request ends early") from None
        try:
            return stream._recv_type.FromString(data)
        except DecodeError:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request is not a message of this API") from None

    async def deliver(self, stream: Any, reply: Any) -> None:
        """Send the reply."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await stream.send_message(reply)
        except TimeoutError:
            transport = stream._stream._transport
            if not transport.is_closing():
                peer = transport.get_extra_info("peername")
                who = f"{peer[0]}:{peer[1]}" if peer else "?"
                _log.warning("API connection %s closed: it did not take replies for %.0f s", who, self._timeout_seconds)
                transport.abort()
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the reply was not taken") from None

    async def _receive(self, stream: Any) -> bytes:
        head = await stream.recv_data(_HEAD.size)
        if not head:
            raise GRPCError(Status.INVALID_ARGUMENT, "a call without a request")
        compressed, length = _HEAD.unpack(head)
        if compressed:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not understood")
        if length > MAX_REQUEST_BYTES:
            raise GRPCError(
                Status.INVALID_ARGUMENT, f"a request of {length} bytes: at most {MAX_REQUEST_BYTES} are taken"
            )
        if length <= _REQUEST_PIECE_BYTES:
            data = await stream.recv_data(length)
            assert len(data) == length  # none at all is an early end, too
            return bytes(data)
        return await self._receive_pieces(stream, length)

    async def _receive_pieces(self, stream: Any, length: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < length:
                piece = await stream.recv_data(min(_REQUEST_PIECE_BYTES, length - held))
                assert piece
                pieces.append(piece)
                held += len(piece)
                self._buffered_bytes += len(piece)
                if self._buffered_bytes > self._max_buffered_bytes:
                    raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many large requests are coming in: try again")
            return b"".join(pieces)
        finally:
            self._buffered_bytes -= held


# -- errors

_bugs = logging.getLogger("sarit.controller")

_STATUS: dict[type[SaritError], Status] = {
    NotFound: Status.NOT_FOUND,
    Exists: Status.ALREADY_EXISTS,
    Invalid: Status.INVALID_ARGUMENT,
    Sealed: Status.INVALID_ARGUMENT,  # it stays sealed: nothing to wait for
    Conflict: Status.FAILED_PRECONDITION,
    Unavailable: Status.UNAVAILABLE,
    Fenced: Status.UNAVAILABLE,
    Corrupt: Status.DATA_LOSS,
}


def rpc_handler(
    method: Callable[[Any], Awaitable[Any]], limiter: RequestLimiter
) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Make a grpclib handler of a method that takes the request and returns the reply."""

    @functools.wraps(method)
    async def call(stream: Any) -> None:
        with limiter.call():
            reply = await _reply(method, await limiter.receive(stream))
            await limiter.deliver(stream, reply)

    return call


async def _reply(method: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    try:
        return await method(request)
    except SaritError as error:
        raise GRPCError(status_of(error), str(error)) from None
    except NotImplementedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, str(error)) from None
    except Exception:
        _bugs.exception("%s met a bug of ours", getattr(method, "__name__", method))
        raise GRPCError(Status.INTERNAL, "the controller met a bug; see its log") from None


def status_of(error: SaritError) -> Status:
    """The gRPC status of an error."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), Status.INTERNAL)
