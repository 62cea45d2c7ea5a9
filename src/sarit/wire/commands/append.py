"""Commands that write events.  `wire/frames.py` reads the frequent ones (3, 4) without making these objects.

Writer ids are 16 bytes, event numbers those of the writer, offsets bytes of the segment.
Blocks hold what is stored, verbatim: events with their 8-byte headers, or the bytes of a byte stream.
"""

from typing import Annotated, Final

from sarit.env.ports import Buffer
from sarit.wire.commands.registry import HEADER, Command, command
from sarit.wire.errors import ProtocolError
from sarit.wire.primitives import Blob, Int, Long, Name, Rest, Text, Uuid

_EVENT: Final = 0


class _EventCodec:
    """The header of an Event frame, then its data; the field's value is the data alone."""

    def write(self, value: Buffer, out: list[Buffer]) -> None:
        out.append(HEADER.pack(_EVENT, len(value)))
        out.append(value)

    def read(self, payload: Buffer, at: int) -> tuple[Buffer, int]:
        start = at + HEADER.size
        if len(payload) < start:
            raise ProtocolError("the header of the event is cut short")
        code, length = HEADER.unpack_from(payload, at)
        if code != _EVENT or length < 0:
            raise ProtocolError(f"type {code}, length {length} is no header of an event")
        end = start + length
        if len(payload) < end:
            raise ProtocolError("the event is cut short")
        return payload[start:end], end


EmbeddedEvent = Annotated[Buffer, _EventCodec()]


@command(-1)
class Padding(Command):
    """Fills up an AppendBlock, and occurs only there.  Its data is skipped."""

    data: Rest


@command(-2)
class PartialEvent(Command):
    """The beginning of an event at the end of an AppendBlock; the rest comes with AppendBlockEnd."""

    data: Rest


@command(_EVENT)
class Event(Command):
    """One event, inside a block or a segment.  An event is stored as this whole frame."""

    data: Rest


@command(1)
class SetupAppend(Command):
    """A request to begin writing to a segment over this connection.  Answer: AppendSetup."""

    request_id: Long
    writer_id: Uuid
    segment: Name
    token: Text


@command(2)
class AppendSetup(Command):
    """The writer's last event number on the segment (NULL_ATTRIBUTE_VALUE: none)."""

    request_id: Long
    segment: Text
    writer_id: Uuid
    last_event_number: Long


@command(3)
class AppendBlock(Command):
    """The main part of a block of events; AppendBlockEnd must follow.  No answer."""

    writer_id: Uuid
    data: Rest


@command(4)
class AppendBlockEnd(Command):
    """The end of a block of events, or a whole block (wire.md par. 4.2).  Answer: DataAppended."""

    writer_id: Uuid
    size_of_whole_events: Int
    data: Blob
    num_events: Int
    last_event_number: Long
    request_id: Long = -1


@command(5)
class ConditionalAppend(Command):
    """A request to append one event if the segment's length is `expected_offset`.  `event`: data without the header.

    The event is stored with its header (`event_bytes`).  Answer: DataAppended or ConditionalCheckFailed.
    """

    writer_id: Uuid
    event_number: Long
    expected_offset: Long
    event: EmbeddedEvent
    request_id: Long = -1


def event_bytes(append: ConditionalAppend) -> bytes:
    """Return the bytes that a ConditionalAppend stores: the event with its 8-byte header."""
    return HEADER.pack(_EVENT, len(append.event)) + append.event


@command(89)
class ConditionalBlockEnd(Command):
    """A request to append `data` as it is if the segment's length is `expected_offset`, answered like
    ConditionalAppend."""

    writer_id: Uuid
    event_number: Long
    expected_offset: Long
    data: Blob
    request_id: Long


@command(7)
class DataAppended(Command):
    """Everything of the writer up to `event_number` is durable; `previous_event_number` was acknowledged before."""

    writer_id: Uuid
    event_number: Long
    previous_event_number: Long
    request_id: Long
    segment_write_offset: Long


@command(8)
class ConditionalCheckFailed(Command):
    """The answer that a segment does not have the expected length, and that nothing was appended."""

    writer_id: Uuid
    event_number: Long
    request_id: Long


@command(40)
class CreateTransientSegment(Command):
    """A request for a segment that lives as long as the connection.  Answer: SegmentCreated, with its name."""

    request_id: Long
    writer_id: Uuid
    parent_segment: Name
    token: Text
