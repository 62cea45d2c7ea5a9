"""Batch reading: everything between two stream cuts, all segments at once, in no order.

The range of history is fixed: every segment between the cuts is an independent *slice*.  Slices can be read
concurrently, here or in another process (a `Slice` can be pickled; `read_slice` takes one).  Events of one slice come
in order; across slices, and so across the segments of one key, they do not.  Writes and scaling do not change what is
between two cuts.  A truncation does: the reader then raises Truncated, or skips what is gone if the caller allowed it.

`next_cut` divides history into such ranges: a cut about a given number of bytes further on.  It finds event boundaries
by walking the headers from the last known boundary, which reads everything between.  Alternatively it asks the store
(`boundaries.py`), which reads nothing: steps are longer then, by up to BOUNDARY_STEP_BYTES.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sarit.client.core.deadline import within
from sarit.client.core.iteration import Items, Resumed
from sarit.client.core.segments import segment_infos
from sarit.client.limits import SEGMENT_READ_BYTES
from sarit.client.reader.boundaries import locate
from sarit.client.reader.cursor import BoundaryWalk, EventCursor, arrow_schema
from sarit.client.reader.fetch import SegmentFetch
from sarit.client.reader.progress import Progress
from sarit.client.session.guard import guarded
from sarit.client.streams import history
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.public import public
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

    import pyarrow as pa

    from sarit.client.core.values import SegmentInfo, Successor
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Buffer

DEFAULT_PARALLEL: Final = 8
PIECES_AHEAD: Final = 2

T = TypeVar("T")


@public
@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of one segment between two event boundaries."""

    stream: StreamName
    segment: SegmentId
    start: int
    end: int

    @property
    def length(self) -> int:
        """How many bytes, headers of events included."""
        return self.end - self.start


def slice_of(
    stream: StreamName, segment: SegmentId, start: StreamCut, end: StreamCut, info: SegmentInfo | None
) -> Slice:
    """Return the part of a segment between two cuts (pure); `info` None: it was deleted.  Raises Truncated, Invalid."""
    first = start.positions.get(segment, 0)
    name = stream.segment(segment)
    if info is None:
        raise Truncated(f"segment {name} lies between the cuts, but was truncated and deleted", -1)
    last = end.positions.get(segment, info.end_offset)
    if last > info.end_offset or first > last:
        raise Invalid(f"the cuts are at {first} and {last} of {name}, which ends at {info.end_offset}")
    if first < info.start_offset:
        raise Truncated(
            f"{name} was to be read from {first}, but was truncated and begins at {info.start_offset} now: "
            "begin at a later cut, or read with skip_truncated=True",
            info.start_offset,
        )
    return Slice(stream, segment, first, last)


def remaining_after(part: Slice, error: Truncated) -> Slice | None:
    """Return the part of a slice that a truncation has left (pure); None: nothing.

    Reading it repeats no event: what was handed out before lies below the new start of the segment."""
    if not part.start < error.start_offset < part.end:
        return None
    return replace(part, start=error.start_offset)


async def slices_between(
    session: Session, start: StreamCut, end: StreamCut, *, skip_truncated: bool = False
) -> list[Slice]:
    """Return the slices between two cuts, empty ones left out.  Raises NotFound, Invalid, Truncated (unless
    skipped)."""
    stream = start.stream
    wanted = await history.between(session, start, end)
    infos = await segment_infos(session, stream, wanted)
    found: list[Slice] = []
    for segment in wanted:
        try:
            part = slice_of(stream, segment, start, end, infos.get(segment))
        except Truncated as error:
            if not skip_truncated:
                raise
            # The segment was deleted, so nothing of it is left.
            if error.start_offset < 0:
                continue
            last = end.positions.get(segment, infos[segment].end_offset)
            # Truncated past the end of the slice: then it is empty, and left out.
            part = Slice(stream, segment, min(error.start_offset, last), last)
        if part.length:
            found.append(part)
    return found


async def _pieces(session: Session, part: Slice, read_bytes: int) -> AsyncGenerator[Buffer, None]:
    """Yield the bytes of a slice, in pieces."""
    moved = asyncio.Event()
    fetch = SegmentFetch(session, part.stream, part.segment, part.start, part.end, lambda _: moved.set(), read_bytes)
    fetch.start()
    try:
        while not fetch.exhausted:
            piece = fetch.take()
            if piece is not None:
                yield piece
                continue
            if fetch.failure is not None:
                raise fetch.failure
            if not fetch.ready:
                moved.clear()
                await moved.wait()
    finally:
        fetch.close()


async def read_slice(
    session: Session, part: Slice, parse: Callable[[EventCursor, Buffer], T | None],
    read_bytes: int = SEGMENT_READ_BYTES,
) -> AsyncGenerator[T, None]:  # fmt: skip
    """Read a slice; each piece, of at most `read_bytes`, is parsed by `parse`.

    Raises Truncated, NotFound, Corrupt (an end inside an event)."""
    cursor = EventCursor(part.segment, part.start)
    try:
        async with aclosing(_pieces(session, part, read_bytes)) as pieces:
            async for piece in pieces:
                parsed = parse(cursor, piece)
                if parsed is not None:
                    yield parsed
    except NotFound as error:
        raise Truncated(f"{error}: it was truncated away", -1) from None
    if cursor.partial_bytes:
        raise Corrupt(f"{part.stream.segment(part.segment)}: offset {part.end} is in the middle of an event")


def as_events(cursor: EventCursor, piece: Buffer) -> list[bytes] | None:
    """Parse a piece into a list of events."""
    found = cursor.events(piece)
    return None if found is None else list(found.left)


def as_arrow() -> Callable[[EventCursor, Buffer], pa.RecordBatch | None]:
    """Return a parser of pieces into record batches (event, segment, offset)."""
    schema = arrow_schema()
    return lambda cursor, piece: cursor.table(piece, schema)


@dataclass(frozen=True, slots=True)
class _WorkerEnded:
    """A worker has finished, or failed."""

    failure: Exception | None


class _ParallelRead(Generic[T]):
    """Reads several slices concurrently and hands out their parts as they come; the queue between is bounded."""

    def __init__(
        self,
        session: Session,
        slices: list[Slice],
        parse: Callable[[EventCursor, Buffer], T | None],
        parallel: int,
        skip_truncated: bool,
    ) -> None:
        self._session = session
        # The longest first: no worker is left alone with a long slice at the end.
        self._left = deque(sorted(slices, key=lambda part: -part.length))
        self._parse = parse
        self._skip_truncated = skip_truncated
        self._parts: asyncio.Queue[T | _WorkerEnded] = asyncio.Queue(PIECES_AHEAD * parallel)
        self._parallel = min(parallel, len(slices))

    async def run(self) -> AsyncGenerator[T, None]:
        """Yield all parts, in no order.  The first failure ends the whole."""
        tasks = [asyncio.ensure_future(self._run_worker()) for _ in range(self._parallel)]
        running = len(tasks)
        try:
            while running:
                part = await self._parts.get()
                if not isinstance(part, _WorkerEnded):
                    yield part
                    continue
                if part.failure is not None:
                    raise part.failure
                running -= 1
        finally:
            # The consumer may stop early: workers that wait in `put` end by the cancellation.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_worker(self) -> None:
        failure: Exception | None = None
        try:
            while self._left:
                await self._read(self._left.popleft())
        except Exception as error:
            failure = error
        # Through the queue, so that it comes after all parts of this worker.
        await self._parts.put(_WorkerEnded(failure))

    async def _read(self, part: Slice) -> None:
        rest: Slice | None = part
        while rest is not None:
            try:
                async with aclosing(read_slice(self._session, rest, self._parse)) as parts:
                    async for parsed in parts:
                        await self._parts.put(parsed)
                return
            except Truncated as error:
                if not self._skip_truncated:
                    raise
                rest = remaining_after(rest, error)


@guarded("_session")
class BatchReader:
    """Everything between two cuts, in no order.  Create one with `client.stream(...).batch(...)`.

    `slices` lists what there is to read; every method reads all of it, and `read` goes on from call to call.
    `parallel` slices are read concurrently."""

    def __init__(self, session: Session, slices: list[Slice], parallel: int, *, skip_truncated: bool) -> None:
        if parallel < 1:
            raise Invalid(f"{parallel} slices cannot be read concurrently: give 1 or more")
        self.slices = tuple(slices)
        self._session = session
        self._parallel = parallel
        self._skip_truncated = skip_truncated
        # Of `read`: the lists of events, and those of the last one that are not handed out yet.
        self._lists: AsyncIterator[list[bytes]] | None = None
        self._left: Iterator[bytes] = iter(())
        self._ended = False

    def __repr__(self) -> str:
        return f"BatchReader({self._session.state()}, {len(self.slices)} slices, {self.total_bytes} bytes)"

    @property
    def total_bytes(self) -> int:
        """How much there is to read, headers of events included."""
        return sum(part.length for part in self.slices)

    @property
    def at_end(self) -> bool:
        """Whether `read` has come to the end."""
        return self._ended

    async def read(self, timeout: float | None = None) -> bytes | None:
        """Return the next event; None after `timeout` seconds without one, or at the end (`at_end`).  Raises
        Truncated."""
        event = next(self._left, None)
        if event is None and await within(timeout, self._has_left()):
            event = next(self._left)
        return event

    async def _has_left(self) -> bool:
        """Fetch the next list of events.  Returns False at the end.  A cancelled call loses nothing."""
        if self._lists is None:
            self._lists = self.batches()
        found = await anext(self._lists, None)
        self._ended = found is None
        self._left = iter(found or ())
        return found is not None

    def arrow_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Record batches (event, segment, offset); those of one segment in order.  Raises Truncated."""
        return self._read_parallel(as_arrow())

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Lists of events; those of one segment in order.  Raises Truncated."""
        return self._read_parallel(as_events)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the events one by one.  Raises Truncated."""
        return Items(self.batches())

    def _read_parallel(self, parse: Callable[[EventCursor, Buffer], T | None]) -> AsyncIterator[T]:
        read = _ParallelRead(self._session, list(self.slices), parse, self._parallel, self._skip_truncated)
        return Resumed(read.run())


# -- the next cut ---------------------------------------------------------------------------------


async def next_cut(session: Session, start: StreamCut, distance_bytes: int, *, approximate: bool = False) -> StreamCut:
    """Return a cut about `distance_bytes` after `start`, divided evenly over its segments; `start` itself at the tail.

    Successors replace segments that are sealed and read to their ends, once all their predecessors are.
    `approximate`: ask the store, see above.  Raises NotFound, Invalid, Truncated."""
    if distance_bytes < 1:
        raise Invalid(f"the distance to the next cut must be 1 byte or more, not {distance_bytes}")
    stream = start.stream
    progress = Progress(start.positions, None)
    ended: set[SegmentId] = set()
    while True:
        # Go on in rounds, because a successor may itself be sealed and empty.
        infos = await segment_infos(session, stream, progress.positions)
        newly_ended = [
            s for s, at in progress.positions.items() if s not in ended and _is_finished(infos.get(s), s, at, stream)
        ]
        if not newly_ended:
            break
        for segment in newly_ended:
            ended.add(segment)
            progress.followed(segment, await _successors(session, stream, segment))
    open_segments = [segment for segment in progress.positions if segment not in ended]
    if not open_segments:
        return StreamCut(stream, progress.positions)
    # 1 byte at least: the cut must move on.
    step = max(distance_bytes // len(open_segments), 1)

    async def one(segment: SegmentId) -> int:
        at, end = progress.positions[segment], infos[segment].end_offset
        if approximate:
            return end if at + step >= end else min(await locate(session, stream, segment, at + step), end)
        return await _boundary_after(session, Slice(stream, segment, at, end), at + step)

    located = await gather(*map(one, open_segments))
    return StreamCut(stream, progress.positions | dict(zip(open_segments, located, strict=True)))


async def _boundary_after(session: Session, part: Slice, target: int) -> int:
    """Return the first event boundary of a slice at or after `target`; its last boundary if there is none."""
    walk = BoundaryWalk(part.start, target)
    try:
        async with aclosing(_pieces(session, part, SEGMENT_READ_BYTES)) as pieces:
            async for piece in pieces:
                if walk.feed(piece):
                    break
    except NotFound as error:
        raise Truncated(f"{error}: it was truncated away", -1) from None
    return walk.last


async def _successors(session: Session, stream: StreamName, segment: SegmentId) -> list[Successor]:
    return await session.with_retry(lambda: session.controller.successors(stream, segment))


def _is_finished(info: SegmentInfo | None, segment: SegmentId, offset: int, stream: StreamName) -> bool:
    """Return whether a segment is sealed and `offset` its end.  Raises Truncated."""
    name = stream.segment(segment)
    if info is None:
        raise Truncated(f"the cut is in segment {name}, which was truncated and deleted", -1)
    if offset < info.start_offset:
        raise Truncated(f"the cut is at {offset} of {name}, which begins at {info.start_offset} now", info.start_offset)
    return info.sealed and offset >= info.end_offset
