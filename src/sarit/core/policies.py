"""How a stream scales and how long it retains its data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from numbers import Integral

from sarit.core.errors import Invalid
from sarit.core.public import public

MAX_SEGMENTS_PER_STREAM = 10_000


def require_whole(what: str, **fields: object) -> None:
    """Check that each field is an integer.  A bool, or a text of digits, is refused.  Raises Invalid."""
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise Invalid(f"{what}({name}={value!r}): give an int")


@public
class ScaleType(IntEnum):
    """The kind of load that makes a segment split or merge."""

    FIXED = 0
    KILOBYTES_PER_SECOND = 1
    EVENTS_PER_SECOND = 2


@public
class RetentionType(IntEnum):
    """The kind of bound on a stream: its age or its size."""

    NONE = 0
    TIME = 1
    SIZE = 2


@public
@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """`target_rate` is per segment and second (unit by type); `scale_factor` segments replace one."""

    type: ScaleType = ScaleType.FIXED
    target_rate: int = 0
    scale_factor: int = 0
    min_segments: int = 1

    def check(self) -> None:
        """Check the values of the policy.  Raises Invalid."""
        require_whole("ScalingPolicy", target_rate=self.target_rate, scale_factor=self.scale_factor)
        require_whole("ScalingPolicy", type=self.type, min_segments=self.min_segments)
        if not 1 <= self.min_segments <= MAX_SEGMENTS_PER_STREAM:
            raise Invalid(f"a stream has 1 to {MAX_SEGMENTS_PER_STREAM} segments, not {self.min_segments}")
        if self.type != ScaleType.FIXED and (self.target_rate <= 0 or self.scale_factor <= 0):
            raise Invalid("a scaling policy by rate needs a target rate and a scale factor above 0")


@public
@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """`limit` in ms (TIME) or bytes (SIZE); `maximum` in the same unit, 0 for none."""

    type: RetentionType = RetentionType.NONE
    limit: int = 0
    maximum: int = 0

    def check(self) -> None:
        """Check the values of the policy.  Raises Invalid."""
        require_whole("RetentionPolicy", type=self.type, limit=self.limit, maximum=self.maximum)
        if self.limit < 0 or self.maximum < 0:
            raise Invalid("a retention policy has no negative limits")
        if self.maximum and self.maximum < self.limit:
            raise Invalid(f"a retention policy keeps at least {self.limit}, so it cannot keep at most {self.maximum}")


@public
@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The configuration of a stream; times in ms."""

    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    tags: tuple[str, ...] = ()
    timestamp_aggregation_ms: int = 0
    rollover_bytes: int = 0
