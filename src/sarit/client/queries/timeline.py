"""When the events of a stream were ingested, as far as its recorded cuts tell.

The controller records a cut of a stream that grows once a minute, and retains fewer of older ones.  An event behind a
recorded cut was appended at its time or later, but for the moment in which the cut was taken: the time of the newest
cut before an event is its `sarit.ingested`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.client.limits import QUERY_TIMELINE_CUTS
from sarit.client.streams.recorded_cuts import RecordedCut, recorded_cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName

# The offset of a cut in a segment that ended before it: no event of the segment is behind the cut.
NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Times:
    """Recorded cuts in one segment: where they lie, ascending, and when they were recorded (microseconds).

    `times_us` has one time more, at its beginning: that of events before the first cut."""

    bounds: tuple[int, ...]
    times_us: tuple[int, ...]


async def recorded_cuts(session: Session, stream: StreamName, now_ms: int) -> list[RecordedCut]:
    """Return the recorded cuts of a stream that are not before its head, the oldest first; at most
    QUERY_TIMELINE_CUTS, the newest.

    Raises NotFound, Invalid (the server is not Sarit)."""
    found: list[RecordedCut] = []
    at = now_ms
    while len(found) < QUERY_TIMELINE_CUTS:
        cut = await recorded_cut(session, stream, at)
        if cut is None or cut.time_ms > at:  # a clock that was set back
            break
        found.append(cut)
        at = cut.time_ms - 1
    return found[::-1]


def times_of(segment: SegmentId, cuts: Sequence[RecordedCut], now_ms: int) -> Times:
    """Return where recorded cuts lie in a segment (pure); `cuts`: the oldest first.

    Events before the first cut have its time, and without a cut the present one: that is late by a minute at most
    where the stream is new, and what a committer of tables writes, too."""
    bounds: list[int] = []
    times: list[int] = [1000 * (cuts[0].time_ms if cuts else now_ms)]
    for recorded in cuts:
        at = _position(segment, recorded)
        # Clocks may be set back between two records: an offset never falls.
        if at != NEVER and (not bounds or at >= bounds[-1]):
            bounds.append(at)
            times.append(recorded.time_ms * 1000)
    return Times(tuple(bounds), tuple(times))


def _position(segment: SegmentId, recorded: RecordedCut) -> int:
    positions = recorded.cut.positions
    if segment in positions:
        return positions[segment]
    # A record has all segments of one epoch of the stream, and those that it began have its number.
    return 0 if segment.epoch > max(found.epoch for found in positions) else NEVER
