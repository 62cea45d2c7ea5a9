"""Rates of segments, and what they call for: the words that stores and controllers share about scaling by rate.

A store averages the events and bytes that each segment takes over four windows, in the way of load averages: a rate
counts the less the longer ago it was, by 1/e for each window that passed.  A segment is *hot* when it lies above the
target rate: five times above over the shortest window, twice over the second, at all over the third.  It is *cold*
when it lies below the target over these three, and below half of it over the longest.  A window only counts once it
has been measured whole, and none counts within the cool-down after the segment began: what a scale brought is left
alone until its own rates are known, so that a stream does not flap.

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
    """What the rates of a segment call for."""

    NONE = "none"
    SPLIT = "split"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class ScalingTimes:
    """How fast streams scale; seconds.  Tests shrink all of them alike.

    `windows`: what rates are averaged over, shortest first.  `interval`: from one look at the rates to the next.
    `cool_down`: no scale of a segment younger than that.  `mute`: from one request for a segment to its next."""

    windows: tuple[float, float, float, float] = (120.0, 300.0, 600.0, 1200.0)
    interval: float = 5.0
    cool_down: float = 600.0
    mute: float = 600.0

    def check(self) -> None:
        """Raises Invalid."""
        if not 0 < self.interval <= self.windows[0] or list(self.windows) != sorted(self.windows):
            raise Invalid("the windows of scaling by rate are four times in seconds, shortest first")
        if self.cool_down < 0 or self.mute < 0:
            raise Invalid("the cool-down of scaling by rate is a time in seconds")

    def shrunk(self, factor: float) -> ScalingTimes:
        """The same, so many times faster."""
        two, five, ten, twenty = (window / factor for window in self.windows)
        return ScalingTimes(
            (two, five, ten, twenty), self.interval / factor, self.cool_down / factor, self.mute / factor
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one segment, per second, over each window, shortest first; measured for `age` seconds."""

    events: tuple[float, float, float, float]
    bytes: tuple[float, float, float, float]
    age: float

    def by(self, scale_type: ScaleType) -> tuple[float, float, float, float]:
        """In the unit of a policy's target rate."""
        if scale_type is ScaleType.EVENTS_PER_SECOND:
            return self.events
        two, five, ten, twenty = (rate / BYTES_PER_KILOBYTE for rate in self.bytes)
        return two, five, ten, twenty


NO_RATES: Final = Rates((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0.0)


def scale_advice(policy: ScalingPolicy, rates: Rates, times: ScalingTimes) -> ScaleAdvice:
    """What a segment's rates call for under a policy."""
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
