"""Values of a reader group: segments of several streams, and the configuration (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import SegmentId, StreamName

UNBOUNDED: Final = (1 << 63) - 1  # no end; the distance of a reader that has reported none


@public
class GroupSegment(NamedTuple):
    """A segment of one of the group's streams."""

    stream: StreamName
    segment: SegmentId

    def __str__(self) -> str:
        return self.stream.segment(self.segment)


@public
class KeyPart(NamedTuple):
    """A range of the key space, as stored: not validated."""

    low: float
    high: float


if TYPE_CHECKING:
    Offsets = Mapping[GroupSegment, int]
    Ranges = Mapping[GroupSegment, KeyPart | None]
    Cut = Mapping[SegmentId, int]


class Retention(IntEnum):
    """The data that a group protects from retention by consumption: nothing, the data after cuts that the user
    releases, or the
    data after the last checkpoint."""

    NONE = 0
    MANUAL = 1
    AUTOMATIC = 2


@public
@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The configuration of a group: what it reads, and how.  Times in ms; `checkpoint_ms` 0: no automatic checkpoints.

    `starts`, `ends`: stream -> segment -> offset; None: the stream's head, no end.  An offset of -1: the segment's end.
    `retention`: a value of `Retention`.  `generation` rises with every configuration change."""

    starts: Mapping[StreamName, Mapping[SegmentId, int] | None]
    ends: Mapping[StreamName, Mapping[SegmentId, int] | None]
    checkpoint_ms: int = 30_000
    refresh_ms: int = 3_000
    max_outstanding: int = 3
    retention: int = 0
    generation: int = -1
    group_id: bytes = bytes(16)

    def end_offsets(self) -> dict[GroupSegment, int]:
        """Return the offsets to stop at."""
        return {
            GroupSegment(stream, segment): UNBOUNDED if offset < 0 else offset
            for stream, cut in self.ends.items()
            if cut is not None
            for segment, offset in cut.items()
        }
