"""Counts of values by size, in fixed buckets: what a percentile is computed from.

Hot paths count with it, so an observation is one search in a short tuple and two additions.  Counts never fall: for
the values of a period, subtract the counts at its begin.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Upper ends of buckets: of what takes milliseconds, of what takes seconds, of calls; of numbers of operations; of sizes
# in bytes.
LATENCIES: Final = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DURATIONS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CALL_LATENCIES: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
SIZES: Final = tuple(1024 << shift for shift in range(0, 15, 2))


class Histogram:
    """`counts[i]` values were at most `bounds[i]` and above the bound before it; the last count: above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the upper ends of the buckets, rising."""
        assert list(bounds) == sorted(set(bounds)), bounds
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"<Histogram of {self.count} values, mean {self.total / max(1, self.count):.6g}>"

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that occurred so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """Return a copy of the counts, which does not change any more."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other
