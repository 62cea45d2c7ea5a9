"""Decides automatic scaling: which segments are replaced by which key ranges, if any.

A hot segment is split into equal parts, as many as bring each to the target rate: at least two, at most the policy's
scale factor.  A cold segment is merged with cold neighbours on either side, while the sum of their rates stays below
the target (else the new segment would be split again) and the stream keeps its minimum of segments.

Source: Pravega `AutoScaleTask`, which rounds the number of parts down, and may merge three segments whose sum is above
the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from sarit.controller.model.records import State
from sarit.core.errors import Invalid
from sarit.core.keyspace import KeyRange
from sarit.core.metering import ScaleAdvice, scale_advice
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM, ScaleType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.epochs import SegmentRange
    from sarit.controller.model.records import StreamRecord
    from sarit.core.metering import Rates, ScalingTimes

_LEAST_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """Segments to seal, and the ranges that replace them."""

    replaced: tuple[int, ...]
    ranges: tuple[KeyRange, ...]


def segments_to_measure(record: StreamRecord, segment: int) -> tuple[SegmentRange, ...]:
    """Return the active segments whose rates a decision about `segment` needs: itself and its neighbours; none when the
    stream does not scale by rate, or is a mirror, or the segment is not active any more."""
    if record.state is not State.ACTIVE or record.link or record.config.scaling.type is ScaleType.FIXED:
        return ()
    active = record.current.segments
    at = next((i for i, s in enumerate(active) if s.segment == segment), None)
    return () if at is None else active[max(0, at - 1) : at + 2]


def plan(record: StreamRecord, segment: int, rates: Mapping[int, Rates], times: ScalingTimes) -> Plan | None:
    """Return the scaling that the rates of a segment and its neighbours require; None: none.  `rates`: by packed id."""
    near = [s for s in segments_to_measure(record, segment) if s.segment in rates]
    mine = next((s for s in near if s.segment == segment), None)
    if mine is None:
        return None
    advice = scale_advice(record.config.scaling, rates[segment], times)
    if advice is ScaleAdvice.SPLIT:
        return _split(record, mine, rates[segment])
    if advice is ScaleAdvice.MERGE:
        return _merge(record, mine, near, rates, times)
    return None


def _split(record: StreamRecord, segment: SegmentRange, rates: Rates) -> Plan | None:
    policy = record.config.scaling
    *recent, _ = rates.by(policy.type)
    needed = ceil(max(recent) / policy.target_rate)
    # The split segment itself does not count any more.
    free = MAX_SEGMENTS_PER_STREAM - len(record.current.segments) + 1
    parts = min(max(_LEAST_PARTS, needed), max(_LEAST_PARTS, policy.scale_factor), free)
    if parts < _LEAST_PARTS:
        return None
    try:
        return Plan((segment.segment,), tuple(KeyRange(segment.low, segment.high).split_evenly(parts)))
    except Invalid:  # the range is too narrow to be split
        return None


def _merge(
    record: StreamRecord, segment: SegmentRange, near: list[SegmentRange], rates: Mapping[int, Rates],
    times: ScalingTimes,
) -> Plan | None:  # fmt: skip
    policy = record.config.scaling
    may_lose = len(record.current.segments) - policy.min_segments
    merged, together = [segment], _load(rates[segment.segment], policy.type)
    others = [
        s for s in near if s is not segment and scale_advice(policy, rates[s.segment], times) is ScaleAdvice.MERGE
    ]
    # Try the neighbour with the lower rate first: with it merged, the other one may exceed the target.
    for other in sorted(others, key=lambda s: (_load(rates[s.segment], policy.type), s.low)):
        load = _load(rates[other.segment], policy.type)
        # Keep the sum below the target, so that the merged segment is not split again at once.
        if may_lose > 0 and together + load < policy.target_rate:
            merged.append(other)
            together += load
            may_lose -= 1
    if len(merged) == 1:
        return None
    merged.sort()
    return Plan(tuple(s.segment for s in merged), (KeyRange(merged[0].low, merged[-1].high),))


def _load(rates: Rates, scale_type: ScaleType) -> float:
    return max(rates.by(scale_type))
