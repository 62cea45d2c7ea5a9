"""What a decision asks to be done.  Every effect may be repeated at any time, by anybody, also after it was done.

Nothing here names a segment that could come to life again: segment names are never used twice by a stream or table
name (numbers go on when it is created anew), so even a controller that slept for a day does no harm when it wakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """An empty segment, metered by a policy; `fresh`: its name was drawn at random and never used before."""

    segment: str
    scale_type: int = 0
    target_rate: int = 0
    rollover_bytes: int = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A table segment with keys of one length, in bytes."""

    segment: str
    key_length: int


@dataclass(frozen=True, slots=True)
class SealSegment:
    """No more appends; a missing segment is left alone."""

    segment: str


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """A missing segment is left alone."""

    segment: str


@dataclass(frozen=True, slots=True)
class TruncateSegment:
    """Drop the bytes below `offset`; a missing segment, or one that begins above, is left alone."""

    segment: str
    offset: int


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """What the store meters a segment by."""

    segment: str
    scale_type: int
    target_rate: int


@dataclass(frozen=True, slots=True)
class MergeSegments:
    """Append whole segments to `target`, in order; missing ones were merged before, as all were if it is sealed."""

    target: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveMark:
    """Delete the watermark stream of a stream, whatever its state."""

    stream: StreamName


Effect = (
    CreateSegment | CreateTable | SealSegment | DeleteSegment | TruncateSegment | SetPolicy | MergeSegments | RemoveMark
)
Stages = tuple[tuple[Effect, ...], ...]
