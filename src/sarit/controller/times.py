"""How often a controller looks at what nobody asks it to look at, and how fast it acts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sarit.controller.model.retention import RetentionTimes
from sarit.controller.model.watermarks import WatermarkTimes
from sarit.core.metering import ScalingTimes


@dataclass(frozen=True, slots=True)
class Times:
    """Scaling by rate, retention, watermarks."""

    scaling: ScalingTimes = field(default_factory=ScalingTimes)
    retention: RetentionTimes = field(default_factory=RetentionTimes)
    watermarks: WatermarkTimes = field(default_factory=WatermarkTimes)
