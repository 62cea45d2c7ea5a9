"""Event boundaries of a segment: as its store knows them, without reading, or every one of a few bytes.

The store answers LocateOffset with the smallest offset at or after a target where it knows that an append began.  It
knows one at least every BOUNDARY_STEP_BYTES, also of bytes in long-term storage; where an append is longer, the next
one.  An append is whole events, so each is an event boundary.  (Sarit's client and the official ones write an event
that is too long for an append into a transient segment, which is merged: only the first of its appends counts.)

Pravega's own server has LocateOffset from 0.14 on.  Its answers may be coarser, up to the end of the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.client.core.framing import missing_bytes, run_of
from sarit.client.core.replies import expect
from sarit.client.core.segments import ask_store
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.env.background import gather
from sarit.wire.commands import LocateOffset, OffsetLocated, ReadSegment, SegmentRead

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName

# Requests in flight at once.
_WINDOW: Final = 64


async def locate(session: Session, stream: StreamName, segment: SegmentId, offset: int) -> int:
    """Return an event boundary at or after `offset`, at most the segment's end.  Raises NotFound."""
    reply = await ask_store(session, stream, segment, lambda i, name, token: LocateOffset(i, name, offset, token))
    return int(expect(reply, OffsetLocated, stream.segment(segment)).offset)


async def boundaries(
    session: Session, stream: StreamName, segment: SegmentId, start: int, end: int, step_bytes: int
) -> list[int]:
    """Event boundaries strictly between two offsets, ascending, about `step_bytes` apart.  Raises NotFound, Invalid."""
    if start > end:
        raise Invalid(f"no range of a segment goes from {start} to {end}")
    found: list[int] = []
    target = start + step_bytes
    while target < end:
        targets = range(target, end, step_bytes)[:_WINDOW]
        located = await gather(*(locate(session, stream, segment, offset) for offset in targets))
        # Several targets may have one answer: in a long event, or where the store knows few boundaries.
        last = found[-1] if found else start
        for offset in located:
            if last < offset < end:
                found.append(offset)
                last = offset
        reached = max(located[-1], targets[-1])
        # The first target of the same grid that is beyond all answers.
        target = start + ((reached - start) // step_bytes + 1) * step_bytes
    return found


async def event_ends(
    session: Session, stream: StreamName, segment: SegmentId, start: int, end: int, max_bytes: int
) -> list[int]:
    """Return where the events between two boundaries end, as far as `max_bytes` bytes show.

    Raises NotFound, Truncated, Invalid, Corrupt."""
    if start > end:
        raise Invalid(f"no range of a segment goes from {start} to {end}")
    data = b""
    wanted = min(max_bytes, end - start)
    while len(data) < wanted:
        read = await _read(session, stream, segment, start + len(data), wanted - len(data))
        data += bytes(read.data[: wanted - len(data)])
        if read.end_of_segment:
            break
    return [start + at for at in _ends(data)]


async def _read(session: Session, stream: StreamName, segment: SegmentId, offset: int, length: int) -> SegmentRead:
    reply = await ask_store(
        session, stream, segment, lambda i, name, token: ReadSegment(name, offset, length, token, i)
    )
    read = expect(reply, SegmentRead, stream.segment(segment))
    assert isinstance(read, SegmentRead)
    return read


def _ends(data: bytes) -> list[int]:
    """Return where the events of `data` end; of the last one the header may be all that is there.  Raises Corrupt."""
    found: list[int] = []
    at = 0
    while True:
        count, length = run_of(data, at)
        if not count:
            break
        stride = EVENT_HEADER_BYTES + length
        found += range(at + stride, at + count * stride + 1, stride)
        at += count * stride
    if len(data) - at >= EVENT_HEADER_BYTES:
        found.append(len(data) + missing_bytes(data, at))
    return found
