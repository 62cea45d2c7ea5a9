"""When events were appended, about: from cuts of which the controller recorded the times.

Between two recorded cuts a segment is taken to have grown evenly.  Cuts are asked for at times ever further apart, into
the past, and evenly over the range that is searched: so the time of an event is wrong by a part of its age.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from sarit.client.core.segments import tail_cut
from sarit.client.limits import SEARCH_FIRST_TIME_STEP_MS, SEARCH_TIMES, SEARCH_TIMES_AT_ONCE
from sarit.client.streams.recorded_cuts import RecordedCut, recorded_cut
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


class AppendTimes:
    """Times at which places of segments were written."""

    def __init__(self, recorded: Iterable[RecordedCut]) -> None:
        """`recorded`: cuts, at least one, in any order."""
        self._offsets: dict[SegmentId, list[int]] = {}
        self._times: dict[SegmentId, list[int]] = {}
        before = None
        for cut in sorted(recorded, key=lambda one: one.time_ms):
            for segment, offset in cut.cut.positions.items():
                offsets = self._offsets.setdefault(segment, [])
                times = self._times.setdefault(segment, [])
                if not offsets and offset and before is not None:
                    offsets.append(0)  # the segment began after the cut before
                    times.append(before)
                offsets.append(max(offset, offsets[-1] if offsets else 0))
                times.append(cut.time_ms)
            before = cut.time_ms
        self._last = before or 0

    def __repr__(self) -> str:
        return f"<AppendTimes of {len(self._offsets)} segments>"

    def of(self, segment: SegmentId, offset: int) -> int:
        """Return when a place was written, in milliseconds since 1970, about."""
        offsets, times = self._offsets.get(segment), self._times.get(segment)
        if offsets is None or times is None:
            return self._last
        at = bisect_right(offsets, offset)
        if at == 0:
            return times[0]
        if at == len(offsets):
            return times[-1]
        part = (offset - offsets[at - 1]) / max(1, offsets[at] - offsets[at - 1])
        return times[at - 1] + int(part * (times[at] - times[at - 1]))


async def append_times(session: Session, stream: StreamName, low_ms: int, now_ms: int) -> AppendTimes:
    """Return the times of what was appended since `low_ms`; `low_ms`, `now_ms`: since 1970.

    Raises NotFound, Invalid (the server is not Sarit), Unavailable."""
    found = {now_ms: RecordedCut(now_ms, await tail_cut(session, stream))}
    asked = [low_ms]
    step = SEARCH_FIRST_TIME_STEP_MS
    while now_ms - step > low_ms:
        asked.append(now_ms - step)
        step *= 2
    await _ask(session, stream, asked, found)
    # Nothing is known of the time before the oldest cut, which may be much later than `low_ms`.
    oldest = min(found)
    await _ask(
        session, stream, [oldest + (now_ms - oldest) * part // SEARCH_TIMES for part in range(1, SEARCH_TIMES)], found
    )
    return AppendTimes(found.values())


async def _ask(session: Session, stream: StreamName, times: list[int], found: dict[int, RecordedCut]) -> None:
    """Add the cuts that were recorded last at some times."""
    for begin in range(0, len(times), SEARCH_TIMES_AT_ONCE):
        some = times[begin : begin + SEARCH_TIMES_AT_ONCE]
        for one in await gather(*(recorded_cut(session, stream, time) for time in some)):
            if one is not None:
                found[one.time_ms] = one


__all__ = ["AppendTimes", "append_times"]
