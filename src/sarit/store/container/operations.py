"""What a container writes to its durable log: the outcomes of operations.

A frame's payload is `>B q I` (format version, wall clock in ms since 1970, number of operations), followed by the
operations, each of which begins with its type byte.  An operation holds an outcome (segment id, offset, resulting
attribute values, versions), never a condition: replay decides nothing.  Layouts: docs/formats/operations.md.

Warning.  When an operation is encoded, the assigned state has moved already.  So whatever does not fit the fields
here must be refused earlier.  Most values come off the wire in the same width.  The others are checked elsewhere: names
and the number of attributes in container.py, sums of attributes in `resolve_attributes`, the lengths of keys, values
and batches in tables.py, and the lengths of appends in append_handler.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sarit.core.errors import Corrupt
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.log.limits import MAX_FRAME_BYTES
from sarit.store.limits import BLOCK_OVERHEAD_BYTES, TABLE_ENTRY_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.env.ports import Buffer

# All of this is on disk (docs/formats/operations.md): a type number or a layout that was in use stays as it is.
FORMAT_VERSION: Final = 1
# Version, wall clock in ms since 1970, number of operations.
FRAME_HEADER: Final = struct.Struct(">BqI")
MAX_OPERATION_BYTES: Final = MAX_FRAME_BYTES - FRAME_HEADER.size

# Fields: type, segment, offset, length, writer, event number, events; the payload follows.
_APPEND = struct.Struct(">BQQI16sqI")
APPEND_HEADER_BYTES: Final = _APPEND.size
_CREATE = struct.Struct(">BQBIbiqH")
_CREATE_AT = struct.Struct(">BQQBBIbiqH")
_ID = struct.Struct(">BQ")
_ID_OFFSET = struct.Struct(">BQQ")
_MERGE = struct.Struct(">BQQQQqH")
_ATTRIBUTES = struct.Struct(">BQH")
_ATTRIBUTE = struct.Struct(">16sq")
_TABLE = struct.Struct(">BQQqI")
# Fields: version, size of the key, size of the value or REMOVED; key and value follow.
_ENTRY = struct.Struct(">qHi")
_POLICY = struct.Struct(">BQbi")
_FLAGS = struct.Struct(">BQB")

REMOVED: Final = -1

KIND_STREAM: Final = 0
KIND_TABLE_HASH: Final = 1
KIND_TABLE_FIXED: Final = 2

# The writer of an append that belongs to none, whose event number is NULL_ATTRIBUTE_VALUE: no attribute has this name.
# It is stored as 16 zero bytes.
NO_WRITER: Final = b""

# The flags of a segment.
_MIRROR: Final = 1


# A plain class, unlike the others: one is made for each append, and a frozen dataclass sets each field by a call.
class Append:
    """An append: bytes at an offset of a segment, and the writer's event number after them."""

    TYPE: ClassVar[int] = 1
    __slots__ = ("event_number", "events", "length", "offset", "parts", "segment", "writer")

    def __init__(
        self,
        segment: int,
        offset: int,
        parts: Sequence[Buffer],
        length: int,
        writer: bytes,
        event_number: int,
        events: int,
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.parts = parts
        self.length = length
        self.writer = writer
        self.event_number = event_number
        self.events = events

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_APPEND.pack(1, self.segment, self.offset, self.length, self.writer, self.event_number, self.events))
        # Add references to the payload, without a copy.
        out.extend(self.parts)
        return _APPEND.size + self.length


@dataclass(frozen=True, slots=True)
class Create:
    """A new segment; `kind` is one of the KIND_ constants.

    `offset`: where it begins and ends, as if its earlier bytes had been truncated.  `mirror`: clients may only read it.
    Without these two, the operation has the bytes of type 2, which earlier versions know; with them, those of 10."""

    TYPE: ClassVar[int] = 2
    TYPE_AT: ClassVar[int] = 10
    segment: int
    name: str
    kind: int = KIND_STREAM
    key_length: int = 0
    scale_type: int = 0
    target_rate: int = 0
    rollover_bytes: int = 0
    offset: int = 0
    mirror: bool = False

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        name = self.name.encode()
        if self.offset or self.mirror:
            body = _CREATE_AT.pack(
                self.TYPE_AT, self.segment, self.offset, _MIRROR if self.mirror else 0, self.kind, self.key_length,
                self.scale_type, self.target_rate, self.rollover_bytes, len(name),
            )  # fmt: skip
            out.append(body + name)
            return len(body) + len(name)
        out.append(
            _CREATE.pack(
                self.TYPE, self.segment, self.kind, self.key_length, self.scale_type,
                self.target_rate, self.rollover_bytes, len(name),
            )
            + name
        )  # fmt: skip
        return _CREATE.size + len(name)


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of a segment: no append follows."""

    TYPE: ClassVar[int] = 3
    segment: int

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_ID.pack(self.TYPE, self.segment))
        return _ID.size


@dataclass(frozen=True, slots=True)
class Truncate:
    """A truncation: the bytes of a segment below `offset` are dropped."""

    TYPE: ClassVar[int] = 4
    segment: int
    offset: int

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_ID_OFFSET.pack(self.TYPE, self.segment, self.offset))
        return _ID_OFFSET.size


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of a segment, whose name may be used again."""

    TYPE: ClassVar[int] = 5
    segment: int

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_ID.pack(self.TYPE, self.segment))
        return _ID.size


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge: all `length` bytes of `source` are now at `offset` of `segment`, and `source` is deleted."""

    TYPE: ClassVar[int] = 6
    segment: int
    source: int
    offset: int
    length: int
    events: int
    attributes: tuple[tuple[bytes, int], ...] = ()

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        body = _MERGE.pack(
            self.TYPE, self.segment, self.source, self.offset, self.length, self.events, len(self.attributes)
        ) + b"".join(_ATTRIBUTE.pack(*pair) for pair in self.attributes)
        out.append(body)
        return len(body)


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """New values of attributes of a segment; `limits.NULL_ATTRIBUTE_VALUE` deletes an attribute."""

    TYPE: ClassVar[int] = 7
    segment: int
    attributes: tuple[tuple[bytes, int], ...]

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        body = _ATTRIBUTES.pack(self.TYPE, self.segment, len(self.attributes)) + b"".join(
            _ATTRIBUTE.pack(*pair) for pair in self.attributes
        )
        out.append(body)
        return len(body)


@dataclass(frozen=True, slots=True)
class Entry:
    """One table entry; `value` None is a removal."""

    key: bytes
    value: bytes | None
    version: int


def serialized_bytes(entry: Entry) -> int:
    """Return by how many bytes an entry moves the position of its table."""
    return TABLE_ENTRY_HEADER_BYTES + len(entry.key) + len(entry.value or b"")


@dataclass(frozen=True, slots=True)
class UpdateTable:
    """Changes of a table: entries with their versions; `length` and `live` are its position and entry count then."""

    TYPE: ClassVar[int] = 8
    segment: int
    length: int
    live: int
    entries: tuple[Entry, ...]

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        pieces = [_TABLE.pack(self.TYPE, self.segment, self.length, self.live, len(self.entries))]
        for entry in self.entries:
            size = REMOVED if entry.value is None else len(entry.value)
            pieces += (_ENTRY.pack(entry.version, len(entry.key), size), entry.key, entry.value or b"")
        body = b"".join(pieces)
        out.append(body)
        return len(body)


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """A new scaling policy by which the segment's load is metered."""

    TYPE: ClassVar[int] = 9
    segment: int
    scale_type: int
    target_rate: int

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_POLICY.pack(self.TYPE, self.segment, self.scale_type, self.target_rate))
        return _POLICY.size


@dataclass(frozen=True, slots=True)
class SetMirror:
    """Whether clients may only read a segment from now on."""

    TYPE: ClassVar[int] = 11
    segment: int
    mirror: bool

    def encode(self, out: list[Buffer]) -> int:
        """Add the bytes of this operation to `out`; returns their number."""
        out.append(_FLAGS.pack(self.TYPE, self.segment, _MIRROR if self.mirror else 0))
        return _FLAGS.size


Operation = Append | Create | Seal | Truncate | Delete | Merge | SetAttributes | UpdateTable | SetPolicy | SetMirror


def decode_frame(payload: memoryview) -> tuple[int, Iterator[Operation]]:
    """Return the wall clock of a frame (ms since 1970) and its operations.  Raises Corrupt, also while iterating."""
    if len(payload) < FRAME_HEADER.size:
        raise Corrupt(f"a log frame of {len(payload)} bytes is too short")
    version, wall_ms, count = FRAME_HEADER.unpack_from(payload)
    if version != FORMAT_VERSION:
        raise Corrupt(f"the log holds a frame of format {version}; this version of Sarit reads {FORMAT_VERSION}")
    return wall_ms, _operations(payload, count)


def _operations(payload: memoryview, count: int) -> Iterator[Operation]:
    at = FRAME_HEADER.size
    try:
        for _ in range(count):
            # Check `end`, because a slice beyond the end of the view is short, and raises nothing.
            operation, end = _decode(payload, at)
            if not at < end <= len(payload):
                raise Corrupt(f"a log frame of {len(payload)} bytes holds an operation from {at} to {end}")
            at = end
            yield operation
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise Corrupt(f"a log frame cannot be decoded: {error}") from error
    # `GroupCommit._send_batches` asserts the same before the write.
    if at != len(payload):
        raise Corrupt(f"a log frame has {len(payload) - at} bytes after its last operation")


def _decode(view: memoryview, at: int) -> tuple[Operation, int]:
    kind = view[at]
    if kind == Append.TYPE:
        _, segment, offset, length, writer, number, events = _APPEND.unpack_from(view, at)
        at += _APPEND.size
        if number == NULL_ATTRIBUTE_VALUE:
            writer = NO_WRITER
        # Use a view of the payload: the block that `apply` makes of it keeps the frame in memory until it is flushed.
        return Append(segment, offset, (view[at : at + length],), length, writer, number, events), at + length
    if kind == UpdateTable.TYPE:
        return _decode_table(view, at)
    if kind == Create.TYPE:
        _, segment, table, key_length, scale_type, rate, rollover, size = _CREATE.unpack_from(view, at)
        at += _CREATE.size
        name = str(view[at : at + size], "utf-8")
        return Create(segment, name, table, key_length, scale_type, rate, rollover), at + size
    if kind == Create.TYPE_AT:
        return _decode_create_at(view, at)
    if kind in (Seal.TYPE, Delete.TYPE):
        _, segment = _ID.unpack_from(view, at)
        return (Seal(segment) if kind == Seal.TYPE else Delete(segment)), at + _ID.size
    if kind == Truncate.TYPE:
        _, segment, offset = _ID_OFFSET.unpack_from(view, at)
        return Truncate(segment, offset), at + _ID_OFFSET.size
    if kind == Merge.TYPE:
        _, segment, source, offset, length, events, count = _MERGE.unpack_from(view, at)
        pairs, end = _decode_attributes(view, at + _MERGE.size, count)
        return Merge(segment, source, offset, length, events, pairs), end
    if kind == SetAttributes.TYPE:
        _, segment, count = _ATTRIBUTES.unpack_from(view, at)
        pairs, end = _decode_attributes(view, at + _ATTRIBUTES.size, count)
        return SetAttributes(segment, pairs), end
    if kind == SetPolicy.TYPE:
        _, segment, scale_type, rate = _POLICY.unpack_from(view, at)
        return SetPolicy(segment, scale_type, rate), at + _POLICY.size
    if kind == SetMirror.TYPE:
        _, segment, flags = _FLAGS.unpack_from(view, at)
        return SetMirror(segment, _is_mirror(flags)), at + _FLAGS.size
    raise Corrupt(f"a log frame holds an operation of unknown type {kind}")


def _decode_create_at(view: memoryview, at: int) -> tuple[Create, int]:
    _, segment, offset, flags, table, key_length, scale_type, rate, rollover, size = _CREATE_AT.unpack_from(view, at)
    mirror = _is_mirror(flags)
    at += _CREATE_AT.size
    name = str(view[at : at + size], "utf-8")
    return Create(segment, name, table, key_length, scale_type, rate, rollover, offset, mirror), at + size


def _is_mirror(flags: int) -> bool:
    if flags & ~_MIRROR:
        raise Corrupt(f"a log frame holds the unknown flags {flags} of a segment")
    return bool(flags)


def _decode_attributes(view: memoryview, at: int, count: int) -> tuple[tuple[tuple[bytes, int], ...], int]:
    end = at + count * _ATTRIBUTE.size
    pairs = tuple((key, value) for key, value in _ATTRIBUTE.iter_unpack(view[at:end]))
    # Check the number, since `iter_unpack` accepts a slice that is short by whole pairs.
    if len(pairs) != count:
        raise Corrupt("a log frame ends inside its attributes")
    return pairs, end


def _decode_table(view: memoryview, at: int) -> tuple[UpdateTable, int]:
    _, segment, length, live, count = _TABLE.unpack_from(view, at)
    at += _TABLE.size
    entries = []
    for _ in range(count):
        version, key_size, value_size = _ENTRY.unpack_from(view, at)
        if value_size < REMOVED:
            raise Corrupt(f"a log frame holds a table entry of {value_size} bytes")
        at += _ENTRY.size
        # Copy key and value: a view would keep the whole frame in memory as long as the entry is cached.
        key = bytes(view[at : at + key_size])
        at += key_size
        value = None
        if value_size != REMOVED:
            value = bytes(view[at : at + value_size])
            at += value_size
        entries.append(Entry(key, value, version))
    return UpdateTable(segment, length, live, tuple(entries)), at


def operation_charge(operation: Operation, encoded_bytes: int) -> int:
    """Return the memory charged for an operation other than an append: each table entry costs about a block."""
    entries = len(operation.entries) if isinstance(operation, UpdateTable) else 1
    # An update that removed only absent keys has no entry at all.
    return encoded_bytes + max(entries, 1) * BLOCK_OVERHEAD_BYTES
