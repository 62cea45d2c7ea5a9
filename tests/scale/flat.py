"""Whether a figure stays flat over time.  Pure.

Bounded caches, allocators and tables of recent entries fill in the first half of a run.  A line is fitted to the second
half by least squares; its rise over that half, relative to the mean, decides.  The line is fitted instead of drawn
between the ends, since a sample may be taken in the middle of a flush.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_RISE: Final = 0.05
LEAST_SAMPLES: Final = 8


@dataclass(frozen=True, slots=True)
class Flatness:
    """A figure over the second half of a run: its mean, its rise over that half, its slope per hour."""

    mean: float
    rise: float
    per_hour: float
    slack: float

    @property
    def flat(self) -> bool:
        """Whether it rose by at most 5 percent of the mean, or by what one event more or less makes."""
        return self.rise <= max(MOST_RISE * self.mean, self.slack)

    def line(self, unit: float = 1.0) -> str:
        """For people."""
        verdict = "flat" if self.flat else "RISES"
        return f"mean {self.mean / unit:.1f}, {self.rise / unit:+.1f} over the second half, {verdict}"


def flatness(seconds: Sequence[float], values: Sequence[float], slack: float = 0.0) -> Flatness:
    """The second half of samples taken at `seconds`.  Raises ValueError when there are too few."""
    at, value = np.asarray(seconds, dtype=float), np.asarray(values, dtype=float)
    half = at >= (at[0] + at[-1]) / 2 if len(at) else np.empty(0, dtype=bool)
    at, value = at[half], value[half]
    if len(at) < LEAST_SAMPLES:
        raise ValueError(f"{len(at)} samples of the second half say nothing about a slope")
    slope = float(np.polyfit(at - at[0], value, 1)[0])
    return Flatness(float(value.mean()), slope * float(at[-1] - at[0]), slope * 3600, slack)
