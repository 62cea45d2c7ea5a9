"""Stream cuts from the positions of a group, and the time windows at them.

The positions do not contain a segment that was read to its end while its successor still waits for another predecessor
(a merge): no reader owns it any more.  A cut must cover all keys, so such segments are found and added at their ends.
Java leaves them out; a group that is reset to such a cut never reaches the successor.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sarit.client.core.segments import segment_infos, tail_cut
from sarit.client.streams import history
from sarit.client.streams.event_time import TimeWindow, TimeWindows
from sarit.client.streams.history import Ranges
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.core.keyspace import tiles
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.values import Successor
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment, Offsets
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName

MAX_STEPS = 10_000  # how many segments a walk visits: a bound for a damaged history


async def cuts_of(session: Session, positions: Offsets, *, exact: bool = False) -> list[StreamCut]:
    """Return a cut of each stream that has positions.  Raises NotFound, Conflict (`exact`, and they are no cut).

    The positions are no cut while readers are between two scales of a stream: a segment is not read to its end,
    others beside it have continued with successors, and a merged segment waits.  Without `exact` the cut then lies
    before some of what was read."""
    return [await _cut(session, stream, offsets, exact) for stream, offsets in _by_stream(positions).items()]


async def unread(
    session: Session, positions: Offsets, ends: Mapping[StreamName, StreamCut]
) -> list[tuple[StreamName, dict[SegmentId, int]]]:
    """Return for each stream the segments from the positions to its end (its tail, when it has none), and the position
    in each.  Raises NotFound."""
    found: list[tuple[StreamName, dict[SegmentId, int]]] = []
    for stream, offsets in _by_stream(positions).items():
        start = await _cut(session, stream, offsets, exact=False)
        wanted = await history.between(session, start, ends.get(stream) or await tail_cut(session, stream))
        if not offsets.keys() <= start.positions.keys():
            # No cut exists at the positions.  Some segments after the one before them have been read.
            wanted = await _ahead(session, stream, offsets, frozenset(wanted))
        at = {**start.positions, **{segment: offset for segment, offset in offsets.items() if offset >= 0}}
        # A segment that nobody reads yet begins at 0.
        found.append((stream, {segment: at.get(segment, 0) for segment in wanted}))
    return found


def _by_stream(positions: Offsets) -> dict[StreamName, dict[SegmentId, int]]:
    streams: dict[StreamName, dict[SegmentId, int]] = {}
    for segment, offset in sorted(positions.items()):
        streams.setdefault(segment.stream, {})[segment.segment] = offset
    return streams


class _Successors:
    """The successors of each segment of a stream, asked for once: the steps of one cut see the same history."""

    def __init__(self, session: Session, stream: StreamName) -> None:
        self.stream = stream
        self._session = session
        self._known: dict[SegmentId, list[Successor]] = {}

    async def of(self, segment: SegmentId) -> list[Successor]:
        """Raises NotFound."""
        if segment not in self._known:
            self._known[segment] = await self._session.controller.successors(self.stream, segment)
        return self._known[segment]


async def _cut(session: Session, stream: StreamName, offsets: dict[SegmentId, int], exact: bool) -> StreamCut:
    successors = _Successors(session, stream)
    missing, whole = await _missing(session, successors, offsets)
    if exact and not (whole and await _none_begun(successors, missing)):
        raise Conflict(
            f"the readers are between two scales of {stream}, where no cut exists: try again when they have read on"
        )
    if not whole:
        return await _cut_before(session, successors, offsets)
    # Two kinds of ended segments: those that no set of the group contains any more, and deleted ones, at offset -1.
    ended = [*missing, *(segment for segment, offset in offsets.items() if offset < 0)]
    infos = await segment_infos(session, stream, ended)
    unfinished = {segment: offset for segment, offset in offsets.items() if offset >= 0}
    return StreamCut(stream, unfinished | {segment: info.end_offset for segment, info in infos.items()})


async def _cut_before(session: Session, successors: _Successors, offsets: dict[SegmentId, int]) -> StreamCut:
    """Return the segments of the newest epoch that the group has read past nowhere: a cut before all positions.

    Each segment of that epoch has a position, or was read to its end: had it waited for another, that one would have
    a position, and would have been sealed before this epoch."""
    stream = successors.stream
    newest: int | None = None
    for segment in (segment for segment, offset in offsets.items() if offset >= 0):
        # All successors of a segment begin in the epoch after its last one.
        for successor in await successors.of(segment):
            last = successor.segment.epoch - 1
            newest = last if newest is None else min(newest, last)
    if newest is None:
        raise Corrupt(f"the positions of the group do not cover {stream}, and no segment among them has a successor")
    segments = [one.segment for one in (await history.epoch(session, stream, newest)).segments]
    known = {one: offset for one in segments if (offset := offsets.get(one, -1)) >= 0}
    ended = await segment_infos(session, stream, [one for one in segments if one not in known])
    # A deleted segment was truncated away: a reader finds that out at any offset.
    return StreamCut(stream, dict.fromkeys(segments, 0) | {one: at.end_offset for one, at in ended.items()} | known)


async def _ahead(
    session: Session, stream: StreamName, offsets: dict[SegmentId, int], among: frozenset[SegmentId]
) -> list[SegmentId]:
    """Return the segments that are read now, and those of `among` that come after them."""
    ahead, seen = deque(sorted(offsets)), set(offsets)
    while ahead:
        for successor in await session.controller.successors(stream, ahead.popleft()):
            if successor.segment in among - seen:
                seen.add(successor.segment)
                ahead.append(successor.segment)
    return sorted(seen & among)


async def _none_begun(successors: _Successors, ended: list[SegmentId]) -> bool:
    """Return whether every successor of the ended segments still waits for another predecessor."""
    done = frozenset(ended)
    for segment in ended:
        for successor in await successors.of(segment):
            if successor.predecessors <= done:
                return False
    return True


async def _missing(
    session: Session, successors: _Successors, offsets: dict[SegmentId, int]
) -> tuple[list[SegmentId], bool]:
    """Return the ended segments whose successors wait, and whether all keys are covered with them.

    Found by walking from the known segments to their successors, and to the other predecessors of those."""
    ranges = Ranges(session, successors.stream)
    covered = await ranges.of(offsets)
    ahead, seen, found = deque(sorted(offsets)), set(offsets), list[SegmentId]()
    while ahead and len(seen) < MAX_STEPS and not tiles(covered.values()):
        for successor in await successors.of(ahead.popleft()):
            for other in sorted(successor.predecessors - seen):
                keys = (await ranges.of([other]))[other]
                # Where its keys are covered, a segment before or after this one has them already.
                if not any(keys.overlaps(known) for known in covered.values()):
                    covered[other] = keys
                    found.append(other)
                    seen.add(other)
            if successor.segment not in seen:
                seen.add(successor.segment)
                ahead.append(successor.segment)
    return found, tiles(covered.values())


class GroupTimeWindows:
    """The time windows of one reader's group, by stream."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._windows: dict[StreamName, TimeWindows] = {}

    def __repr__(self) -> str:
        return f"GroupWindows({', '.join(map(str, self._windows))})"

    async def at(self, stream: StreamName, state: GroupState, own: Mapping[GroupSegment, int]) -> TimeWindow:
        """Return the window of a stream: `own` are the positions of this reader, the state has the reported ones of the
        others.

        Raises Invalid when the group does not read the stream."""
        if stream not in state.config.starts:
            raise Invalid(f"the group does not read {stream}; it reads {', '.join(map(str, state.config.starts))}")
        reported = {segment: at for segment, at in state.last_read.items() if segment.stream == stream}
        if not reported:  # everything was read
            return TimeWindow(None, None)
        here = {segment.segment: own.get(segment, at) for segment, at in reported.items()}
        windows = self._windows.setdefault(stream, TimeWindows(self._session, stream))
        return await windows.at(StreamCut(stream, here))
