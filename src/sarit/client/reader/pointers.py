"""Event pointers: the position of one event, to fetch it again.  Java's bytes and text (naming.md par. 5;
`EventPointerImpl`).

    bytes  v0 r0: segment name, offset as compact long, length as compact int
    text   SEGMENT:OFFSET-LENGTH

The length counts the event's header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.core.segments import segment_info
from sarit.client.reader.batch import Slice, as_events, read_slice
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import parse_segment_name
from sarit.core.public import public
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_single, pack_text

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName

_TEXT: Final = re.compile(r"(.+):(\d+)-(\d+)")


@public
@dataclass(frozen=True, slots=True)
class EventPointer:
    """The position of an event; offset and length in bytes, with the header.  Raises Invalid for impossible values."""

    stream: StreamName
    segment: SegmentId
    offset: int
    length: int

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < EVENT_HEADER_BYTES:
            raise Invalid(f"no event can be at offset {self.offset} with {self.length} bytes")

    def __str__(self) -> str:
        return f"{self.stream.segment(self.segment)}:{self.offset}-{self.length}"

    def to_bytes(self) -> bytes:
        """Java's `EventPointer`."""
        name = pack_text(self.stream.segment(self.segment))
        return pack_single(0, {0: name + pack_long(self.offset) + pack_int(self.length)})

    @staticmethod
    def from_bytes(data: bytes) -> EventPointer:
        """Return the inverse.  Raises Invalid."""
        cursor = Cursor(data)
        version, revisions = cursor.single()
        if version != 0 or 0 not in revisions or not cursor.at_end:
            raise Invalid("these bytes are not a pointer to an event")
        fields = Cursor(revisions[0])
        return EventPointer(*parse_segment_name(fields.text()), fields.compact_long(), fields.compact_int())

    @staticmethod
    def parse(text: str) -> EventPointer:
        """Return the inverse of `str`.  Raises Invalid."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise Invalid(f"{text!r} is no pointer to an event: SEGMENT:OFFSET-LENGTH")
        name, offset, length = found.groups()
        return EventPointer(*parse_segment_name(name), int(offset), int(length))


async def fetch(session: Session, pointer: EventPointer) -> bytes:
    """Return the event at a pointer.  Raises Truncated (it was deleted), Invalid (there is no such event),
    Unavailable."""
    name, end = pointer.stream.segment(pointer.segment), pointer.offset + pointer.length
    try:
        info = await segment_info(session, pointer.stream, pointer.segment)
    except NotFound as error:
        raise Truncated(f"{error}: it was truncated away", -1) from None
    if pointer.offset < info.start_offset:
        start = info.start_offset
        raise Truncated(f"the event at {pointer} was truncated away: {name} begins at {start} now", start)
    if end > info.end_offset:
        raise Invalid(f"there is no event at {pointer}: {name} ends at {info.end_offset}")
    events: list[bytes] = []
    try:
        async for piece in read_slice(session, Slice(pointer.stream, pointer.segment, pointer.offset, end), as_events):
            events += piece
    except Corrupt as error:
        raise Invalid(f"there is no event at {pointer}: {error}") from None
    if len(events) != 1:
        raise Invalid(f"there are {len(events)} events at {pointer}, not one")
    return events[0]
