"""Frames as entries of a ledger: a large frame takes several entries.

Each payload begins with a header that says which part of which frame it is.  An entry without a frame (`parts` 0) tells
bookies what is confirmed, and proves that its writer still owns the ledger; its number is that of the frame before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.limits import LEDGER_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.env.ports import Buffer

FORMAT_VERSION: Final = 1
_HEADER = struct.Struct(">BBHHIQQ")
HEADER_BYTES: Final = _HEADER.size


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry that was read from a ledger."""

    part: int
    parts: int
    container: int
    epoch: int
    frame: int
    payload: memoryview

    @property
    def ends_frame(self) -> bool:
        """Whether a frame is complete with this entry."""
        return self.parts > 0 and self.part == self.parts - 1


def split(
    container: int, epoch: int, frame: int, payload: Sequence[Buffer], entry_bytes: int = LEDGER_ENTRY_BYTES
) -> list[list[Buffer]]:
    """Return the payloads of the entries of one frame, each in pieces that are views of `payload`."""
    space = entry_bytes - HEADER_BYTES
    size = sum(map(len, payload))
    parts = max(1, -(-size // space))
    pieces = _pieces(payload, space)
    return [
        [_HEADER.pack(FORMAT_VERSION, 0, part, parts, container, epoch, frame), *next(pieces, [])]
        for part in range(parts)
    ]


def without_frame(container: int, epoch: int, last: int) -> list[Buffer]:
    """Return the payload of an entry that only proves ownership; `last`: the frame before it."""
    return [_HEADER.pack(FORMAT_VERSION, 0, 0, 0, container, epoch, last)]


def parse(payload: memoryview, container: int) -> Entry:
    """Return the entry in a payload.  Raises Corrupt (of another container or program), Invalid (a newer format)."""
    if len(payload) < HEADER_BYTES:
        raise Corrupt("an entry of the log is too short: another program wrote it")
    version, _, part, parts, owner, epoch, frame = _HEADER.unpack_from(payload)
    if version > FORMAT_VERSION:
        raise Invalid(f"an entry of the log has format {version}: this Sarit reads up to {FORMAT_VERSION}")
    if owner != container or (parts and part >= parts):
        raise Corrupt(f"an entry of the log of container {container} says that it is part {part} of {owner}'s log")
    return Entry(part, parts, owner, epoch, frame, payload[HEADER_BYTES:])


class FrameJoiner:
    """A joiner of the entries of one ledger into frames; an incomplete frame at the end was never acknowledged."""

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._frame = 0

    def add(self, entry: Entry) -> memoryview | None:
        """Add an entry.  Returns the payload of the frame that the entry completes, if it does.  Raises Corrupt."""
        if not entry.parts:
            return None
        if entry.part == 0:
            self._parts = []
            self._frame = entry.frame
        if entry.part != len(self._parts) or entry.frame != self._frame:
            raise Corrupt(f"frame {entry.frame} of the log lacks the parts before part {entry.part}")
        self._parts.append(entry.payload)
        if not entry.ends_frame:
            return None
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def _pieces(payload: Sequence[Buffer], space: int) -> Iterator[list[Buffer]]:
    """Yield the bytes of `payload` in runs of `space` bytes; the last one may be shorter."""
    run: list[Buffer] = []
    free = space
    for part in payload:
        view = memoryview(part)
        at = 0
        while at < len(view):
            taken = view[at : at + free]
            run.append(taken)
            at += len(taken)
            free -= len(taken)
            if not free:
                yield run
                run, free = [], space
    if run:
        yield run
