"""Decisions on retention: at which recorded cut, or at which cut of its readers, a stream may be truncated.

Cuts are recorded periodically at the tail.  A stream truncated at a cut *retains* the time or the bytes since that cut.
A policy retains at least its limit and, when it has a maximum, at most that:

* A truncation never leaves less than the limit.
* Subscribed reader groups protect what they have not released, all of them.
* Data above the maximum is dropped anyway; its readers get a truncation error.

Where positions overlap in part, the earlier one counts in each part of the key space.  Source: controller.md par. 6,
Pravega `StreamMetadataTasks`; there a subscriber that has released nothing yet protects nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from sarit.controller.model.cuts import follows, lower_bound
from sarit.controller.model.epochs import known_segments
from sarit.core.policies import RetentionPolicy, RetentionType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch
    from sarit.controller.model.records import CutRecord

# The number of cuts within a limit, about ...
CUTS_PER_LIMIT: Final = 100
# ... and the most cuts of a stream.
MAX_CUTS: Final = 1000


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """Seconds.  `interval`: the least time between two cuts of a stream.  With a long limit by time it is larger:
    CUTS_PER_LIMIT of them make the limit.  `longest`: the most time between two evaluations of a stream."""

    interval: float = 60.0
    longest: float = 1800.0

    def wait(self, policy: RetentionPolicy) -> float:
        """Seconds from one evaluation of a stream to the next."""
        if policy.type is not RetentionType.TIME:
            return self.interval
        return min(max(self.interval, policy.limit / 1000 / CUTS_PER_LIMIT), max(self.interval, self.longest))


def is_due(policy: RetentionPolicy, last: CutRecord | None, tail: CutRecord) -> bool:
    """Whether to record the tail as a cut: the stream grew since the last one; for a limit in bytes, enough."""
    if last is None:
        return True
    grown = tail.size - last.size
    return grown > 0 and (policy.type is RetentionType.TIME or grown * CUTS_PER_LIMIT >= policy.limit)


def surplus(cuts: Sequence[CutRecord]) -> list[CutRecord]:
    """Cuts to remove when there are too many: every second one of the earlier half."""
    return list(cuts[1 : len(cuts) // 2 : 2]) if len(cuts) > MAX_CUTS else []


def truncation(
    policy: RetentionPolicy, tail: CutRecord, cuts: Sequence[CutRecord], released: Cut | None, epochs: Sequence[Epoch]
) -> Cut | None:
    """The cut to truncate the stream at; None for none.

    `tail`: its end, now.  `cuts`: recorded so far, in order, none before the present head.  `released`: what all its
    subscribers have released, None when it has none.  `epochs`: all, from the first segment's of these on."""
    known = known_segments(epochs)

    def retained(cut: CutRecord) -> int:
        return tail.time_ms - cut.time_ms if policy.type is RetentionType.TIME else tail.size - cut.size

    # In order of time, so the last is the one that retains least.
    enough = [cut for cut in cuts if retained(cut) >= policy.limit]
    if policy.type is RetentionType.NONE or not enough:
        return None
    target: Cut = dict(enough[-1].cut)
    if released is not None:
        target = _earlier(target, released, epochs)
    over = [cut for cut in cuts if policy.maximum and retained(cut) > policy.maximum]
    if over:  # data before the last of these must go; the first cut within the maximum serves, too
        within = [cut for cut in enough if retained(cut) <= policy.maximum]
        forced = within[0] if within else over[-1]
        # Only if that goes further than what was released: the readers keep what the maximum permits.
        if not follows(known, forced.cut, target):
            return dict(forced.cut)
    return target


def released_by_all(head: Cut, released: Sequence[Mapping[int, int]], epochs: Sequence[Epoch]) -> Cut | None:
    """The cut that all subscribers have released; the head if one has released nothing, None without subscribers."""
    if not released:
        return None
    # An empty cut: this one has released nothing, so it protects everything.
    if not all(released):
        return dict(head)
    return reduce(lambda one, other: _earlier(one, other, epochs), (dict(cut) for cut in released))


def _earlier(one: Cut, other: Cut, epochs: Sequence[Epoch]) -> Cut:
    known = known_segments(epochs)
    if follows(known, one, other):
        return one
    return other if follows(known, other, one) else lower_bound(epochs, [one, other])
