"""The gRPC server of the controller API: connections, requests and replies in bounded memory and time, errors.

grpclib speaks HTTP/2 and gRPC, but it bounds neither connections nor requests, passes on whatever its HTTP/2 library
raises, and reports nothing about a client that breaks the protocol.  This module adds that.  It is the only one that
uses private parts of grpclib and of h2.

*Connections.*  Each is a `_GrpcConnection`, which forwards bytes to grpclib's protocol and ends the connection, with
one line in the log, when the client

- sends something other than HTTP/2, or a request that grpclib cannot handle; a request of HTTP/1 is answered with where
  to send it, and therefore the server's first frame waits for the client's first bytes;
- takes no replies for GRPC_STALL_SECONDS;
- has not begun to speak HTTP/2 within GRPC_FIRST_BYTES_SECONDS, or begun no call within GRPC_FIRST_CALL_SECONDS;
- sends a part of a frame, or of the headers of a request, and not the rest within GRPC_MESSAGE_SECONDS;
- announces a frame that is longer than HTTP/2 allows it: h2 would wait for up to 16 MiB before it says so;
- sends nothing for GRPC_IDLE_SECONDS and then does not answer a ping within GRPC_PING_SECONDS: the client or its path
  is gone.  A client that answers may keep an idle connection for ever, as the official clients do.

The log has one line a minute for each host and reason.

Frames of a type that HTTP/2 does not define are ignored (RFC 9113 par. 5.5).

*Requests and replies.*  grpclib takes any length that a client announces (four bytes: up to 4 GiB), waits for it
without limit, and holds a reply until the client opens its window.  `RequestLimiter` sets bounds:

- a request has at most MAX_API_REQUEST_BYTES and must arrive whole within GRPC_MESSAGE_SECONDS;
- the pieces of all incomplete large requests are at most MAX_BUFFERED_REQUEST_BYTES together;
- a connection whose client does not take a reply within GRPC_MESSAGE_SECONDS is ended, with one line in the log;
- at most MAX_CALLS are under way, and MAX_CALLS_PER_CONNECTION on one connection.

A client may send any number of calls before it knows of the limit per connection.  h2 ends the connection then.  So h2
knows no limit here: a call beyond ours is refused by itself (REFUSED_STREAM, which clients may always repeat).

*Errors.*  `rpc/answers.py` maps each kind of `core.errors` to a gRPC status.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.message import DecodeError
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_metadata
from grpclib.server import Server
from h2.errors import ErrorCodes
from h2.events import RemoteSettingsChanged, RequestReceived
from h2.settings import SettingCodes

from sarit.core.admission import Admission
from sarit.core.http_answer import HTTP_METHODS, METHOD_PREFIX, http_answer
from sarit.core.limits import (
    GRPC_AWAY_SECONDS,
    GRPC_CLOSE_SECONDS,
    GRPC_DRAIN_POLL_SECONDS,
    GRPC_FIRST_BYTES_SECONDS,
    GRPC_IDLE_SECONDS,
    GRPC_MESSAGE_SECONDS,
    GRPC_PING_SECONDS,
    GRPC_STALL_SECONDS,
    HTTP2_WINDOW_BYTES,
    MAX_API_REQUEST_BYTES,
    MAX_BUFFERED_REQUEST_BYTES,
    MAX_CALLS,
    MAX_CALLS_PER_CONNECTION,
    REQUEST_PIECE_BYTES,
)
from sarit.core.repeated_log import RepeatedLog
from sarit.rpc.limits import GRPC_FIRST_CALL_SECONDS
from sarit.rpc.statistics import CallStatistics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_log = logging.getLogger("sarit.controller.connection")

_PING: Final = b"anybody?"
_LENGTH_FIELD: Final = 3  # with which a frame of HTTP/2 begins
_HTTP1_ANSWER: Final = http_answer("gRPC, over HTTP/2, to clients of streams")
_NO_LIMIT: Final = (1 << 31) - 1


class GrpcListener:
    """Makes the protocol of each new connection; at most `most` connections are open at once."""

    def __init__(self, services: Collection[Any], most: int) -> None:
        windows = Configuration(
            http2_connection_window_size=HTTP2_WINDOW_BYTES, http2_stream_window_size=HTTP2_WINDOW_BYTES
        )
        server: Any = Server(services, config=windows)
        self._http = server._protocol_factory
        self._admission = Admission(most)
        self._open: dict[_GrpcConnection, None] = {}  # in the order of their begin
        self._none_open: asyncio.Event | None = None  # of a drain
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        return f"<GrpcListener, {len(self._open)} connections>"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def connection(self) -> asyncio.Protocol:
        """The protocol for a new connection."""
        if not self._admission.admits(len(self._open)):
            if self._admission.should_report():
                _log.error("%d API connections are open, which is the limit: new ones are closed", len(self._open))
            return ClosedAtOnce()
        made = _GrpcConnection(self, self._http())
        self._open[made] = None
        return made

    def report(self, host: str, kind: str, text: str) -> None:
        """Log that a connection from a host was ended, once a minute for each kind of reason."""
        self._repeated.warning((host, kind), text)

    def closed(self, connection: _GrpcConnection) -> None:
        """A connection was closed."""
        del self._open[connection]
        if not self._open and self._none_open is not None:
            self._none_open.set()

    async def drain(self, seconds: float) -> None:
        """Send every client elsewhere: each connection ends between two calls, or in the middle after `seconds`.

        The caller has stopped accepting connections.  A client knows by GOAWAY which calls were not begun, and repeats
        these elsewhere.  Clients on h2 drop all calls at GOAWAY: hence the wait for a moment without any."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        # A list: each answer says whether the connection was sent away, and all must be asked.
        while not all([connection.send_away(busy_too=clock() >= end) for connection in self._open]):  # noqa: ASYNC110
            await asyncio.sleep(GRPC_DRAIN_POLL_SECONDS)  # grpclib has no event for the end of a call
        # For the clients to read that: the end of the process may overtake it.
        self._none_open = asyncio.Event()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._none_open.wait(), GRPC_AWAY_SECONDS)


class _GrpcConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, listener: GrpcListener, inner: Any) -> None:
        self._listener = listener
        self._inner = inner  # a grpclib.protocol.H2Protocol
        self._transport: asyncio.Transport
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._liveness_timer: asyncio.TimerHandle | None = None
        self._speaks_http2 = self._received = self._pinged = self._called = False
        self._incomplete_since: float | None = None  # of a frame of which a part was received
        self._first_bytes = b""
        self._host = self._peer = "?"
        self._opened = 0.0
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened = asyncio.get_running_loop().time()
        peer = transport.get_extra_info("peername")
        self._host, self._peer = (peer[0], f"{peer[0]}:{peer[1]}") if peer else ("?", "?")
        # grpclib sees the coalescer as its transport; the timers here act on the real one.
        self._coalescer = _WriteCoalescer(self._transport, held=True)
        self._inner.connection_made(self._coalescer)
        _limit_calls(self._inner.connection._connection, MAX_CALLS_PER_CONNECTION)
        self._inner.connection.flush()
        self._check_liveness_in(GRPC_FIRST_BYTES_SECONDS)

    def data_received(self, data: bytes) -> None:
        # What a client sends after the end of its connection is dropped.
        if self._ended or self._inner.connection.is_closing():
            return
        # Any bytes prove that the client lives, not only the answer to the ping.
        self._received, self._pinged = True, False
        connection, processor = self._inner.connection, self._inner.processor
        if self._coalescer.held:
            data = self._first_bytes = self._first_bytes + data
            if len(data) < METHOD_PREFIX:
                return
            if data[:METHOD_PREFIX] in HTTP_METHODS:
                self._answer_http1()
                return
            self._first_bytes = b""
            self._coalescer.release()
        try:
            events = connection.feed(data)
        except Exception as error:  # ProtocolError, and anything else that invalid bytes make the parsers raise
            self._end(f"broke the protocol: {_one_line(error)}")
            return
        if self._is_too_long(whole=bool(events)):
            self._end("announced a frame of more than 16 KiB")
            return
        connection.flush()
        # Each request is checked before grpclib gets it: its handler would raise on what `_rejection_reason` finds.
        for event in events:
            if type(event) is RequestReceived:
                self._called = True
                if (wrong := _rejection_reason(event.headers)) is not None:
                    self._end(wrong)
                    return
                if len(processor.streams) >= MAX_CALLS_PER_CONNECTION:
                    connection._connection.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                    continue
            if type(event) is RemoteSettingsChanged:
                # SETTINGS is the first frame that every HTTP/2 client sends (RFC 9113 par. 3.4).
                self._speaks_http2 = True
            if type(event) in getattr(processor, "processors", ()):  # grpclib drops its processors when it closes
                processor.process(event)
        if not connection.is_closing():
            connection.flush()

    def _is_too_long(self, *, whole: bool) -> bool:
        """Whether the frame of which a part was received exceeds the bound; `whole`: others came with it."""
        http = self._inner.connection._connection
        rest = http.incoming_buffer._data
        if not (rest or http.incoming_buffer._headers_buffer):
            self._incomplete_since = None
        elif whole or self._incomplete_since is None:
            self._incomplete_since = asyncio.get_running_loop().time()
        return int.from_bytes(rest[:_LENGTH_FIELD], "big") > http.max_inbound_frame_size and len(rest) >= _LENGTH_FIELD

    def pause_writing(self) -> None:
        # grpclib holds its replies back; the timer bounds how long the client may leave them.
        self._inner.pause_writing()
        self._stall_timer = asyncio.get_running_loop().call_later(GRPC_STALL_SECONDS, self._stall)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stall_timer, self._close_timer, self._liveness_timer):
            if timer is not None:
                timer.cancel()
        self._listener.closed(self)
        self._inner.connection_lost(exc)

    def send_away(self, *, busy_too: bool) -> bool:
        """Send GOAWAY, once, after which the client closes; `busy_too`: also during a call.  Whether it was sent."""
        if self._ended or self._inner.connection.is_closing():
            return True
        if self._inner.processor.streams and not busy_too:
            return False
        self._ended = True
        self._inner.connection._connection.close_connection()
        self._inner.connection.flush()
        # Not at once: bytes of the client that nobody reads would make the kernel drop what it has not read.
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_CLOSE_SECONDS, self._transport.close)
        return True

    def _check_liveness_in(self, seconds: float) -> None:
        self._liveness_timer = asyncio.get_running_loop().call_later(seconds, self._check_liveness)

    def _check_liveness(self) -> None:
        """End a connection that never began, or whose client is gone; otherwise check again later."""
        if self._ended:
            return
        now = asyncio.get_running_loop().time()
        if self._inner.connection.is_closing():
            self._transport.abort()  # otherwise it waits until the client has taken all bytes
        elif not self._speaks_http2:
            self._end(f"did not begin to speak HTTP/2 for {GRPC_FIRST_BYTES_SECONDS:.0f} s")
        elif not self._called and now - self._opened >= GRPC_FIRST_CALL_SECONDS:
            self._report(f"began no call in {GRPC_FIRST_CALL_SECONDS:.0f} s")
            self.send_away(busy_too=True)
        elif self._incomplete_since is not None and now - self._incomplete_since >= GRPC_MESSAGE_SECONDS:
            self._end(f"did not send the rest of a frame in {GRPC_MESSAGE_SECONDS:.0f} s")
        elif self._received:
            # Something arrived in this interval: check again after the next one.
            self._received = False
            self._check_liveness_in(GRPC_IDLE_SECONDS)
        elif not self._pinged:
            # The answer, or any other bytes, resets this in `data_received`.
            self._pinged = True
            self._check_liveness_in(GRPC_PING_SECONDS)
            self._inner.connection._connection.ping(_PING)
            self._inner.connection.flush()
        else:
            self._end(f"did not answer a ping for {GRPC_PING_SECONDS:.0f} s")

    def _stall(self) -> None:
        if not (self._ended or self._transport.is_closing()):
            self._ended = True
            # No GOAWAY: it would queue behind the replies that the client does not take.
            self._report(f"did not take replies for {GRPC_STALL_SECONDS:.0f} s")
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self._ended = True
        self._report(reason)
        self._inner.connection.flush()  # GOAWAY
        self._inner.processor.close(reason)
        # Without this the transport waits until the client has taken all bytes, perhaps for ever.
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_CLOSE_SECONDS, self._transport.abort)

    def _answer_http1(self) -> None:
        self._ended = True
        self._report("is an HTTP/1 request")
        self._coalescer.drop()
        self._transport.write(_HTTP1_ANSWER)
        self._inner.processor.close("HTTP/1")
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_CLOSE_SECONDS, self._transport.abort)

    def _report(self, reason: str) -> None:
        self._listener.report(self._host, reason.partition(": ")[0], f"API connection {self._peer} closed: it {reason}")


class _WriteCoalescer:
    """A transport that joins the writes of one turn of the event loop.

    grpclib writes a reply in three parts, and one turn may produce many replies.  Each separate write would be a
    system call and would wake the client again.  `held`: nothing is sent before `release` or `close`."""

    def __init__(self, transport: asyncio.Transport, *, held: bool = False) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self.held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._parts and not self.held:
            # The first write of a turn schedules the flush of all.
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts.append(data)

    def release(self) -> None:
        """Send what was held, with what is written in this turn."""
        self.held = False
        asyncio.get_running_loop().call_soon(self._flush)

    def drop(self) -> None:
        """Send nothing of what was held."""
        self._parts.clear()

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
    """Closes a connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _limit_calls(http: Any, calls: int) -> None:
    """Announce a limit on concurrent calls to the client, and lift h2's own."""
    http.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: calls})
    http.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = _NO_LIMIT
    # h2 queues both, and begins to use one with each acknowledgement.
    http.local_settings.acknowledge()
    http.local_settings.acknowledge()


def _rejection_reason(headers: Sequence[tuple[Any, Any]]) -> str | None:
    """Why grpclib could not handle a request; None when it can."""
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


# -- requests and replies -----------------------------------------------------------------------

_HEAD: Final = struct.Struct(">BI")  # compressed or not, length


class RequestLimiter:
    """Bounds on the calls of a server; `stream` is a grpclib server stream."""

    def __init__(
        self,
        *,
        max_buffered_bytes: int = MAX_BUFFERED_REQUEST_BYTES,
        max_calls: int = MAX_CALLS,
        timeout_seconds: float = GRPC_MESSAGE_SECONDS,
        statistics: CallStatistics | None = None,
    ) -> None:
        self._max_buffered_bytes = max_buffered_bytes
        self._max_calls = max_calls
        self._timeout_seconds = timeout_seconds
        self.statistics = statistics or CallStatistics(lambda: asyncio.get_running_loop().time())
        self._buffered_bytes = 0
        self._calls = 0

    def __repr__(self) -> str:
        return f"<RequestLimiter, {self._calls} calls, {self._buffered_bytes} bytes of unfinished requests>"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count one call as under way.  Raises GRPCError when there are too many."""
        if self._calls >= self._max_calls:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{self._calls} calls are under way: try again")
        # No await since the test: the bound holds exactly.
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def receive(self, stream: Any) -> Any:
        """The request of a call.  Raises GRPCError when it is missing, invalid or too slow."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                # Not grpclib's `recv_message`: it takes any length that the client announces.
                data = await self._receive(stream._stream)
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, f"no whole request in {self._timeout_seconds:.0f} s") from None
        except AssertionError:  # how grpclib reports an early end
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
        # gRPC's prefix of a message: a flag and the length, in bytes.
        head = await stream.recv_data(_HEAD.size)
        if not head:
            raise GRPCError(Status.INVALID_ARGUMENT, "the call has no request")
        compressed, length = _HEAD.unpack(head)
        if compressed:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not supported")
        if length > MAX_API_REQUEST_BYTES:
            raise GRPCError(
                Status.INVALID_ARGUMENT, f"a request of {length} bytes exceeds the limit of {MAX_API_REQUEST_BYTES}"
            )
        if length <= REQUEST_PIECE_BYTES:
            data = await stream.recv_data(length)
            assert len(data) == length  # an empty piece is an early end, too
            return bytes(data)
        return await self._receive_pieces(stream, length)

    async def _receive_pieces(self, stream: Any, length: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < length:
                # Piece by piece, so that memory is counted when it is used, not when it is announced.
                piece = await stream.recv_data(min(REQUEST_PIECE_BYTES, length - held))
                assert piece
                pieces.append(piece)
                held += len(piece)
                self._buffered_bytes += len(piece)
                if self._buffered_bytes > self._max_buffered_bytes:
                    raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many large requests are arriving: try again")
            return b"".join(pieces)
        finally:
            self._buffered_bytes -= held
