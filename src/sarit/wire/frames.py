"""Cuts a byte stream into frames, without copying what is large.

Theory of operation.  Bytes arrive in a *window*, a buffer of our own, where whole frames are found by their
headers; payloads under LARGE_BYTES are copied out of it.  A larger payload gets a buffer of exactly its size:
what came with its header is copied there once, and the rest is received straight into it.  After a large frame
the window is kept small, so that a series of large frames comes with little copying; every read that fills the
window doubles it, so that many small frames come with few reads.

A header may claim 16 MiB and never deliver.  So a payload above PIECE_BYTES is received in pieces of that size,
each made when the one before is full, and joined at the end: memory follows the bytes that came, not the claim.

Payloads handed out are never touched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.limits import KIB, MAX_WIRE_PAYLOAD_BYTES, MIB
from sarit.wire.commands.registry import HEADER
from sarit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

LARGE_BYTES: Final = 16 * KIB
PIECE_BYTES: Final = 1 * MIB
WINDOW_BYTES: Final = 256 * KIB
SMALL_WINDOW_BYTES: Final = 8 * KIB

_HEADER_BYTES: Final = HEADER.size


class FrameReader:
    """One direction of one connection.  Fill `get_buffer`, then say how much came to `received`."""

    __slots__ = ("_code", "_direct", "_failure", "_filled", "_missing", "_offered", "_pieces", "_size", "_window")

    def __init__(self) -> None:
        self._window = memoryview(bytearray(SMALL_WINDOW_BYTES))
        self._size = SMALL_WINDOW_BYTES
        self._filled = 0  # bytes in the window, or in the piece while a large frame is received
        self._direct: memoryview | None = None
        self._pieces: list[memoryview] = []
        self._missing = 0  # bytes of the large frame behind the current piece
        self._code = 0
        self._offered = 0
        self._failure: ProtocolError | None = None

    def __repr__(self) -> str:
        state = "failed" if self._failure else f"receiving command {self._code}" if self._direct else "between"
        return f"<FrameReader {state}, {self.held_bytes} bytes held>"

    @property
    def held_bytes(self) -> int:
        """Bytes received of a frame that is not whole yet; 0 at the boundary of two frames."""
        return self._filled + sum(map(len, self._pieces))

    def get_buffer(self, hint: int) -> memoryview:
        """Where the next bytes belong; never empty.  `hint` is ignored."""
        buffer = (self._window if self._direct is None else self._direct)[self._filled :]
        self._offered = len(buffer)
        return buffer

    def received(self, count: int) -> list[tuple[int, Buffer]]:
        """`count` bytes are in the buffer: (code, payload) of each frame that is whole now.

        Raises ProtocolError for a length that is negative or too large, and on every call after that.
        """
        if self._failure is not None:
            raise self._failure
        self._filled += count
        if self._direct is None:
            return self._cut(count == self._offered)
        if self._filled < len(self._direct):
            return []
        return self._piece_full()

    def feed(self, data: Buffer) -> list[tuple[int, Buffer]]:
        """Take all of `data`; what `received` gave on the way."""
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
        size = min(self._missing, PIECE_BYTES)
        self._missing -= size
        self._direct = memoryview(bytearray(size))

    def _cut(self, window_full: bool) -> list[tuple[int, Buffer]]:
        """Take the frames out of the window and move what is left to its beginning."""
        frames: list[tuple[int, Buffer]] = []
        window, end = self._window, self._filled
        add, unpack = frames.append, HEADER.unpack_from
        at = 0
        while end - at >= _HEADER_BYTES:
            code, length = unpack(window, at)
            start = at + _HEADER_BYTES
            stop = start + length
            if stop <= end and length >= 0:
                payload = window[start:stop].tobytes()
                add((code, payload if length < LARGE_BYTES else memoryview(payload)))
                at = stop
                continue
            if not 0 <= length <= MAX_WIRE_PAYLOAD_BYTES:
                self._failure = ProtocolError(f"a frame of type {code} claims {length} bytes")
                self._filled = 0  # nothing of it is looked at again, and a buffer is never empty
                raise self._failure
            if length >= LARGE_BYTES:
                self._begin_large(code, length, window[start:end])
                return frames
            break
        rest = end - at
        if window_full and self._size < WINDOW_BYTES:
            self._resize(self._size * 2, window[at:end])
        elif at and rest:
            window[:rest] = window[at:end]
        self._filled = rest
        return frames

    def _begin_large(self, code: int, length: int, begun: memoryview) -> None:
        self._code = code
        self._missing = length
        self._next_piece()
        piece = self._direct
        assert piece is not None
        assert len(begun) < len(piece)  # a window is shorter than a piece, and a whole frame is not begun
        piece[: len(begun)] = begun
        self._filled = len(begun)
        self._resize(SMALL_WINDOW_BYTES, None)

    def _resize(self, size: int, keep: memoryview | None) -> None:
        if size != self._size:
            window = memoryview(bytearray(size))
            if keep is not None:
                window[: len(keep)] = keep
            self._window, self._size = window, size
