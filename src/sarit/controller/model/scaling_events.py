"""The epochs of a stream as scaling events, which show when the stream got which segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller.model.epochs import creation_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.model.epochs import Epoch, SegmentRange


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """An epoch of a stream; times in ms since 1970.  `segments`: each segment with its creation time.

    `splits`: how many segments of the epoch before were split.  `merges`: how many segments of this epoch replace
    several."""

    time_ms: int
    segments: tuple[tuple[SegmentRange, int], ...]
    splits: int = 0
    merges: int = 0


def scaling_events(epochs: Sequence[Epoch], from_ms: int, to_ms: int) -> list[ScalingEvent]:
    """Return the last epoch that began before `from_ms`, and those that began from then to `to_ms` (included).

    `epochs`: the known epochs, in order.  The creation time of a segment that is older is that of the first epoch."""
    began = {epoch.number: epoch.created_ms for epoch in epochs}
    earlier = [epoch for epoch in epochs if epoch.created_ms < from_ms]
    shown = [*earlier[-1:], *(epoch for epoch in epochs if from_ms <= epoch.created_ms <= to_ms)]
    # The first event has no splits or merges: the epoch before it was not asked for.
    before = [None, *shown]
    return [_event(epoch, previous, began) for previous, epoch in zip(before, shown, strict=False)]


def _event(epoch: Epoch, before: Epoch | None, began: dict[int, int]) -> ScalingEvent:
    oldest = min(began.values())
    segments = tuple((s, began.get(creation_epoch(s.segment), oldest)) for s in epoch.segments)
    if before is None:
        return ScalingEvent(epoch.created_ms, segments)
    splits = sum(len(epoch.overlapping(s)) > 1 for s in before.segments)
    merges = sum(len(before.overlapping(s)) > 1 for s in epoch.segments)
    return ScalingEvent(epoch.created_ms, segments, splits, merges)
