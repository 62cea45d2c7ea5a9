"""Cuts a byte stream into frames without copying large payloads.

Theory of operation.  Bytes arrive in a *window*, a buffer that all connections of one event loop share.  Whole frames
are found there by their headers, and their payloads are copied out.  The start of an incomplete frame is copied out,
too, and placed before the bytes that come next.  A large payload that is incomplete gets a buffer of exactly its size:
the part that came with its header is copied there once, and the rest is received straight into it.

The part of the window that a reader offers adapts.  A read that fills it doubles it, so that many small frames need few
reads.  After a payload of at most COPIED_FRAME_BYTES that did not fit, it holds the next such payload, since a copy
costs less than a second read.  After a longer payload it is small, so that a series of those is hardly copied.

A header may announce 16 MiB and never deliver.  So a payload above FRAME_PIECE_BYTES is received in pieces of that
size.  Each piece is allocated when the one before is full, and all are joined at the end: memory follows the bytes that
came, not the length announced.

Payloads that were returned are never modified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.limits import (
    COPIED_FRAME_BYTES,
    FRAME_PIECE_BYTES,
    LARGE_FRAME_BYTES,
    MAX_WIRE_PAYLOAD_BYTES,
    RECEIVE_WINDOW_BYTES,
    SMALL_RECEIVE_WINDOW_BYTES,
)
from sarit.wire.commands.registry import HEADER
from sarit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from sarit.env.ports import Buffer


_HEADER_BYTES: Final = HEADER.size


class Window:
    """The receive buffer of many connections of one event loop, used by one connection at a time.

    It belongs to one reader from the moment its buffer is filled until `received` returns.  No other reader may use it
    in between.  It grows to the size requested.  Sharing it keeps it in the processor's cache."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = memoryview(bytearray(SMALL_RECEIVE_WINDOW_BYTES))

    def __repr__(self) -> str:
        return f"<Window of {len(self.bytes)} bytes>"

    def of(self, size: int) -> memoryview:
        """The window, at least `size` bytes long."""
        if len(self.bytes) < size:
            self.bytes = memoryview(bytearray(size))
        return self.bytes


class FrameReader:
    """One direction of one connection.  Fill `get_buffer`, then pass the number of bytes to `received`."""

    __slots__ = (
        "_code",
        "_direct",
        "_failure",
        "_filled",
        "_missing",
        "_offered",
        "_partial",
        "_pieces",
        "_size",
        "_window",
    )

    def __init__(self, window: Window | None = None) -> None:
        """`window`: shared with other readers; None for a window of its own."""
        self._window = Window() if window is None else window
        self._size = SMALL_RECEIVE_WINDOW_BYTES  # how much of the window is used
        self._partial: bytes = b""  # the start of an incomplete frame that is not large
        self._direct: memoryview | None = None
        self._filled = 0  # bytes in the current piece of a large frame
        self._pieces: list[memoryview] = []
        self._missing = 0  # bytes of the large frame after the current piece
        self._code = 0
        self._offered = 0
        self._failure: ProtocolError | None = None

    def __repr__(self) -> str:
        state = "failed" if self._failure else f"receiving command {self._code}" if self._direct else "between"
        return f"<FrameReader {state}, {self.buffered_bytes} bytes buffered>"

    @property
    def buffered_bytes(self) -> int:
        """Bytes received of an incomplete frame; 0 at the boundary of two frames."""
        return len(self._partial) + self._filled + sum(map(len, self._pieces))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong; never empty.  `sizehint` is ignored."""
        if self._direct is not None:
            buffer = self._direct[self._filled :]
        else:
            partial = len(self._partial)
            # At each call again: other connections have used the window since.
            window = self._window.of(self._size)
            if partial:
                window[:partial] = self._partial
            buffer = window[partial : self._size]
        self._offered = len(buffer)
        return buffer

    def received(self, count: int) -> list[tuple[int, Buffer]]:
        """Take `count` bytes from the buffer; (code, payload) of each frame that is complete now.

        Raises ProtocolError for a length that is negative or too large, and on every later call.
        """
        if self._failure is not None:
            raise self._failure
        if self._direct is None:
            # A read that filled the offered part may have left more in the socket: the window grows.
            return self._cut(len(self._partial) + count, count == self._offered)
        self._filled += count
        if self._filled < len(self._direct):
            return []
        return self._piece_full()

    def feed(self, data: Buffer) -> list[tuple[int, Buffer]]:
        """Take all of `data`; all frames that `received` returned."""
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
        # A full piece counts in `_pieces` from here on (`buffered_bytes`).
        self._filled = 0
        if self._missing:
            self._pieces.append(piece)
            self._next_piece()
            return []
        payload = piece
        if self._pieces:
            payload = memoryview(b"".join([*self._pieces, piece]))
            self._pieces = []
        self._direct = None
        return [(self._code, payload)]

    def _next_piece(self) -> None:
        size = min(self._missing, FRAME_PIECE_BYTES)
        self._missing -= size
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
            # The frequent case first.  A negative length would move `stop` back and pass the first test.
            if stop <= end and length >= 0:
                # Copied: after this call the window belongs to another connection.  Large ones become a view, so that
                # their slices are views, too.
                payload = window[start:stop].tobytes()
                add((code, payload if length < LARGE_FRAME_BYTES else memoryview(payload)))
                at = stop
                continue
            if not 0 <= length <= MAX_WIRE_PAYLOAD_BYTES:
                self._failure = ProtocolError(f"a frame of type {code} announces {length} bytes")
                self._partial = b""  # the rest is never parsed, and `get_buffer` must not be empty
                raise self._failure
            # Complete large frames were cut above; this one gets a buffer of its own.
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
        self._next_piece()
        piece = self._direct
        assert piece is not None
        assert len(begun) < len(piece)  # a window is shorter than a piece, and complete frames do not come here
        # The rest is received behind it, without another copy.
        piece[: len(begun)] = begun
        self._filled = len(begun)
        self._size = (
            max(self._size, 2 * COPIED_FRAME_BYTES) if length <= COPIED_FRAME_BYTES else SMALL_RECEIVE_WINDOW_BYTES
        )
