"""Splits received bytes into frames, and joins append frames to appends, without copying large payloads.

An append takes two steps: from bytes to a frame (`FrameReader`), and from one or two frames to one `Append`
(`AppendAssembler`).  Both are on the path of each write; all other commands are in `wire/commands/`.

Frames.  Bytes arrive in a *window*, a buffer that all connections of one event loop share.  Whole frames
are found there by their headers, and their payloads are copied out.  The start of an incomplete frame is copied out,
too, and placed before the bytes that come next.  A large payload that is incomplete gets a buffer of exactly its size:
the part that came with its header is copied there once, and the rest is received directly into it.

A reader adapts the part of the window that it uses.  A read that fills this part doubles it, so that many small frames
need few reads.  After a payload of at most COPIED_FRAME_BYTES that did not fit, the part is as large as such a payload,
since a copy costs less than a second read.  After a longer payload it is small, so that little of a series of long
payloads is copied.

A header may announce 16 MiB that never come, so memory is allocated for received bytes, not for announced ones: a large
payload is received in pieces, each allocated when the one before is full, and joined at the end.  The first piece is
small, and each next one as long as all before it, up to FRAME_PIECE_BYTES.  A connection that has delivered a payload
gets as much at once for the next ones, so that in a series of large frames nothing is joined.  `held_bytes` is the
allocated memory.

Returned payloads are never modified.

Append blocks.  Single events are never parsed.  A client sends its events in blocks.  The Rust client sends only
AppendBlockEnd, with the whole block in its `data`.  The Java client opens a block before it knows its content:
AppendBlock of a fixed size, filled with whole events.  The rest at its end is

- nothing, or
- a Padding frame (type -1): skipped; AppendBlockEnd brings no data, or
- a PartialEvent frame (type -2): the beginning of one more event, whose rest AppendBlockEnd brings.

`sizeOfWholeEvents` of AppendBlockEnd is where the whole events end.  The stored bytes are

    block[:sizeOfWholeEvents] + partial event's bytes + AppendBlockEnd's data

as slices of the received payloads, which are not parsed.  A large payload is a memory view, and so are its slices:
nothing is copied.  A small one is bytes, and so are its slices: a copy of a few KiB costs less than two views, which
would live as long as the appended data and slow down garbage collection (docs/internals/tuning.md).

(A byte stream sends the same blocks without event headers.)  `sizeOfWholeEvents` is ignored when no block is open.

The caller checks that the writer was set up on this connection, and that its event numbers do not go back, and calls
`check_closed` before any other command of the append family.
Source: wire.md par. 4.2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.core.http_answer import TLS_HANDSHAKE
from sarit.wire.commands.append import DataAppended
from sarit.wire.commands.registry import HEADER
from sarit.wire.errors import ProtocolError
from sarit.wire.limits import (
    COPIED_FRAME_BYTES,
    FIRST_RECEIVE_WINDOW_BYTES,
    FRAME_PIECE_BYTES,
    LARGE_FRAME_BYTES,
    MAX_TRAILING_BYTES,
    MAX_WIRE_PAYLOAD_BYTES,
    RECEIVE_WINDOW_BYTES,
    SMALL_RECEIVE_WINDOW_BYTES,
    UUID_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer

_HEADER_BYTES: Final = HEADER.size
_APPEND_BLOCK_END: Final = 4
DATA_APPENDED: Final = DataAppended.code
_PADDING: Final = -1
_PARTIAL_EVENT: Final = -2

# The layout of AppendBlockEnd: writer id, size of whole events, length of data; data; events, last event number,
# request id.
_END_HEAD: Final = struct.Struct(">16sii")
_END_TAIL: Final = struct.Struct(">iqq")
_END_TAIL_SHORT: Final = struct.Struct(">iq")
_NO_REQUEST_ID: Final = -1

_FRAMED_END_HEAD: Final = struct.Struct(">ii16sii")
_FRAMED_APPENDED: Final = struct.Struct(">ii16sqqqq")
_APPENDED_BYTES: Final = _FRAMED_APPENDED.size - HEADER.size
_APPENDED: Final = struct.Struct(">16sqqqq")

_NOTHING: Final = b""

# -- frames ----------------------------------------------------------------------------------


class Window:
    """The receive buffer of many connections of one event loop, used by one connection at a time.

    From when its buffer is filled until `received` returns, no other reader may use the window.  It grows to the
    requested size.  Because it is shared, it stays in the processor's cache."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = memoryview(bytearray(SMALL_RECEIVE_WINDOW_BYTES))

    def __repr__(self) -> str:
        return f"<Window of {len(self.bytes)} bytes>"

    def of(self, size: int) -> memoryview:
        """Return the window, at least `size` bytes long."""
        if len(self.bytes) < size:
            self.bytes = memoryview(bytearray(size))
        return self.bytes


class FrameReader:
    """Reads the frames of one connection.  Fill the buffer of `get_buffer`, then pass the byte count to `received`."""

    __slots__ = (
        "_code",
        "_delivered",
        "_direct",
        "_failure",
        "_filled",
        "_missing",
        "_offered",
        "_partial",
        "_pieces",
        "_size",
        "_window",
        "held_bytes",
    )

    def __init__(self, window: Window | None = None) -> None:
        """`window`: a window shared with other readers; None: make one for this reader."""
        self._window = Window() if window is None else window
        self._size = FIRST_RECEIVE_WINDOW_BYTES  # how much of the window is used
        self._partial: bytes = b""  # the start of an incomplete frame that is not large
        self._direct: memoryview | None = None
        self._filled = 0  # bytes in the current piece of a large frame
        self._pieces: list[memoryview] = []
        self._missing = 0  # bytes of the large frame after the current piece
        self._delivered = 0  # the longest complete payload so far, up to a piece: allocated at once
        self.held_bytes = 0  # memory allocated for an incomplete large frame
        self._code = 0
        self._offered = 0
        self._failure: ProtocolError | None = None

    def __repr__(self) -> str:
        state = "failed" if self._failure else f"receiving command {self._code}" if self._direct else "between"
        return f"<FrameReader {state}, {self.buffered_bytes} bytes buffered>"

    @property
    def buffered_bytes(self) -> int:
        """The bytes received of an incomplete frame; 0 between two frames."""
        return len(self._partial) + self._filled + sum(map(len, self._pieces))

    @property
    def refused_code(self) -> int | None:
        """The type of the frame whose length was refused; None: none was."""
        return self._code if self._failure is not None else None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes, which is never empty.  `sizehint` is ignored."""
        if self._direct is not None:
            buffer = self._direct[self._filled :]
        else:
            partial = len(self._partial)
            # Copy the incomplete frame into the window at each call, since other connections use the window, too.
            window = self._window.bytes
            if len(window) < self._size:
                window = self._window.of(self._size)
            if partial:
                window[:partial] = self._partial
            buffer = window[partial : self._size]
        self._offered = len(buffer)
        return buffer

    def received(self, count: int) -> list[tuple[int, Buffer]]:
        """Take `count` bytes from the buffer.  Returns (code, payload) of each frame that is complete now.

        Raises ProtocolError for a length that is negative or too large, and on every later call.
        """
        if self._failure is not None:
            raise self._failure
        if self._direct is None:
            # Use more of the window if the read filled the buffer: there may be more bytes in the socket.
            return self._cut(len(self._partial) + count, count == self._offered)
        self._filled += count
        if self._filled < len(self._direct):
            return []
        return self._piece_full()

    def release(self) -> None:
        """Drop the bytes of an incomplete frame, when nothing will be received any more."""
        self._partial, self._direct, self._pieces = b"", None, []
        self._filled = self.held_bytes = 0

    def feed(self, data: Buffer) -> list[tuple[int, Buffer]]:
        """Take all of `data`, and return all frames that `received` returned."""
        frames: list[tuple[int, Buffer]] = []
        rest = memoryview(data)
        while len(rest):
            buffer = self.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            frames += self.received(count)
        return frames

    def _piece_full(self) -> list[tuple[int, Buffer]]:
        piece = self._direct
        assert piece is not None
        # From here on `buffered_bytes` counts a full piece in `_pieces`.
        self._filled = 0
        if self._missing:
            self._pieces.append(piece)
            self._next_piece(self.held_bytes)
            return []
        if self.held_bytes > self._delivered:
            self._delivered = min(self.held_bytes, FRAME_PIECE_BYTES)
        self.held_bytes = 0
        payload = piece
        if self._pieces:
            payload = memoryview(b"".join([*self._pieces, piece]))
            self._pieces = []
        self._direct = None
        return [(self._code, payload)]

    def _next_piece(self, received: int) -> None:
        """Allocate the next piece of a large frame of which `received` bytes have come."""
        size = self._missing
        if size > self._delivered:
            size = min(size, FRAME_PIECE_BYTES, max(self._delivered, received, LARGE_FRAME_BYTES))
        self._missing -= size
        self.held_bytes += size
        self._direct = memoryview(bytearray(size))

    def _cut(self, end: int, window_full: bool) -> list[tuple[int, Buffer]]:
        """Take the frames out of the first `end` bytes of the window; copy the rest."""
        frames: list[tuple[int, Buffer]] = []
        window = self._window.bytes
        add, unpack = frames.append, HEADER.unpack_from
        at = 0
        while end - at >= _HEADER_BYTES:
            code, length = unpack(window, at)
            start = at + _HEADER_BYTES
            stop = start + length
            # Handle the frequent case first.  Check for a negative length, which would pass the test of `stop`.
            if stop <= end and length >= 0:
                # Copy the payload, since other connections use the window after this call.  Make a view of a large one,
                # so that its slices are views, too.
                payload = window[start:stop].tobytes()
                add((code, payload if length < LARGE_FRAME_BYTES else memoryview(payload)))
                at = stop
                continue
            # Refuse TLS, whose first bytes would announce a payload that never comes.
            if not 0 <= length <= MAX_WIRE_PAYLOAD_BYTES or code >> 16 == TLS_HANDSHAKE:
                self._code = code
                self._failure = ProtocolError(f"a frame of type {code} announces {length} bytes")
                self._partial = b""  # the rest is never parsed, and `get_buffer` must not be empty
                raise self._failure
            # An incomplete large frame gets a buffer of its own.
            if length >= LARGE_FRAME_BYTES:
                self._begin_large(code, length, window[start:end])
                return frames
            break
        if window_full and self._size < RECEIVE_WINDOW_BYTES:
            self._size *= 2
        self._partial = window[at:end].tobytes() if at < end else b""
        return frames

    def _begin_large(self, code: int, length: int, begun: memoryview) -> None:
        self._code = code
        self._partial = b""
        self._missing = length
        self._next_piece(2 * len(begun))
        piece = self._direct
        assert piece is not None
        # The frame is incomplete, and its first bytes are at most a window, which is shorter than half a piece.
        assert len(begun) < len(piece)
        # Copy the first bytes; the rest is received behind them, without another copy.
        piece[: len(begun)] = begun
        self._filled = len(begun)
        self._size = (
            max(self._size, 2 * COPIED_FRAME_BYTES) if length <= COPIED_FRAME_BYTES else SMALL_RECEIVE_WINDOW_BYTES
        )


# -- append blocks ---------------------------------------------------------------------------


class Append:
    """One atomic append: the bytes of `parts` in order, `length` in all, with `events` events.

    `arrival`: when the read that brought the append began; None: its latency is not measured."""

    __slots__ = ("arrival", "events", "last_event_number", "length", "parts", "request_id", "writer_id")

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
        self.arrival: float | None = None

    def __repr__(self) -> str:
        return (
            f"Append(writer {self.writer_id.hex()}, {self.length} bytes in {len(self.parts)} parts, "
            f"{self.events} events up to {self.last_event_number}, request {self.request_id})"
        )


class AppendAssembler:
    """Joins AppendBlock and AppendBlockEnd of one connection to appends.  A ProtocolError ends the connection."""

    __slots__ = ("_block", "_writer", "buffered_bytes")

    def __init__(self) -> None:
        self._writer: bytes | None = None
        self._block: Buffer = _NOTHING
        self.buffered_bytes = 0  # of the open block

    def __repr__(self) -> str:
        state = "no block" if self._writer is None else f"block of {len(self._block)} bytes, {self._writer.hex()}"
        return f"<AppendAssembler {state}>"

    @property
    def open(self) -> bool:
        """Whether an append block is open."""
        return self._writer is not None

    def check_closed(self) -> None:
        """Check that no block is open, after which only its end may follow.  Raises ProtocolError."""
        if self._writer is not None:
            raise ProtocolError("the end of the append block was expected")

    def block(self, payload: Buffer) -> None:
        """Open a block by the payload of AppendBlock (3).  Raises ProtocolError."""
        self.check_closed()
        if len(payload) < UUID_BYTES:
            raise ProtocolError(f"AppendBlock of {len(payload)} bytes is cut short")
        self._writer = bytes(payload[:UUID_BYTES])
        self._block = payload[UUID_BYTES:]
        self.buffered_bytes = len(self._block)

    def block_end(self, payload: Buffer) -> Append:
        """Return the append that the payload of AppendBlockEnd (4) completes.  Raises ProtocolError."""
        total = len(payload)
        if total < _END_HEAD.size + _END_TAIL_SHORT.size:
            raise ProtocolError(f"AppendBlockEnd of {total} bytes is cut short")
        writer, whole, length = _END_HEAD.unpack_from(payload)
        tail = _END_HEAD.size + length
        # Bytes after the last field are ignored, as in every command: a newer peer may have more fields.
        if length >= 0 and tail + _END_TAIL.size <= total:
            events, last, request_id = _END_TAIL.unpack_from(payload, tail)
        elif length >= 0 and tail + _END_TAIL_SHORT.size == total:
            # An old peer's payload ends exactly before the request id; any other end means that a field is cut short.
            events, last = _END_TAIL_SHORT.unpack_from(payload, tail)
            request_id = _NO_REQUEST_ID
        else:
            raise ProtocolError(f"AppendBlockEnd of {total} bytes does not hold {length} bytes of data")
        if events <= 0:
            raise ProtocolError(f"AppendBlockEnd of {events} events")
        data = payload[_END_HEAD.size : tail]
        if total > tail + MAX_TRAILING_BYTES:
            data = bytes(data)  # a view would keep the trailing bytes in memory, uncounted
        # The Rust client sends the whole block in `data`, and `whole` is ignored.
        if self._writer is None:
            return Append(writer, (data,) if length else (), length, events, last, request_id)
        # The Java client's block has whole events, and perhaps the beginning of one more, whose rest is `data`.
        parts, padded = self._close_block(writer, whole)
        if length:
            if padded:
                raise ProtocolError(f"AppendBlockEnd brings {length} bytes after padding")
            parts.append(data)
        return Append(writer, tuple(parts), sum(map(len, parts)), events, last, request_id)

    def _close_block(self, writer: bytes, whole: int) -> tuple[list[Buffer], bool]:
        """Return the data of the open block, and whether it ended in padding.  Raises ProtocolError."""
        block = self._block
        if writer != self._writer:
            raise ProtocolError("the append block is of another writer than its end")
        if not 0 <= whole <= len(block):
            raise ProtocolError(f"{whole} bytes of whole events in an append block of {len(block)}")
        # Close the block before the checks below, whose errors end the connection anyway.
        self._writer = None
        self._block = _NOTHING
        self.buffered_bytes = 0
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
    """Return the bytes before and after `data_length` bytes of data that make an AppendBlockEnd frame.

    Raises ProtocolError when the frame would be too long.
    """
    payload = _END_HEAD.size + data_length + _END_TAIL.size
    if payload > MAX_WIRE_PAYLOAD_BYTES:
        raise ProtocolError(f"AppendBlockEnd of {payload} bytes; the most is {MAX_WIRE_PAYLOAD_BYTES}")
    assert len(writer_id) == UUID_BYTES
    # The length is also sent as the size of whole events, which the receiver ignores without an open block.
    prefix = _FRAMED_END_HEAD.pack(_APPEND_BLOCK_END, payload, writer_id, data_length, data_length)
    return prefix, _END_TAIL.pack(events, last_event_number, request_id)


def data_appended(writer_id: bytes, event_number: int, previous: int, request_id: int, offset: int) -> bytes:
    """Return the frame of DataAppended.  `offset`: the length of the segment after the append, in bytes."""
    return _FRAMED_APPENDED.pack(DATA_APPENDED, _APPENDED_BYTES, writer_id, event_number, previous, request_id, offset)


def read_data_appended(payload: Buffer) -> DataAppended:
    """Parse DataAppended from its payload; bytes after the last field are ignored.  Raises ProtocolError.

    A writer receives one for each block, so this does not go through the table of commands."""
    if len(payload) < _APPENDED_BYTES:
        raise ProtocolError(f"DataAppended of {len(payload)} bytes; it has {_APPENDED_BYTES}")
    return DataAppended(*_APPENDED.unpack_from(payload))
