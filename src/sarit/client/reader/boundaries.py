"""Where events begin (pure): from one known boundary, header by header, to the first at or behind a target.

Only headers are looked at: no event is made.  Bytes come in pieces that end anywhere.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sarit.client.core.framing import run_of
from sarit.core.errors import Corrupt
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

_HEADER = struct.Struct(">q")


class BoundaryWalk:
    """`start` is a boundary, offsets in bytes.  `last` is the last boundary whose events before it came whole."""

    __slots__ = ("_held", "_next", "_target", "_upto", "last")

    def __init__(self, start: int, target: int) -> None:
        self.last = start
        self._next = start
        self._upto = start
        self._target = target
        self._held = b""

    def __repr__(self) -> str:
        return f"BoundaryWalk(at {self.last}, to {self._target})"

    @property
    def found(self) -> bool:
        """Whether `last` is at or behind the target."""
        return self.last >= self._target

    def feed(self, piece: Buffer) -> bool:
        """Take the bytes that follow; True when the target was reached.  Raises Corrupt."""
        data = self._held + bytes(piece)
        base = self._upto - len(self._held)
        self._upto += len(piece)
        while True:
            if self._next <= self._upto:
                self.last = self._next
            if self.found:
                return True
            at = self._next - base
            if at + EVENT_HEADER_BYTES > len(data):
                self._held = data[at:] if at < len(data) else b""
                return False
            count, length = run_of(data, at)
            if not count:
                (length,) = _HEADER.unpack_from(data, at)
            if not 0 <= length < 1 << 31:
                raise Corrupt(f"no event begins at {self._next}")
            stride = EVENT_HEADER_BYTES + length
            self._next += stride * max(min(count, -(-(self._target - self._next) // stride)), 1)
