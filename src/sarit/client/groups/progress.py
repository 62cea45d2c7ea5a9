"""How far a reader group has read, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.client.core.segments import segment_infos
from sarit.client.groups import stream_cuts
from sarit.client.groups.values import GroupSegment
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import Offsets
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


@public
@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """The position of a group in one segment.  Offsets in bytes.  `end`: where the group ends, or the segment does now.

    `state`: "assigned" to `reader`, "unassigned", or "later": the group begins it when it has read its predecessors."""

    stream: StreamName
    segment: SegmentId
    state: str
    reader: str | None
    position: int
    end: int

    @property
    def unread(self) -> int:
        """The bytes that the group has not read."""
        return max(0, self.end - self.position)


async def of(session: Session, state: GroupState) -> list[SegmentProgress]:
    """Return the progress in all segments but those read to their end or deleted, sorted by stream and segment."""
    found: list[SegmentProgress] = []
    for stream, positions in await stream_cuts.unread(session, newest_positions(state), {}):
        found += await _of_stream(session, state, stream, positions)
    return sorted(found, key=lambda one: (one.stream, one.segment))


def newest_positions(state: GroupState) -> dict[GroupSegment, int]:
    """Return the furthest position that the group knows of each segment it reads now; -1 means the end."""
    # Reports are seconds old, and an assignment says where the reader began: none of them is always the newest.
    reports: tuple[Offsets, ...] = (state.last_read, state.checkpoints.last or {})
    return {
        segment: at if at < 0 else max([at, *(found[segment] for found in reports if segment in found)])
        for segment, at in state.positions().items()
    }


async def _of_stream(
    session: Session, state: GroupState, stream: StreamName, positions: Mapping[SegmentId, int]
) -> list[SegmentProgress]:
    infos = await segment_infos(session, stream, list(positions))
    ends, found = state.config.end_offsets(), list[SegmentProgress]()
    for segment, info in infos.items():
        name = GroupSegment(stream, segment)
        reader = state.owner(name)
        position = max(positions[segment], info.start_offset)
        end = min(ends.get(name, info.end_offset), info.end_offset)
        phase = "assigned" if reader else "unassigned" if name in state.unassigned else "later"
        # Segments that the group reads now are included even when they are read to their tails.
        if phase != "later" or position < end:
            found.append(SegmentProgress(stream, segment, phase, reader, position, end))
    return found
