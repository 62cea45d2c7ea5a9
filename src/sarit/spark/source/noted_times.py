"""The times that writers noted, as a column of a streaming read.

By a watermark of a stream, its writers had written everything before the time `lower` up to its cut: an event beyond
the cut has that time or a later one.  A row gets the time of the last watermark whose cut it is beyond in its segment,
unless the end of the micro-batch is not beyond that cut in all segments.  So all times of a micro-batch are at most the
stream's watermark at its end, and all times of the next one at least that: Spark's `withWatermark` drops no row,
whichever segments are ahead.

The stream's watermark at the end of a micro-batch is stored in its offset, so that a repeated micro-batch has the same
times although there are more watermarks by then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sarit.client.streams.watermarks import is_behind
from sarit.core.properties import require_milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.streams.watermarks import Watermark
    from sarit.core.cuts import StreamCut
    from sarit.core.keyspace import KeyRange
    from sarit.core.names import SegmentId
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.position import Position

# Pairs of an offset in bytes and the noted time in ms that holds from there on, ascending.
Times = tuple[tuple[int, int], ...]


class NotedTimes:
    """The watermarks of one stream.  Each is read once, and dropped when no later micro-batch can need it."""

    def __init__(self, access: StreamAccess) -> None:
        self._access = access
        self._marks: deque[Watermark] = deque()
        self._read_to: StreamCut | None = None
        self._checked = False  # whether the times are milliseconds
        self._ranges: Mapping[SegmentId, KeyRange] = {}

    def lower(self, position: Position, before: int | None) -> int | None:
        """Return the stream's watermark at a position, in ms.  `before`: its watermark at an earlier position.  Raises
        NotFound, Invalid."""
        marks, read_to = self._access.watermarks(self._read_to)
        if marks and not self._checked:
            require_milliseconds(self._access.properties(), marks[-1].lower, self._access.stream)
            self._checked = True
        self._read_to = read_to
        self._marks.extend(marks)
        here = self._with_ranges(position)
        if len(here) < len(position):
            # The key range of a deleted segment is not known, so watermarks cannot be compared with the position.
            return before
        passed = [mark.lower for mark in self._marks if is_behind(mark, here)]
        known = passed if before is None else [before, *passed]
        return max(known, default=None)

    def drop(self, before: int | None) -> None:
        """Forget watermarks up to a time: all micro-batches up to there are completed."""
        while before is not None and self._marks and self._marks[0].lower <= before:
            self._marks.popleft()

    def of(self, segment: SegmentId, floor: int | None, cap: int | None) -> Times:
        """Return the times of a segment in a micro-batch.  `floor`, `cap`: the stream's watermark at the start and at
        the end of the micro-batch; None: there is none yet."""
        if cap is None:
            return ()
        found: list[tuple[int, int]] = [] if floor is None else [(0, floor)]
        for mark in self._marks:
            if mark.lower > cap:
                continue
            at = _begins(mark, segment, self._ranges.get(segment))
            if at is not None and (not found or mark.lower > found[-1][1]):
                found.append((max(at, found[-1][0] if found else 0), mark.lower))
        return tuple(found)

    def _with_ranges(self, position: Position) -> dict[SegmentId, tuple[KeyRange, int]]:
        if position.keys() - self._ranges.keys():
            epochs = self._access.epochs()
            self._ranges = {segment: keys for epoch in epochs for segment, keys in epoch.items()}
        return {s: (self._ranges[s], offset) for s, offset in position.items() if s in self._ranges}


def _begins(mark: Watermark, segment: SegmentId, keys: KeyRange | None) -> int | None:
    """Return the offset from which a segment is beyond a watermark; None: all of it may be before the watermark."""
    if segment in mark.positions:
        return mark.positions[segment][1]
    if keys is None:
        return None
    overlapping = [other for other, (theirs, _) in mark.positions.items() if theirs.overlaps(keys)]
    return 0 if all(other.epoch < segment.epoch for other in overlapping) else None
