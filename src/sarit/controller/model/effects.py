"""Effects of a decision on segments.  Every effect may be repeated at any time and by any controller.

That is safe because segment names are never used twice: numbers continue when a stream or table is created again.  So
even a controller that was suspended for a day does no harm when it resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """Create an empty segment, measured by a policy."""

    segment: str
    scale_type: int = 0
    target_rate: int = 0
    rollover_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table segment with keys of one length, in bytes."""

    segment: str
    key_length: int


@dataclass(frozen=True, slots=True)
class SealSegment:
    """End appends; a missing segment is ignored."""

    segment: str


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """Delete; a missing segment is ignored."""

    segment: str


@dataclass(frozen=True, slots=True)
class TruncateSegment:
    """Drop the bytes below `offset`; a missing segment, or one that begins above, is ignored."""

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
