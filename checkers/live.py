"""Liveness: once the faults are over, every operation ends.  Pure.

| kind | meaning |
|---|---|
| `stuck` | an operation did not end within the time allowed after the faults (or its beginning, if later) |
| `slow` | it ended, but later than that |
| `unread` | a reader did not reach the tail |
| `outage` | nobody served for longer than one fault explains |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that a client waited for.  `ended` None: never.  Seconds of one clock."""

    name: str
    begun: float
    ended: float | None


def check(operations: Iterable[Operation], healed: float, within: float, until: float) -> list[Violation]:
    """Operations that did not end in `within` seconds after `healed`, seen at `until`."""
    violations = []
    for operation in operations:
        due = max(operation.begun, healed) + within
        if operation.ended is None:
            if until >= due:
                violations.append(
                    Violation("stuck", f"{operation.name} of {operation.begun:.3f} s was still open at {until:.3f}")
                )
        elif operation.ended > due:
            violations.append(
                Violation("slow", f"{operation.name} ended at {operation.ended:.3f} s, it was due at {due:.3f}")
            )
    return violations


def unread(positions: Mapping[str, Mapping[int, int]], tails: Mapping[int, int]) -> list[Violation]:
    """Readers whose position in a segment they read is not its tail."""
    return [
        Violation("unread", f"{reader} is at {offset} of segment {segment}, which has {tails[segment]} bytes")
        for reader, segments in positions.items()
        for segment, offset in segments.items()
        if segment in tails and offset < tails[segment]
    ]


def outages(served: Iterable[tuple[float, float]], begin: float, end: float, most: float) -> list[Violation]:
    """Gaps of more than `most` seconds between `begin` and `end` not covered by intervals of service."""
    violations = []
    at = begin
    for start, stop in sorted(served):
        if min(start, end) - at > most:
            violations.append(Violation("outage", f"nobody served from {at:.3f} to {min(start, end):.3f} s"))
        at = max(at, stop)
    if end - at > most:
        violations.append(Violation("outage", f"nobody served from {at:.3f} to {end:.3f} s"))
    return violations
