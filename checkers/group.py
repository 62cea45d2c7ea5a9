"""Guarantees of a reader group, checked over what its readers recorded.  Pure.

| kind | meaning |
|---|---|
| `two owners` | two readers held one segment at the same time |
| `twice` | an event was counted twice although its position was stored with it |
| `never` | an event was never counted |
| `order` | an event was read before a predecessor of its segment was read to its end |
| `gap` | a reader started after the offset at which the reader before it stopped |
| `back` | a reader started before that offset, although the offset was known |
| `hole` | a checkpoint leaves out part of the key space, or has a segment together with its successor |
| `torn` | a reset to a checkpoint did not redeliver exactly the events after it |

A *tenure* is the time in which a reader certainly owned a segment: from when it knew that it had acquired it until it
wrote that it released it (or was declared lost).  Events are named by (segment, offset).
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    Event = tuple[Hashable, int]

TOLERANCE: Final = 1e-9  # widths of ranges add up in doubles


@dataclass(frozen=True, slots=True)
class Tenure:
    """One reader's ownership of a segment: seconds of one clock, and the offsets at its begin and end.

    `ended` None: never; `left` None: the reader was lost at an unknown offset."""

    reader: str
    segment: Hashable
    begun: float
    ended: float | None
    first: int
    left: int | None


def check_tenures(tenures: Iterable[Tenure], last_checkpoint: Mapping[Hashable, int] | None = None) -> list[Violation]:
    """Check the consecutive owners of each segment.

    `last_checkpoint`: where a reader may start when the one before was lost at an unknown offset (default 0)."""
    violations: list[Violation] = []
    by_segment: dict[Hashable, list[Tenure]] = {}
    for tenure in tenures:
        by_segment.setdefault(tenure.segment, []).append(tenure)
    for segment, held in by_segment.items():
        held.sort(key=lambda tenure: tenure.begun)
        for before, after in itertools.pairwise(held):
            who = f"{segment}: {before.reader} from {before.begun:.3f} s, {after.reader} from {after.begun:.3f} s"
            if before.ended is None or before.ended > after.begun:
                violations.append(Violation("two owners", who))
            if before.left is None:
                floor = (last_checkpoint or {}).get(segment, 0)
                if after.first < min(floor, before.first):
                    violations.append(Violation("back", f"{who}, at {after.first}, below the checkpoint {floor}"))
            elif after.first > before.left:
                violations.append(Violation("gap", f"{who}, at {after.first}, not at {before.left}"))
            elif after.first < before.left:
                violations.append(Violation("back", f"{who}, at {after.first}, not at {before.left}"))
    return violations


def check_counted(written: Iterable[Event], counted: Iterable[Event], *, ended: bool = True) -> list[Violation]:
    """Check that every event written was counted once; `ended`: all was read."""
    counts = Counter(counted)
    violations = [Violation("twice", f"{event} counted {count} times") for event, count in counts.items() if count > 1]
    if ended:
        violations += [Violation("never", f"{event} was not counted") for event in written if event not in counts]
    return violations


def check_order(
    read: Sequence[Event], predecessors: Mapping[Hashable, Iterable[Hashable]], lengths: Mapping[Hashable, int]
) -> list[Violation]:
    """`read`: events of all readers in the order of time, with their end offsets; `lengths`: of sealed segments."""
    at: dict[Hashable, int] = {}
    violations = []
    for segment, offset in read:
        violations += [
            Violation("order", f"{segment} at {offset}, with {before} at {at.get(before, 0)} of {lengths[before]}")
            for before in predecessors.get(segment, ())
            if at.get(before, 0) < lengths.get(before, 0)
        ]
        at[segment] = max(at.get(segment, 0), offset)
    return violations


def check_cut(
    cut: Mapping[Hashable, int],
    ranges: Mapping[Hashable, tuple[float, float]],
    predecessors: Mapping[Hashable, Iterable[Hashable]],
) -> list[Violation]:
    """Check that a checkpoint's segments cover all keys once, and that none is an ancestor of another."""
    violations = []
    place = 0.0
    for low, high in sorted(ranges[segment] for segment in cut):
        if abs(low - place) > TOLERANCE:
            violations.append(
                Violation("hole", f"keys {place} to {low} are covered {'twice' if low < place else 'by no segment'}")
            )
        place = high
    if abs(place - 1.0) > TOLERANCE:
        violations.append(Violation("hole", f"keys from {place} on are covered by no segment"))
    for segment in cut:
        ahead, seen = list(predecessors.get(segment, ())), set()
        while ahead:
            other = ahead.pop()
            if other in cut:
                violations.append(Violation("hole", f"{segment} is in one cut with its ancestor {other}"))
            if other not in seen:
                seen.add(other)
                ahead += predecessors.get(other, ())
    return violations


def check_reset(
    cut: Mapping[Hashable, int],
    written: Iterable[Event],
    before: Iterable[Event],
    again: Iterable[Event],
    predecessors: Mapping[Hashable, Iterable[Hashable]],
) -> list[Violation]:
    """`before`: delivered until the checkpoint; `again`: delivered after the reset to it.

    Each event written is before or after the cut; an event's offset is where it begins."""
    passed = _passed(cut, predecessors)
    after = {event for event in written if event[0] not in passed and event[1] >= cut.get(event[0], 0)}
    first, second = set(before), list(again)
    violations = [
        Violation("torn", f"{event} is after the checkpoint and was read before it") for event in after & first
    ]
    violations += [
        Violation("torn", f"{event} is after the checkpoint and was not redelivered") for event in after - set(second)
    ]
    violations += [Violation("torn", f"{event} was redelivered") for event in second if event not in after]
    violations += [
        Violation("twice", f"{event} was redelivered {n} times") for event, n in Counter(second).items() if n > 1
    ]
    return violations


def _passed(cut: Mapping[Hashable, int], predecessors: Mapping[Hashable, Iterable[Hashable]]) -> set[Hashable]:
    """All ancestors of the segments of a cut."""
    found: set[Hashable] = set()
    ahead = list(cut)
    while ahead:
        for other in predecessors.get(ahead.pop(), ()):
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found
