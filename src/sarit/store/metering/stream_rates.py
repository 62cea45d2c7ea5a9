"""The rates of streams and scopes for metrics: those of the busiest by name, and the sum of all others.

The number of names is bounded, since each becomes a series in a monitoring system: 100,000 series would cost more
there than the node.
"""

from __future__ import annotations

from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# The label of all streams without a series of their own; no scope and no stream has this name.
OTHERS: Final = "(others)"

# A rate is (events per second, bytes per second).
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
        """Add a name, once, with its rate."""
        events, size = rate
        if len(self._heap) < self._most:
            heappush(self._heap, (size, name, events))
            return
        if self._heap and size > self._heap[0][0]:
            size, _, events = heapreplace(self._heap, (size, name, events))
        self.others = self.others[0] + events, self.others[1] + size

    def rates(self) -> list[tuple[str, Rate]]:
        """Return the names and rates, the busiest first."""
        return [(name, (events, size)) for size, name, events in sorted(self._heap, reverse=True)]


def add_rates(totals: dict[str, Rate], rates: Iterable[tuple[str, Rate]]) -> None:
    """Add rates to the totals of their names."""
    for name, (events, size) in rates:
        before = totals.get(name, (0.0, 0.0))
        totals[name] = before[0] + events, before[1] + size
