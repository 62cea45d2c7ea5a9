"""Commands that write events.  `append.py` reads the hot ones (3, 4) without making these objects.

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
    """Inside an AppendBlock only: fills it up; whatever it holds is skipped."""

    data: Rest


@command(-2)
class PartialEvent(Command):
    """Inside an AppendBlock only: the beginning of an event whose rest comes with AppendBlockEnd."""

    data: Rest


@command(_EVENT)
class Event(Command):
    """Inside blocks and segments only: one event.  Its frame is what is stored of it."""

    data: Rest


@command(1)
class SetupAppend(Command):
    """Begin to write to a segment over this connection.  Answer: AppendSetup."""

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
    """The bulk of a block; nothing but AppendBlockEnd may follow.  No answer."""

    writer_id: Uuid
    data: Rest


@command(4)
class AppendBlockEnd(Command):
    """Ends a block, or is a whole one (wire.md par. 4.2).  Answer: DataAppended."""

    writer_id: Uuid
    size_of_whole_events: Int
    data: Blob
    num_events: Int
    last_event_number: Long
    request_id: Long = -1


@command(5)
class ConditionalAppend(Command):
    """Append one event if the segment is `expected_offset` long; `event` is its data without the header.

    Stored are header and data (`event_bytes`).  Answer: DataAppended or ConditionalCheckFailed.
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
    """Append `data`, verbatim, if the segment is `expected_offset` long.  Answers as for ConditionalAppend."""

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
    """The segment was not as long as expected; nothing was appended."""

    writer_id: Uuid
    event_number: Long
    request_id: Long


@command(40)
class CreateTransientSegment(Command):
    """Make a segment that lives as long as the connection.  Answer: SegmentCreated, with its name."""

    request_id: Long
    writer_id: Uuid
    parent_segment: Name
    token: Text
