"""Segment-level questions and reads: what planners (Spark) and administrators need."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sarit.client.core.connection import REQUESTS
from sarit.client.core.replies import error_of, expect
from sarit.client.core.values import SegmentInfo
from sarit.client.reader.cursor import EventCursor, arrow_schema
from sarit.client.reader.fetch import SegmentFetch
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, NotFound, Unavailable
from sarit.core.limits import REQUEST_TIMEOUT_SECONDS
from sarit.wire.commands import GetStreamSegmentInfo, SegmentTruncated, StreamSegmentInfo, TruncateSegment, WrongHost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    import pyarrow as pa

    from sarit.client.core.session import Session
    from sarit.core.names import SegmentId, StreamName


async def ask_store(
    session: Session, stream: StreamName, segment: SegmentId, make: Callable[[int, str, str], Any]
) -> Any:
    """Ask the store of a segment `make(request_id, segment name, token)`; repeated while Unavailable."""
    name = stream.segment(segment)

    async def once() -> Any:
        try:
            endpoint = await session.endpoint(stream, segment)
            connection = await session.connections.to(endpoint, REQUESTS)
            reply = await connection.ask(lambda request_id: make(request_id, name, ""))
        except Unavailable:
            session.forget_endpoint(stream, segment)
            raise
        if type(reply) is WrongHost:
            session.forget_endpoint(stream, segment)
            raise error_of(reply, name)
        return reply

    return await session.with_retry(once, REQUEST_TIMEOUT_SECONDS)


async def segment_info(session: Session, stream: StreamName, segment: SegmentId) -> SegmentInfo:
    """Start, end and state of a segment.  Raises NotFound, Unavailable."""
    name = stream.segment(segment)
    reply = await ask_store(session, stream, segment, GetStreamSegmentInfo)
    info = expect(reply, StreamSegmentInfo, name)
    if not info.exists or info.is_deleted:
        raise NotFound(f"segment {name} does not exist (any more)")
    return SegmentInfo(segment, info.start_offset, info.write_offset, info.is_sealed, info.last_modified)


async def segment_infos(
    session: Session, stream: StreamName, segments: Iterable[SegmentId]
) -> dict[SegmentId, SegmentInfo]:
    """Infos of those that exist, asked at about one moment."""

    async def one(segment: SegmentId) -> SegmentInfo | None:
        try:
            return await segment_info(session, stream, segment)
        except NotFound:
            return None

    infos = await asyncio.gather(*map(one, segments))
    return {info.segment: info for info in infos if info is not None}


async def truncate_segment(session: Session, stream: StreamName, segment: SegmentId, offset: int) -> None:
    """Forget a segment's bytes below `offset`.  Raises NotFound, Truncated, Invalid."""
    reply = await ask_store(session, stream, segment, lambda i, name, token: TruncateSegment(i, name, offset, token))
    expect(reply, SegmentTruncated, stream.segment(segment))


async def head_cut(session: Session, stream: StreamName) -> StreamCut:
    """The oldest position of a stream.  Raises NotFound."""
    return StreamCut(stream, await session.with_retry(lambda: session.controller.head_segments(stream), 30.0))


async def tail_cut(session: Session, stream: StreamName) -> StreamCut:
    """The position behind the newest event, as of now; of a sealed stream its end.  Raises NotFound."""
    while True:
        ranges = await session.with_retry(lambda: session.controller.current_segments(stream), 30.0)
        if not ranges:
            return await _sealed_end(session, stream)
        segments = [found.segment for found in ranges]
        infos = await segment_infos(session, stream, segments)
        if len(infos) == len(segments):  # otherwise the stream scaled (or was deleted) between the two questions
            return StreamCut(stream, {segment: info.end_offset for segment, info in infos.items()})


async def _sealed_end(session: Session, stream: StreamName) -> StreamCut:
    """The last segments of a sealed stream, at their ends: those found from the head that have no successors."""
    open_ends = list(await session.controller.head_segments(stream))
    last: dict[SegmentId, None] = {}
    seen = set(open_ends)
    while open_ends:
        segment = open_ends.pop()
        following = await session.controller.successors(stream, segment)
        if not following:
            last[segment] = None
        for successor in following:
            if successor.segment not in seen:
                seen.add(successor.segment)
                open_ends.append(successor.segment)
    infos = await segment_infos(session, stream, last)
    return StreamCut(stream, {segment: info.end_offset for segment, info in infos.items()})


async def segment_batches(
    session: Session, stream: StreamName, segment: SegmentId, start: int, end: int | None
) -> AsyncIterator[pa.RecordBatch]:
    """The events of one segment between two offsets as record batches (event, segment, offset).

    `end` None: to the end of the segment, waiting at its tail until it is sealed.  Raises Truncated, NotFound.
    """
    moved = asyncio.Event()
    fetch = SegmentFetch(session, stream, segment, start, end, lambda _: moved.set())
    cursor = EventCursor(segment, start)
    schema = arrow_schema()
    fetch.start()
    try:
        while not fetch.exhausted:
            piece = fetch.take()
            if piece is not None:
                batch = cursor.table(piece, schema)
                if batch is not None:
                    yield batch
                continue
            if fetch.failure is not None:
                raise fetch.failure
            moved.clear()
            if not fetch.ready:
                await moved.wait()
        if cursor.held_bytes:
            raise Corrupt(f"{fetch.name}: offset {end} is in the middle of an event")
    finally:
        fetch.close()
