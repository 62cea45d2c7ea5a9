"""The driver's part: where a query starts, where a micro-batch ends, which ranges the tasks read.

Theory of operation.  Spark asks a streaming source for `latestOffset` and plans what lies between the last offset and
that one.  It does not pass the last offset, so the planner stores it: `planned(end)` is called with the end of each
micro-batch, and, when a query restarts from its checkpoint, with the checkpoint's offset first.

A query that never finished a micro-batch is asked for its initial offset again after a restart, and the answer must be
the one it gave the first time, although head and tail have moved.  So each offset contains the query's origin.  It also
names the segments that it leaves at their sealed ends (`ended`): when one of them is truncated before its successors
replace it, nothing was lost, and afterwards no store could confirm that.

Limits are hard: the end of a limited micro-batch is found by reading event boundaries from its start, which costs the
driver one read of the micro-batch.  Unlimited micro-batches end at the tail, at no cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sarit.spark.source.position import (
    Position,
    SegmentState,
    advance,
    finished,
    from_name,
    from_offset,
    split_budget,
    to_name,
    to_offset,
)
from sarit.spark.source.ranges import Range, TruncationGuard, clamp_to_start, remaining_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import SegmentId
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.options import ReadOptions


class StreamPlanner:
    """Positions of one streaming query."""

    def __init__(self, options: ReadOptions, access: StreamAccess) -> None:
        self._options = options
        self._access = TruncationGuard(access, fail=options.fail_on_data_loss)
        self._stream = str(options.stream)
        self._origin: Position | None = None
        self._position: Position | None = None
        self._ended: set[SegmentId] = set()
        self._served: SegmentId | None = None  # the segment that was first in the last bounded micro-batch

    def initial(self) -> dict[str, object]:
        """The offset at which the query began."""
        origin = self._begin()
        return self._offset(origin)

    def latest(self) -> dict[str, object]:
        """The end of the next micro-batch."""
        self._begin()
        assert self._position is not None
        position, states = self._advance_past_finished(self._position)
        end = self._limited(position, states)
        ended = finished(end, states) | (self._ended & (end.keys() - states.keys()))
        return self._offset(end) | ({"ended": [to_name(segment) for segment in sorted(ended)]} if ended else {})

    def planned(self, end: Mapping[str, object]) -> None:
        """Spark has stored the offset `end`: the next micro-batch begins there."""
        self._position = from_offset(self._stream, end)
        self._origin = from_offset(self._stream, {**end, "segments": end.get("origin")})
        ended = end.get("ended")
        self._ended = {from_name(name) for name in ended} if isinstance(ended, list) else set()

    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[Range]:
        """The ranges that the tasks of a micro-batch read: at most one per segment, empty ones left out.

        Raises NotFound, Truncated, Invalid."""
        before, after = from_offset(self._stream, start), from_offset(self._stream, end)
        wanted = [(segment, before.get(segment, 0), at) for segment, at in sorted(after.items())]
        return remaining_ranges(wanted, self._access, fail=self._options.fail_on_data_loss)

    def _begin(self) -> Position:
        if self._origin is None:
            self._origin = self._access.cut(self._options.start)
        if self._position is None:
            self._position = self._origin
        return self._origin

    def _offset(self, position: Position) -> dict[str, object]:
        return {
            **to_offset(self._stream, position),
            "origin": to_offset(self._stream, self._begin())["segments"],
        }

    def _advance_past_finished(self, position: Position) -> tuple[Position, dict[SegmentId, SegmentState]]:
        """Replace finished segments by their successors as long as there are any."""
        while True:
            states = self._access.states(position)
            position = clamp_to_start(position, states, fail=self._options.fail_on_data_loss, ended=self._ended)
            done = finished(position, states) | {segment for segment in position if segment not in states}
            following = {segment: self._access.successors(segment) for segment in sorted(done)}
            advanced = advance(position, done, following)
            if advanced == position:
                return position, states
            position = advanced

    def _limited(self, position: Position, states: Mapping[SegmentId, SegmentState]) -> Position:
        # A segment without a state was deleted: it stays where it is.
        ends = {segment: states[segment].end if segment in states else at for segment, at in position.items()}
        # Segments take turns: the next event of one goes first, however small its share, even if it is larger than the
        # whole limit.  So no segment starves because others always have data.
        waiting = sorted(segment for segment in position if ends[segment] > position[segment])
        if not waiting:
            return ends
        served = self._served
        first = next((segment for segment in waiting if served is None or segment > served), waiting[0])
        if self._options.max_bytes is not None:
            ends = self._bounded(position, ends, first, max_bytes=self._options.max_bytes)
        if self._options.max_events is not None:
            ends = self._bounded(position, ends, first, max_events=self._options.max_events)
        self._served = first
        return ends

    def _bounded(
        self,
        position: Position,
        ends: Position,
        first: SegmentId,
        *,
        max_events: int | None = None,
        max_bytes: int | None = None,
    ) -> Position:
        budget = max_events if max_events is not None else max_bytes
        assert budget is not None
        backlog = {segment: ends[segment] - position[segment] for segment in position}
        if max_bytes is not None and sum(backlog.values()) <= max_bytes:
            return ends
        # First one event of the segment whose turn it is, whatever its size.
        after, _ = skip_events(self._access, Range(self._access.stream, first, position[first], ends[first]), 1)
        taken = after - position[first]
        position = {**position, first: after}
        backlog[first] -= taken
        budget -= taken if max_bytes is not None else 1
        if budget <= 0:
            return position
        # Then what is left of the limit is divided; what a segment does not use goes to the next ones.
        allowances = split_budget(backlog, budget)
        bounded, spare = dict(ends), 0
        for segment, allowance in allowances.items():
            part = Range(self._access.stream, segment, position[segment], ends[segment])
            if max_events is not None:
                bounded[segment], used = skip_events(self._access, part, allowance + spare)
            else:
                bounded[segment], used = skip_bytes(self._access, part, allowance + spare)
            spare += allowance - used
        return bounded


def skip_events(access: StreamAccess, part: Range, count: int) -> tuple[int, int]:
    """The offset after at most `count` events of `part`, and how many they are."""
    seen = 0
    if count > 0:
        for _, offsets in access.batches(part.segment, part.start, part.end):
            if seen + len(offsets) > count:
                return offsets[count - seen].as_py(), count
            seen += len(offsets)
        return part.end, seen
    return part.start, 0


def skip_bytes(access: StreamAccess, part: Range, count: int) -> tuple[int, int]:
    """The last event boundary within `count` bytes of the start of `part`, and how many bytes it is."""
    stop = part.start + count
    if part.end <= stop:
        return part.end, part.end - part.start
    boundary = part.start
    # Read to the end of the range, which is a boundary; `stop` may be none.  An event begins where the one before ends.
    for _, offsets in access.batches(part.segment, part.start, part.end):
        begins = offsets.to_numpy(zero_copy_only=False)
        within = int(np.searchsorted(begins, stop, "right"))
        if within:
            boundary = int(begins[within - 1])
        if within < len(begins):
            break
    return boundary, boundary - part.start
