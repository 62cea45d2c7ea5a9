"""A stream in memory for the connector's planner; it refuses what a store refuses."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa

from sarit.core.errors import Corrupt, NotFound, Truncated
from sarit.core.names import SegmentId, StreamName
from sarit.spark.source.position import SegmentState

S = StreamName("s", "t")
A, B = SegmentId(0, 0), SegmentId(0, 1)
LEFT, RIGHT = SegmentId(1, 2), SegmentId(1, 3)


class FakeStream:
    """`events`: segment -> lengths of its events; offsets count them as they are.  `starts`: what was truncated.

    A segment taken out of `events` is gone, and its successors are known still."""

    stream = S

    def __init__(self):
        self.events = {A: [], B: []}
        self.starts = {}
        self.sealed = set()
        self.next = {}
        self.head = [A, B]

    def cut(self, which):
        active = self.head if which == "head" else sorted(set(self.events) - self.sealed)
        return {s: (self.starts.get(s, 0) if which == "head" else sum(self.events[s])) for s in active}

    def states(self, segments):
        return {
            s: SegmentState(self.starts.get(s, 0), sum(self.events[s]), s in self.sealed)
            for s in segments
            if s in self.events
        }

    def successors(self, segment):
        return self.next.get(segment, {})

    def batches(self, segment, start, end):
        """Refuses what a store refuses; where a store would wait for more, that is asserted not to be asked."""
        if segment not in self.events:
            raise NotFound(f"{segment} is gone")
        if start < self.starts.get(segment, 0):
            raise Truncated(f"{segment} is truncated", self.starts[segment])
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
        self.next[B] = {LEFT: frozenset({B}), RIGHT: frozenset({B})}

    def close(self):
        """There is nothing to release."""


def take(planner, start):
    """One micro-batch as Spark does it; returns the next offset (through JSON) and what the tasks read."""
    end = json.loads(json.dumps(planner.latest()))
    if end == start:
        return start, []
    planner.planned(end)
    return end, planner.ranges(start, end)
