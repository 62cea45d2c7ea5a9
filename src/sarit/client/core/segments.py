"""Requests about single segments, and the cuts they make up: for planners (Spark), readers and administrators."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.client.core.connection import REQUESTS
from sarit.client.core.replies import error_of, expect
from sarit.client.core.values import SegmentInfo
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.env.background import gather
from sarit.wire.commands import GetStreamSegmentInfo, SegmentTruncated, StreamSegmentInfo, TruncateSegment, WrongHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.client.core.values import Cut
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


async def ask_store(
    session: Session,
    stream: StreamName,
    segment: SegmentId,
    make: Callable[[int, str, str], Any],
    *,
    waits: bool = False,
) -> Any:
    """Ask the store of a segment `make(request_id, segment name, token)`; repeated while Unavailable.

    `waits`: the store replies when something happens: an attempt ends with its connection alone."""
    name = stream.segment(segment)

    async def once() -> Any:
        try:
            connection, token = await session.connect(stream, segment, REQUESTS)
            reply = await connection.ask(lambda request_id: make(request_id, name, token), (stream, segment))
        except Unavailable:
            # The store may be down, or the segment elsewhere: the next attempt asks the controller.
            session.forget_endpoint(stream, segment)
            raise
        if type(reply) is WrongHost:
            session.forget_endpoint(stream, segment)
            raise error_of(reply, name)
        return reply

    return await (session.with_retry_of_wait(once) if waits else session.with_retry(once))


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
    """Infos of those that exist, requested concurrently."""

    async def one(segment: SegmentId) -> SegmentInfo | None:
        try:
            return await segment_info(session, stream, segment)
        except NotFound:
            return None

    infos = await gather(*map(one, segments))
    return {info.segment: info for info in infos if info is not None}


async def truncate_segment(session: Session, stream: StreamName, segment: SegmentId, offset: int) -> None:
    """Truncate a segment at `offset`.  Raises NotFound, Truncated, Invalid."""
    reply = await ask_store(session, stream, segment, lambda i, name, token: TruncateSegment(i, name, offset, token))
    expect(reply, SegmentTruncated, stream.segment(segment))


async def resolve_cut(session: Session, stream: StreamName, which: Cut) -> StreamCut | None:
    """ "head", "tail", the text of a cut, or a cut, as a cut; None for none.  Raises NotFound, Invalid."""
    if which == "head":
        return await head_cut(session, stream)
    if which == "tail":
        return await tail_cut(session, stream)
    found = cuts.from_text(which) if isinstance(which, str) else which
    if found is not None and found.stream != stream:
        raise Invalid(f"that is a cut of {found.stream}, not of {stream}")
    return found


async def head_cut(session: Session, stream: StreamName) -> StreamCut:
    """Return the oldest position of a stream.  Raises NotFound."""
    return StreamCut(stream, await session.with_retry(lambda: session.controller.head_segments(stream)))


async def tail_cut(session: Session, stream: StreamName) -> StreamCut:
    """Return the position after the newest event, as of now; of a sealed stream its end.  Raises NotFound."""
    while True:
        ranges = await session.with_retry(lambda: session.controller.current_segments(stream))
        if not ranges:
            return await _sealed_end(session, stream)
        segments = [found.segment for found in ranges]
        infos = await segment_infos(session, stream, segments)
        if len(infos) == len(segments):  # otherwise the stream was scaled (or deleted) between the two requests
            return StreamCut(stream, {segment: info.end_offset for segment, info in infos.items()})


async def _sealed_end(session: Session, stream: StreamName) -> StreamCut:
    """Return the last segments of a sealed stream, at their ends: those found from the head that have no successors."""
    open_ends = list(await session.with_retry(lambda: session.controller.head_segments(stream)))
    last: dict[SegmentId, None] = {}
    seen = set(open_ends)
    while open_ends:
        segment = open_ends.pop()
        following = await session.with_retry(partial(session.controller.successors, stream, segment))
        if not following:
            last[segment] = None
        for successor in following:
            # The segment of a merge follows several: visit it once.
            if successor.segment not in seen:
                seen.add(successor.segment)
                open_ends.append(successor.segment)
    infos = await segment_infos(session, stream, last)
    return StreamCut(stream, {segment: info.end_offset for segment, info in infos.items()})
