"""The position of a reader in a stream, and which segments it may read next (pure).

Invariant: `positions` is a stream cut at all times: its segments tile the key space.  A segment that is read to its end
stays in it, at its end, until everything that scaling tied to it can be replaced together: its successors, all *their*
predecessors, the successors of those, and so on.  Then the whole group is replaced by its successors at offset 0.  So
no event of a successor is read before all events of its predecessors, and a position is always a valid cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.client.core.values import Successor
    from sarit.core.names import SegmentId


class Progress:
    """`positions`: segment -> offset of the next byte.  `end`: where to stop, or None."""

    __slots__ = ("_end", "_finished", "_following", "_last_epoch", "positions")

    def __init__(self, start: Mapping[SegmentId, int], end: Mapping[SegmentId, int] | None) -> None:
        self.positions = dict(start)
        self._end = end
        self._last_epoch = max((segment.epoch for segment in end), default=0) if end else 0
        self._finished: set[SegmentId] = set()
        self._following: dict[SegmentId, dict[SegmentId, frozenset[SegmentId]]] = {}

    def __repr__(self) -> str:
        return f"Progress({self.positions}, finished {sorted(self._finished)})"

    def limit(self, segment: SegmentId) -> int | None:
        """Return the offset up to which to read a segment, or None to read it to its end."""
        if self._end is None:
            return None
        limit = self._end.get(segment)
        if limit is None and segment.epoch > self._last_epoch:
            return 0  # the segment was created after the cut
        return limit

    def stops_at_limit(self, segment: SegmentId) -> bool:
        """Return whether reading ends in this segment, so that its successors are not read."""
        return self.limit(segment) is not None

    @property
    def done(self) -> bool:
        """Whether everything up to the end was read."""
        # `_finished` is a subset of `positions`: segments leave both together.
        return len(self._finished) == len(self.positions)

    def unfinished(self) -> list[SegmentId]:
        """Return the segments of the position that were not read to their end or limit yet."""
        return [segment for segment in self.positions if segment not in self._finished]

    def finished(self, segment: SegmentId) -> None:
        """Record that a segment was read to its end or limit, and has no successors to read."""
        self.followed(segment, ())

    def followed(self, segment: SegmentId, successors: Iterable[Successor]) -> list[SegmentId]:
        """Note the successors of a segment that was read to its end, and return the segments to begin now, at offset
        0."""
        self._finished.add(segment)
        self._following[segment] = {s.segment: s.predecessors for s in successors}
        # Collect the group that scaling ties to this segment.
        leaving = {segment}
        entering: dict[SegmentId, None] = {}
        open_ends = [segment]
        while open_ends:
            for successor, predecessors in self._following[open_ends.pop()].items():
                entering[successor] = None
                for predecessor in sorted(predecessors - leaving):
                    if predecessor not in self._finished:
                        # Another segment of the group is not finished: the last one to finish begins the successors.
                        return []
                    leaving.add(predecessor)
                    open_ends.append(predecessor)
        # A sealed stream, or the limit of the reader: the segment stays in the position.
        if not entering:
            return []
        for old in leaving:
            self._finished.discard(old)
            self._following.pop(old, None)
        staying = {segment: offset for segment, offset in self.positions.items() if segment not in leaving}
        # One assignment: the blocking client reads it on another thread.
        self.positions = staying | dict.fromkeys(entering, 0)
        return list(entering)
