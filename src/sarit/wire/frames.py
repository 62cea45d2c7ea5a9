"""Cuts a byte stream into frames, without copying what is large.

Theory of operation.  Bytes arrive in a *window*, a buffer that all connections of one event loop share, where whole
frames are found by their headers; their payloads are copied out of it, and so is a frame that is only begun, to be put
back in front of what comes next.  A larger payload that is not whole gets a buffer of exactly its size: what came with
its header is copied there once, and the rest is received straight into it.

How much of the window a reader offers adapts.  Every read that fills it doubles it, so that many small frames come
with few reads; after a payload up to COPIED_BYTES that did not fit it is enough for the next one, since a copy costs
less than a second read; after a longer one it is small, so that a series of those comes with little copying.

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
COPIED_BYTES: Final = 64 * KIB
WINDOW_BYTES: Final = 256 * KIB
SMALL_WINDOW_BYTES: Final = 8 * KIB

_HEADER_BYTES: Final = HEADER.size


class Window:
    """Where the bytes of many connections arrive, of one after the other: those of one event loop may share it.

    From when a buffer is filled until `received` has returned it is that reader's: no other may be asked for one.
    It grows to what is asked for, and stays hot in the processor's cache."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = memoryview(bytearray(SMALL_WINDOW_BYTES))

    def __repr__(self) -> str:
        return f"<Window of {len(self.bytes)} bytes>"

    def of(self, size: int) -> memoryview:
        """The window, of at least `size` bytes."""
        if len(self.bytes) < size:
            self.bytes = memoryview(bytearray(size))
        return self.bytes


class FrameReader:
    """One direction of one connection.  Fill `get_buffer`, then say how much came to `received`."""

    __slots__ = (
        "_code",
        "_direct",
        "_failure",
        "_filled",
        "_held",
        "_missing",
        "_offered",
        "_pieces",
        "_size",
        "_window",
    )

    def __init__(self, window: Window | None = None) -> None:
        """`window`: shared with other readers; without one it has its own."""
        self._window = Window() if window is None else window
        self._size = SMALL_WINDOW_BYTES  # how much of the window is used
        self._held: bytes = b""  # a frame that is begun, not a large one
        self._direct: memoryview | None = None
        self._filled = 0  # bytes in the piece, while a large frame is received
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
        return len(self._held) + self._filled + sum(map(len, self._pieces))

    def get_buffer(self, hint: int) -> memoryview:
        """Where the next bytes belong; never empty.  `hint` is ignored."""
        if self._direct is not None:
            buffer = self._direct[self._filled :]
        else:
            held = len(self._held)
            window = self._window.of(self._size)
            if held:
                window[:held] = self._held
            buffer = window[held : self._size]
        self._offered = len(buffer)
        return buffer

    def received(self, count: int) -> list[tuple[int, Buffer]]:
        """`count` bytes are in the buffer: (code, payload) of each frame that is whole now.

        Raises ProtocolError for a length that is negative or too large, and on every call after that.
        """
        if self._failure is not None:
            raise self._failure
        if self._direct is None:
            return self._cut(len(self._held) + count, count == self._offered)
        self._filled += count
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

    def _cut(self, end: int, window_full: bool) -> list[tuple[int, Buffer]]:
        """Take the frames out of the `end` bytes in the window, and hold what is left."""
        frames: list[tuple[int, Buffer]] = []
        window = self._window.bytes
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
                self._held = b""  # nothing of it is looked at again, and a buffer is never empty
                raise self._failure
            if length >= LARGE_BYTES:
                self._begin_large(code, length, window[start:end])
                return frames
            break
        if window_full and self._size < WINDOW_BYTES:
            self._size *= 2
        self._held = window[at:end].tobytes() if at < end else b""
        return frames

    def _begin_large(self, code: int, length: int, begun: memoryview) -> None:
        self._code = code
        self._held = b""
        self._missing = length
        self._next_piece()
        piece = self._direct
        assert piece is not None
        assert len(begun) < len(piece)  # a window is shorter than a piece, and a whole frame is not begun
        piece[: len(begun)] = begun
        self._filled = len(begun)
        self._size = max(self._size, 2 * COPIED_BYTES) if length <= COPIED_BYTES else SMALL_WINDOW_BYTES
