"""Headers of events that name a schema: Confluent's, Pravega's, or none.

    confluent   00, schema id (uint32, big-endian); for Protobuf the message indexes follow
    pravega     01, encoding id (int32, big-endian)

Message indexes say which message of a Protobuf file it is, by its place among those around it: their count, then each,
as zigzag varints; the first message of the file is the one byte 00.  Which header the events of a stream have is its
property `schema-header` (`core/properties.py`): a payload without a header may begin with either byte.  Pure.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.properties import PRAVEGA
from sarit.serializers.limits import HEADER_BYTES, MAX_MESSAGE_INDEXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.names import StreamName

CONFLUENT_MAGIC: Final = 0
PRAVEGA_MAGIC: Final = 1

_CONFLUENT: Final = struct.Struct(">BI")
_PRAVEGA: Final = struct.Struct(">Bi")
_MAX_SCHEMA_ID: Final = (1 << 32) - 1
_MAX_ENCODING_ID: Final = (1 << 31) - 1
_MAX_INDEX: Final = (1 << 31) - 1
_MAX_VARINT_BITS: Final = 35  # five groups of seven: enough for the zigzag of an index
_SHOWN: Final = 8


def default_subject(stream: StreamName) -> str:
    """Return the subject (Confluent) or group (Pravega) of a stream's schemas, unless a user names another."""
    return f"{stream.scope}.{stream.stream}"


def confluent_header(schema_id: int, indexes: Sequence[int] | None = None) -> bytes:
    """Return Confluent's header; `indexes`: of the Protobuf message, None for other formats.  Raises Invalid."""
    if not 0 <= schema_id <= _MAX_SCHEMA_ID:
        raise Invalid(f"schema id {schema_id} is not one of 0 to {_MAX_SCHEMA_ID}")
    return _CONFLUENT.pack(CONFLUENT_MAGIC, schema_id) + (b"" if indexes is None else message_indexes(indexes))


def pravega_header(encoding_id: int) -> bytes:
    """Return Pravega's header.  Raises Invalid."""
    if not 0 <= encoding_id <= _MAX_ENCODING_ID:
        raise Invalid(f"encoding id {encoding_id} is not one of 0 to {_MAX_ENCODING_ID}")
    return _PRAVEGA.pack(PRAVEGA_MAGIC, encoding_id)


def confluent_id(event: bytes) -> int:
    """Return the schema id of an event; its payload, or the message indexes, begin at HEADER_BYTES.  Raises Invalid."""
    if len(event) < HEADER_BYTES or event[0] != CONFLUENT_MAGIC:
        raise _wrong(event, CONFLUENT_MAGIC, "confluent")
    return int(_CONFLUENT.unpack_from(event)[1])


def pravega_id(event: bytes) -> int:
    """Return the encoding id of an event; its payload begins at HEADER_BYTES.  Raises Invalid."""
    if len(event) < HEADER_BYTES or event[0] != PRAVEGA_MAGIC:
        raise _wrong(event, PRAVEGA_MAGIC, "pravega")
    found = int(_PRAVEGA.unpack_from(event)[1])
    if found < 0:
        raise Invalid(f"the encoding id {found} of the event is negative")
    return found


def header_number(header: str, event: bytes) -> int:
    """Return the number that an event's header names: `confluent` or `pravega`.  Raises Invalid."""
    return pravega_id(event) if header == PRAVEGA else confluent_id(event)


def message_indexes(indexes: Sequence[int]) -> bytes:
    """Return the indexes of a Protobuf message as they follow Confluent's header.  Raises Invalid."""
    if not 1 <= len(indexes) <= MAX_MESSAGE_INDEXES or not all(0 <= one <= _MAX_INDEX for one in indexes):
        raise Invalid(f"a message has 1 to {MAX_MESSAGE_INDEXES} indexes of 0 to {_MAX_INDEX}")
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_zigzag, [len(indexes), *indexes]))


def parse_message_indexes(event: bytes, at: int = HEADER_BYTES) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at `at`, and where the payload begins.  Raises Invalid."""
    count, at = _parse_zigzag(event, at)
    if not count:
        return (0,), at
    if not 0 < count <= MAX_MESSAGE_INDEXES:
        raise Invalid(f"the header says that {count} message indexes follow: there are 1 to {MAX_MESSAGE_INDEXES}")
    found = []
    for _ in range(count):
        index, at = _parse_zigzag(event, at)
        if index < 0:
            raise Invalid(f"the message index {index} of the header is negative")
        found.append(index)
    return tuple(found), at


def _wrong(event: bytes, magic: int, name: str) -> Invalid:
    if len(event) < HEADER_BYTES:
        why = f"the event has {len(event)} bytes, fewer than its header of {HEADER_BYTES}"
    else:
        why = f"the event begins with {event[:_SHOWN].hex(' ')}, not with {magic:02x}"
    return Invalid(
        f"{why}: its writer has put no header `{name}` before it (the stream's property schema-header says which one "
        "its events have)"
    )


def _zigzag(value: int) -> bytes:
    left, made = value << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _parse_zigzag(event: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _MAX_VARINT_BITS, 7):
        if at >= len(event):
            raise Invalid("the event ends within the message indexes of its header")
        byte = event[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise Invalid("a message index of the event's header is longer than five bytes")
