"""Bytes of one segment, fetched ahead of their consumer.

`ReadWindow` (pure) decides which requests to make; `SegmentFetch` sends them and receives the replies.

Theory of operation.  Requests cover the bytes from the reader's position on, in order and without gaps.  While the
reader catches up, two requests are outstanding, so that the store works while the client parses.  A store may answer
with less than was requested (its blocks, the tail, the end): the rest is requested again before anything after it is
handed out.  After a short reply, or one at the tail, one request at a time is enough: it waits at the store until there
is data.

A lost connection drops all unanswered requests.  `SegmentFetch` connects again after a backoff and continues at the
first byte that has not come.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.connection import REQUESTS, Connection
from sarit.client.core.replies import error_of
from sarit.client.limits import SEGMENT_READ_BYTES
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.env.traces import CLIENT_READ
from sarit.wire.commands import ReadSegment, SegmentIsSealed, SegmentRead, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.core.connection import Place
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Buffer

log = logging.getLogger(__name__)

BUFFERED_READS: Final = 2
CATCH_UP_REQUESTS: Final = 2


class ReadRequest:
    """One request: `length` bytes from `offset`; `data` once the reply came."""

    __slots__ = ("data", "length", "offset")

    def __init__(self, offset: int, length: int) -> None:
        self.offset = offset
        self.length = length
        self.data: Buffer | None = None

    def __repr__(self) -> str:
        return f"ReadRequest({self.offset}+{self.length}{'' if self.data is None else f', {len(self.data)} came'})"


class ReadWindow:
    """The requests of one segment from `offset` (the next byte to hand out) to `limit` (None: no end)."""

    __slots__ = ("_max_outstanding", "_outstanding", "end", "limit", "offset", "read_bytes")

    def __init__(self, offset: int, limit: int | None, read_bytes: int) -> None:
        self.offset = offset
        self.limit = limit
        self.read_bytes = read_bytes
        self.end: int | None = offset if limit is not None and offset >= limit else None
        # In order, without gaps; an answered one stays until all before it are answered.
        self._outstanding: deque[ReadRequest] = deque()
        # One, until a full reply shows that the reader is behind the tail.
        self._max_outstanding = 1

    def __repr__(self) -> str:
        return f"ReadWindow(at {self.offset}, end {self.end}, {list(self._outstanding)})"

    @property
    def finished(self) -> bool:
        """Whether everything up to the end was handed out."""
        return self.end is not None and self.offset >= self.end

    def next_requests(self) -> list[ReadRequest]:
        """New requests to send now."""
        new: list[ReadRequest] = []
        bound = self.limit if self.end is None else self.end
        while len(self._outstanding) < self._max_outstanding:
            last = self._outstanding[-1] if self._outstanding else None
            start = self.offset if last is None else last.offset + last.length
            length = self.read_bytes if bound is None else min(self.read_bytes, bound - start)
            if length <= 0:
                break
            request = ReadRequest(start, length)
            self._outstanding.append(request)
            new.append(request)
        return new

    def answered(self, request: ReadRequest, data: Buffer, at_tail: bool, end_of_segment: bool) -> list[ReadRequest]:
        """Note a reply, and return the requests for what it left out."""
        # Dropped meanwhile by `ended` or `refused`.
        if request not in self._outstanding:
            return []
        # More than was requested: the flags of the reply describe bytes past the request.
        if len(data) > request.length:
            data = memoryview(data)[: request.length]
            at_tail = end_of_segment = False
        request.data = data
        stop = request.offset + len(data)
        self._max_outstanding = 1 if at_tail or len(data) < request.length else CATCH_UP_REQUESTS
        if end_of_segment or stop == self.limit:
            self.ended(stop)
            return []
        missing = request.length - len(data)
        request.length = len(data)
        # `next_requests` continues after the last one.  An empty one leaves, and its offset is requested again.
        if not missing or request is self._outstanding[-1]:
            if not request.length:
                self._outstanding.remove(request)
            return []
        # The requests behind it are on their way: the gap goes between, and is handed out before them.
        gap = ReadRequest(stop, missing)
        self._outstanding.insert(self._outstanding.index(request) + 1, gap)
        if not request.length:
            self._outstanding.remove(request)
        return [gap]

    def ended(self, end: int) -> None:
        """Drop the requests after `end`, where the segment (or the range) ends."""
        self.end = end
        while self._outstanding and self._outstanding[-1].offset >= end:
            self._outstanding.pop()

    def is_first(self, request: ReadRequest) -> bool:
        """Return whether the bytes of `request` are handed out next.  Only then is a refusal an error: a later request
        was sent in advance, perhaps for bytes beyond the segment's end."""
        return bool(self._outstanding) and self._outstanding[0] is request

    def refused(self, request: ReadRequest) -> None:
        """`request` was refused: drop it and the requests after it."""
        if request in self._outstanding:
            while self._outstanding.pop() is not request:
                pass
        self._max_outstanding = 1

    def restart(self) -> None:
        """Drop, after the connection was lost, the first unanswered request and all after it."""
        answered: deque[ReadRequest] = deque()
        # Answered requests behind the first gap are dropped, too: their bytes are requested again.
        for request in self._outstanding:
            if request.data is None:
                break
            answered.append(request)
        self._outstanding = answered
        self._max_outstanding = 1

    def take(self) -> list[Buffer]:
        """Return the bytes that came, from `offset` on without gaps; they count as handed out."""
        pieces: list[Buffer] = []
        while self._outstanding and (data := self._outstanding[0].data) is not None:
            self._outstanding.popleft()
            self.offset += len(data)
            pieces.append(data)
        return pieces


class SegmentFetch:
    """Reads a segment from `start` to `limit` (None: until it is sealed, waiting at the tail).

    `notify(fetch)` is called when there are bytes to `take`, the end was reached, or `failure` was set.
    """

    def __init__(
        self,
        session: Session,
        stream: StreamName,
        segment: SegmentId,
        start: int,
        limit: int | None,
        notify: Callable[[SegmentFetch], None],
        read_bytes: int = SEGMENT_READ_BYTES,
    ) -> None:
        self.segment = segment
        self.place = stream, segment
        self.name = stream.segment(segment)
        self._failure: Exception | None = None
        self.at_tail = False
        self._session = session
        self._stream = stream
        self._notify = notify
        self._window = ReadWindow(start, limit, read_bytes)
        self._pieces: deque[Buffer] = deque()
        self._buffered_bytes = 0
        self._connection: Connection | None = None
        self._token = ""  # none is needed
        self._requests: set[int] = set()
        self._backoff = session.backoff()
        self._closed = False

    def __repr__(self) -> str:
        return f"SegmentFetch({self.name}, {self._window!r}, {self._buffered_bytes} bytes buffered)"

    @property
    def offset(self) -> int:
        """Where the next piece of `take` begins."""
        return self._window.offset - self._buffered_bytes

    @property
    def exhausted(self) -> bool:
        """Whether everything was taken, and no more will come."""
        return self._window.finished and not self._pieces

    @property
    def ready(self) -> bool:
        """Whether there is something to handle: bytes, the end, or a failure."""
        return bool(self._pieces) or self._window.finished or self._failure is not None

    @property
    def failure(self) -> Exception | None:
        """Why nothing more comes, once everything that came before was taken."""
        return None if self._pieces else self._failure

    @property
    def all_taken(self) -> bool:
        """Whether everything was taken, and the last reply came from the tail."""
        return self.at_tail and not self._pieces and self._failure is None

    def start(self) -> None:
        """Begin to fetch."""
        if self._window.finished:
            # An empty range: nothing is requested.
            self._notify(self)
        else:
            self._session.background.spawn(self._connect(), f"read {self.name}")

    def take(self) -> Buffer | None:
        """Return the next bytes, if any came; more are then requested."""
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._buffered_bytes -= len(piece)
        # The buffer has space now: a request that was held back may go.
        self._request_more()
        return piece

    def close(self) -> None:
        """Stop; nothing is notified any more."""
        self._closed = True
        if self._connection is not None:
            for request_id in self._requests:
                self._connection.forget(request_id)
        self._connection = None

    # -- requests -----------------------------------------------------------------------------

    async def _connect(self) -> None:
        while not self._closed:
            self._backoff.begin()
            try:
                found = await self._session.connect(self._stream, self.segment, REQUESTS)
                self._connection, self._token = found
                # A read waits at the tail for as long as nothing is written.
                self._backoff.answered()
                self._request_more()
                return
            except Unavailable as error:
                log.info("%s: %s", self.name, error)
                self._connection = None
                self._session.forget_endpoint(self._stream, self.segment)
                try:
                    await self._backoff.wait(error)
                except SaritError as last:
                    # `_fail` sets `_closed`, which ends the loop.
                    self._fail(last)
            except asyncio.CancelledError:
                # Closing the client cancels this task: the consumer must not wait for ever.
                self._fail(Invalid("the client was closed"))
                raise
            except Exception as error:  # after any error, or the reader would wait for ever
                self._fail(error)

    def _request_more(self) -> None:
        """Send the requests that are due, unless enough is buffered."""
        if self._connection is None or self._closed or self._buffered_bytes >= BUFFERED_READS * self._window.read_bytes:
            return
        self._send(self._window.next_requests())

    def _send(self, requests: list[ReadRequest]) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._token:
            # Renewed meanwhile, if that was due.  One that has expired is refused, and `_connect` gets another.
            self._token = self._session.current_token(self._stream)
        for request in requests:
            sink = _ReplySink(self, request)
            try:
                request_id = connection.expect(sink)
            except Unavailable as error:
                # What is left of `requests` has no data: `restart` drops it.
                self.on_lost(sink, error)
                return
            sink.request_id = request_id
            sink.connection = connection
            self._requests.add(request_id)
            if (traces := self._session.env.traces) is not None:
                sink.trace = traces.of_read(self.name, request.offset, request_id)
                sink.began = self._session.env.clock.monotonic()
            connection.send([encode(ReadSegment(self.name, request.offset, request.length, self._token, request_id))])

    def on_reply(self, sink: _ReplySink, reply: Any) -> None:
        """Take the reply to one request, and send the next ones."""
        self._requests.discard(sink.request_id)
        if self._closed or sink.connection is not self._connection:
            return
        request = sink.request
        if sink.trace is not None:
            self._trace(sink, sink.trace, reply)
        if type(reply) is SegmentRead:
            if self._backoff.running:
                self._backoff.reset()
            self.at_tail = reply.at_tail
            self._send(self._window.answered(request, reply.data, reply.at_tail, reply.end_of_segment))
        elif not self._window.is_first(request):
            self._window.refused(request)  # requested in advance, beyond the end
        elif type(reply) is SegmentIsSealed:
            # Sealed, and nothing from this offset on: the segment ends here.
            self._window.ended(request.offset)
        else:
            error = error_of(reply, self.name)
            if isinstance(error, Unavailable):
                # After WrongHost, for example, the connection is alive, but does not serve this segment any more.
                self.on_lost(sink, error)
            else:
                self._fail(error)
            return
        for piece in self._window.take():
            self._pieces.append(piece)
            self._buffered_bytes += len(piece)
        if self._pieces or self._window.finished:
            self._notify(self)
        self._request_more()

    def _trace(self, sink: _ReplySink, trace: int, reply: Any) -> None:
        env = self._session.env
        assert env.traces is not None
        length = len(reply.data) if type(reply) is SegmentRead else 0
        env.traces.record(
            trace, CLIENT_READ, None, sink.began, env.clock.monotonic(), segment=self.name,
            offset=sink.request.offset, bytes=length, reply=type(reply).__name__,
        )  # fmt: skip

    def on_lost(self, sink: _ReplySink, error: Unavailable) -> None:
        """Request again from the first missing byte, because the connection was lost or the segment moved."""
        if self._closed or self._connection is None or sink.connection is not self._connection:
            return
        # All requests of this fetch were on that connection: no reply to them matters any more.
        for request_id in self._requests:
            self._connection.forget(request_id)
        self._requests.clear()
        self._connection = None
        self._window.restart()
        self._session.forget_endpoint(self._stream, self.segment)
        self._session.background.spawn(self._reconnect(error), f"read {self.name}")

    async def _reconnect(self, error: Unavailable) -> None:
        try:
            await self._backoff.wait(error)
        except asyncio.CancelledError:
            self._fail(Invalid("the client was closed"))
            raise
        except SaritError as last:
            self._fail(last)
            return
        await self._connect()

    def _fail(self, error: Exception) -> None:
        if not self._closed:
            self._failure = error
            self._notify(self)
            self.close()


class _ReplySink:
    """Receives the reply to one request."""

    __slots__ = ("began", "connection", "fetch", "request", "request_id", "trace")

    def __init__(self, fetch: SegmentFetch, request: ReadRequest) -> None:
        self.fetch = fetch
        self.request = request
        self.request_id = 0
        self.trace: int | None = None  # when it is sampled; then `began` counts
        self.began = 0.0
        self.connection: Connection | None = fetch._connection

    @property
    def place(self) -> Place:
        return self.fetch.place

    def reply(self, command: Any) -> bool:
        self.fetch.on_reply(self, command)
        return True

    def lost(self, error: Unavailable) -> None:
        self.fetch.on_lost(self, error)
