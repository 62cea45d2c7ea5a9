"""Intervals of the controller's background work, as an operator chooses them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sarit.controller.limits import TIMELINE_INTERVAL_SECONDS
from sarit.controller.model.retention import RetentionTimes
from sarit.controller.model.watermarks import WatermarkTimes
from sarit.core.errors import Invalid
from sarit.core.metering import ScalingTimes

__all__ = ["RetentionTimes", "ScalingTimes", "Times", "WatermarkTimes"]


@dataclass(frozen=True, slots=True)
class Times:
    """Intervals of automatic scaling, retention and watermarks; `timeline_interval`: seconds between recorded cuts."""

    scaling: ScalingTimes = field(default_factory=ScalingTimes)
    retention: RetentionTimes = field(default_factory=RetentionTimes)
    watermarks: WatermarkTimes = field(default_factory=WatermarkTimes)
    timeline_interval: float = TIMELINE_INTERVAL_SECONDS

    def check(self) -> None:
        """Check the intervals.  Raises Invalid."""
        self.scaling.check()
        if self.retention.interval <= 0 or self.watermarks.interval <= 0 or self.watermarks.writer_time_out < 0:
            raise Invalid("the intervals of retention and watermarks are times in seconds, above 0")
