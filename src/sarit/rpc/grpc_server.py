"""The gRPC server of the controller API: bounds connections, requests and replies in memory and time.

All calls are unary: a request, a reply.  h2 reads and writes the frames (`rpc/http2.py`).

*Connections.*  A `_GrpcConnection` starts a task for each call, and ends the connection, with one line in the log, if
the client

- sends something other than HTTP/2, or a request without path or method; a request of HTTP/1 is answered with the port
  to send it to, so the server's first frame waits for the client's first bytes;
- takes no replies for GRPC_STALL_SECONDS;
- has not begun to speak HTTP/2 within GRPC_FIRST_BYTES_SECONDS, or is not known within GRPC_FIRST_CALL_SECONDS;
- sends a part of a frame, or of the headers of a request, and not the rest within GRPC_MESSAGE_SECONDS;
- announces a frame that is longer than HTTP/2 allows it (h2 would wait for up to 16 MiB before it says so), or headers
  of more than MAX_HEADER_BLOCK_BYTES;
- sends nothing for GRPC_IDLE_SECONDS and then does not answer a ping within GRPC_PING_SECONDS: the client or its path
  is gone.  A client that answers may keep an idle connection for ever, as the official clients do.

The log has one line a minute for each host and reason.

Frames of a type that HTTP/2 does not define are ignored (RFC 9113 par. 5.5).

*Frames.* A read of a socket may bring thousands of frames.  A connection passes at most HTTP2_FRAMES_PER_TURN whole
frames to h2 in a turn of the event loop (`rpc/frames.py`), and stops reading while more than MAX_UNREAD_BYTES wait.
The cost of frames is counted (`rpc/frame_budget.py`): a client that sends too many control frames gets GOAWAY
(ENHANCE_YOUR_CALM), and a client that is not known yet has to wait.  A client is known once it has logged in, or made a
call where everybody may.

*Limit of connections.*  At the limit, a new connection replaces one of an unknown client: the oldest of the host (for
IPv6, the /64) that has most of these.

*Calls.*  `rpc/calls.py` has the calls of a connection, `rpc/request_limiter.py` bounds requests and replies.  A client
may send any number of calls before it knows of the limit per connection: each call beyond it is refused alone
(REFUSED_STREAM, after which clients may always repeat the call).

*Errors.*  `rpc/answers.py` maps each kind of `core.errors` to a gRPC status.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
)

from sarit.core.admission import Admission
from sarit.core.bucket import HostBuckets
from sarit.core.http_answer import HTTP_METHODS, METHOD_PREFIX, http_answer
from sarit.core.networks import network_of
from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.rpc.calls import ConnectionCalls
from sarit.rpc.frame_budget import FrameBudget
from sarit.rpc.frames import FrameScanner
from sarit.rpc.http2 import Http2End
from sarit.rpc.limits import (
    GRPC_AWAY_SECONDS,
    GRPC_CLOSE_SECONDS,
    GRPC_DRAIN_POLL_SECONDS,
    GRPC_FIRST_BYTES_SECONDS,
    GRPC_FIRST_CALL_SECONDS,
    GRPC_IDLE_SECONDS,
    GRPC_MESSAGE_SECONDS,
    GRPC_PING_SECONDS,
    GRPC_STALL_SECONDS,
    HOST_WORK_BURST,
    HOST_WORK_PER_SECOND,
    HTTP2_FRAMES_PER_TURN,
    HTTP2_WINDOW_BYTES,
    MAX_CALLS_PER_CONNECTION,
    MAX_HOSTS_COUNTED,
    MAX_UNREAD_BYTES,
    MAX_WIDE_CONNECTIONS,
    MIN_WORK_WAIT_SECONDS,
    WIDE_FRAME_BYTES,
    WIDE_WINDOW_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.rpc.frames import Frames
    from sarit.rpc.handlers import Handler
    from sarit.rpc.http2 import Headers

_log = logging.getLogger("sarit.controller.connection")

_PING: Final = b"anybody?"
_HTTP1_ANSWER: Final = http_answer("gRPC, over HTTP/2, to clients of streams")


class GrpcListener:
    """Makes the protocol of each new connection; at most `most` connections are open at once."""

    def __init__(self, handlers: Mapping[str, Handler], most: int) -> None:
        """`handlers`: the handler of each call, by path."""
        self.handlers = handlers
        self._admission = Admission(most)
        self._open: dict[_GrpcConnection, None] = {}  # in order of arrival
        self._wide: set[_GrpcConnection] = set()
        self._unknown: PlacesByHost[_GrpcConnection] = PlacesByHost()  # connections of unknown clients
        self._hosts = HostBuckets(HOST_WORK_BURST, HOST_WORK_PER_SECOND, MAX_HOSTS_COUNTED)
        self._none_open: asyncio.Event | None = None  # set when a drain is complete
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        return f"<GrpcListener, {len(self._open)} connections>"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def connection(self) -> asyncio.Protocol:
        """Return the protocol for a new connection."""
        if not self._admission.admits(len(self._open)):
            oldest = self._unknown.pop_oldest()
            if oldest is None:
                if self._admission.should_report():
                    _log.error("%d API connections are open, which is the limit: new ones are closed", len(self._open))
                return ClosedAtOnce()
            oldest[1].give_way(len(self._open))
        made = _GrpcConnection(self, self.handlers)
        self._open[made] = None
        return made

    def connected(self, connection: _GrpcConnection, network: str, now: float) -> FrameBudget:
        """Count a connection as one of an unknown client.  Returns its budget."""
        self._unknown.enter(network, connection)
        return FrameBudget(self._hosts.of(network, now), now)

    def known(self, connection: _GrpcConnection, network: str) -> None:
        """Stop counting a connection as one of an unknown client."""
        self._unknown.leave(network, connection)

    def widens(self, connection: _GrpcConnection) -> bool:
        """Count a connection as one with a wide window.  Returns False if it is one already, or there are too many."""
        if connection in self._wide or len(self._wide) >= MAX_WIDE_CONNECTIONS:
            return False
        self._wide.add(connection)
        return True

    def report(self, network: str, kind: str, text: str) -> None:
        """Log that a connection from a network was ended, once a minute for each kind of reason."""
        self._repeated.warning((network, kind), text)

    def closed(self, connection: _GrpcConnection, network: str) -> None:
        """Forget a connection that is closed, or about to be."""
        self.known(connection, network)
        self._open.pop(connection, None)
        self._wide.discard(connection)
        if not self._open and self._none_open is not None:
            self._none_open.set()

    async def drain(self, seconds: float) -> None:
        """Send GOAWAY on every connection: when it has no call in progress, or after `seconds` in any case.

        The caller has stopped accepting connections.  By GOAWAY a client knows which calls were not begun, and repeats
        them elsewhere.  Clients that use h2 fail all calls at GOAWAY, so it waits for a moment without calls."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        # Use a list, because every connection must be asked, also after one that has calls in progress.
        while not all([connection.send_away(busy_too=clock() >= end) for connection in self._open]):  # noqa: ASYNC110
            await asyncio.sleep(GRPC_DRAIN_POLL_SECONDS)
        # Wait for clients to read GOAWAY before the process ends.
        self._none_open = asyncio.Event()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._none_open.wait(), GRPC_AWAY_SECONDS)


class _GrpcConnection(asyncio.Protocol):
    """One connection of the server."""

    def __init__(self, listener: GrpcListener, handlers: Mapping[str, Handler]) -> None:
        self._listener = listener
        self._handlers = handlers
        # These two are set when the client has begun to speak.
        self._http: Http2End | None = None
        self._calls: ConnectionCalls
        self._transport: asyncio.Transport
        self._budget: FrameBudget
        self._frames = FrameScanner()
        self._turn_timer: asyncio.Handle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._liveness_timer: asyncio.TimerHandle | None = None
        self._speaks_http2 = self._received = self._pinged = self._called = self._known = False
        self._most_unread = MAX_UNREAD_BYTES
        self._paused = False  # whether reading from the socket is paused
        self._incomplete_since: float | None = None  # since when a frame is incomplete
        self._first_bytes = b""
        self._network = self._peer = "?"
        self._opened = 0.0
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened = asyncio.get_running_loop().time()
        peer = transport.get_extra_info("peername")
        if peer:
            self._network, self._peer = network_of(peer[0]), f"{peer[0]}:{peer[1]}"
        self._budget = self._listener.connected(self, self._network, self._opened)
        self._check_liveness_in(GRPC_FIRST_BYTES_SECONDS)

    def data_received(self, data: bytes) -> None:
        # What a client sends after the end of its connection is dropped.
        if self._is_over():
            return
        # Any received bytes prove that the client is alive, not only the answer to the ping.
        self._received, self._pinged = True, False
        if self._http is None:
            data = self._first_bytes = self._first_bytes + data
            if len(data) < METHOD_PREFIX:
                return
            if data[:METHOD_PREFIX] in HTTP_METHODS:
                self._answer_http1()
                return
            self._first_bytes = b""
            self._http = Http2End(self._transport, window_bytes=HTTP2_WINDOW_BYTES, most_calls=MAX_CALLS_PER_CONNECTION)
            self._calls = ConnectionCalls(
                self._http, self._transport, self._peer, self._handlers, MAX_CALLS_PER_CONNECTION, self.become_known,
                self.widen,
            )  # fmt: skip
        self._frames.add(data)
        # Process frames only once in each turn of the event loop, however often the transport reads in it.
        if self._turn_timer is None:
            self._turn()
        else:
            self._pause(self._frames.held_bytes > self._most_unread)

    def become_known(self) -> None:
        """Raise the limits of a client that has logged in, or made a call where everybody may."""
        if not self._known:
            self._known = True
            self._budget.become_known(asyncio.get_running_loop().time())
            self._listener.known(self, self._network)
            if self._turn_timer is not None:  # the next turn may wait for the budget
                self._turn_timer.cancel()
                self._turn_timer = asyncio.get_running_loop().call_soon(self._turn)

    def widen(self) -> None:
        """Raise the flow-control window, if few enough connections have that."""
        if self._http is not None and self._listener.widens(self):
            self._http.widen(WIDE_WINDOW_BYTES, WIDE_FRAME_BYTES)
            self._frames.most_bytes = WIDE_FRAME_BYTES
            # A frame is held until it is whole.
            self._most_unread = MAX_UNREAD_BYTES + WIDE_FRAME_BYTES

    def give_way(self, places: int) -> None:
        """End this connection of an unknown client in favour of a new one."""
        self._report(f"had not logged in when all {places} places were taken")
        self._listener.closed(self, self._network)
        self._ended = True
        self._transport.abort()

    def _is_over(self) -> bool:
        return self._ended or self._transport.is_closing()

    def _pause(self, stop: bool) -> None:
        if stop != self._paused and not self._transport.is_closing():
            self._paused = stop
            (self._transport.pause_reading if stop else self._transport.resume_reading)()

    def _turn(self) -> None:
        """Handle the next frames.  The rest waits for the next turn of the loop, or for the budget."""
        self._turn_timer = None
        if self._is_over() or not self._frames.held_bytes:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if (wait := self._budget.wait(now)) > 0:
            self._turn_timer = loop.call_later(max(wait, MIN_WORK_WAIT_SECONDS), self._turn)
            self._pause(self._frames.held_bytes > self._most_unread)
            return
        frames = self._frames.take(HTTP2_FRAMES_PER_TURN)
        if not self._frames.incomplete:
            self._incomplete_since = None
        elif frames.frames or self._incomplete_since is None:
            self._incomplete_since = now
        if frames.data:
            begun = 0 if self._takes_long(frames) else self._handle(frames.data)
            if self._is_over():
                return
            if not self._budget.charge(frames, begun, now):
                self._calm_down()
                return
            self._turn_timer = loop.call_soon(self._turn)
        if self._frames.excess is not None:
            self._end(self._frames.excess)
            return
        self._pause(self._frames.held_bytes > self._most_unread)

    def _takes_long(self, frames: Frames) -> bool:
        """Give a long frame to its call, if one is open.  Returns whether it was given."""
        if not frames.long_stream or self._http is None or not self._calls.takes_long(frames.long_stream):
            return False
        if self._http.counts_long(len(frames.payload)):
            self._calls.note_long(frames.long_stream, frames.payload)
        else:
            self._end("sent more than its flow-control window")
        return True

    def _handle(self, data: bytes | bytearray) -> int:
        """Handle whole frames.  Returns how many calls were begun."""
        assert self._http is not None
        try:
            events = self._http.receive(data)
        except Exception as error:  # ProtocolError, and anything else that invalid bytes make the parsers raise
            self._end(f"broke the protocol: {_one_line(error)}")
            return 0
        begun = 0
        # Do not begin calls that the client has reset in the same frames; the budget still charges for them.
        reset = {event.stream_id for event in events if type(event) is StreamReset}
        for event in events:
            if type(event) is RequestReceived:
                self._called = True
                headers = dict(cast("Headers", event.headers))
                for name in (":method", ":path"):
                    if name not in headers:
                        self._end(f"sent a request without {name}")
                if not self._ended and event.stream_id not in reset:
                    begun += self._calls.begin(event.stream_id, headers)
            elif type(event) is RemoteSettingsChanged:
                # SETTINGS is the first frame that every HTTP/2 client sends (RFC 9113 par. 3.4).
                self._speaks_http2 = True
            elif type(event) is ConnectionTerminated:
                self._ended = True
                self._calls.drop()
                self._transport.close()
            else:
                self._calls.note(event)
            if self._ended:
                break
        return begun

    def pause_writing(self) -> None:
        # Hold replies back.  The timer bounds how long the client may take none.
        if self._http is not None:
            self._http.pause_writing()
        self._stall_timer = asyncio.get_running_loop().call_later(GRPC_STALL_SECONDS, self._stall)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self._http is not None and not self._is_over():
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._turn_timer, self._stall_timer, self._close_timer, self._liveness_timer):
            if timer is not None:
                timer.cancel()
        self._listener.closed(self, self._network)
        self._ended = True
        if self._http is not None:
            self._calls.drop()
            self._http = None

    def send_away(self, *, busy_too: bool) -> bool:
        """Send GOAWAY once, after which the client closes.  Returns whether it was sent.  `busy_too`: also while calls
        are in progress."""
        if self._is_over():
            return True
        if self._http is None:  # the client has not sent anything
            self._ended = True
            self._transport.close()
            return True
        if self._calls.under_way and not busy_too:
            return False
        self._go_away(ErrorCodes.NO_ERROR)
        # Close later: unread bytes of the client would make the kernel reset the connection before GOAWAY is read.
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_CLOSE_SECONDS, self._transport.close)
        return True

    def _calm_down(self) -> None:
        """Disconnect a client that floods the node, and read nothing more from it."""
        self._report("sent more control frames than its calls need")
        self._go_away(ErrorCodes.ENHANCE_YOUR_CALM)
        self._pause(True)
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_AWAY_SECONDS, self._transport.abort)

    def _go_away(self, code: ErrorCodes) -> None:
        assert self._http is not None
        self._ended = True
        self._http.go_away(code)
        self._calls.drop()  # calls cannot be answered after GOAWAY

    def _check_liveness_in(self, seconds: float) -> None:
        self._liveness_timer = asyncio.get_running_loop().call_later(seconds, self._check_liveness)

    def _check_liveness(self) -> None:
        """End the connection if it never began or its client is gone; otherwise check again later."""
        if self._ended:
            return
        now = asyncio.get_running_loop().time()
        if self._is_over():
            self._transport.abort()  # `close` would wait until the client has taken all bytes
        elif not self._speaks_http2:
            self._end(f"did not begin to speak HTTP/2 for {GRPC_FIRST_BYTES_SECONDS:.0f} s")
        elif not self._known and now - self._opened >= GRPC_FIRST_CALL_SECONDS:
            # Pravega's clients look for controllers on a separate connection, without a log-in: do not report that.
            if not self._called:
                self._report(f"began no call in {GRPC_FIRST_CALL_SECONDS:.0f} s")
            self.send_away(busy_too=True)
        elif self._incomplete_since is not None and now - self._incomplete_since >= GRPC_MESSAGE_SECONDS:
            self._end(f"did not send the rest of a frame in {GRPC_MESSAGE_SECONDS:.0f} s")
        elif self._received:
            # The client sent something in this interval: check again after the next one.
            self._received = False
            self._check_liveness_in(GRPC_IDLE_SECONDS)
        elif not self._pinged:
            # `data_received` resets this flag when the answer or any other bytes come.
            self._pinged = True
            self._check_liveness_in(GRPC_PING_SECONDS)
            assert self._http is not None
            self._http.ping(_PING)
        else:
            self._end(f"did not answer a ping for {GRPC_PING_SECONDS:.0f} s")

    def _stall(self) -> None:
        if not (self._ended or self._transport.is_closing()):
            self._ended = True
            # Do not send GOAWAY, which would queue behind the replies that the client does not take.
            self._report(f"did not take replies for {GRPC_STALL_SECONDS:.0f} s")
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self._ended = True
        self._report(reason)
        if self._http is not None:
            self._http.flush()  # GOAWAY, where the protocol was broken
            self._calls.drop()
        self._transport.close()
        # Abort after a time: `close` waits until the client has taken all bytes, perhaps for ever.
        self._close_timer = asyncio.get_running_loop().call_later(GRPC_CLOSE_SECONDS, self._transport.abort)

    def _answer_http1(self) -> None:
        self._transport.write(_HTTP1_ANSWER)
        self._end("is an HTTP/1 request")

    def _report(self, reason: str) -> None:
        self._listener.report(
            self._network, reason.partition(": ")[0], f"API connection {self._peer} closed: it {reason}"
        )


class ClosedAtOnce(asyncio.Protocol):
    """Closes a connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]
