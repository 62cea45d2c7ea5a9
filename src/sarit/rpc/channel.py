"""The client's end of gRPC: one connection to a server, for any number of concurrent unary calls.

The first call makes the connection, and so does the first call after it was lost.  A call ends in one of five ways:

- its reply is returned;
- the server answered with another status: `CallFailed`;
- the time is over: TimeoutError; the server learns that the call is cancelled;
- nothing could be sent, because there is no connection: OSError, which includes errors of TLS;
- the connection ended, or the server reset the call: `CallLost`.  It is unknown whether the call was executed.

*Pings.*  With `echo_seconds`, a server that sends nothing for so long while a call waits is pinged, and its connection
is closed when nothing arrives for as long again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.message import DecodeError
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from sarit.rpc.call import PREFIX, framed
from sarit.rpc.http2 import Http2End
from sarit.rpc.limits import CLIENT_WINDOW_BYTES, MAX_API_REPLY_BYTES
from sarit.rpc.status import CallFailed, Status, timeout_text, unquoted

if TYPE_CHECKING:
    from ssl import SSLContext

    from h2.events import Event

    from sarit.rpc.http2 import Headers
    from sarit.rpc.methods import Method

_ECHO: Final = b"anybody?"
_AGENT: Final = "grpc-python-sarit"
# The gRPC status for an HTTP status, by gRPC's table; all others are UNKNOWN.
_HTTP_STATUS: Final = {
    "400": Status.INTERNAL,
    "401": Status.UNAUTHENTICATED,
    "403": Status.PERMISSION_DENIED,
    "404": Status.UNIMPLEMENTED,
    "429": Status.UNAVAILABLE,
    "502": Status.UNAVAILABLE,
    "503": Status.UNAVAILABLE,
    "504": Status.UNAVAILABLE,
}


class CallLost(Exception):
    """Raised for a call whose connection ended, or which the server reset, before its answer."""


class Channel:
    """Makes calls to the server at `host` and `port`."""

    def __init__(self, host: str, port: int, echo_seconds: float | None = None, tls: SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self.echo_seconds = echo_seconds
        self._tls = tls
        self._connecting = asyncio.Lock()
        self._connection: _Connection | None = None
        self.pieces_received = 0  # reads from sockets, over all connections
        self.first_byte = b""  # the first byte that was ever received
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._head: Headers = (
            (":method", "POST"), (":scheme", "https" if tls else "http"), (":authority", authority),
            ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", _AGENT),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Channel to {self.host}:{self.port}, {'connected' if self.connected else 'not connected'}>"

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and not self._connection.lost

    async def call(self, method: Method, request: Any, seconds: float, metadata: dict[str, str]) -> Any:
        """Make a call, and return the reply.  Raises CallFailed, TimeoutError, OSError, CallLost (see the module)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            connection = await self._connect()
            await connection.has_place()
            timeout = timeout_text(deadline - loop.time())
            head = ((":path", method.name), *self._head, ("grpc-timeout", timeout), *metadata.items())
            data = await connection.ask(head, framed(request.SerializeToString()))
        try:
            return method.reply_type.FromString(data)
        except DecodeError:
            raise CallFailed(Status.INTERNAL, "the reply is not a message of this API") from None

    async def _connect(self) -> _Connection:
        if self._connection is None or self._connection.lost:
            async with self._connecting:
                if self._connection is None or self._connection.lost:
                    _, self._connection = await asyncio.get_running_loop().create_connection(
                        lambda: _Connection(self), self.host, self.port, ssl=self._tls
                    )
        return self._connection

    def close(self) -> None:
        """Close the connection, and fail the calls on it; a later call makes another connection."""
        if self._connection is not None:
            self._connection.end("the channel was closed")
            self._connection = None


class _Answer:
    """The part of the answer to a call that has arrived."""

    __slots__ = ("data", "done", "ended", "headers")

    def __init__(self) -> None:
        self.ended = False  # whether the whole answer has arrived
        self.headers: dict[str, str] = {}
        self.data = bytearray()
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Complete the call by the whole answer."""
        self.ended = True
        if self.done.done():
            return
        try:
            self.done.set_result(self._message())
        except CallFailed as error:
            self.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Fail the call, unless it is complete."""
        if not self.done.done():
            self.done.set_exception(error)

    def _message(self) -> bytes:
        headers, data = self.headers, self.data
        if (http := headers.get(":status")) != "200":
            raise CallFailed(
                _HTTP_STATUS.get(http or "", Status.UNKNOWN), f"the server answered with HTTP status {http}"
            )
        try:
            status = Status(int(headers.get("grpc-status", "")))
        except ValueError:
            raise CallFailed(Status.UNKNOWN, "the server answered without a status of gRPC") from None
        if status is not Status.OK:
            raise CallFailed(status, unquoted(headers.get("grpc-message", "")))
        if len(data) < PREFIX.size:
            raise CallFailed(Status.UNKNOWN, "the server answered without a message")
        compressed, length = PREFIX.unpack_from(data)
        if compressed or length != len(data) - PREFIX.size:
            raise CallFailed(Status.INTERNAL, "the reply is not one message")
        return bytes(data[PREFIX.size :])


class _Connection(asyncio.Protocol):
    """One connection of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._transport: asyncio.Transport
        self._http: Http2End
        self._answers: dict[int, _Answer] = {}
        self._place = asyncio.Event()  # set while the server accepts one more call
        self._place.set()
        self._echo_timer: asyncio.TimerHandle | None = None
        self._asked = False  # whether a ping was sent since the last bytes came
        self.lost = False
        self._reason = "the connection was lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._http = Http2End(self._transport, window_bytes=CLIENT_WINDOW_BYTES)
        if self._channel.echo_seconds is not None:
            self._check_later()

    async def has_place(self) -> None:
        """Wait until the server accepts one more call, by its announced limit.  Raises CallLost."""
        while not self.lost and len(self._answers) >= self._http.most_calls:
            self._place.clear()
            await self._place.wait()
        if self.lost:
            raise CallLost(self._reason)

    async def ask(self, head: Headers, body: bytes) -> bytes:
        """Make a call, and return the message of its reply.  Raises CallFailed, CallLost."""
        try:
            stream = self._http.next_stream()
            self._http.send(stream, head, body)
        except ProtocolError as error:  # stream ids are used up, or the server has closed the connection
            self.end(f"the connection takes no more calls: {error}")
            raise CallLost(self._reason) from None
        answer = self._answers[stream] = _Answer()
        try:
            return await answer.done
        finally:
            del self._answers[stream]
            self._place.set()
            if not self.lost and (self._http.forget(stream) or not answer.ended):
                self._http.reset(stream)

    def data_received(self, data: bytes) -> None:
        channel = self._channel
        channel.first_byte = channel.first_byte or data[:1]
        channel.pieces_received += 1
        self._asked = False
        if self.lost:
            return
        try:
            events = self._http.receive(data)
        except Exception as error:  # ProtocolError, and anything else that invalid bytes make the parsers raise
            self._http.flush()  # GOAWAY
            self.end(f"the server broke the protocol: {type(error).__name__} {error}"[:200])
            return
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        if type(event) is ConnectionTerminated:
            self.end(f"the server sent GOAWAY, with code {event.error_code!r}")
            return
        answer = self._answers.get(getattr(event, "stream_id", 0) or 0)
        if type(event) is DataReceived:
            self._http.acknowledge(event.stream_id, event.flow_controlled_length)
            if answer is not None:
                answer.data += event.data
                if len(answer.data) > MAX_API_REPLY_BYTES:
                    answer.fail(CallFailed(Status.OUT_OF_RANGE, f"the reply has more than {MAX_API_REPLY_BYTES} bytes"))
        elif answer is None:
            return
        elif isinstance(event, ResponseReceived | TrailersReceived):
            answer.headers.update(cast("Headers", event.headers))
        elif type(event) is StreamEnded:
            answer.end()
        elif type(event) is StreamReset:
            answer.ended = True
            answer.fail(CallLost(f"the server gave the call up, with code {event.error_code!r}"))

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        if not self.lost:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("the connection was lost" + (f": {exc}" if exc is not None else ""))

    def end(self, reason: str) -> None:
        """Close the connection, and fail all calls on it."""
        if self.lost:
            return
        self.lost, self._reason = True, reason
        if self._echo_timer is not None:
            self._echo_timer.cancel()
        self._transport.close()
        self._place.set()
        for answer in self._answers.values():
            answer.fail(CallLost(reason))

    def _check_later(self) -> None:
        assert self._channel.echo_seconds is not None
        self._echo_timer = asyncio.get_running_loop().call_later(self._channel.echo_seconds, self._check)

    def _check(self) -> None:
        if self._asked and self._answers:
            self.end("the server did not answer an echo")
            return
        if self._answers:
            self._asked = True
            self._http.ping(_ECHO)
        self._check_later()
