"""Plans a streaming query on the driver: where it starts, where a micro-batch ends, and which ranges the tasks read.

Theory of operation.  Spark asks where a micro-batch that begins at `start` ends, stores the answer, and then asks for
the ranges between the two offsets.  All that a query must know after a restart is in its offsets; the planner only has
caches and timers.

* A query that never finished a micro-batch is asked for its initial offset again after a restart, when head and tail
  have moved.  So the first offset contains where each stream was entered, and the ranges of the first micro-batch begin
  there, whatever the new initial offset is.  A stream that matches the pattern only later is entered in the same way.
* An offset names the segments that were read to their sealed ends (`ended`).  If one of them is truncated before its
  successors replace it, nothing was lost, but no store could confirm that any more.
* An offset has the creation id of each stream.  A stream with another id was recreated, and the offset does not apply
  to it.  That is an error, or (`failOnDataLoss=false`) the stream is entered again, at its head.  Ids are asked for
  once after a start, and when segments are missing: while a stream exists, only truncation removes segments.
* "Available now" is a cut of each stream: its tail when the run began.  No micro-batch ends beyond that cut, and no
  newer segment is entered.  Earlier segments are read and replaced until the segments of the cut are reached.
"""

from __future__ import annotations

import logging
from contextlib import suppress
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
from sarit.spark.source.ranges import TruncationGuard, clamp_to_start, remade_error, remaining_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.access import SourceAccess, StreamAccess
    from sarit.spark.source.admission import Place
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.position import SegmentState
    from sarit.spark.source.ranges import Range

log = logging.getLogger(__name__)

# An offset as Spark stores it in the query's checkpoint.
JsonOffset = dict[str, object]


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of a stream that the next micro-batch may read: from `position` to `ends`, by its segments' `states`."""

    position: Position
    ends: Position
    states: Mapping[SegmentId, SegmentState]


class _Remade(Exception):
    """Raised when a stream was recreated while the query reads it."""

    def __init__(self, stream: StreamName) -> None:
        super().__init__(str(stream))
        self.stream = stream


class StreamFollower:
    """Follows the scaling and truncation of one stream of a query.

    `created`: the stream's creation id as first read; None: it was not read, or the server has no ids."""

    def __init__(self, access: StreamAccess, *, fail: bool) -> None:
        self.access = TruncationGuard(access, fail=fail)
        self.created: bytes | None = None
        self.identified = False
        self.noted = NotedTimes(self.access)
        self._fail = fail

    def reach(self, at: StreamPosition, target: Position | None) -> Reach:
        """Return how far the next micro-batch may read.  `target`: a cut that it must not exceed; None: no bound.

        Raises NotFound, Truncated, Invalid, _Remade."""
        position = at.segments
        held = set() if target is None else target.keys() | after(position, target)
        while True:
            states = self.access.states(position)
            if position.keys() - states.keys():
                self._check_same()
            position = clamp_to_start(position, states, fail=self._fail, ended=at.ended)
            done = (finished(position, states) | {segment for segment in position if segment not in states}) - held
            following = self._successors(done)
            advanced = advance(position, done, following)
            if advanced == position:
                return Reach(position, self._ends(position, states, target), states)
            position = advanced

    def _ends(self, position: Position, states: Mapping[SegmentId, SegmentState], target: Position | None) -> Position:
        # A segment without a state was deleted: its position stays.
        ends = {segment: states[segment].end if segment in states else at for segment, at in position.items()}
        if target is None:
            return ends
        newer = after(position, target)
        bounds = {segment: 0 if segment in newer else target.get(segment, end) for segment, end in ends.items()}
        return {segment: max(position[segment], min(end, bounds[segment])) for segment, end in ends.items()}

    def identify(self) -> None:
        """Read the stream's creation id, if the stream exists."""
        with suppress(NotFound):
            self.created = self.access.creation_id()
            self.identified = True

    def _successors(self, done: Iterable[SegmentId]) -> dict[SegmentId, dict[SegmentId, frozenset[SegmentId]]]:
        try:
            return {segment: self.access.successors(segment) for segment in sorted(done)}
        except NotFound as error:
            self._check_same()
            # The stream exists but never had that segment: the checkpoint, which has no id, is of an earlier stream.
            raise _Remade(self.access.stream) from error

    def _check_same(self) -> None:
        """Check that the stream was not recreated.  Raises NotFound (it does not exist), _Remade."""
        try:
            now = self.access.creation_id()
            if now is None:
                self.access.cut("head")
            elif self.created is not None and now != self.created:
                raise _Remade(self.access.stream)
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
        self._remade: set[StreamName] = set()  # streams found to be recreated by their segments, without creation ids
        self._discovered = 0.0
        self._target: dict[StreamName, Position] | None = None
        self._last: Place | None = None  # the segment whose turn was in the last limited micro-batch
        self._began = source.monotonic()  # when the last micro-batch, or the run, began
        # Where the last planned micro-batch ends, and the states of its segments then.
        self._reached: dict[StreamName, tuple[Position, Mapping[SegmentId, SegmentState]]] = {}
        self.probe = Probe(lambda stream: self.follower(stream).access)

    def initial(self) -> JsonOffset:
        """Return the offset at which a new query begins.  Raises NotFound (a stream), Invalid."""
        cuts = self._cuts(self._select(), self._options.start)
        self._identify(cuts)
        begin = {stream: StreamPosition(cut) for stream, cut in cuts.items()}
        return to_json(Offset(begin, initial=True, created=self._created(cuts)))

    def prepare_available_now(self) -> None:
        """Make the present tails the end of the query."""
        self._target = self._cuts(self._select(), "tail")

    def _cuts(self, streams: Sequence[StreamName], which: str) -> dict[StreamName, Position]:
        """Return the cut of each stream that a value of option `start` means."""
        calls = [partial(self.follower(stream).access.cut, which) for stream in streams]
        return dict(zip(streams, self._source.at_once(calls), strict=True))

    def latest(self, start: JsonOffset, limits: Limits) -> JsonOffset:
        """Return the end of the micro-batch that begins at `start`; `start` itself if there is nothing to read yet.

        Raises NotFound, Truncated, Invalid."""
        before = from_json(start)
        here, entered, reaches = self._reaches(before)
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
        # Drop the times of streams that are entered: they may be of an earlier stream of the name.
        times = self._times(streams, {s: time for s, time in before.times.items() if s not in entered})
        # A recreated stream is a change even if its position looks the same.
        if streams == before.streams and not (entered and not before.initial):
            return start
        self._began = self._source.monotonic()
        return to_json(Offset(streams, entered, times=times, created=self._created(streams)))

    def _reaches(
        self, before: Offset
    ) -> tuple[dict[StreamName, StreamPosition], dict[StreamName, Position], dict[StreamName, Reach]]:
        """Return the two results of `_entered`, and how far each stream can be read."""
        while True:
            here, entered = self._entered(before)
            calls = [
                partial(self.follower(stream).reach, at, None if self._target is None else self._target[stream])
                for stream, at in here.items()
            ]
            try:
                return here, entered, dict(zip(here, self._source.at_once(calls), strict=True))
            except _Remade as remade:
                self._remade.add(remade.stream)
                self._followers.pop(remade.stream)

    def ranges(self, start: JsonOffset, end: JsonOffset) -> list[Range]:
        """Return the ranges that the tasks of a micro-batch read; empty ranges are left out.  Raises NotFound,
        Truncated, Invalid."""
        # If there was nothing to read at first, the first micro-batch ends at an initial offset, too.
        if start == end or (end.get("initial") and start.get("initial")):
            return []
        before, upto = from_json(start), from_json(end)
        self._identify(upto.streams)
        calls = []
        planned = [(stream, at) for stream, at in sorted(upto.streams.items()) if not self._is_another(stream, upto)]
        for stream, at in planned:
            known = before.streams.get(stream)
            begin = upto.entered.get(stream, {} if known is None else known.segments)
            wanted = [(segment, begin.get(segment, 0), offset) for segment, offset in sorted(at.segments.items())]
            access = self.follower(stream).access
            calls.append(partial(remaining_ranges, wanted, access, fail=self._options.fail_on_data_loss))
        found: list[Range] = []
        for (stream, at), parts in zip(planned, self._source.at_once(calls), strict=True):
            if self._options.streaming.include_cut:
                cut = to_text(StreamCut(stream, at.segments))
                parts = [replace(part, cut=cut) for part in parts]
            found += self._with_times(stream, parts, before, upto)
        return cut_further(found, self._options.min_partitions or 1, self.probe)

    def tasks(self, start: JsonOffset, end: JsonOffset) -> list[tuple[Range, ...]]:
        """Return the ranges of each task.  Raises NotFound, Truncated, Invalid."""
        return put_together(self.ranges(start, end), self._options.min_partitions or 1)

    def _identify(self, streams: Iterable[StreamName]) -> None:
        """Read the creation ids that are not known yet."""
        unknown = [each for each in map(self.follower, streams) if not each.identified]
        if unknown:
            self._source.at_once([each.identify for each in unknown])

    def _created(self, streams: Iterable[StreamName]) -> dict[StreamName, bytes]:
        """Return the creation ids that are known."""
        found = {stream: self.follower(stream).created for stream in streams}
        return {stream: created for stream, created in found.items() if created is not None}

    def _is_another(self, stream: StreamName, offset: Offset) -> bool:
        """Return whether an offset is of an earlier stream of the name.  Raises NotFound with `failOnDataLoss`."""
        then, now = offset.created.get(stream), self.follower(stream).created
        another = stream in self._remade if then is None or now is None else then != now
        if another and self._options.fail_on_data_loss:
            raise remade_error(stream)
        return another

    def _times(
        self, streams: Mapping[StreamName, StreamPosition], before: Mapping[StreamName, int]
    ) -> dict[StreamName, int]:
        """Return the watermarks of streams at the end of a micro-batch, without streams that have none."""
        if not self._options.streaming.noted_time:
            return {}
        lowers = {
            stream: self.follower(stream).noted.lower(at.segments, before.get(stream)) for stream, at in streams.items()
        }
        return {stream: lower for stream, lower in lowers.items() if lower is not None}

    def _with_times(self, stream: StreamName, parts: list[Range], before: Offset, upto: Offset) -> list[Range]:
        if not self._options.streaming.noted_time:
            return parts
        noted, cap = self.follower(stream).noted, upto.times.get(stream)
        floor = None if stream in upto.entered else before.times.get(stream)
        # Read the watermarks, which were not read yet after a restart.
        noted.lower(upto.streams[stream].segments, floor)
        noted.drop(floor)
        return [replace(part, times=noted.of(part.segment, floor, cap)) for part in parts]

    def tail(self) -> JsonOffset | None:
        """Return the tails of the streams, and what is unread after the last planned micro-batch; None: there was no
        micro-batch."""
        tails: dict[StreamName, StreamPosition] = {}
        lags: dict[StreamName, StreamLag] = {}
        for stream, (position, states) in self._reached.items():
            tail, behind = unread(self.follower(stream).access, position, states)
            tails[stream] = StreamPosition(tail)
            sizes = {segment: end - start for segment, (start, end) in behind.items()}
            lags[stream] = StreamLag(sum(sizes.values()), self._about_events(stream, behind), sizes)
        return to_json(Offset(tails)) | {"behind": to_behind(lags)} if tails else None

    def _about_events(self, stream: StreamName, behind: Mapping[SegmentId, tuple[int, int]]) -> int:
        """Estimate the number of a stream's unread events, by the mean size of events in one segment."""
        if not behind:
            return 0
        segment, (start, end) = min(behind.items())
        total = sum(end - start for start, end in behind.values())
        return max(1, round(total / self.probe.mean_bytes((stream, segment), start, end)))

    def follower(self, stream: StreamName) -> StreamFollower:
        """Return the follower of one of the query's streams."""
        found = self._followers.get(stream)
        if found is None:
            access = self._source.stream(stream)
            found = self._followers[stream] = StreamFollower(access, fail=self._options.fail_on_data_loss)
        return found

    def _select(self) -> list[StreamName]:
        """Return the streams of the query, discovered again from time to time."""
        selection, now = self._options.selection, self._source.monotonic()
        due = bool(selection.pattern) and now - self._discovered >= self._options.streaming.discovery_seconds
        if self._target is not None:
            return sorted(self._target)
        if self._selected is None or due:
            try:
                self._selected = selection.resolve(self._source.list_streams)
            except NotFound:
                # No stream matches any more: `_entered` decides whether that is an error.
                if self._selected is None:
                    raise
                self._selected = []
            self._discovered = now
        return self._selected

    def _entered(self, before: Offset) -> tuple[dict[StreamName, StreamPosition], dict[StreamName, Position]]:
        """Return the positions at which to continue, and where streams without an earlier micro-batch are entered."""
        selected = self._select()
        left = sorted(before.streams.keys() - selected)
        if left:
            self._leave(left, before)
        here: dict[StreamName, StreamPosition] = {}
        entered: dict[StreamName, Position] = {}
        self._identify(selected)
        for stream in selected:
            at = before.streams.get(stream)
            if at is not None and self._is_another(stream, before):
                log.warning(
                    "stream %s was deleted and made again, with any unread events: the query goes on from its head",
                    stream,
                )
                self._remade.discard(stream)
                at = None
            if at is None:
                at = StreamPosition(self.follower(stream).access.cut("head"))
                entered[stream] = at.segments
            elif before.initial:
                entered[stream] = at.segments
            here[stream] = at
        return here, entered

    def _leave(self, left: list[StreamName], before: Offset) -> None:
        """Leave out streams of the checkpoint that are not selected any more.  Raises NotFound, Invalid: data would be
        lost, or the checkpoint is of another query."""
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
    """Return limits without bounds on events and bytes, for a trigger that reads everything at once."""
    return replace(limits, max_events=None, max_bytes=None, min_events=None)
