"""A stream in memory for the connector's planner; it refuses what a store refuses."""

from __future__ import annotations

import bisect
import itertools
import json

import pyarrow as pa

from sarit.client.streams.watermarks import Watermark
from sarit.core.errors import Corrupt, NotFound, Truncated, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName
from sarit.spark.source.planner import QueryPlanner
from sarit.spark.source.position import SegmentState

S = StreamName("s", "t")
A, B = SegmentId(0, 0), SegmentId(0, 1)
LEFT, RIGHT = SegmentId(1, 2), SegmentId(1, 3)


class FakeStream:
    """`events`: segment -> lengths of its events; offsets count them as they are.  `starts`: what was truncated.

    `history`: the epochs; `noted`: watermarks; `record`: cuts by time; `read_bytes`.

    A segment taken out of `events` is gone, and its successors are known still."""

    def __init__(self, stream=S):
        self.stream = stream
        self.events = {A: [], B: []}
        self.read_bytes = 0  # what was read of events
        self.lowers = []
        self.known = None  # segment -> the boundaries that the store knows; None: all
        self.starts = {}
        self.sealed = set()
        self.next = {}
        self.head = [A, B]
        self.history = [{A: KeyRange(0.0, 0.5), B: KeyRange(0.5, 1.0)}]
        self.noted = []
        self.record = {}
        self.stated = {"time-unit": "milliseconds"}
        self.unknown = set()  # segments of an earlier stream of the name
        self.creation = bytes(16)  # None: a server without ids

    def cut(self, which):
        # The tail of a sealed stream: its last segments.
        last = set(self.events) - self.sealed or set(self.events) - self.next.keys()
        active = self.head if which == "head" else sorted(last)
        return {s: (self.starts.get(s, 0) if which == "head" else sum(self.events[s])) for s in active}

    def states(self, segments):
        return {
            s: SegmentState(self.starts.get(s, 0), sum(self.events[s]), s in self.sealed)
            for s in segments
            if s in self.events
        }

    def boundaries(self, segment, start, end, step_bytes):
        """As the store: for each target the next one it knows."""
        if segment not in self.events:
            raise NotFound(f"{segment} is gone")
        known = self.known[segment] if self.known is not None else itertools.accumulate(self.events[segment])
        inside = [at for at in known if start < at < end]
        targets = range(start + step_bytes, end, step_bytes)
        found = [inside[bisect.bisect_left(inside, at)] for at in targets if inside and at <= inside[-1]]
        return sorted(set(found))

    def event_ends(self, segment, start, end, max_bytes):
        self._check_readable(segment, start)
        assert end <= sum(self.events[segment]), "this read would wait at the tail"
        self.read_bytes += min(max_bytes, end - start)
        bounds = [0, *itertools.accumulate(self.events[segment])]
        # The header of the last event must fit.
        return [high for low, high in itertools.pairwise(bounds) if start <= low < min(end, start + max_bytes)]

    def watermarks(self, after):
        """`lowers`: (lower, {segment: offset}); `after` counts them."""
        keys = {segment: found for epoch in self.history for segment, found in epoch.items()}
        cuts = [(lower, {s: (keys[s], at) for s, at in cut.items()}) for lower, cut in self.lowers[after or 0 :]]
        return [Watermark(lower, lower, cut) for lower, cut in cuts], len(self.lowers)

    def _check_readable(self, segment, start):
        if segment not in self.events:
            raise NotFound(f"{segment} is gone")
        if start < self.starts.get(segment, 0):
            raise Truncated(f"{segment} is truncated", self.starts[segment])

    def successors(self, segment):
        if segment in self.unknown:
            raise NotFound(f"{segment} was never there")
        return self.next.get(segment, {})

    def creation_id(self):
        return self.creation

    def properties(self):
        return self.stated

    def epochs(self):
        return self.history

    def cut_at(self, time_ms):
        return self.record[max(time for time in self.record if time <= time_ms)]

    def marks(self):
        return self.noted

    def batches(self, segment, start, end):
        """Refuses what a store refuses; where a store would wait for more, that is asserted not to be asked."""
        self._check_readable(segment, start)
        self.read_bytes += end - start
        bounds = [0, *itertools.accumulate(self.events[segment])]
        assert end <= bounds[-1], "this read would wait at the tail"
        wanted = [low for low, high in itertools.pairwise(bounds) if start <= low and high <= end]
        for first in range(0, len(wanted), 3):
            part = wanted[first : first + 3]
            if part[0] < self.starts.get(segment, 0):  # since the reading began
                raise Truncated(f"{segment} is truncated", self.starts[segment])
            yield pa.array([b"x"] * len(part)), pa.array(part, pa.int64())
        if end not in bounds:
            raise Corrupt(f"offset {end} is in the middle of an event")

    def split_b(self):
        self.sealed.add(B)
        self.events |= {LEFT: [], RIGHT: []}
        self.history.append({A: KeyRange(0.0, 0.5), LEFT: KeyRange(0.5, 0.75), RIGHT: KeyRange(0.75, 1.0)})
        self.next[B] = {LEFT: frozenset({B}), RIGHT: frozenset({B})}

    def close(self):
        """There is nothing to release."""


class FakeSource:
    """The streams of a query, and a clock that the test sets."""

    def __init__(self, *streams):
        self.streams = {stream.stream: stream for stream in streams}
        self.now = 1000.0
        self.published = []
        self.broken = False

    def stream(self, name):
        return self.streams.get(name) or Missing(name)

    def list_streams(self, scope):
        return [name for name in self.streams if name.scope == scope]

    def publish(self, group, position):
        if self.broken:
            raise Unavailable("no controller replies")
        self.published.append((group, position))

    def at_once(self, calls):
        return [call() for call in calls]

    def monotonic(self):
        return self.now

    def close(self):
        """There is nothing to release."""


class Missing:
    """A stream that does not exist (any more)."""

    boundaries = batches = event_ends = epochs = cut_at = marks = watermarks = properties = None

    def __init__(self, name):
        self.stream = name

    def cut(self, which):
        raise NotFound(f"stream {self.stream} does not exist")

    successors = cut

    def creation_id(self):
        raise NotFound(f"stream {self.stream} does not exist")

    def states(self, segments):
        return {}

    def close(self):
        """There is nothing to release."""


def planner_of(options, *streams):
    """A planner as after a (re)start."""
    return QueryPlanner(options, FakeSource(*streams))


def take(planner, start, limits=None):
    """One micro-batch as Spark does it; returns the next offset (through JSON) and what the tasks read."""
    limits = planner._options.streaming.limits if limits is None else limits
    end = json.loads(json.dumps(planner.latest(start, limits)))
    return (start, []) if end == start else (end, planner.ranges(start, end))
