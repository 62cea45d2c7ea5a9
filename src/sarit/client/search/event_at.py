"""One event by its place: the first read has a short event whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core.replies import expect
from sarit.client.core.segments import ask_store
from sarit.client.limits import SEARCH_EVENT_BYTES
from sarit.client.reader import pointers
from sarit.client.reader.pointers import EventPointer
from sarit.core.errors import NotFound, Truncated
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.wire.commands import ReadSegment, SegmentRead

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


async def event_at(
    session: Session, stream: StreamName, segment: SegmentId, offset: int
) -> tuple[EventPointer, bytes] | None:
    """Return the event whose header begins at an offset; None: it was truncated.  Raises Invalid, Corrupt,
    Unavailable."""
    try:
        reply = await ask_store(
            session, stream, segment, lambda i, name, token: ReadSegment(name, offset, SEARCH_EVENT_BYTES, token, i)
        )
        data = bytes(expect(reply, SegmentRead, stream.segment(segment)).data)
        end = EVENT_HEADER_BYTES + int.from_bytes(data[4:EVENT_HEADER_BYTES], "big")
        pointer = EventPointer(stream, segment, offset, end)
        if len(data) >= end:
            return pointer, data[EVENT_HEADER_BYTES:end]
        return pointer, await pointers.fetch(session, pointer)
    except (NotFound, Truncated):
        return None
