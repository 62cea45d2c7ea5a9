"""Guarantees of watermarks.  Pure.

Writers *note* times: "all my events so far are of this time or before, all to come of it or later".  A watermark states
that a reader that has read up to its cut has every event up to the time `lower`.  A writer counts while it notes times;
it stops to count when it leaves, or when it notes nothing for the time-out.

| kind | meaning |
|---|---|
| `watermark-fell` | a watermark is not above the one before, or its cut lies before that one's cut |
| `watermark-ahead` | its time was not yet noted by a writer that counts |
| `watermark-cut` | an event of an earlier time than its `lower` is not before its cut |
| `late-event` | a reader got an event of an earlier time than its window had reported |
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from checkers.graph import Cut, Graph
from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Note:
    """A writer's note of a time.  `ended` infinite: no answer came."""

    time: int
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark that was read at `seen`."""

    lower: int
    upper: int
    cut: Cut
    seen: float


@dataclass(slots=True)
class WatermarkHistory:
    """Filled by a workload.  All writers have noted a time at or below `begins` before one notes a later one."""

    time_out: float = inf
    begins: int = 0
    graph: Graph = field(default_factory=Graph)
    notes: dict[int, list[Note]] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    events: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    delivered: dict[int, list[tuple[int, int, float]]] = field(default_factory=dict)

    def noted(self, writer: int, time: int, begun: float, ended: float) -> None:
        """A writer noted a time."""
        self.notes.setdefault(writer, []).append(Note(time, begun, ended))

    def leaves(self, writer: int, begun: float) -> None:
        """A writer starts to leave, or crashed."""
        self.left[writer] = begun

    def reported(self, reader: int, lower: int, at: float) -> None:
        """A reader's window reported that it has all events before `lower`."""
        self.delivered.setdefault(reader, []).append((-1, lower, at))

    def got(self, reader: int, writer: int, time: int, at: float) -> None:
        """A reader got an event."""
        self.delivered.setdefault(reader, []).append((writer, time, at))

    def counts(self, writer: int, at: float) -> bool:
        """Whether a writer certainly counts for watermarks read at `at`: it neither left nor timed out."""
        if self.left.get(writer, inf) <= at:
            return False
        moments = [note for note in self.notes.get(writer, ()) if note.begun <= at]
        ends = [note.ended for note in moments[1:]] + [at]
        return bool(moments) and all(end - note.begun < self.time_out for note, end in zip(moments, ends, strict=True))


def check(history: WatermarkHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_fell(history), *_ahead(history), *_cut(history), *_late(history)]


def _fell(history: WatermarkHistory) -> Iterator[Violation]:
    for one, other in itertools.pairwise(history.marks):
        if other.lower <= one.lower or other.upper < other.lower:
            yield Violation("watermark-fell", f"({other.lower}, {other.upper}) follows ({one.lower}, {one.upper})")
            return
        if history.graph.goes_back(one.cut, other.cut):
            yield Violation("watermark-fell", f"the cut {other.cut} of {other.lower} follows {one.cut} of {one.lower}")
            return


def _ahead(history: WatermarkHistory) -> Iterator[Violation]:
    shown = 0
    for mark in history.marks:
        for writer, notes in sorted(history.notes.items()):
            at = bisect_right(notes, mark.seen, key=lambda note: note.begun)
            highest = max((note.time for note in notes[:at]), default=history.begins)
            if mark.lower > max(highest, history.begins) and history.counts(writer, mark.seen) and shown < _SHOWN:
                shown += 1
                yield Violation("watermark-ahead", f"{mark.lower}, when writer {writer} had noted {highest}")


def _cut(history: WatermarkHistory) -> Iterator[Violation]:
    shown = 0
    for mark in history.marks:
        counting = {writer for writer in history.notes if history.counts(writer, mark.seen)}
        for place, (writer, time) in history.events.items():
            if time < mark.lower and writer in counting and not history.graph.is_before(place, mark.cut):
                shown += 1
                if shown <= _SHOWN:
                    yield Violation(
                        "watermark-cut", f"{mark.lower} at {mark.cut}: writer {writer}'s {time} is at {place}"
                    )
                break


def _late(history: WatermarkHistory) -> Iterator[Violation]:
    for reader, rows in sorted(history.delivered.items()):
        lower = -1
        for writer, time, at in rows:
            if writer < 0:
                lower = max(lower, time)
            elif time < lower and history.counts(writer, at):
                yield Violation("late-event", f"reader {reader} was past {lower}, then got {time} of writer {writer}")
                return
