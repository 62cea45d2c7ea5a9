"""The plan of an epoch: everything between two cuts of a stream, divided into pieces (pure).

Theory of operation.  The parts of the segments between two cuts never change, so a plan is a function of the cuts and
of the length of a piece.  A part is divided into pieces of equal length by arithmetic.  The offsets between them are
*nominal*: they may lie within an event.  A piece has the events that begin at or after its first offset and before its
last one, so each event of a part is in exactly one piece, whatever anybody knows of boundaries.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.training.limits import MAX_TRAINING_PIECES, MIN_TRAINING_PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one segment (its packed id) between two event boundaries."""

    segment: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The events of a part that begin at `low` or after it, and before `high`."""

    part: Part
    low: int
    high: int


@dataclass(frozen=True)
class Plan:
    """The parts of an epoch, in the order of segments, and the most bytes of a piece.

    `between`: the two cuts as the caller named them.  `creation`: what tells the stream from others of its name (hex;
    empty: the server does not say).  `frame_bytes`: of a byte stream with frames of equal length, which pieces do not
    divide; 0: events; -1: frames that only a reader from the beginning finds, which are one piece."""

    stream: StreamName
    between: tuple[str, str]
    creation: str
    parts: tuple[Part, ...]
    piece_bytes: int
    frame_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the sizes.  Raises Invalid."""
        if self.piece_bytes < MIN_TRAINING_PIECE_BYTES:
            raise Invalid(f"pieces of {self.piece_bytes} bytes are too short: give {MIN_TRAINING_PIECE_BYTES} or more")
        if len(self) > MAX_TRAINING_PIECES:
            raise Invalid(
                f"an epoch of {len(self)} pieces is too long: give longer pieces (piece_bytes), or cuts that are closer"
            )

    @cached_property
    def _ends(self) -> list[int]:
        """How many pieces there are up to the end of each part."""
        return list(accumulate(map(self._count, self.parts)))

    def _count(self, part: Part) -> int:
        length = part.end - part.start
        if self.frame_bytes < 0:
            return 1 if length else 0
        return -(-length // self._step)

    @property
    def _step(self) -> int:
        if self.frame_bytes <= 0:
            return self.piece_bytes
        return max(self.piece_bytes // self.frame_bytes, 1) * self.frame_bytes

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def piece(self, index: int) -> Piece:
        """Return a piece by its number."""
        if not 0 <= index < len(self):
            raise Invalid(f"piece {index} of a plan of {len(self)}")
        at = bisect_right(self._ends, index)
        part = self.parts[at]
        count = self._count(part)
        number = index - (self._ends[at] - count)
        if self.frame_bytes < 0:
            return Piece(part, part.start, part.end)
        if self.frame_bytes:
            low = part.start + number * self._step
            return Piece(part, low, min(low + self._step, part.end))
        # Of equal length: the last one of a part is not much shorter than the others.
        length = part.end - part.start
        return Piece(part, part.start + length * number // count, part.start + length * (number + 1) // count)

    @property
    def total_bytes(self) -> int:
        """How much there is to read, headers of events included."""
        return sum(part.end - part.start for part in self.parts)

    @cached_property
    def digest(self) -> str:
        """A text that differs between plans."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {
            "stream": str(self.stream),
            "between": list(self.between),
            "creation": self.creation,
            "parts": [[part.segment, part.start, part.end] for part in self.parts],
            "piece_bytes": self.piece_bytes,
            "frame_bytes": self.frame_bytes,
        }

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Plan:
        """Return the inverse of `to_dict`.  Raises Invalid."""
        try:
            parts = [Part(*map(as_number, part)) for part in found["parts"]]
            start, end = map(_text, found["between"])
            return plan_of(
                StreamName.parse(_text(found["stream"])),
                (start, end),
                _text(found["creation"]),
                parts,
                as_number(found["piece_bytes"]),
                as_number(found["frame_bytes"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, Invalid):
                raise
            raise Invalid("that is no plan of an epoch: give what `state_dict` returned") from None


def as_number(found: object) -> int:
    """Return a value that must be an integer.  Raises TypeError."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError("an integer is missing")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("a text is missing")
    return found


def plan_of(
    stream: StreamName,
    between: tuple[str, str],
    creation: str,
    parts: Iterable[Part],
    piece_bytes: int,
    frame_bytes: int = 0,
) -> Plan:
    """Return the plan of parts in any order, without empty ones.  Raises Invalid."""
    ordered = tuple(sorted((part for part in parts if part.start != part.end), key=lambda part: part.segment))
    if len({part.segment for part in ordered}) != len(ordered):
        raise Invalid(f"a plan of {stream} names a segment twice")
    for part in ordered:
        if not 0 <= part.start < part.end or part.segment < 0:
            raise Invalid(f"a plan of {stream} has a part from {part.start} to {part.end} of segment {part.segment}")
        if frame_bytes > 0 and (part.end - part.start) % frame_bytes:
            raise Invalid(
                f"{stream} has {part.end - part.start} bytes between the two offsets, which are no whole frames of "
                f"{frame_bytes} bytes: give an end that is, or another frame"
            )
    return Plan(stream, between, creation, ordered, piece_bytes, frame_bytes)
