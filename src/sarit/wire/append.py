"""Append blocks: bytes and a count of events; single events are never parsed.

Theory of operation.  A client sends its events in blocks.  The Rust client sends AppendBlockEnd alone, with the
whole block in its `data`.  The Java client opens a block before it knows its content: AppendBlock of a fixed size,
filled with whole events.  The rest at its end holds

- nothing, or
- a Padding frame (type -1): skipped; AppendBlockEnd brings no data, or
- a PartialEvent frame (type -2): the beginning of one more event, whose rest AppendBlockEnd brings.

`sizeOfWholeEvents` of AppendBlockEnd is where the whole events end.  What is stored is

    block[:sizeOfWholeEvents] + partial event's bytes + AppendBlockEnd's data

as slices of the payloads received, without parsing them.  A large payload is a memory view, and so are its slices:
nothing is copied.  A small one is bytes, and so are its slices: a copy of a few KiB costs less than two views, which
would live as long as the appended data and slow down garbage collection (docs/decisions/0307).
(A byte stream sends the same blocks without event headers.)  `sizeOfWholeEvents` means nothing when no block is open.

The caller checks what needs more than the bytes: that the writer was set up on this connection, and that its event
numbers do not go back; and calls `check_closed` before any other command of the append family.
Source: wire.md par. 4.2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.core.limits import MAX_TRAILING_BYTES, MAX_WIRE_PAYLOAD_BYTES, UUID_BYTES
from sarit.wire.commands.append import DataAppended
from sarit.wire.commands.registry import HEADER
from sarit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer

_APPEND_BLOCK_END: Final = 4
DATA_APPENDED: Final = DataAppended.code
_PADDING: Final = -1
_PARTIAL_EVENT: Final = -2

# AppendBlockEnd: writer id, size of whole events, length of data; data; events, last event number, request id.
_END_HEAD: Final = struct.Struct(">16sii")
_END_TAIL: Final = struct.Struct(">iqq")
_END_TAIL_SHORT: Final = struct.Struct(">iq")
_NO_REQUEST_ID: Final = -1

_FRAMED_END_HEAD: Final = struct.Struct(">ii16sii")
_FRAMED_APPENDED: Final = struct.Struct(">ii16sqqqq")
_APPENDED_BYTES: Final = _FRAMED_APPENDED.size - HEADER.size
_APPENDED: Final = struct.Struct(">16sqqqq")

_NOTHING: Final = b""


class Append:
    """One atomic append: `parts` in order, `length` bytes in all, `events` events."""

    __slots__ = ("events", "last_event_number", "length", "parts", "request_id", "writer_id")

    def __init__(
        self,
        writer_id: bytes,
        parts: Sequence[Buffer],
        length: int,
        events: int,
        last_event_number: int,
        request_id: int,
    ) -> None:
        self.writer_id = writer_id
        self.parts = parts
        self.length = length
        self.events = events
        self.last_event_number = last_event_number
        self.request_id = request_id

    def __repr__(self) -> str:
        return (
            f"Append(writer {self.writer_id.hex()}, {self.length} bytes in {len(self.parts)} parts, "
            f"{self.events} events up to {self.last_event_number}, request {self.request_id})"
        )


class AppendAssembler:
    """Joins AppendBlock and AppendBlockEnd of one connection.  A ProtocolError ends the connection."""

    __slots__ = ("_block", "_writer")

    def __init__(self) -> None:
        self._writer: bytes | None = None
        self._block: Buffer = _NOTHING

    def __repr__(self) -> str:
        state = "no block" if self._writer is None else f"block of {len(self._block)} bytes, {self._writer.hex()}"
        return f"<AppendAssembler {state}>"

    @property
    def open(self) -> bool:
        """Whether a block is open."""
        return self._writer is not None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the open block."""
        return len(self._block)

    def check_closed(self) -> None:
        """Raises ProtocolError when a block is open: of the append family only its end may follow."""
        if self._writer is not None:
            raise ProtocolError("the end of the append block was expected")

    def block(self, payload: Buffer) -> None:
        """Payload of AppendBlock (3).  Raises ProtocolError."""
        self.check_closed()
        if len(payload) < UUID_BYTES:
            raise ProtocolError(f"AppendBlock of {len(payload)} bytes is cut short")
        self._writer = bytes(payload[:UUID_BYTES])
        self._block = payload[UUID_BYTES:]

    def block_end(self, payload: Buffer) -> Append:
        """Payload of AppendBlockEnd (4): the append to store.  Raises ProtocolError."""
        total = len(payload)
        if total < _END_HEAD.size + _END_TAIL_SHORT.size:
            raise ProtocolError(f"AppendBlockEnd of {total} bytes is cut short")
        writer, whole, length = _END_HEAD.unpack_from(payload)
        tail = _END_HEAD.size + length
        # Bytes after the last field are ignored, as in every command: a newer peer may have more fields.
        if length >= 0 and tail + _END_TAIL.size <= total:
            events, last, request_id = _END_TAIL.unpack_from(payload, tail)
        elif length >= 0 and tail + _END_TAIL_SHORT.size == total:
            # An old peer ends before the request id.  Only an exact end is that: otherwise a field is cut short.
            events, last = _END_TAIL_SHORT.unpack_from(payload, tail)
            request_id = _NO_REQUEST_ID
        else:
            raise ProtocolError(f"AppendBlockEnd of {total} bytes does not hold {length} bytes of data")
        if events <= 0:
            raise ProtocolError(f"AppendBlockEnd of {events} events")
        data = payload[_END_HEAD.size : tail]
        if total > tail + MAX_TRAILING_BYTES:
            data = bytes(data)  # a view would keep the trailing bytes in memory, uncounted
        # The Rust client: all is in `data`, and `whole` means nothing.
        if self._writer is None:
            return Append(writer, (data,) if length else (), length, events, last, request_id)
        # The Java client: whole events of the block, the begun event, the rest of it.
        parts, padded = self._close_block(writer, whole)
        if length:
            if padded:
                raise ProtocolError(f"AppendBlockEnd brings {length} bytes after padding")
            parts.append(data)
        return Append(writer, tuple(parts), sum(map(len, parts)), events, last, request_id)

    def _close_block(self, writer: bytes, whole: int) -> tuple[list[Buffer], bool]:
        """The data of the open block, and whether it ended in padding.  Raises ProtocolError."""
        block = self._block
        if writer != self._writer:
            raise ProtocolError("the append block is of another writer than its end")
        if not 0 <= whole <= len(block):
            raise ProtocolError(f"{whole} bytes of whole events in an append block of {len(block)}")
        # Closed before the checks below: their errors end the connection anyway.
        self._writer = None
        self._block = _NOTHING
        parts: list[Buffer] = [block[:whole]] if whole else []
        left = len(block) - whole - HEADER.size
        # The block ends with its last whole event.
        if left == -HEADER.size:
            return parts, False
        if left < 0:
            raise ProtocolError(
                f"{left + HEADER.size} bytes at the end of an append block are neither event nor padding"
            )
        code, length = HEADER.unpack_from(block, whole)
        # Padding may announce less than what is left: the rest of the block is skipped, too.
        if code == _PADDING and 0 <= length <= left:
            if whole < left:  # a view would keep a block in memory that is mostly padding
                parts = [bytes(part) for part in parts]
            return parts, True
        # A begun event must fill the block to its end: `data` continues it.
        if code != _PARTIAL_EVENT or length != left:
            raise ProtocolError(f"type {code}, length {length} before the last {left} bytes of an append block")
        if length:
            parts.append(block[whole + HEADER.size :])
        return parts, False


def append_block_end_header(
    writer_id: bytes, data_length: int, events: int, last_event_number: int, request_id: int
) -> tuple[bytes, bytes]:
    """The bytes before and after `data_length` bytes of data that make an AppendBlockEnd frame.

    Raises ProtocolError when the frame would be too long.
    """
    payload = _END_HEAD.size + data_length + _END_TAIL.size
    if payload > MAX_WIRE_PAYLOAD_BYTES:
        raise ProtocolError(f"AppendBlockEnd of {payload} bytes; the most is {MAX_WIRE_PAYLOAD_BYTES}")
    assert len(writer_id) == UUID_BYTES
    # The length twice: without a block the receiver ignores the size of whole events.
    prefix = _FRAMED_END_HEAD.pack(_APPEND_BLOCK_END, payload, writer_id, data_length, data_length)
    return prefix, _END_TAIL.pack(events, last_event_number, request_id)


def data_appended(writer_id: bytes, event_number: int, previous: int, request_id: int, offset: int) -> bytes:
    """The whole frame of DataAppended; `offset` is the length of the segment after the append, in bytes."""
    return _FRAMED_APPENDED.pack(DATA_APPENDED, _APPENDED_BYTES, writer_id, event_number, previous, request_id, offset)


def read_data_appended(payload: Buffer) -> DataAppended:
    """DataAppended from its payload; bytes after the last field are ignored.  Raises ProtocolError.

    A writer receives one for each block that it sends: this skips the table of commands, as the store does."""
    if len(payload) < _APPENDED_BYTES:
        raise ProtocolError(f"DataAppended of {len(payload)} bytes; it has {_APPENDED_BYTES}")
    return DataAppended(*_APPENDED.unpack_from(payload))
