"""The event reader: all segments of a stream from a cut on, in order per key, through all scaling.

Fetches (`fetch.py`) buffer some bytes of every active segment.  The reader takes pieces from the segments that have
any, in turn, and parses them.  Nothing is awaited per event: events come out of a list, and `position` computes the
exact offset when it is called, not before.  `progress.py` decides when successors may begin.

Invariant: a segment is finished, and its successors are requested, when its last event was handed out, not when its
last byte came: a position never lies before an event of a segment it has left.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.client.core.deadline import Once, within
from sarit.client.core.iteration import Items, Mapped, Pulled
from sarit.client.core.typed import V
from sarit.client.limits import MIN_SEGMENT_READ_BYTES, READER_BUFFER_BYTES, SEGMENT_READ_BYTES
from sarit.client.reader.cursor import EventCursor, Events, arrow_schema, check_most
from sarit.client.reader.decoding import DecodedEvents, Decoding
from sarit.client.reader.fetch import SegmentFetch
from sarit.client.reader.progress import Progress
from sarit.client.session.guard import guarded
from sarit.client.session.parts import watch, weakly
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import pyarrow as pa

    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName

    Bounds = Callable[[], Awaitable[tuple[StreamCut, StreamCut | None]]]


T = TypeVar("T")


class _Source:
    """One active segment: its fetch and its parser."""

    __slots__ = ("cursor", "fetch", "queued")

    def __init__(self, fetch: SegmentFetch, cursor: EventCursor) -> None:
        self.fetch = fetch
        self.cursor = cursor
        self.queued = False


@guarded(
    "_session",
    local=("position", "close"),
    unguarded=("client_closed", "next_table", "take_table", "waiting_events"),
)
class EventReader(Generic[V]):
    """Reads one stream.  Create one with `client.reader(...)`; for one task at a time.

    An event (or a batch) counts as consumed once it is handed out.  With a deserializer the events are its values.
    """

    def __init__(
        self,
        session: Session,
        stream: StreamName,
        bounds: Bounds,
        *,
        skip_truncated: bool = False,
        decoding: Decoding[V] | None = None,
    ) -> None:
        self.stream = stream
        self._decoding = decoding
        self._session = session
        self._bounds = Once(bounds)
        self._progress = Progress({}, None)
        self._opened = False
        self._skip_truncated = skip_truncated
        self._sources: dict[SegmentId, _Source] = {}
        # Sources with something to handle; each at most once, by `queued`.
        self._ready: deque[_Source] = deque()
        # The piece being handed out: its events, or the rest of its record batch, and its source.
        self._current: Events | DecodedEvents[V] | None = None
        self._rest_batch: pa.RecordBatch | None = None
        self._source: _Source | None = None
        self._wake: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._ended = False
        self._closed = False
        session.register(self, weakly=True)
        self._unwatch = watch(self, session, f"a reader of {stream}", partial(_close_all, self._sources))

    async def open(self) -> EventReader[V]:
        """Resolve where to start (and end); otherwise the first read does.  Raises NotFound, Unavailable."""
        if not self._opened:
            if self._decoding is not None:
                await self._decoding.open(self.stream)
            start, end = await self._bounds.get()
            if self._closed:
                raise Invalid(f"the reader of {self.stream} is closed")
            self._progress = Progress(start.positions, end.positions if end is not None else None)
            self._open_segments(list(self._progress.positions))
            self._opened = True
        return self

    def __repr__(self) -> str:
        state = self._session.state(closed=self._closed, failed=self._failure is not None)
        return f"EventReader({self.stream}, {state}, {len(self._sources)} segments)"

    # -- reading ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[V]:
        """Return the events, one by one; waits at the tail; stops at the given end, or when the stream is sealed."""
        return Items(Pulled(partial(_left, self)))

    def batches(self) -> AsyncIterator[list[V]]:
        """Return the events in lists, as they come."""
        return Mapped(Pulled(partial(_left, self)), list)

    async def read(self, timeout: float | None = None) -> V | None:
        """Return the next event; None after `timeout` seconds without one, or at the end (`at_end`)."""
        found = self.waiting_events()
        if found is None:
            found = await within(timeout, self._next_events())
        return None if found is None else next(found.left)

    async def read_events(self, most: int = 10_000, timeout: float | None = None) -> list[V]:
        """Return up to `most` events, at least one: an empty list at the end, and after `timeout` seconds without any.

        Raises Invalid (`most` is below 1)."""
        check_most(most)
        # No time-out is set up when events are at hand.
        found = self.waiting_events()
        if found is None:
            found = await within(timeout, self._next_events())
        # The iterator advances: the next call hands out the rest.
        return [] if found is None else list(islice(found.left, most))

    async def read_arrow(self, most: int | None = None, timeout: float | None = None) -> pa.RecordBatch | None:
        """Return up to `most` events as a record batch (event, segment, offset), None at the end.

        After `timeout` seconds without any the batch is empty.  Raises Invalid (`most` is below 1; the reader has a
        deserializer).
        """
        if most is not None:
            check_most(most)
        found = await within(timeout, self.next_table())
        return None if found is False else self.take_table(most)

    async def next_table(self) -> bool:
        """Fetch a record batch, unless one is left, for `take_table` to hand out.  Returns False at the end."""
        if self._decoding is not None:
            raise Invalid(f"the reader of {self.stream} has a deserializer: read record batches with one that has none")
        if self._rest_batch is None:
            self._rest_batch = await self._parsed_table()
        return self._rest_batch is not None

    def take_table(self, most: int | None) -> pa.RecordBatch:
        """Hand out up to `most` events of the record batch that is at hand; none when none is."""
        batch, self._rest_batch = self._rest_batch, None
        if batch is None:
            return _empty(arrow_schema())
        if most is not None and batch.num_rows > most:
            # Slices share the memory of the batch.
            self._rest_batch = batch.slice(most)
            return batch.slice(0, most)
        return batch

    def arrow_batches(self, most: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        """Return the events in record batches, as they come."""
        if most is not None:
            check_most(most)
        return Mapped(Pulled(partial(_has_table, self)), lambda _: self.take_table(most))

    def position(self) -> StreamCut:
        """Return the position after the last event handed out: a reader started here continues with the next event."""
        if not self._opened:
            raise Invalid("the reader has no position before it is opened: call open() first")
        positions = dict(self._progress.positions)
        if self._source is not None:
            cursor = self._source.cursor
            if self._rest_batch is not None:
                # Column 2 is the offset: where the first event not handed out begins.
                positions[cursor.segment] = self._rest_batch.column(2)[0].as_py()
            else:
                positions[cursor.segment] = cursor.offset if self._current is None else self._current.position()
        return StreamCut(self.stream, positions)

    @property
    def at_end(self) -> bool:
        """Whether a read has come to the end: everything up to the given cut was read, or all of a sealed stream."""
        return self._ended

    @property
    def at_tail(self) -> bool:
        """Whether there was nothing more to read when the store last replied.

        False for up to 15 s more when the last fetch happened to end at the very last byte."""
        if not self._opened or self._ready or self._rest_batch is not None or self.waiting_events() is not None:
            return False
        if isinstance(current := self._current, DecodedEvents) and not current.finished:
            return False
        # The blocking client asks on another thread while the loop begins successors: they may not be there yet.
        sources = map(self._sources.get, self._progress.unfinished())
        return all(source is not None and source.fetch.all_taken for source in sources)

    @property
    def skipped(self) -> int:
        """How many events were passed over because the deserializer could not decode them (`on_error`)."""
        return 0 if self._decoding is None else self._decoding.skipped

    def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        self._session.unregister(self)
        self._unwatch()
        for source in self._sources.values():
            source.fetch.close()
        # A read that waits wakes, and raises Invalid.
        self._notify()

    def client_closed(self) -> None:
        """Close the reader, because the client is closed."""
        self.close()

    async def __aenter__(self) -> EventReader[V]:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # -- from pieces to events ------------------------------------------------------------------

    def waiting_events(self) -> Any:
        """Events parsed (and decoded) and not handed out yet, if there are any."""
        return self._current if self._current is not None and self._current.count_left() else None

    async def next_events(self) -> Events | None:
        """Events not handed out yet (at least one), None at the end.  Hand them out through `left`.

        Raises Invalid (the reader has a deserializer)."""
        if self._decoding is not None:
            raise Invalid(f"the reader of {self.stream} has a deserializer: read values with read or read_events")
        found: Events | None = await self._next_events()
        return found

    async def _next_events(self) -> Any:
        # Without the guard of `next_events`: every loop over a reader comes by for each list of events.
        self._session.check()
        if (waiting := self.waiting_events()) is not None:
            return waiting
        if self._rest_batch is not None:
            self._current = self._rest_batch_as_events()
            return self._current
        while True:
            current = self._current
            if (
                self._decoding is not None
                and isinstance(current, DecodedEvents)
                and await self._decoding.fill(self.stream, current)
            ):
                return current
            # The caller asks for more: what it has is consumed.
            self._finish_current()
            source = await self._next_source()
            if source is None:
                return None
            # Nothing is awaited between taking a piece and parsing it: a cancelled call loses no bytes.
            piece = source.fetch.take()
            if piece is not None:
                self._current = found = _parsed(self, source.cursor.events, piece)
                self._source = source
                if found is not None:
                    if self._decoding is None:
                        return found
                    self._current = DecodedEvents(found)

    async def _parsed_table(self) -> pa.RecordBatch | None:
        schema = arrow_schema()  # before anything is taken: pyarrow may be missing
        # Events that were parsed for another method go out first.
        if isinstance(self._current, Events) and (left := self._current.table(schema)) is not None:
            return left
        while True:
            self._finish_current()
            source = await self._next_source()
            if source is None:
                return None
            piece = source.fetch.take()
            if piece is not None:
                batch = _parsed(self, source.cursor.table, piece, schema)
                self._source = source
                if batch is not None:
                    return batch

    def _rest_batch_as_events(self) -> Events:
        assert self._rest_batch is not None
        assert self._source is not None
        rest, self._rest_batch = self._rest_batch, None
        cursor = self._source.cursor
        return Events(cursor.segment, rest.column(2)[0].as_py(), cursor.offset, rest.column(0).to_pylist())

    def _finish_current(self) -> None:
        """Record that the events handed out last are consumed, and finish their segment if that was its end."""
        self._current = None
        source, self._source = self._source, None
        if source is None:
            return
        segment = source.cursor.segment
        self._progress.positions[segment] = source.cursor.offset
        if source.fetch.exhausted:
            self._finish(source)
        else:
            # To the end of the queue: segments take turns.
            self._enqueue(source)

    # -- which segments -----------------------------------------------------------------------

    def _open_segments(self, segments: list[SegmentId]) -> None:
        count = max(len(self._sources) + len(segments), 1)
        # Each segment may buffer two reads, and all share READER_BUFFER_BYTES.  Open ones keep their size.
        read_bytes = min(max(READER_BUFFER_BYTES // (2 * count), MIN_SEGMENT_READ_BYTES), SEGMENT_READ_BYTES)
        on_fetched = weakly(self._on_fetched)
        for segment in segments:
            offset = self._progress.positions[segment]
            limit = self._progress.limit(segment)
            fetch = SegmentFetch(self._session, self.stream, segment, offset, limit, on_fetched, read_bytes)
            self._sources[segment] = _Source(fetch, EventCursor(segment, offset))
            # Add the source before its fetch starts: an empty range notifies `_on_fetched` at once, which needs it.
            fetch.start()

    def _on_fetched(self, fetch: SegmentFetch) -> None:
        source = self._sources.get(fetch.segment)
        if source is not None and source.fetch is fetch:
            self._enqueue(source, always=True)

    def _enqueue(self, source: _Source, *, always: bool = False) -> None:
        if not source.queued and (always or source.fetch.ready):
            source.queued = True
            self._ready.append(source)
            self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _next_source(self) -> _Source | None:
        """Return a source that has bytes; finished and failed sources on the way are handled."""
        await self.open()
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise Invalid(f"the reader of {self.stream} is closed")
            while self._ready:
                source = self._ready.popleft()
                source.queued = False
                if source.fetch.failure is not None:
                    self._failed(source, source.fetch.failure)
                elif source.fetch.exhausted:
                    self._finish(source)
                elif source.fetch.ready:
                    return source
                if self._failure is not None:
                    raise self._failure
            if self._progress.done:
                # Nothing more comes, and few users close what is at its end.
                self._session.unregister(self)
                self._unwatch()
                self._ended = True
                return None
            # No await since `_ready` was found empty: no notification is missed.
            self._wake = self._session.loop.create_future()
            # Held while it waits: nothing else refers to a task that only this future wakes.
            parts = self._session.parts
            parts.waiting[self] = None
            try:
                await self._wake
            finally:
                parts.waiting.pop(self, None)

    def _finish(self, source: _Source) -> None:
        segment = source.cursor.segment
        # The source may be finished already: it can still be queued when its last piece was consumed.
        if self._sources.pop(segment, None) is None:
            return
        if source.cursor.partial_bytes:
            self._failure = Corrupt(f"{source.fetch.name} ends at {source.cursor.offset} in the middle of an event")
            return
        source.fetch.close()
        if self._progress.stops_at_limit(segment):
            self._progress.finished(segment)
        else:
            # Ask for the successors in the background, while the other segments are read.
            self._session.background.spawn(self._open_successors(segment), f"successors of {source.fetch.name}")

    async def _open_successors(self, segment: SegmentId) -> None:
        """Open the successors that may begin now that a segment was read to its end."""
        controller = self._session.controller
        try:
            successors = await self._session.with_retry(lambda: controller.successors(self.stream, segment))
            if not self._closed:
                self._open_segments(self._progress.followed(segment, successors))
        except Exception as error:  # after any error, or the reader would wait for the successors for ever
            self._failure = error
        self._notify()

    def _failed(self, source: _Source, error: Exception) -> None:
        segment, name = source.cursor.segment, source.fetch.name
        del self._sources[segment]
        if not isinstance(error, Truncated | NotFound):
            self._failure = error
        elif self._skip_truncated and isinstance(error, Truncated):
            # Truncated, but not deleted: go on where the segment begins now.
            self._progress.positions[segment] = error.start_offset
            self._open_segments([segment])
        elif self._skip_truncated and self._progress.stops_at_limit(segment):
            # The segment was deleted, and the reader ends in it, so nothing of it is left to read.
            self._progress.finished(segment)
        elif self._skip_truncated:
            # The segment was deleted: go on as if it had been read to its end.
            self._session.background.spawn(self._open_successors(segment), f"successors of {name}")
        else:
            start = error.start_offset if isinstance(error, Truncated) else -1
            what = f"begins at {start} now" if start >= 0 else "is gone"
            self._failure = Truncated(
                f"the reader is at offset {source.cursor.offset} of {name}, which was truncated and {what}: "
                "start at the head (or at a later position), or read with skip_truncated=True",
                start,
            )


async def _left(reader: EventReader[V]) -> Iterator[V] | None:
    current = await reader._next_events()
    return None if current is None else current.left


async def _has_table(reader: EventReader[V]) -> bool | None:
    return await reader.next_table() or None


def _parsed(reader: EventReader[V], parse: Callable[..., T], *piece: Any) -> T:
    """Return the events of a piece.  An error ends the reader: what follows would be parsed from inside an event."""
    try:
        return parse(*piece)
    except Exception as error:
        reader._failure = error
        raise


def _close_all(sources: dict[SegmentId, _Source]) -> None:
    for source in sources.values():
        source.fetch.close()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
