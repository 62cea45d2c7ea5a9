"""The effects of decisions on segments.  Every effect may be repeated at any time and by any controller.

That is safe because segment names are never reused: numbers continue when a stream or table is recreated.  So even a
controller that was suspended for a day does no harm when it resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """Create an empty segment.  `scale_type`, `target_rate`: the scaling policy that its rates are compared with."""

    segment: str
    scale_type: int = 0
    target_rate: int = 0
    rollover_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CreateMirror:
    """Create a segment of a mirror, which begins and ends at `offset`, and which clients may only read."""

    segment: str
    offset: int
    rollover_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table segment with keys of one length, in bytes."""

    segment: str
    key_length: int


@dataclass(frozen=True, slots=True)
class CreateMirrorTable:
    """Create a table segment that clients only read, and whose versions no table of theirs has."""

    segment: str
    key_length: int


@dataclass(frozen=True, slots=True)
class SealSegment:
    """Seal a segment; a missing one is ignored."""

    segment: str


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """Delete a segment; a missing one is ignored."""

    segment: str


@dataclass(frozen=True, slots=True)
class TruncateSegment:
    """Drop the bytes of a segment below `offset`; a segment that is missing, or starts above it, is ignored."""

    segment: str
    offset: int


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Set the policy that the store measures a segment by."""

    segment: str
    scale_type: int
    target_rate: int


@dataclass(frozen=True, slots=True)
class MergeSegments:
    """Merge source segments into `target`, in order.  A missing source was merged before; if the target is sealed, all
    were."""

    target: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveMark:
    """Delete the watermark stream of a stream, whatever its state."""

    stream: StreamName


Effect = (
    CreateSegment
    | CreateMirror
    | CreateTable
    | CreateMirrorTable
    | SealSegment
    | DeleteSegment
    | TruncateSegment
    | SetPolicy
    | MergeSegments
    | RemoveMark
)
Stages = tuple[tuple[Effect, ...], ...]
