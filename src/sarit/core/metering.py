"""Rates of segments and the scaling that they require: shared by stores and controllers.

A store averages the events and bytes of each segment over four windows, as exponentially weighted moving averages: the
weight of a sample falls by 1/e per window.  A segment is *hot* when its rate is above five times the target over the
shortest window, twice the target over the second, or the target over the third.  It is *cold* when its rate is below
the target over these three and below half of it over the longest.  A window counts only once it has been measured
whole.  No window counts within the cool-down after the segment was created, so that a stream does not oscillate.

Source of the rules and of the default times: Pravega `AutoScaleProcessor`, `AutoScalerConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sarit.core.errors import Invalid
from sarit.core.policies import ScaleType, ScalingPolicy

BYTES_PER_KILOBYTE: Final = 1024
_HOT: Final = (5.0, 2.0, 1.0)
_COLD_SHARE: Final = 0.5


class ScaleAdvice(Enum):
    """The scaling that the rates of a segment require."""

    NONE = "none"
    SPLIT = "split"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class ScalingTimes:
    """How fast streams scale; seconds.

    `windows`: of the averages, shortest first.  `interval`: from one evaluation of the rates to the next.
    `cool_down`: the least age of a segment that is scaled.  `mute`: between two requests for one segment."""

    windows: tuple[float, float, float, float] = (120.0, 300.0, 600.0, 1200.0)
    interval: float = 5.0
    cool_down: float = 600.0
    mute: float = 600.0

    def check(self) -> None:
        """Check that the times are possible.  Raises Invalid."""
        if not 0 < self.interval <= self.windows[0] or list(self.windows) != sorted(self.windows):
            raise Invalid("--scaling-windows: the windows of scaling by rate are four times in seconds, shortest first")
        if self.cool_down < 0 or self.mute < 0:
            raise Invalid("the cool-down of scaling by rate is a time in seconds")

    def shrunk(self, factor: float) -> ScalingTimes:
        """Return the same, `factor` times faster: for tests."""
        two, five, ten, twenty = (window / factor for window in self.windows)
        return ScalingTimes(
            (two, five, ten, twenty), self.interval / factor, self.cool_down / factor, self.mute / factor
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one segment per second over each window, shortest first; measured for `age` seconds."""

    events: tuple[float, float, float, float]
    bytes: tuple[float, float, float, float]
    age: float

    def by(self, scale_type: ScaleType) -> tuple[float, float, float, float]:
        """Return the rates in the unit of a policy's target rate."""
        if scale_type is ScaleType.EVENTS_PER_SECOND:
            return self.events
        two, five, ten, twenty = (rate / BYTES_PER_KILOBYTE for rate in self.bytes)
        return two, five, ten, twenty


NO_RATES: Final = Rates((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0.0)


def scale_advice(policy: ScalingPolicy, rates: Rates, times: ScalingTimes) -> ScaleAdvice:
    """Return the scaling that the rates of a segment require under a policy."""
    target, age = float(policy.target_rate), rates.age
    if policy.type is ScaleType.FIXED or target <= 0 or age < times.cool_down:
        return ScaleAdvice.NONE
    measured = rates.by(policy.type)
    if any(
        rate > factor * target and age >= window
        for factor, rate, window in zip(_HOT, measured, times.windows, strict=False)
    ):
        return ScaleAdvice.SPLIT
    *recent, longest = measured
    if max(recent) < target and longest < _COLD_SHARE * target and age >= times.windows[-1]:
        return ScaleAdvice.MERGE
    return ScaleAdvice.NONE
