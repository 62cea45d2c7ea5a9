"""The calls of one connection of the gRPC server.  Each has a task from its headers to its answer.

A call ends when it is answered, when its deadline has passed, when its client resets it, or with the connection.  What
the client sends of the request after that is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes
from h2.events import DataReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from sarit.rpc.call import framed
from sarit.rpc.limits import LONG_CREDIT_BYTES
from sarit.rpc.status import CallFailed, Status, quoted, timeout_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from h2.events import Event

    from sarit.rpc.handlers import Handler
    from sarit.rpc.http2 import Headers, Http2End

_log = logging.getLogger("sarit.controller.connection")

_HEAD: Final = ((":status", "200"), ("content-type", "application/grpc+proto"))
_OK: Final = (("grpc-status", "0"),)
_CONTENT_TYPES: Final = ("application/grpc", "application/grpc+proto")


class NetworkCall:
    """A call on an HTTP/2 stream of a connection."""

    __slots__ = (
        "_arrived", "_data", "_http", "_long", "_transport", "_unacknowledged", "_uncredited",
        "become_known", "ended", "expired", "metadata", "peer", "replied", "stream", "task", "timer", "widen",
    )  # fmt: skip

    def __init__(
        self, http: Http2End, transport: asyncio.Transport, stream: int, metadata: Mapping[str, str], peer: str,
        become_known: Callable[[], None], widen: Callable[[], None],
    ) -> None:  # fmt: skip
        self._http = http
        self._transport = transport
        self.stream = stream
        self.metadata = metadata
        self.peer = peer
        self.become_known = become_known
        self.widen = widen
        self.task: asyncio.Task[None]
        self.timer: asyncio.TimerHandle | None = None
        self.ended = self.replied = self.expired = False
        self._data = bytearray()
        self._unacknowledged = 0
        self._long = self._uncredited = 0  # the bytes of long frames without acknowledgement, and without credit
        self._arrived: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<NetworkCall {self.stream} of {self.peer}, {len(self._data)} bytes>"

    def arrived(self, data: bytes, window_bytes: int) -> None:
        """Take a part of the request.  `window_bytes`: how much of the client's flow-control window it used."""
        self._data += data
        self._unacknowledged += window_bytes
        self._wake()

    def arrived_long(self, data: memoryview) -> None:
        """Take a part of the request that h2 has not seen."""
        self._data += data
        self._long += len(data)
        self._wake()

    def end(self) -> None:
        """Record that the whole request has arrived."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes of the request, as `Call.read`.  Received bytes are acknowledged only when more
        are wanted, so that flow control bounds the memory of the request."""
        while len(self._data) < size and not self.ended:
            self.acknowledge()
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        if size >= len(self._data):
            taken = bytes(self._data)
            self._data = bytearray()
        else:
            with memoryview(self._data) as view:  # one copy, not two
                taken = bytes(view[:size])
            del self._data[:size]
        return taken

    def acknowledge(self) -> None:
        """Give the client flow-control credit for all received bytes."""
        size, self._unacknowledged = self._unacknowledged, 0
        self._http.acknowledge(self.stream, size)
        if self._long:
            size, self._long = self._long, 0
            self._http.acknowledge_long(size)
            self._uncredited += size
            if not self.ended and self._uncredited >= LONG_CREDIT_BYTES:
                self._http.credit(self.stream, self._uncredited)
                self._uncredited = 0

    def reply(self, message: bytes) -> asyncio.Future[None] | None:
        """Send head, message and status."""
        if self.timer is not None:
            self.timer.cancel()  # the limiter bounds the time in which the client takes the reply
        return self.send(_HEAD, framed(message), _OK)

    def refuse(self, failed: CallFailed) -> asyncio.Future[None] | None:
        """Send a status other than OK."""
        status = (("grpc-status", str(failed.status.value)), ("grpc-message", quoted(failed.message)))
        return self.send((*_HEAD, *status))

    def send(self, head: Headers, body: bytes = b"", trailers: Headers | None = None) -> asyncio.Future[None] | None:
        """Send the whole answer of the call."""
        self.replied = True
        try:
            return self._http.send(self.stream, head, body, trailers)
        except ProtocolError:  # the client has given the call up, or has gone
            return None

    def expire(self) -> None:
        """End the call at the deadline that its client has set."""
        self.expired = True
        self.task.cancel()

    def client_is_known(self) -> None:
        """Tell the connection that its client is known."""
        self.become_known()

    def abort(self) -> bool:
        """End the connection.  Returns whether it was open."""
        if self._transport.is_closing():
            return False
        self._transport.abort()
        return True


class ConnectionCalls:
    """The calls in progress of a connection, `most` at most."""

    def __init__(
        self, http: Http2End, transport: asyncio.Transport, peer: str, handlers: Mapping[str, Handler], most: int,
        become_known: Callable[[], None], widen: Callable[[], None],
    ) -> None:  # fmt: skip
        """`become_known`, `widen`: see `Call`."""
        self._http = http
        self._transport = transport
        self._peer = peer
        self._handlers = handlers
        self._most = most
        self._become_known = become_known
        self._widen = widen
        self._calls: dict[int, NetworkCall] = {}  # by stream
        self._ended = False

    def __repr__(self) -> str:
        return f"<ConnectionCalls of {self._peer}, {len(self._calls)} under way>"

    @property
    def under_way(self) -> int:
        """The number of calls in progress."""
        return len(self._calls)

    def begin(self, stream: int, headers: Mapping[str, str]) -> bool:
        """Begin a call.  Returns False, and refuses it, if too many are in progress."""
        if len(self._calls) >= self._most:
            self._http.reset(stream, ErrorCodes.REFUSED_STREAM)
            return False
        call = NetworkCall(self._http, self._transport, stream, headers, self._peer, self._become_known, self._widen)
        self._calls[stream] = call
        call.task = asyncio.get_running_loop().create_task(self._serve(call))
        # Clean up in a callback, not in the task, which does not run at all if it is cancelled early.
        call.task.add_done_callback(lambda _: self._call_ended(call))
        return True

    def note(self, event: Event) -> None:
        """Handle an event of a call."""
        if type(event) is DataReceived:
            if (call := self._calls.get(event.stream_id)) is not None:
                call.arrived(event.data, event.flow_controlled_length)
            else:
                self._http.acknowledge(event.stream_id, event.flow_controlled_length)
        elif type(event) is StreamEnded:
            if (call := self._calls.get(event.stream_id)) is not None:
                call.end()
        elif type(event) is StreamReset and (call := self._calls.get(event.stream_id)) is not None:
            call.ended = True
            call.task.cancel()

    def takes_long(self, stream: int) -> bool:
        """Return whether the call of a stream takes DATA that h2 has not seen: h2 compares a length in its headers."""
        call = self._calls.get(stream)
        return call is not None and not call.ended and "content-length" not in call.metadata

    def note_long(self, stream: int, data: memoryview) -> None:
        """Give a call a part of its request that h2 has not seen."""
        self._calls[stream].arrived_long(data)

    async def _serve(self, call: NetworkCall) -> None:
        """Answer a call by its handler, or refuse it."""
        try:
            if (http_status := _http_status(call.metadata)) is not None:
                sent = call.send(((":status", http_status), ("grpc-status", str(Status.UNKNOWN.value))))
            else:
                await self._answer(call)
                return
        except CallFailed as error:
            sent = None if call.replied else call.refuse(error)
        except asyncio.CancelledError:
            if not call.expired or self._ended:
                raise
            sent = None if call.replied else call.refuse(CallFailed(Status.DEADLINE_EXCEEDED))
        if sent is not None:  # the call counts as in progress until the client takes the answer
            await sent

    async def _answer(self, call: NetworkCall) -> None:
        handler = self._handlers.get(call.metadata[":path"])
        if handler is None:
            raise CallFailed(Status.UNIMPLEMENTED, "Method not found")
        if (timeout := call.metadata.get("grpc-timeout")) is not None:
            try:
                seconds = timeout_seconds(timeout)
            except ValueError as error:
                raise CallFailed(Status.UNKNOWN, f"grpc-timeout: {error}") from None
            call.timer = asyncio.get_running_loop().call_later(seconds, call.expire)
        try:
            await handler(call)
        except CallFailed:
            raise
        except Exception:
            _log.exception("a call failed with an unexpected error")
            raise CallFailed(Status.UNKNOWN, "internal error of the server; see its log") from None

    def _call_ended(self, call: NetworkCall) -> None:
        """Release the resources of a call."""
        self._calls.pop(call.stream, None)
        if call.timer is not None:
            call.timer.cancel()
        if not self._ended:
            self._http.forget(call.stream)
            call.acknowledge()
            if not call.ended:  # the client need not send the rest of the request
                self._http.reset(call.stream, ErrorCodes.NO_ERROR)

    def drop(self) -> None:
        """Cancel all calls without an answer, when the connection ends."""
        self._ended = True
        for call in self._calls.values():
            call.task.cancel()


def _http_status(headers: Mapping[str, str]) -> str | None:
    """Return the HTTP status that refuses a request that is no gRPC call; None: it is a gRPC call."""
    if headers[":method"] != "POST":
        return "405"
    if headers.get("content-type") not in _CONTENT_TYPES:
        return "415"
    return None if headers.get("te") == "trailers" else "400"
