"""Retention, decided: at which of the cuts taken so far, or at which cut of its readers, a stream may begin.

Cuts are taken at the tail now and then.  What a stream would *retain*, truncated at a cut, is the time or the bytes
since.  A policy keeps at least its limit and, when it has a maximum, at most that:

* Nothing is dropped that would leave less than the limit.
* Reader groups that subscribed hold back what they have not released, all of them.
* What exceeds the maximum is dropped all the same; its readers are told that it was truncated.

Where positions overlap in part, the earlier one of each part of the key space counts.  Source: controller.md par. 6,
Pravega `StreamMetadataTasks`; there a subscriber that has released nothing yet holds nothing back.
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

# A limit is measured by about so many cuts ...
CUTS_PER_LIMIT: Final = 100
# ... and a stream has no more than so many in all.
MAX_CUTS: Final = 1000


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """Seconds.  `interval`: between two cuts of a stream, at least; where the policy is by time and its limit long,
    CUTS_PER_LIMIT of them make the limit.  `longest`: between two looks at a stream, at most."""

    interval: float = 60.0
    longest: float = 1800.0

    def wait(self, policy: RetentionPolicy) -> float:
        """From one look at a stream to the next."""
        if policy.type is not RetentionType.TIME:
            return self.interval
        return min(max(self.interval, policy.limit / 1000 / CUTS_PER_LIMIT), max(self.interval, self.longest))


def is_due(policy: RetentionPolicy, last: CutRecord | None, tail: CutRecord) -> bool:
    """Whether the tail is a cut to keep: something came since the last, and enough of it if it is bytes that count."""
    if last is None:
        return True
    grown = tail.size - last.size
    return grown > 0 and (policy.type is RetentionType.TIME or grown * CUTS_PER_LIMIT >= policy.limit)


def surplus(cuts: Sequence[CutRecord]) -> list[CutRecord]:
    """Cuts to give up when there are too many: every second one of the earlier half."""
    return list(cuts[1 : len(cuts) // 2 : 2]) if len(cuts) > MAX_CUTS else []


def truncation(
    policy: RetentionPolicy, tail: CutRecord, cuts: Sequence[CutRecord], released: Cut | None, epochs: Sequence[Epoch]
) -> Cut | None:
    """Where the stream may begin; None to leave it as it is.

    `tail`: its end, now.  `cuts`: taken so far, in order, none before the present head.  `released`: what all its
    subscribers have released, None when it has none.  `epochs`: all, from the first segment's of these on."""
    known = known_segments(epochs)

    def retained(cut: CutRecord) -> int:
        return tail.time_ms - cut.time_ms if policy.type is RetentionType.TIME else tail.size - cut.size

    enough = [cut for cut in cuts if retained(cut) >= policy.limit]
    if policy.type is RetentionType.NONE or not enough:
        return None
    target: Cut = dict(enough[-1].cut)
    if released is not None:
        target = _earlier(target, released, epochs)
    over = [cut for cut in cuts if policy.maximum and retained(cut) > policy.maximum]
    if over:  # what is before the last of these must go; the first of those that leave no more is as good
        within = [cut for cut in enough if retained(cut) <= policy.maximum]
        forced = within[0] if within else over[-1]
        if not follows(known, forced.cut, target):
            return dict(forced.cut)
    return target


def released_by_all(head: Cut, released: Sequence[Mapping[int, int]], epochs: Sequence[Epoch]) -> Cut | None:
    """What all subscribers have released: the head if one of them has released nothing yet, None without any."""
    if not released:
        return None
    if not all(released):
        return dict(head)
    return reduce(lambda one, other: _earlier(one, other, epochs), (dict(cut) for cut in released))


def _earlier(one: Cut, other: Cut, epochs: Sequence[Epoch]) -> Cut:
    known = known_segments(epochs)
    if follows(known, one, other):
        return one
    return other if follows(known, other, one) else lower_bound(epochs, [one, other])
