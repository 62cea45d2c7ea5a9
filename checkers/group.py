"""What a reader group owes those who use it (testing.md, 26 and 27), from what readers recorded.  Pure.

| kind | meaning |
|---|---|
| `two owners` | two readers held one segment at the same time |
| `twice` | an event counted twice, its position stored with it |
| `never` | an event counted for nobody, at the end |
| `order` | an event was read although a predecessor of its segment was not read to its end |
| `gap` | a reader went on behind where the one before it had stopped |
| `back` | a reader went on before where the one before it had stopped, though that was known |
| `hole` | a checkpoint leaves out part of the key space, or has a segment beside one that follows it |
| `torn` | a reset to a checkpoint did not bring back exactly the events behind it |

A *tenure* is the time in which a reader was certain to hold a segment: from when it knew that it had acquired it until
it wrote that it gave it up (or was declared lost).  Events are named by (segment, offset).
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

TOUCH: Final = 1e-9  # widths of ranges add up in doubles


@dataclass(frozen=True, slots=True)
class Tenure:
    """One reader's hold of a segment: seconds of one clock, and the offsets it began at and was left at.

    `ended` None: never; `left` None: the reader was lost, and where it stood is not known."""

    reader: str
    segment: Hashable
    begun: float
    ended: float | None
    first: int
    left: int | None


def check_tenures(tenures: Iterable[Tenure], last_checkpoint: Mapping[Hashable, int] | None = None) -> list[Violation]:
    """Owners of each segment, one after the other.

    `last_checkpoint`: how far back one may go when the reader before was lost without a position (0 otherwise)."""
    violations: list[Violation] = []
    by_segment: dict[Hashable, list[Tenure]] = {}
    for tenure in tenures:
        by_segment.setdefault(tenure.segment, []).append(tenure)
    for segment, held in by_segment.items():
        held.sort(key=lambda tenure: tenure.begun)
        for before, behind in itertools.pairwise(held):
            who = f"{segment}: {before.reader} from {before.begun:.3f} s, {behind.reader} from {behind.begun:.3f} s"
            if before.ended is None or before.ended > behind.begun:
                violations.append(Violation("two owners", who))
            if before.left is None:
                floor = (last_checkpoint or {}).get(segment, 0)
                if behind.first < min(floor, before.first):
                    violations.append(Violation("back", f"{who}, at {behind.first}, below the checkpoint {floor}"))
            elif behind.first > before.left:
                violations.append(Violation("gap", f"{who}, at {behind.first}, not at {before.left}"))
            elif behind.first < before.left:
                violations.append(Violation("back", f"{who}, at {behind.first}, not at {before.left}"))
    return violations


def check_counted(written: Iterable[Event], counted: Iterable[Event], *, ended: bool = True) -> list[Violation]:
    """Every event written counted once; `ended`: all was read."""
    counts = Counter(counted)
    violations = [Violation("twice", f"{event} counted {count} times") for event, count in counts.items() if count > 1]
    if ended:
        violations += [Violation("never", f"{event} was not counted") for event in written if event not in counts]
    return violations


def check_order(
    read: Sequence[Event], predecessors: Mapping[Hashable, Iterable[Hashable]], lengths: Mapping[Hashable, int]
) -> list[Violation]:
    """`read`: all readers' events in the order of time, offsets behind them; `lengths`: of sealed segments."""
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
    """A checkpoint's segments cover all keys once, and none of them follows another."""
    violations = []
    place = 0.0
    for low, high in sorted(ranges[segment] for segment in cut):
        if abs(low - place) > TOUCH:
            violations.append(
                Violation("hole", f"keys {place} to {low} are covered {'twice' if low < place else 'by none'}")
            )
        place = high
    if abs(place - 1.0) > TOUCH:
        violations.append(Violation("hole", f"keys from {place} on are covered by none"))
    for segment in cut:
        ahead, seen = list(predecessors.get(segment, ())), set()
        while ahead:
            other = ahead.pop()
            if other in cut:
                violations.append(Violation("hole", f"{segment} stands in one cut with {other}, which it follows"))
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
    """`before`: what had been handed out when the checkpoint was passed; `again`: what was read from the cut on.

    Each event written is on one side; an event's offset is where it begins."""
    passed = _passed(cut, predecessors)
    behind = {event for event in written if event[0] not in passed and event[1] >= cut.get(event[0], 0)}
    first, second = set(before), list(again)
    violations = [
        Violation("torn", f"{event} is behind the checkpoint and was read before it") for event in behind & first
    ]
    violations += [
        Violation("torn", f"{event} lies behind the checkpoint and did not come") for event in behind - set(second)
    ]
    violations += [Violation("torn", f"{event} came again") for event in second if event not in behind]
    violations += [Violation("twice", f"{event} came {n} times") for event, n in Counter(second).items() if n > 1]
    return violations


def _passed(cut: Mapping[Hashable, int], predecessors: Mapping[Hashable, Iterable[Hashable]]) -> set[Hashable]:
    """All that lies before the segments of a cut."""
    found: set[Hashable] = set()
    ahead = list(cut)
    while ahead:
        for other in predecessors.get(ahead.pop(), ()):
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found
