"""Bytes of one segment, fetched ahead of their consumer (the asyncio side of `spans.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.connection import REQUESTS, Connection
from sarit.client.core.replies import error_of
from sarit.client.reader.spans import Span, Spans
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import KIB, MIB
from sarit.wire.commands import ReadSegment, SegmentIsSealed, SegmentRead, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.core.session import Session
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Buffer

log = logging.getLogger(__name__)

READ_BYTES: Final = MIB - 4 * KIB  # with its envelope still below the pieces that `FrameReader` receives in
LEAST_READ_BYTES: Final = 16 * KIB
BUFFERED_READS: Final = 2


class SegmentFetch:
    """Reads a segment from `start` to `limit` (None: until it is sealed, waiting at the tail).

    `notify(fetch)` is called when there is something to `take`, the end was reached, or it `failed`.
    """

    def __init__(
        self,
        session: Session,
        stream: StreamName,
        segment: SegmentId,
        start: int,
        limit: int | None,
        notify: Callable[[SegmentFetch], None],
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.segment = segment
        self.name = stream.segment(segment)
        self.failure: Exception | None = None
        self.at_tail = False
        self._session = session
        self._stream = stream
        self._notify = notify
        self._spans = Spans(start, limit, read_bytes)
        self._pieces: deque[Buffer] = deque()
        self._held_bytes = 0
        self._connection: Connection | None = None
        self._requests: set[int] = set()
        self._backoff = session.backoff()
        self._closed = False

    def __repr__(self) -> str:
        return f"SegmentFetch({self.name}, {self._spans!r}, {self._held_bytes} bytes held)"

    @property
    def offset(self) -> int:
        """Where the next piece of `take` begins."""
        return self._spans.offset - self._held_bytes

    @property
    def exhausted(self) -> bool:
        """Whether everything was taken, and no more will come."""
        return self._spans.finished and not self._pieces

    @property
    def ready(self) -> bool:
        """Whether there is something to see to: bytes, the end, or a failure."""
        return bool(self._pieces) or self._spans.finished or self.failure is not None

    @property
    def all_taken(self) -> bool:
        """Whether, at last sight, everything there is was taken."""
        return self.at_tail and not self._pieces and self.failure is None

    def start(self) -> None:
        """Begin to fetch."""
        if self._spans.finished:
            self._notify(self)
        else:
            self._session.background.spawn(self._connect(), f"read {self.name}")

    def take(self) -> Buffer | None:
        """The next bytes, if any came; makes room for more to be fetched."""
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._held_bytes -= len(piece)
        self._ask()
        return piece

    def close(self) -> None:
        """Stop; nothing is notified any more."""
        self._closed = True
        if self._connection is not None:
            for request_id in self._requests:
                self._connection.machine.forget(request_id)
        self._connection = None

    # -- requests -----------------------------------------------------------------------------

    async def _connect(self) -> None:
        while not self._closed:
            try:
                endpoint = await self._session.endpoint(self._stream, self.segment)
                self._connection = await self._session.connections.to(endpoint, REQUESTS)
                self._ask()
                return
            except Unavailable as error:
                log.info("%s: %s", self.name, error)
                self._connection = None
                self._session.forget_endpoint(self._stream, self.segment)
                try:
                    await self._backoff.wait(error)
                except SaritError as last:
                    self._fail(last)
            except asyncio.CancelledError:
                self._fail(Invalid("the client was closed"))
                raise
            except Exception as error:  # any: whoever reads would wait for ever for what is not fetched
                self._fail(error)

    def _ask(self) -> None:
        """Make the requests that are due."""
        if self._connection is None or self._closed or self._held_bytes >= BUFFERED_READS * self._spans.read_bytes:
            return
        self._send(self._spans.wanted())

    def _send(self, spans: list[Span]) -> None:
        connection = self._connection
        if connection is None:
            return
        for span in spans:
            sink = _ReadSink(self, span)
            try:
                request_id = connection.expect(sink)
            except Unavailable as error:
                self.on_lost(sink, error)
                return
            sink.request_id = request_id
            sink.connection = connection
            self._requests.add(request_id)
            connection.send([encode(ReadSegment(self.name, span.offset, span.length, "", request_id))])

    def on_reply(self, sink: _ReadSink, reply: Any) -> None:
        """The answer to one request."""
        self._requests.discard(sink.request_id)
        if self._closed or sink.connection is not self._connection:
            return
        span = sink.span
        if type(reply) is SegmentRead:
            self._backoff.reset()
            self.at_tail = reply.at_tail
            self._send(self._spans.answered(span, reply.data, reply.at_tail, reply.end_of_segment))
        elif not self._spans.is_first(span):
            self._spans.withdrawn(span)  # asked in advance, beyond the end
        elif type(reply) is SegmentIsSealed:
            self._spans.ended(span.offset)
        else:
            error = error_of(reply, self.name)
            if isinstance(error, Unavailable):
                self.on_lost(sink, error)
            else:
                self._fail(error)
            return
        for piece in self._spans.take():
            self._pieces.append(piece)
            self._held_bytes += len(piece)
        if self._pieces or self._spans.finished:
            self._notify(self)
        self._ask()

    def on_lost(self, sink: _ReadSink, error: Unavailable) -> None:
        """The connection of a request ended, or the segment is elsewhere: begin anew where we are."""
        if self._closed or self._connection is None or sink.connection is not self._connection:
            return
        for request_id in self._requests:
            self._connection.machine.forget(request_id)
        self._requests.clear()
        self._connection = None
        self._spans.restart()
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
            self.failure = error
            self._notify(self)
            self.close()


class _ReadSink:
    """Who waits for the answer to one request."""

    __slots__ = ("connection", "fetch", "request_id", "span")

    def __init__(self, fetch: SegmentFetch, span: Span) -> None:
        self.fetch = fetch
        self.span = span
        self.request_id = 0
        self.connection: Connection | None = fetch._connection

    def reply(self, command: Any) -> bool:
        self.fetch.on_reply(self, command)
        return True

    def lost(self, error: Unavailable) -> None:
        self.fetch.on_lost(self, error)
