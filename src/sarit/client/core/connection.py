"""Connections to segment stores, and the pool of them.

*Replies.*  Every reply carries the request id of its request.  `ReplyRouter` (pure) maps request ids to `ReplySink`s.
A sink takes one reply (a request) or many (an appender uses one id for all its blocks): the return value of its `reply`
says whether more may come.  Replies without a sink are late answers to cancelled requests and are dropped.  The
client's Hello goes out first, and the store's Hello must be the first frame in.

*Two connections per store*: one for appends, one for everything else.  A store that throttles its writers may stop
reading from their socket; that must not stop their readers.

*Keep-alive.*  A connection is dead when no byte moves on it for `DEAD_AFTER_KEEP_ALIVES` intervals, though we request
an echo in each; the intervals are shorter when the retry timeout is (`retry.py`).  Bytes count, not whole commands:
over a slow link one command may take longer than that in either direction, and sending it again each time would never
deliver it.  Bytes sent count when the socket accepts some of those that waited: it has space again only after the store
received some.

*A store that stands still* keeps its connections open, while others serve its containers after its lease.  So a
connection on which sinks wait is asked for an echo sooner.  When that does not come, `on_unanswered` is called, less
and less often: the session asks the controller, and ends the connection when a segment of these sinks has moved.  One
timer does all of this, `CHECKS_PER_KEEP_ALIVE` times in each interval, unless that is short.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.client.core.login import MAYBE_TLS, no_tls, untrusted
from sarit.client.core.retry import Lost, NotAnswered, NotSent, RetryPolicy, Silent
from sarit.client.limits import (
    ASK_OWNER_AFTER_CHECKS,
    CHECKED_KEEP_ALIVE_SECONDS,
    CHECKS_PER_KEEP_ALIVE,
    CLIENT_KEEP_ALIVE_SECONDS,
    CLIENT_WRITE_BUFFER_BYTES,
    CONNECT_TIMEOUT_SECONDS,
    DEAD_AFTER_KEEP_ALIVES,
    ECHO_AFTER_CHECKS,
    FIRST_REQUEST_ID_BYTES,
)
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.env.background import ignore_outcome
from sarit.wire.commands import AuthTokenCheckFailed, Hello, KeepAlive, decode, encode
from sarit.wire.commands.registry import HEADER
from sarit.wire.frames import DATA_APPENDED, FrameReader, Window, read_data_appended
from sarit.wire.limits import OLDEST_WIRE_VERSION, WIRE_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Buffer, Network, Random

    Place = tuple[StreamName, SegmentId]

log = logging.getLogger(__name__)


APPENDS: Final = "appends"
REQUESTS: Final = "requests"


class ReplySink(Protocol):
    """The caller that made a request.  One that has an attribute `place` says by it of which segment the request is."""

    def reply(self, command: Any) -> bool:
        """Take a reply.  Returns whether it is the last one."""

    def lost(self, error: Unavailable) -> None:
        """Record that the connection ended; no reply will come."""


def _ignore(*_: object) -> None:
    """Ignore an event that nobody listens to."""


class ReplyRouter:
    """The handshake of one connection, and which sink waits for which request id (pure)."""

    __slots__ = ("_next_id", "_sinks", "_token_refused", "greeted")

    def __init__(self, first_request_id: int = 1, token_refused: Callable[..., None] = _ignore) -> None:
        self.greeted = False
        self._next_id = first_request_id
        self._sinks: dict[int, ReplySink] = {}
        self._token_refused = token_refused

    def __repr__(self) -> str:
        return f"ReplyRouter({'greeted' if self.greeted else 'new'}, {len(self._sinks)} sinks)"

    def hello(self) -> bytes:
        """Return the first bytes to send."""
        return encode(Hello(WIRE_VERSION, OLDEST_WIRE_VERSION))

    def expect(self, sink: ReplySink) -> int:
        """Return a request id whose replies go to `sink`."""
        request_id = self._next_id
        self._next_id += 1
        self._sinks[request_id] = sink
        return request_id

    def forget(self, request_id: int) -> None:
        """Forget `request_id`, for which nobody waits any more."""
        self._sinks.pop(request_id, None)

    def received(self, frames: Iterable[tuple[int, Buffer]]) -> None:
        """Deliver complete frames.  Raises ProtocolError, Unavailable: close the connection then."""
        for code, payload in frames:
            # DataAppended, the reply to each block, has a decoder of its own.
            command = read_data_appended(payload) if code == DATA_APPENDED else decode(code, payload)
            kind = type(command)
            if kind is Hello:
                self._hello(command)
                continue
            if not self.greeted:
                raise Unavailable("the peer did not say Hello first: is this the port of a segment store?")
            if kind is KeepAlive:
                continue
            if kind is AuthTokenCheckFailed:
                self._token_refused()
            request_id: int = command.request_id  # type: ignore[attr-defined]
            sink = self._sinks.get(request_id)
            if sink is None:
                log.debug("no sink for %s", kind.__name__)
            elif sink.reply(command):
                self._sinks.pop(request_id, None)

    def _hello(self, hello: Any) -> None:
        if hello.low_version > WIRE_VERSION or hello.high_version < OLDEST_WIRE_VERSION:
            raise Unavailable(
                f"the segment store speaks wire versions {hello.low_version} to {hello.high_version}, "
                f"this client {OLDEST_WIRE_VERSION} to {WIRE_VERSION}: update the older one"
            )
        self.greeted = True

    @property
    def waiting(self) -> bool:
        """Whether a sink waits for replies."""
        return bool(self._sinks)

    def places(self) -> list[Place]:
        """Return the segments of the sinks that name one, each once, in order of their requests."""
        found = (getattr(sink, "place", None) for sink in self._sinks.values())
        return list(dict.fromkeys(place for place in found if place is not None))

    def lost(self, error: Unavailable) -> None:
        """Fail all sinks, since the connection ended."""
        # A copy, cleared first: a sink that is notified may forget others.
        sinks = list(self._sinks.values())
        self._sinks.clear()
        for sink in sinks:
            try:
                sink.lost(error)
            except Exception:  # notify the other sinks even if one raises, or they would wait for ever
                log.exception("a sink failed when it was notified of the lost connection")


class PendingReply:
    """A sink for one reply, which is awaited through `answer`.  `place`: the segment of the request."""

    __slots__ = ("answer", "place")

    def __init__(self, place: Place | None = None) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.place = place

    def reply(self, command: Any) -> bool:
        """Take the reply."""
        if not self.answer.done():
            self.answer.set_result(command)
        return True

    def lost(self, error: Unavailable) -> None:
        """Record that no reply will come."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection to a segment store.  Ends for ever with its first error."""

    def __init__(
        self, name: str, window: Window | None = None, keep_alive_seconds: float = CLIENT_KEEP_ALIVE_SECONDS,
        replies: ReplyRouter | None = None, on_unanswered: Callable[[Connection], None] = _ignore,
    ) -> None:  # fmt: skip
        """`on_unanswered`: called while a request waits, and the store has sent nothing for a while."""
        self.name = name
        self._on_unanswered = on_unanswered
        self._keep_alive_seconds = keep_alive_seconds
        # Shorter intervals end a silent connection soon by themselves.
        self._checks_per_interval = CHECKS_PER_KEEP_ALIVE if keep_alive_seconds >= CHECKED_KEEP_ALIVE_SECONDS else 1
        self._check_seconds = keep_alive_seconds / self._checks_per_interval
        self.replies = replies or ReplyRouter()
        self.closed = False
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = FrameReader(window)
        self._transport: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._received = 0  # bytes, since the beginning
        self._received_before = 0  # bytes received up to the last check
        self._unsent = 0  # bytes that waited for the socket at the last check
        self._handed = 0  # bytes handed over to be sent, since the beginning
        self._sent = 0  # handed bytes that the socket had taken at the last check
        self._checks = 0
        self._silent_checks = 0  # consecutive checks until now without a byte
        self._ask_owner_at = ASK_OWNER_AFTER_CHECKS  # the number of silent checks at which the owner is asked for
        self._reason: str | None = None
        self._silent_seconds = 0.0  # above 0: why it ended

    def __repr__(self) -> str:
        return f"Connection({self.name}, {'closed' if self.closed else 'open'}, {self.replies!r})"

    @property
    def mute(self) -> bool:
        """Whether less than a frame came on it, as an alert of TLS is, and it uses no TLS."""
        plain = self._transport is not None and self._transport.get_extra_info("sslcontext") is None
        return plain and not self.replies.greeted and self._received < HEADER.size

    # -- asyncio calls these --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send Hello, since the socket is connected."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        set_limits = getattr(transport, "set_write_buffer_limits", None)
        if set_limits is not None:
            set_limits(high=CLIENT_WRITE_BUFFER_BYTES)
        # Send Hello before any request, because the store expects it first.
        transport.write(self.replies.hello())  # type: ignore[attr-defined]
        self._tick = asyncio.get_running_loop().call_later(self._check_seconds, self._keep_alive)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were received into the buffer."""
        self._received += nbytes
        try:
            self.replies.received(self._reader.received(nbytes))
        except SaritError as error:
            # A bad frame, or no Hello: nothing after it can be trusted.
            self.abort(f"{self.name}: {error}")
        except Exception:
            log.exception("%s: a reply could not be handled", self.name)
            self.abort(f"{self.name}: a reply could not be handled (see the log)")
        else:
            if not self.greeted.done() and self.replies.greeted:
                self.greeted.set_result(None)

    def eof_received(self) -> bool:
        """Close our side at once, since the store closed its side.

        The store may never receive what is not sent yet, and until then the sinks would not be notified of the end."""
        self.abort(f"{self.name}: the connection was lost (closed by the store)")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every sink, since the connection ended."""
        self.closed = True
        if self._tick is not None:
            self._tick.cancel()
        text = self._reason or f"{self.name}: the connection was lost ({exc or 'closed by the store'})"
        error = Silent(text, self._silent_seconds) if self._silent_seconds else Lost(text)
        if not self.greeted.done():
            self.greeted.set_exception(error)
            # Retrieved: nobody may be waiting for the Hello any more.
            self.greeted.exception()
        self.replies.lost(error)

    # -- sending --------------------------------------------------------------------------------

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send whole frames, given in parts; silently dropped when the connection is closed."""
        # A broken transport is closing first; it logs a warning for each write between that and `connection_lost`.
        if self._transport is not None and not self.closed and not self._transport.is_closing():
            self._handed += sum(map(len, parts))
            self._transport.writelines(parts)

    def expect(self, sink: ReplySink) -> int:
        """Return a request id whose replies go to `sink`.  Raises Unavailable when the connection has ended."""
        if self.closed:
            raise Lost(self._reason or f"{self.name}: the connection is closed")
        return self.replies.expect(sink)

    def forget(self, request_id: int) -> None:
        """Drop whatever else comes for `request_id`."""
        self.replies.forget(request_id)

    async def ask(self, command: Callable[[int], Any], place: Place | None = None) -> Any:
        """Send the request `command(request_id)` and await its reply.  Raises Unavailable.

        `place`: the segment that it is about, for which the controller is asked when the store stands still."""
        pending = PendingReply(place)
        request_id = self.expect(pending)
        made = command(request_id)
        self.send([encode(made)])
        reply = None
        try:
            reply = await pending.answer
            return reply
        finally:
            # Also when the caller is cancelled: a late reply is dropped.
            self.replies.forget(request_id)
            if log.isEnabledFor(logging.DEBUG):
                said = "had no answer" if reply is None else f"was answered with {type(reply).__name__}"
                log.debug("%s: request %d, %s, %s", self.name, request_id, type(made).__name__, said)

    def abort(self, reason: str) -> None:
        """End the connection at once for `reason`."""
        if self._reason is None:
            self._reason = reason
            log.info("closing a connection: %s", reason)
        if self._transport is not None:
            # asyncio calls `connection_lost` in a later turn, which fails the sinks; `closed` refuses new ones until
            # then.
            self._transport.abort()
        self.closed = True

    def _keep_alive(self) -> None:
        """Count the checks without a byte since the last one; request an echo, and report silence, when it is time."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        sent = self._handed - unsent
        # When bytes waited, the socket takes more only when the store has taken some: it lives, however long the queue.
        if self._received != self._received_before or (self._unsent and sent > self._sent):
            self._silent_checks, self._ask_owner_at = 0, ASK_OWNER_AFTER_CHECKS
        else:
            self._silent_checks += 1
        if self._silent_checks >= DEAD_AFTER_KEEP_ALIVES * self._checks_per_interval:
            # At least: the last byte came some time before the first of these checks.
            self._silent_seconds = self._silent_checks * self._check_seconds
            self.abort(f"{self.name}: no keep-alive for {DEAD_AFTER_KEEP_ALIVES * self._keep_alive_seconds:.3g} s")
            return
        # Before the echo is requested: the request may wait in the buffer for a moment.
        self._received_before, self._unsent, self._sent = self._received, unsent, sent
        waiting = self.replies.waiting
        self._checks += 1
        if self._checks % self._checks_per_interval == 0 or (waiting and self._silent_checks == ECHO_AFTER_CHECKS):
            self.send([encode(KeepAlive())])
        self._tick = asyncio.get_running_loop().call_later(self._check_seconds, self._keep_alive)
        if waiting and self._silent_checks >= self._ask_owner_at:
            # After 4, 6, 8, 10, 13, 17 ... checks.
            self._ask_owner_at += max(2, self._ask_owner_at // 3)
            self._on_unanswered(self)


def first_request_id(random: Random) -> int:
    """Return where a client, or a connection, begins to count its requests: so that two differ in a store's log."""
    return int.from_bytes(random.bytes(FIRST_REQUEST_ID_BYTES), "big")


class ConnectionPool:
    """The pool: at most one open connection per (store, purpose)."""

    def __init__(
        self, network: Network, policy: RetryPolicy | None = None,
        introduce: Callable[[Connection], Awaitable[None]] | None = None,
        first_request_id: Callable[[], int] = lambda: 1, token_refused: Callable[[], None] = _ignore,
        on_unanswered: Callable[[Connection, tuple[str, int]], None] = _ignore,
    ) -> None:  # fmt: skip
        """`introduce`: what each connection needs after Hello, before anything else; it raises Unavailable.

        `first_request_id`: of each connection.  `token_refused`: called when a store has refused a delegation token.
        `on_unanswered`: see `Connection`."""
        self._network = network
        self._introduce = introduce
        self._policy = policy or RetryPolicy()
        self._window = Window()
        self._first_request_id = first_request_id
        self._token_refused = token_refused
        self._on_unanswered = on_unanswered
        self._open: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}
        self._closed = False

    def connected(self, endpoint: tuple[str, int], purpose: str) -> Connection | None:
        """Return the connection to a store, if there is one."""
        task = self._open.get((*endpoint, purpose))
        if task is None or not task.done() or task.cancelled() or task.exception() or task.result().closed:
            return None
        return task.result()

    async def to(self, endpoint: tuple[str, int], purpose: str) -> Connection:
        """Return the connection to a store, opened if there is none.  Raises Unavailable."""
        if self._closed:
            raise Invalid("the client is closed")
        key = (*endpoint, purpose)
        task = self._open.get(key)
        if task is None or (task.done() and self.connected(endpoint, purpose) is None):
            # One attempt for all that want this store; a failed one, or an ended connection, is replaced.
            task = asyncio.get_running_loop().create_task(self._connect(*key), name=f"connect {key}")
            task.add_done_callback(ignore_outcome)
            self._open[key] = task
        if not task.done():
            # By `wait`: several may wait for this one task, and a cancelled one must not cancel it.
            await asyncio.wait((task,))
        if task.cancelled():  # by `close`: the caller was not cancelled
            raise Invalid("the client was closed")
        return task.result()

    async def _connect(self, host: str, port: int, purpose: str) -> Connection:
        name = f"segment store {host}:{port} ({purpose})"
        connection: Connection | None = None
        keep_alive = self._policy.keep_alive_seconds

        def make() -> Connection:
            replies = ReplyRouter(self._first_request_id(), self._token_refused)
            return Connection(
                name, self._window, keep_alive, replies, lambda made: self._on_unanswered(made, (host, port))
            )

        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_SECONDS, self._policy.attempt_seconds)):
                _, connection = await self._network.connect(make, host, port)
                assert connection is not None
                await connection.greeted
                if self._introduce is not None:
                    await self._introduce(connection)
        except TimeoutError:
            if connection is not None:
                # The socket is open, but no Hello came within the time.
                connection.abort(f"{name}: no greeting")
            raise NotAnswered(f"{name} does not answer: is the node running and the port right?") from None
        except ssl.SSLCertVerificationError as error:
            raise Invalid(untrusted(name, error)) from None
        except ssl.SSLError as error:
            raise NotSent(no_tls(name, error)) from None
        except Unavailable as error:
            if connection is not None and connection.mute:
                raise Lost(f"{error}; {MAYBE_TLS}") from None
            raise
        except (OSError, ValueError, OverflowError) as error:  # also a host or a port that cannot be
            raise NotSent(f"{name} cannot be reached ({error}): is the node running?") from None
        return connection

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        tasks = list(self._open.values())
        self._open.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
        # Cancelled attempts are awaited, too: none opens a socket after this.
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.abort("the client was closed")
