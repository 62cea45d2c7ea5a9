"""Watermarks as readers see them (pure): "up to this cut every writer had written everything before this time".

The events of stream `_MARK<stream>` are watermarks.  Format (naming.md par. 5; Pravega `Watermark`,
`SegmentWithRange`), as `core/versioned_objects.py` explains it, all numbers big-endian:

    watermark  v0 r0: lower int64, upper int64, count compact int, per segment: range, offset int64
    range      v0 r0: packed segment id int64, low float64, high float64

Times are the writers' own: whatever their events' time is measured in.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId
from sarit.core.versioned_objects import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION: Final = 0
_TIMES: Final = struct.Struct(">qq")
_RANGE: Final = struct.Struct(">qdd")
_LONG: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Watermark:
    """`positions`: segment -> (its range of keys, offset in bytes); a cut of the stream."""

    lower: int
    upper: int
    positions: Mapping[SegmentId, tuple[KeyRange, int]]


def decode(data: bytes) -> Watermark:
    """Return a watermark of Java's bytes.  Raises Invalid."""
    payload = Cursor(_only(Cursor(data), "watermark"))
    lower, upper = _TIMES.unpack(payload.take(_TIMES.size))
    positions: dict[SegmentId, tuple[KeyRange, int]] = {}
    for _ in range(payload.compact_int()):
        packed, low, high = _RANGE.unpack(Cursor(_only(payload, "range of a watermark")).take(_RANGE.size))
        (offset,) = _LONG.unpack(payload.take(_LONG.size))
        positions[SegmentId.unpack(packed)] = (KeyRange(low, high), offset)
    return Watermark(lower, upper, positions)


def _only(cursor: Cursor, what: str) -> bytes:
    """Return the first revision of the versioned object at the cursor."""
    version, revisions = cursor.single()
    if version != _VERSION or 0 not in revisions:
        raise Invalid(f"a {what} of version {version}; version 0 is known")
    return revisions[0]


def is_behind(mark: Watermark, position: Mapping[SegmentId, tuple[KeyRange, int]]) -> bool:
    """Return whether a reader at `position` (a cut, with ranges) has read everything up to the watermark."""
    for segment, (keys, offset) in mark.positions.items():
        if segment in position:
            if position[segment][1] < offset:
                return False
        elif any(here.epoch < segment.epoch and there.overlaps(keys) for here, (there, _) in position.items()):
            return False
    return True


def is_ahead(mark: Watermark, position: Mapping[SegmentId, tuple[KeyRange, int]]) -> bool:
    """Return whether a reader at `position` (a cut, with ranges) has read nothing beyond the watermark."""
    for segment, (keys, offset) in mark.positions.items():
        if segment in position:
            if position[segment][1] > offset:
                return False
        elif any(here.epoch > segment.epoch and there.overlaps(keys) for here, (there, _) in position.items()):
            return False
    return True
