"""A stream in memory: segments of framed events, whose store knows only some boundaries; may be truncated."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sarit.core.errors import Truncated
from sarit.core.names import StreamName
from sarit.training.plan import Part, Plan, plan_of

STREAM = StreamName("s", "t")


class MemorySource:
    """Implements `Source`.  `segments`: the lengths of the events of each; `pieces`: how many events the network
    delivers at once."""

    header_bytes = 8

    def __init__(self, segments: dict[int, list[int]], pieces: int = 7) -> None:
        self.segments = segments
        self.pieces = pieces
        self.begins = {
            segment: np.cumsum([0, *(length + 8 for length in lengths)]) for segment, lengths in segments.items()
        }
        self.heads = dict.fromkeys(segments, 0)
        self.closed = 0

    def plan(self, piece_bytes: int = 1024) -> Plan:
        """All of it."""
        parts = [Part(segment, 0, int(begins[-1])) for segment, begins in self.begins.items()]
        return plan_of(STREAM, ("head", "tail"), "", parts, piece_bytes)

    def events(self) -> list[tuple[int, int]]:
        """The places of all events."""
        return [(segment, int(at)) for segment, begins in self.begins.items() for at in begins[:-1]]

    def creation(self) -> str:
        return ""

    def boundary(self, part: Part, known: int, target: int) -> int:
        head = self.heads[part.segment]
        assert known < target < part.end
        assert known in self.begins[part.segment]
        if known < head:
            raise Truncated("truncated", head)
        begins = self.begins[part.segment]
        return int(begins[np.searchsorted(begins, target)])

    def read(self, part: Part, start: int, end: int):
        begins = self.begins[part.segment]
        first, last = np.searchsorted(begins, [start, end])
        assert begins[first] == start
        assert begins[last] == end
        for at in range(first, last, self.pieces):
            if begins[at] < self.heads[part.segment]:
                raise Truncated("truncated", self.heads[part.segment])
            rows = range(at, min(at + self.pieces, last))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([bytes(self.segments[part.segment][row]) for row in rows], pa.binary()),
                    pa.array([part.segment] * len(rows), pa.int64()),
                    pa.array([int(begins[row]) for row in rows], pa.int64()),
                ],
                names=["event", "segment", "offset"],
            )

    def close(self) -> None:
        self.closed += 1
