"""The connection to one bookie: made when it is used, and after it was lost.

*Answers.*  Every request is answered exactly once, in a later turn of the event loop: by the bookie's response, or by
None when there is no connection, or it ended first.  After None the outcome is unknown.

*One request of a name at a time.*  A response names only operation, ledger and entry of its request.  A bookie may
answer a plain read before an earlier one that fences the same ledger.  If both were on the wire, the fence would seem
done before it is.  So a request waits until the earlier request of the same name is answered.

*Time-outs* end the whole connection: a response that comes after its time-out would be taken for that of a newer
request of the same name, and a stopped bookie delays all requests alike.

*Bounds.*  Bytes that the socket has not taken yet are bounded: above the bound a request is not sent, but answered by
"too many requests".

*Back-off.*  After a failure nothing is sent for a while, and requests are answered at once: the log has other bookies.
The first response resets the back-off: a bookie that starts accepts connections, and closes them, before it serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.log.bookkeeper.limits import (
    BOOKIE_CONNECT_SECONDS,
    BOOKIE_MAX_QUEUED_BYTES,
    BOOKIE_MAX_RETRY_SECONDS,
    BOOKIE_REQUEST_SECONDS,
    BOOKIE_RETRY_SECONDS,
    BOOKIE_SILENT_SECONDS,
    BOOKIE_TICK_SECONDS,
)
from sarit.log.bookkeeper.wire import TOO_MANY_REQUESTS_STATUS, Response, ResponseReader
from sarit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer, Clock, Network, Random
    from sarit.wire.frames import Window

log = logging.getLogger(__name__)

# A function that receives the response to a request; None: the outcome is unknown.
Answered = Callable[[Response | None], None]
_NO_PARTS: Final[tuple[Buffer, ...]] = ()


@dataclass(slots=True)
class Request:
    """A request that is not answered.  `parts`: its frame, until it is handed to the socket."""

    operation: int
    ledger: int
    entry: int
    parts: Sequence[Buffer]
    size: int
    done: Answered
    since: float
    answered: bool = False

    @property
    def name(self) -> tuple[int, int, int]:
        """The name by which the response is matched to the request."""
        return self.operation, self.ledger, self.entry


class PendingRequests:
    """The requests of one connection that are not answered."""

    __slots__ = ("_by_name", "_in_order", "waiting_bytes")

    def __init__(self) -> None:
        self._by_name: dict[tuple[int, int, int], deque[Request]] = {}
        # All requests in order; an answered one stays until it is the oldest.
        self._in_order: deque[Request] = deque()
        self.waiting_bytes = 0  # the bytes of requests that wait for an earlier one of the same name

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def add(self, request: Request) -> bool:
        """Add a request.  Returns whether it may be sent now."""
        self._in_order.append(request)
        queue = self._by_name.get(request.name)
        if queue is None:
            self._by_name[request.name] = deque((request,))
            return True
        queue.append(request)
        self.waiting_bytes += request.size
        return False

    def answer(self, name: tuple[int, int, int]) -> tuple[Request, Request | None]:
        """Remove the request of this name, which is answered.  Returns it, and the request to send now, if any.

        Raises ProtocolError when there is no such request."""
        queue = self._by_name.get(name)
        if queue is None:
            operation, ledger, entry = name
            raise ProtocolError(f"a response to no request: operation {operation}, ledger {ledger}, entry {entry}")
        request = queue.popleft()
        request.answered = True
        while self._in_order and self._in_order[0].answered:
            self._in_order.popleft()
        if not queue:
            del self._by_name[name]
            return request, None
        self.waiting_bytes -= queue[0].size
        return request, queue[0]

    def oldest_since(self) -> float | None:
        """Return when the oldest request was made; None when all are answered."""
        return self._in_order[0].since if self._in_order else None

    def clear(self) -> list[Request]:
        """Remove and return all requests, in order."""
        found = [request for request in self._in_order if not request.answered]
        self._in_order.clear()
        self._by_name.clear()
        self.waiting_bytes = 0
        return found


def _call(done: Answered, response: Response | None) -> None:
    try:
        done(response)
    except Exception:  # go on with the other requests
        log.exception("the answer of a bookie could not be handled")


class BookieConnection(asyncio.BufferedProtocol):
    """One TCP connection to a bookie, which ends with its first error."""

    def __init__(self, name: str, clock: Clock, window: Window, ended: Callable[[], None]) -> None:
        """`ended`: called once at the end, before the pending requests are answered."""
        self._name = name
        self._clock = clock
        self._ended = ended
        self._reader = ResponseReader(window)
        self._pending = PendingRequests()
        self._transport: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._received_at = clock.monotonic()
        self._received = False  # whether anything came since the last tick
        self._reason: str | None = None
        self.proven = False  # whether a response has come
        self.closed = False

    def __repr__(self) -> str:
        return f"BookieConnection({self._name}, {'closed' if self.closed else 'open'}, {len(self._pending)} pending)"

    # -- asyncio calls these --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport of the connected socket."""
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Answer the requests whose responses were received."""
        self._received = True
        try:
            responses = self._reader.received(nbytes)
            for response in responses:
                self.proven = True
                request, following = self._pending.answer((response.operation, response.ledger, response.entry))
                if following is not None:
                    self._write(following)
                _call(request.done, response)
        except SaritError as error:
            # End the connection: no byte after a wrong frame can be trusted.
            self.abort(str(error))

    def eof_received(self) -> bool:
        """Let the transport close, since the bookie closed its side, and answers no more requests."""
        self.abort("closed by the bookie")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer the pending requests with None, since the connection ended."""
        self.closed = True
        if self._tick is not None:
            self._tick.cancel()
        left = self._pending.clear()
        log.info(
            "%s: the connection was lost (%s); requests without an answer: %d",
            self._name, self._reason or exc or "closed by the bookie", len(left),
        )  # fmt: skip
        self._ended()
        for request in left:
            _call(request.done, None)

    # -- sending --------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """The bytes of requests that the socket has not taken."""
        unsent = 0 if self._transport is None or self.closed else self._transport.get_write_buffer_size()
        return unsent + self._pending.waiting_bytes

    def send(self, request: Request) -> None:
        """Send a request over the open connection, at once or after the earlier one of the same name."""
        if self._pending.add(request):
            self._write(request)
        if self._tick is None:
            self._received_at = self._clock.monotonic()
            self._arm()

    def abort(self, reason: str) -> None:
        """End the connection at once; the requests are answered in a later turn of the loop."""
        if self._reason is None:
            self._reason = reason
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def _write(self, request: Request) -> None:
        parts, request.parts = request.parts, _NO_PARTS
        # Write nothing to a broken transport, which is closing: `connection_lost` follows.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)

    def _arm(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(BOOKIE_TICK_SECONDS, self.check_timeouts)

    def check_timeouts(self) -> None:
        """End the connection when the bookie has stopped to answer."""
        self._tick = None
        now = self._clock.monotonic()
        if self._received:
            self._received, self._received_at = False, now
        since = self._pending.oldest_since()
        if since is None or self.closed:
            return
        silent = now - max(since, self._received_at)
        if silent >= BOOKIE_SILENT_SECONDS:
            self.abort(f"nothing came for {silent:.0f} s though a request waits")
        elif now - since >= BOOKIE_REQUEST_SECONDS:
            self.abort(f"a request has waited for {now - since:.0f} s")
        else:
            self._arm()


class BookieLink:
    """The link of the process to one bookie: at most one connection, with back-off."""

    def __init__(self, name: str, address: tuple[str, int], network: Network, clock: Clock, random: Random,
                 window: Window) -> None:  # fmt: skip
        """`window`: the receive buffer that all connections of one event loop share."""
        self._name = name
        self._address = address
        self._network = network
        self._clock = clock
        self._random = random
        self._window = window
        self._connection: BookieConnection | None = None
        self._connecting: asyncio.Task[BookieConnection | None] | None = None
        self._gone = asyncio.Event()  # set when the connection has ended
        self._waiting: list[Request] = []  # the requests that wait for the connection
        self._waiting_bytes = 0
        self._retry_seconds = BOOKIE_RETRY_SECONDS
        self._not_before = clock.monotonic()
        self._refused = RepeatedLog(log, clock.monotonic)
        self._closed = False

    def __repr__(self) -> str:
        return f"BookieLink({self._name}, {self._connection or ('connecting' if self._connecting else 'none')})"

    @property
    def queued_bytes(self) -> int:
        """The bytes of requests that the socket has not taken."""
        return self._waiting_bytes + (self._connection.queued_bytes if self._connection is not None else 0)

    def request(
        self, operation: int, ledger: int, entry: int, parts: Sequence[Buffer], size: int, done: Answered
    ) -> None:
        """Send a frame of `size` bytes; `done` gets the response, or None."""
        now = self._clock.monotonic()
        request = Request(operation, ledger, entry, parts, size, done, now)
        if self._closed or (self._connection is not None and self._connection.closed):
            self._answer_soon(request, None)
        elif self._queue_is_full(size):
            self._answer_soon(request, Response(operation, TOO_MANY_REQUESTS_STATUS, ledger, entry, b""))
        elif self._connection is not None:
            self._connection.send(request)
        elif self._connecting is not None:
            self._wait(request)
        elif now < self._not_before:
            self._answer_soon(request, None)
        else:
            self._wait(request)
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"connect {self._name}")
            # Use a callback, which is called even if the task is cancelled before it has begun.
            self._connecting.add_done_callback(self._on_connected)

    async def close(self) -> None:
        """End the connection; every request is answered when this returns."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            self._connection.abort("closed by this process")
            await self._gone.wait()

    def _queue_is_full(self, size: int) -> bool:
        queued = self.queued_bytes
        return queued > 0 and queued + size > BOOKIE_MAX_QUEUED_BYTES

    def _wait(self, request: Request) -> None:
        self._waiting.append(request)
        self._waiting_bytes += request.size

    def _answer_soon(self, request: Request, response: Response | None) -> None:
        asyncio.get_running_loop().call_soon(_call, request.done, response)

    async def _connect(self) -> BookieConnection | None:
        try:
            async with asyncio.timeout(BOOKIE_CONNECT_SECONDS):
                _, connection = await self._network.connect(
                    lambda: BookieConnection(self._name, self._clock, self._window, self._on_end), *self._address
                )
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: the host is no valid name
            self._refused.info("", f"{self._name}: no connection ({error or 'time-out'})")
            self._back_off()
            return None
        assert isinstance(connection, BookieConnection)
        return connection

    def _on_connected(self, task: asyncio.Task[BookieConnection | None]) -> None:
        self._connecting = None
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        connection = None if task.cancelled() else task.result()
        if connection is not None and self._closed:
            connection.abort("closed by this process")
        if connection is None or connection.closed:
            for request in waiting:
                self._answer_soon(request, None)
            return
        self._connection = connection
        self._refused.ended("")
        self._gone.clear()
        for request in waiting:
            connection.send(request)

    def _on_end(self) -> None:
        connection, self._connection = self._connection, None
        self._gone.set()
        if connection is not None and connection.proven:
            self._retry_seconds = BOOKIE_RETRY_SECONDS
        self._back_off()

    def _back_off(self) -> None:
        # Choose half of the pause at random, so that many processes do not reconnect at the same time.
        self._not_before = self._clock.monotonic() + self._retry_seconds * (0.5 + self._random.random() / 2)
        self._retry_seconds = min(2 * self._retry_seconds, BOOKIE_MAX_RETRY_SECONDS)
