"""Commands about whole segments, and reads of their bytes.  Offsets and lengths are bytes."""

import struct
from typing import Annotated, Final, NamedTuple

from sarit.wire.commands.registry import HEADER, Command, command
from sarit.wire.errors import ProtocolError
from sarit.wire.limits import MAX_WIRE_PAYLOAD_BYTES
from sarit.wire.primitives import (
    BYTE,
    LONG,
    TEXT,
    UUID,
    Blob,
    Byte,
    Flag,
    Int,
    ListCodec,
    Long,
    Name,
    Names,
    StructCodec,
    Text,
    Uuid,
)

_READ_HEAD: Final = struct.Struct(">q??i")
_REQUEST_ID: Final = struct.Struct(">q")
_SEGMENT_READ: Final = 10


@command(9)
class ReadSegment(Command):
    """A request for bytes.  Answer: SegmentRead, as soon as there is something to read (wire.md par. 5)."""

    segment: Name
    offset: Long
    suggested_length: Int
    token: Text
    request_id: Long = -1


@command(_SEGMENT_READ)
class SegmentRead(Command):
    """Answer to ReadSegment: the bytes of a segment that begin at `offset`, which is the offset of the request."""

    segment: Text
    offset: Long
    at_tail: Flag
    end_of_segment: Flag
    data: Blob
    request_id: Long


def segment_read_envelope(
    segment: str, offset: int, at_tail: bool, end_of_segment: bool, length: int, request_id: int
) -> tuple[bytes, bytes]:
    """Return the bytes before and after `length` bytes of data that make a SegmentRead frame of them.

    Raises ProtocolError when the frame would be too long.
    """
    name = TEXT.pack(segment)
    payload = len(name) + _READ_HEAD.size + length + _REQUEST_ID.size
    if payload > MAX_WIRE_PAYLOAD_BYTES:
        raise ProtocolError(f"SegmentRead of {payload} bytes; the most is {MAX_WIRE_PAYLOAD_BYTES}")
    head = HEADER.pack(_SEGMENT_READ, payload) + name
    return head + _READ_HEAD.pack(offset, at_tail, end_of_segment, length), _REQUEST_ID.pack(request_id)


@command(11)
class GetStreamSegmentInfo(Command):
    """A request for the properties of a segment.  Answer: StreamSegmentInfo."""

    request_id: Long
    segment: Name
    token: Text


@command(12)
class StreamSegmentInfo(Command):
    """The properties of a segment.  `last_modified`: in ms since 1970.  `write_offset`: its length."""

    request_id: Long
    segment: Text
    exists: Flag
    is_sealed: Flag
    is_deleted: Flag
    last_modified: Long
    write_offset: Long
    start_offset: Long


@command(20)
class CreateSegment(Command):
    """A request to create a segment.  `scale_type`: 0 none, 1 KB/s, 2 events/s.  Answer: SegmentCreated."""

    request_id: Long
    segment: Name
    target_rate: Int
    scale_type: Byte
    token: Text
    rollover_size_bytes: Long = 0


@command(21)
class SegmentCreated(Command):
    """Answer to CreateSegment, CreateTransientSegment, CreateTableSegment."""

    request_id: Long
    segment: Text


@command(28)
class SealSegment(Command):
    """A request to seal a segment.  Answer: SegmentSealed."""

    request_id: Long
    segment: Name
    token: Text


@command(29)
class SegmentSealed(Command):
    """Answer to SealSegment."""

    request_id: Long
    segment: Text


@command(30)
class DeleteSegment(Command):
    """A request to delete a segment.  Answer: SegmentDeleted."""

    request_id: Long
    segment: Name
    token: Text


@command(31)
class SegmentDeleted(Command):
    """Answer to DeleteSegment and DeleteTableSegment."""

    request_id: Long
    segment: Text


@command(32)
class UpdateSegmentPolicy(Command):
    """A request to change the scaling policy of a segment.  Answer: SegmentPolicyUpdated."""

    request_id: Long
    segment: Name
    target_rate: Int
    scale_type: Byte
    token: Text


@command(33)
class SegmentPolicyUpdated(Command):
    """Answer to UpdateSegmentPolicy."""

    request_id: Long
    segment: Text


@command(34)
class GetSegmentAttribute(Command):
    """A request for an attribute of a segment.  Answer: SegmentAttribute."""

    request_id: Long
    segment: Name
    attribute_id: Uuid
    token: Text


@command(35)
class SegmentAttribute(Command):
    """The value of an attribute; NULL_ATTRIBUTE_VALUE: the segment does not have it."""

    request_id: Long
    value: Long


@command(36)
class UpdateSegmentAttribute(Command):
    """A request to compare and set an attribute.  Answer: SegmentAttributeUpdated."""

    request_id: Long
    segment: Name
    attribute_id: Uuid
    new_value: Long
    expected_value: Long
    token: Text


@command(37)
class SegmentAttributeUpdated(Command):
    """Answer to UpdateSegmentAttribute; also the refusal of a conditional MergeSegments.  `success`: whether the
    attribute had the expected value."""

    request_id: Long
    success: Flag


@command(38)
class TruncateSegment(Command):
    """A request to drop the bytes below an offset.  Answer: SegmentTruncated."""

    request_id: Long
    segment: Name
    truncation_offset: Long
    token: Text


@command(39)
class SegmentTruncated(Command):
    """Answer to TruncateSegment."""

    request_id: Long
    segment: Text


@command(41)
class LocateOffset(Command):
    """A request for the offset of the first event at or after an offset.  Answer: OffsetLocated."""

    request_id: Long
    segment: Name
    target_offset: Long
    token: Text


@command(42)
class OffsetLocated(Command):
    """Answer to LocateOffset.  Rust clients do not know this command, so it must not be sent to them."""

    request_id: Long
    segment: Text
    offset: Long


class AttributeUpdate(NamedTuple):
    """A change of an attribute.  `update_type`: 0 none, 1 replace, 2 replace if greater, 3 accumulate, 4 replace if
    equal (wire.md par. 5.1)."""

    attribute_id: bytes
    update_type: int
    new_value: int
    old_value: int


AttributeUpdates = Annotated[
    tuple[AttributeUpdate, ...], ListCodec(StructCodec(AttributeUpdate, tuple, (UUID, BYTE, LONG, LONG)))
]


@command(58)
class MergeSegments(Command):
    """A request to merge `source` into `target`, at its end.  Answer: SegmentsMerged."""

    request_id: Long
    target: Name
    source: Name
    token: Text
    attribute_updates: AttributeUpdates = ()


@command(59)
class SegmentsMerged(Command):
    """Answer to MergeSegments.  `new_target_write_offset`: the target's length after the merge."""

    request_id: Long
    target: Text
    source: Text
    new_target_write_offset: Long


@command(90)
class MergeSegmentsBatch(Command):
    """A controller's request to merge several sources into `target`, in order.  Answer: SegmentsBatchMerged."""

    request_id: Long
    target: Name
    sources: Names
    token: Text


class MergedSource(NamedTuple):
    """One merge of a batch: the source, and the target's length after it."""

    source: str
    new_target_write_offset: int


MergedSources = Annotated[tuple[tuple[str, int], ...], ListCodec(StructCodec(MergedSource, tuple, (TEXT, LONG)))]


@command(91)
class SegmentsBatchMerged(Command):
    """Answer to MergeSegmentsBatch.  `merged`: may be made of plain pairs."""

    request_id: Long
    target: Text
    merged: MergedSources
