"""The rates of streams and scopes, for operators: of the busiest by name, and of all others together.

The number of names is bounded whatever the number of streams is: each becomes a series in a monitoring system, where
100,000 of them would cost more than the node.
"""

from __future__ import annotations

from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Stands for what has no series of its own; no scope and no stream has this name.
OTHERS: Final = "(others)"

# Events and bytes per second.
Rate = tuple[float, float]


class Busiest:
    """The `most` names with the highest rates in bytes, and the sum of the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[float, str, float]] = []
        self.others: Rate = (0.0, 0.0)

    def __repr__(self) -> str:
        return f"<Busiest {len(self._heap)} of at most {self._most}>"

    def add(self, name: str, rate: Rate) -> None:
        """Count a name, once."""
        events, size = rate
        if len(self._heap) < self._most:
            heappush(self._heap, (size, name, events))
            return
        if self._heap and size > self._heap[0][0]:
            size, _, events = heapreplace(self._heap, (size, name, events))
        self.others = self.others[0] + events, self.others[1] + size

    def rates(self) -> list[tuple[str, Rate]]:
        """Return the busiest first."""
        return [(name, (events, size)) for size, name, events in sorted(self._heap, reverse=True)]


def add_rates(totals: dict[str, Rate], rates: Iterable[tuple[str, Rate]]) -> None:
    """Add rates to those of the same names."""
    for name, (events, size) in rates:
        before = totals.get(name, (0.0, 0.0))
        totals[name] = before[0] + events, before[1] + size
