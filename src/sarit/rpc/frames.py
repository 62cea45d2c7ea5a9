"""Counts the frames in the bytes of an HTTP/2 client, and cuts the bytes at their ends, before h2 reads them.

A frame costs h2 about the same whatever it contains, and one read of a socket may bring 29,000 frames.  So a
connection passes a few whole frames to h2 in one turn of the event loop, and counts their cost (`rpc/frame_budget.py`).
This module only reads the length, type and flags of a frame; h2 checks everything else.

A long DATA frame with nothing else in it is returned alone: its bytes may go past h2 to the call that they are of.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sarit.core.limits import KIB
from sarit.rpc.limits import (
    HEADER_BYTES_PER_TURN,
    LONG_DATA_BYTES,
    MAX_HEADER_BLOCK_BYTES,
    MAX_HTTP2_FRAME_BYTES,
    SMALL_DATA_BYTES,
)

_PREFACE: Final = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")  # before the first frame
_HEAD: Final = 9  # three bytes of length, kind, flags, four bytes of the stream
_DATA: Final = 0
_HEADERS: Final = 1
_RESET: Final = 3
_SETTINGS: Final = 4
_CONTINUATION: Final = 9
_ACK: Final = 0x1
_END_HEADERS: Final = 0x4

# The cost of frames that begin no call, in units of the cheapest.  A reset costs the handler of the call that it ends.
# Settings are applied to each call in progress.
_RESET_COST: Final = 16
_SETTINGS_COST: Final = 8


class Frames(NamedTuple):
    """Whole frames, including the preface.

    `control`: the cost of those that begin no call and carry at most a few bytes of data.
    `long_stream`: the stream of the only frame, if that is DATA of LONG_DATA_BYTES or more, without flags; or 0."""

    data: bytearray
    frames: int
    calls: int
    header_bytes: int
    control: int
    long_stream: int = 0

    @property
    def payload(self) -> memoryview:
        """The bytes of the only frame."""
        return memoryview(self.data)[_HEAD:]


class FrameScanner:
    """The bytes that a client has sent and h2 has not read yet."""

    __slots__ = ("_block_bytes", "_data", "_preface_left", "excess", "incomplete", "most_bytes")

    def __init__(self) -> None:
        self._data = bytearray()
        self._preface_left = _PREFACE
        self.most_bytes = MAX_HTTP2_FRAME_BYTES  # of one frame
        self._block_bytes: int | None = None  # the size so far of incomplete headers; None: there are none
        self.incomplete = False  # whether a frame, or a sequence of frames with headers, is incomplete
        self.excess: str | None = None  # which bound was exceeded; nothing more may be read then

    def __repr__(self) -> str:
        return f"<FrameScanner, {len(self._data)} bytes>"

    @property
    def held_bytes(self) -> int:
        """The number of bytes that wait."""
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def take(self, most: int) -> Frames:
        """Remove and return the next whole frames, `most` at most, and fewer if their headers are long."""
        data, end, length = self._data, min(self._preface_left, len(self._data)), len(self._data)
        self._preface_left -= end
        count = calls = header_bytes = control = long_stream = 0
        while count < most and header_bytes < HEADER_BYTES_PER_TURN and end + 3 <= length:
            payload = int.from_bytes(data[end : end + 3], "big")
            if payload > self.most_bytes:
                self.excess = f"announced a frame of more than {self.most_bytes // KIB} KiB"
                break
            if end + _HEAD + payload > length:
                break
            kind, flags = data[end + 3], data[end + 4]
            if kind == _DATA and not flags and payload >= LONG_DATA_BYTES and self._block_bytes is None:
                if end == 0:
                    long_stream = int.from_bytes(data[5:_HEAD], "big")
                    count, end = 1, _HEAD + payload
                break
            end += _HEAD + payload
            count += 1
            if kind in (_HEADERS, _CONTINUATION):
                header_bytes += payload
                calls += kind == _HEADERS
                control += kind == _CONTINUATION
                block = payload + (self._block_bytes or 0)
                if block > MAX_HEADER_BLOCK_BYTES:
                    self.excess = "sent headers of more than 64 KiB"
                    break
                self._block_bytes = None if flags & _END_HEADERS else block
            elif kind == _RESET:
                control += _RESET_COST
            elif kind == _SETTINGS and not flags & _ACK:
                control += _SETTINGS_COST
            elif kind != _DATA or payload < SMALL_DATA_BYTES:
                control += 1
        if end == length:  # without a copy, which would double what a long request costs here
            taken, self._data = data, bytearray()
            data = self._data
        else:
            taken = data[:end]
            del data[:end]
        self.incomplete = self._preface_left == 0 and bool(data or self._block_bytes is not None)
        return Frames(taken, count, calls, header_bytes, control, long_stream)
