"""The driver's part of a streaming query: where it starts, where a micro-batch ends, which ranges the tasks read.

Theory of operation.  Spark asks where a micro-batch ends that begins at `start`, writes the answer down, and then asks
for the ranges between the two.  All that a query must know after a restart is in its offsets; this object holds caches
and timers alone.

* A query that never finished a micro-batch is asked for its initial offset again after a restart, when head and tail
  have moved.  So the first offset contains where each stream was entered, and the ranges of the first micro-batch begin
  there, whatever the new initial offset says.  A stream that begins to match later is entered in the same way.
* An offset names the segments that it leaves at their sealed ends (`ended`): when one of them is truncated before its
  successors replace it, nothing was lost, and afterwards no store could confirm that.
* "Available now" is a cut of each stream: its tail when the run began.  No micro-batch ends beyond it, and no segment
  that is newer is entered.  Segments that were sealed before it are read and replaced until its own are reached.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sarit.core.cuts import StreamCut, to_text
from sarit.core.errors import Invalid, NotFound
from sarit.spark.source.admission import Limits, Probe, admitted
from sarit.spark.source.lag import StreamLag, to_behind, unread
from sarit.spark.source.noted_times import NotedTimes
from sarit.spark.source.partitions import cut_further, put_together
from sarit.spark.source.position import (
    Offset,
    Position,
    StreamPosition,
    advance,
    after,
    finished,
    from_json,
    to_json,
)
from sarit.spark.source.ranges import TruncationGuard, clamp_to_start, remaining_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.access import SourceAccess, StreamAccess
    from sarit.spark.source.admission import Place
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.position import SegmentState
    from sarit.spark.source.ranges import Range

log = logging.getLogger(__name__)

# Stored in Spark's checkpoint.
JsonOffset = dict[str, object]


@dataclass(frozen=True, slots=True)
class Reach:
    """What one stream has for the next micro-batch: from `position` to `ends`, by the `states` of its segments."""

    position: Position
    ends: Position
    states: Mapping[SegmentId, SegmentState]


class StreamFollower:
    """One stream of a query: it follows scaling and truncation."""

    def __init__(self, access: StreamAccess, *, fail: bool) -> None:
        self.access = TruncationGuard(access, fail=fail)
        self.noted = NotedTimes(self.access)
        self._fail = fail

    def reach(self, at: StreamPosition, target: Position | None) -> Reach:
        """How far the next micro-batch may go; `target`: not beyond that cut.

        Raises NotFound, Truncated, Invalid."""
        position = at.segments
        held = set() if target is None else target.keys() | after(position, target)
        while True:
            states = self.access.states(position)
            if position and not states:
                self._check_exists()
            position = clamp_to_start(position, states, fail=self._fail, ended=at.ended)
            done = (finished(position, states) | {segment for segment in position if segment not in states}) - held
            following = {segment: self.access.successors(segment) for segment in sorted(done)}
            advanced = advance(position, done, following)
            if advanced == position:
                return Reach(position, self._ends(position, states, target), states)
            position = advanced

    def _ends(self, position: Position, states: Mapping[SegmentId, SegmentState], target: Position | None) -> Position:
        # A segment without a state was deleted: it stays where it is.
        ends = {segment: states[segment].end if segment in states else at for segment, at in position.items()}
        if target is None:
            return ends
        newer = after(position, target)
        bounds = {segment: 0 if segment in newer else target.get(segment, end) for segment, end in ends.items()}
        return {segment: max(position[segment], min(end, bounds[segment])) for segment, end in ends.items()}

    def _check_exists(self) -> None:
        try:
            self.access.cut("head")
        except NotFound as error:
            raise NotFound(
                f"stream {self.access.stream} was deleted while a query reads it, with any unread events: stop the "
                "query, or select other streams"
            ) from error


class QueryPlanner:
    """The positions of one streaming query in its streams."""

    def __init__(self, options: ReadOptions, source: SourceAccess) -> None:
        self._options = options
        self._source = source
        self._followers: dict[StreamName, StreamFollower] = {}
        self._selected: list[StreamName] | None = None
        self._discovered = 0.0
        self._target: dict[StreamName, Position] | None = None
        self._last: Place | None = None  # the segment that was first in the last limited micro-batch
        self._began = source.monotonic()  # the last micro-batch, or the run
        # Where the last planned micro-batch ends, and the states of its segments then.
        self._reached: dict[StreamName, tuple[Position, Mapping[SegmentId, SegmentState]]] = {}
        self.probe = Probe(lambda stream: self.follower(stream).access)

    def initial(self) -> JsonOffset:
        """The offset at which a new query begins.  Raises NotFound (a stream), Invalid."""
        cuts = self._cuts(self._select(), self._options.start)
        return to_json(Offset({stream: StreamPosition(cut) for stream, cut in cuts.items()}, initial=True))

    def prepare_available_now(self) -> None:
        """Read what is there now, and nothing beyond it."""
        self._target = self._cuts(self._select(), "tail")

    def _cuts(self, streams: Sequence[StreamName], which: str) -> dict[StreamName, Position]:
        """A cut of each stream."""
        calls = [partial(self.follower(stream).access.cut, which) for stream in streams]
        return dict(zip(streams, self._source.at_once(calls), strict=True))

    def latest(self, start: JsonOffset, limits: Limits) -> JsonOffset:
        """The end of the micro-batch that begins at `start`; `start` itself when there is nothing to read yet.

        Raises NotFound, Truncated, Invalid."""
        before = from_json(start)
        here, entered = self._entered(before)
        calls = [
            partial(self.follower(stream).reach, at, None if self._target is None else self._target[stream])
            for stream, at in here.items()
        ]
        reaches = dict(zip(here, self._source.at_once(calls), strict=True))
        waiting = {
            (stream, segment): (reach.position[segment], end)
            for stream, reach in reaches.items()
            for segment, end in reach.ends.items()
            if end > reach.position[segment]
        }
        self.probe.retain(waiting)
        self._reached = {stream: (reach.position, reach.states) for stream, reach in reaches.items()}
        if self._awaits_more(waiting, limits):
            return start
        ends, self._last = admitted(waiting, limits, self.probe, self._last)
        streams = {}
        for stream, reach in reaches.items():
            end = {segment: ends.get((stream, segment), at) for segment, at in reach.position.items()}
            ended = finished(end, reach.states) | (here[stream].ended & (end.keys() - reach.states.keys()))
            streams[stream] = StreamPosition(end, frozenset(ended))
            self._reached[stream] = (end, reach.states)
        times = self._times(streams, before)
        if streams == before.streams:
            return start
        self._began = self._source.monotonic()
        return to_json(Offset(streams, entered, times=times))

    def ranges(self, start: JsonOffset, end: JsonOffset) -> list[Range]:
        """What the tasks of a micro-batch read; empty ranges are left out.  Raises NotFound, Truncated, Invalid."""
        # The end of the first micro-batch is initial when there was nothing to read.
        if start == end or (end.get("initial") and start.get("initial")):
            return []
        before, upto = from_json(start), from_json(end)
        calls = []
        for stream, at in sorted(upto.streams.items()):
            known = before.streams.get(stream)
            begin = upto.entered.get(stream, {} if known is None else known.segments)
            wanted = [(segment, begin.get(segment, 0), offset) for segment, offset in sorted(at.segments.items())]
            access = self.follower(stream).access
            calls.append(partial(remaining_ranges, wanted, access, fail=self._options.fail_on_data_loss))
        found: list[Range] = []
        for (stream, at), parts in zip(sorted(upto.streams.items()), self._source.at_once(calls), strict=True):
            if self._options.streaming.include_cut:
                cut = to_text(StreamCut(stream, at.segments))
                parts = [replace(part, cut=cut) for part in parts]
            found += self._with_times(stream, parts, before, upto)
        return cut_further(found, self._options.min_partitions or 1, self.probe)

    def tasks(self, start: JsonOffset, end: JsonOffset) -> list[tuple[Range, ...]]:
        """The ranges by the tasks that read them.  Raises NotFound, Truncated, Invalid."""
        return put_together(self.ranges(start, end), self._options.min_partitions or 1)

    def _times(self, streams: Mapping[StreamName, StreamPosition], before: Offset) -> dict[StreamName, int]:
        """The watermark of each stream at the end of a micro-batch, where it has one."""
        if not self._options.streaming.noted_time:
            return {}
        lowers = {
            stream: self.follower(stream).noted.lower(at.segments, before.times.get(stream))
            for stream, at in streams.items()
        }
        return {stream: lower for stream, lower in lowers.items() if lower is not None}

    def _with_times(self, stream: StreamName, parts: list[Range], before: Offset, upto: Offset) -> list[Range]:
        if not self._options.streaming.noted_time:
            return parts
        noted, floor, cap = self.follower(stream).noted, before.times.get(stream), upto.times.get(stream)
        # After a restart nothing was read yet.
        noted.lower(upto.streams[stream].segments, floor)
        noted.drop(floor)
        return [replace(part, times=noted.of(part.segment, floor, cap)) for part in parts]

    def tail(self) -> JsonOffset | None:
        """The tails of the streams, and what is unread after the last planned micro-batch; None before the first."""
        tails: dict[StreamName, StreamPosition] = {}
        lags: dict[StreamName, StreamLag] = {}
        for stream, (position, states) in self._reached.items():
            tail, behind = unread(self.follower(stream).access, position, states)
            tails[stream] = StreamPosition(tail)
            sizes = {segment: end - start for segment, (start, end) in behind.items()}
            lags[stream] = StreamLag(sum(sizes.values()), self._about_events(stream, behind), sizes)
        return to_json(Offset(tails)) | {"behind": to_behind(lags)} if tails else None

    def _about_events(self, stream: StreamName, behind: Mapping[SegmentId, tuple[int, int]]) -> int:
        """About how many events the unread bytes of a stream are, by those of one segment."""
        if not behind:
            return 0
        segment, (start, end) = min(behind.items())
        total = sum(end - start for start, end in behind.values())
        return max(1, round(total / self.probe.mean_bytes((stream, segment), start, end)))

    def follower(self, stream: StreamName) -> StreamFollower:
        """One of its streams."""
        found = self._followers.get(stream)
        if found is None:
            access = self._source.stream(stream)
            found = self._followers[stream] = StreamFollower(access, fail=self._options.fail_on_data_loss)
        return found

    def _select(self) -> list[StreamName]:
        """The streams of the query, discovered again from time to time."""
        selection, now = self._options.selection, self._source.monotonic()
        due = bool(selection.pattern) and now - self._discovered >= self._options.streaming.discovery_seconds
        if self._target is not None:
            return sorted(self._target)
        if self._selected is None or due:
            try:
                self._selected = selection.resolve(self._source.list_streams)
            except NotFound:
                # None is there any more: `_entered` decides what that means.
                if self._selected is None:
                    raise
                self._selected = []
            self._discovered = now
        return self._selected

    def _entered(self, before: Offset) -> tuple[dict[StreamName, StreamPosition], dict[StreamName, Position]]:
        """The positions from which to continue, and those of streams that have no earlier micro-batch."""
        selected = self._select()
        left = sorted(before.streams.keys() - selected)
        if left:
            self._leave(left, before)
        here: dict[StreamName, StreamPosition] = {}
        entered: dict[StreamName, Position] = {}
        for stream in selected:
            at = before.streams.get(stream)
            if at is None:
                at = StreamPosition(self.follower(stream).access.cut("head"))
                entered[stream] = at.segments
            elif before.initial:
                entered[stream] = at.segments
            here[stream] = at
        return here, entered

    def _leave(self, left: list[StreamName], before: Offset) -> None:
        """Streams of the checkpoint are not selected (any more)."""
        names, selection = ", ".join(map(str, left)), self._options.selection
        advice = '; .option("failOnDataLoss", "false") leaves them out, with any unread events'
        if len(left) == len(before.streams) and not selection.pattern:
            raise Invalid(
                f"the checkpoint belongs to {names}, the query reads {selection}: "
                "use another checkpointLocation for another stream"
            )
        if self._options.fail_on_data_loss:
            if selection.pattern:
                raise NotFound(f"{names}: deleted, or streamPattern {selection} does not match them any more{advice}")
            raise Invalid(f"the checkpoint has {names}, which the query does not select any more{advice}")
        log.warning("the query leaves %s out: deleted, or not selected any more", names)
        for stream in left:
            self._followers.pop(stream, None)

    def _awaits_more(self, waiting: Mapping[Place, tuple[int, int]], limits: Limits) -> bool:
        if limits.min_events is None or self._target is not None:
            return False
        if (self._source.monotonic() - self._began) * 1000 >= limits.max_delay_ms:
            return False
        seen = 0
        for place, (start, end) in waiting.items():
            seen += self.probe.events(place, start, end)
            if seen >= limits.min_events:
                return False
        return True


def unlimited(limits: Limits) -> Limits:
    """Without bounds above, as a trigger that reads everything at once asks for."""
    return replace(limits, max_events=None, max_bytes=None, min_events=None)
