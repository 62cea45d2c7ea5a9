"""Decides on retention: at which recorded cut, or at which cut that its readers released, a stream is truncated.

Cuts are recorded periodically at the tail.  A stream truncated at a cut *retains* the time or the bytes since that cut.
A policy retains at least its limit and, when it has a maximum, at most that.  A stream without subscribers is truncated
at the last recorded cut that retains the limit.  Each subscribed reader group protects what it has not released:

| | by size | by time |
|---|---|---|
| the released cut retains less than the limit | the last recorded cut that retains the limit | the same |
| the released cut retains more than the maximum | the first recorded cut within the maximum | the same |
| otherwise | the released cut | the released cut |

By size, the bytes after the released cut are counted exactly.  By time, only recorded cuts have an age: the released
cut retains too little if it is after the last recorded cut that retains the limit, and too much if it is before the
last recorded cut at the maximum.  Where two cuts overlap, the earlier one counts in each part of the key space, but
data that is surely above the maximum is dropped, and its readers get a truncation error.

What a link holds (`controller/hold_records.py`) is never dropped, whatever the maximum.
A background job that holds data (`controller/jobs.py`) counts as a subscriber that has released what is before its cut.

Source: controller.md par. 6, Pravega `StreamMetadataTasks`.  There a subscriber that has released nothing yet protects
nothing, and by time a released cut that overlaps a recorded one may hold back data above the maximum.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.controller.limits import CLOCK_DOUBT_MS, MAX_CLOCK_GAP_MS
from sarit.controller.model.cuts import follows, lower_bound
from sarit.controller.model.epochs import known_segments
from sarit.core.policies import RetentionPolicy, RetentionType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.model.records import CutRecord

# About how many cuts are recorded within a policy's limit ...
CUTS_PER_LIMIT: Final = 100
# ... and how many a stream has at most.
MAX_CUTS: Final = 1000


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """Intervals of retention in seconds.  `interval`: the least time between two cuts of a stream; a policy with a long
    time limit has CUTS_PER_LIMIT cuts in it.  `longest`: the most time between two evaluations of a stream."""

    interval: float = 60.0
    longest: float = 1800.0

    def wait(self, policy: RetentionPolicy) -> float:
        """Return the seconds from one evaluation of a stream to the next."""
        if policy.type is not RetentionType.TIME:
            return self.interval
        return min(max(self.interval, policy.limit / 1000 / CUTS_PER_LIMIT), max(self.interval, self.longest))


@dataclass(frozen=True, slots=True)
class StreamTime:
    """`ahead`: the offset of a stream's time from its controller's clock, in ms.  `behind_until`: the time on that
    clock at which a negative offset ends."""

    ahead: int = 0
    behind_until: int = 0


def time_of_stream(before: StreamTime | None, newest_ms: int | None, now_ms: int) -> StreamTime:
    """Return the offset of a stream's time: `before`, unless its newest cut and the controller's clock are far apart.

    `before`: None at the first evaluation.  `newest_ms`: the time of its newest cut; None: it has no cut."""
    time = before or StreamTime()
    if newest_ms is not None and before is None and now_ms - newest_ms > MAX_CLOCK_GAP_MS:
        time = StreamTime(newest_ms - now_ms, now_ms + CLOCK_DOUBT_MS)
    if time.ahead < 0 and now_ms >= time.behind_until:
        time = StreamTime()
    if newest_ms is not None and newest_ms - now_ms - time.ahead > MAX_CLOCK_GAP_MS:
        time = StreamTime(newest_ms - now_ms, now_ms + CLOCK_DOUBT_MS)
    return time


def is_due(policy: RetentionPolicy, last: CutRecord | None, tail: CutRecord) -> bool:
    """Return whether to record the tail as a cut: whether the stream grew since the last cut, by enough if the limit is
    in bytes."""
    if last is None:
        return True
    grown = tail.size - last.size
    return grown > 0 and (policy.type is RetentionType.TIME or grown * CUTS_PER_LIMIT >= policy.limit)


def surplus(cuts: Sequence[CutRecord]) -> list[CutRecord]:
    """Return the cuts to remove when there are too many: every second one of the earlier half."""
    return list(cuts[1 : len(cuts) // 2 : 2]) if len(cuts) > MAX_CUTS else []


@dataclass(frozen=True, slots=True)
class Released:
    """The cut up to which all subscribers have released a stream.

    `size`: the bytes of the stream before the cut, as in a recorded cut; unused by a policy by time."""

    cut: Cut
    size: int = 0


def truncation(
    policy: RetentionPolicy,
    tail: CutRecord,
    cuts: Sequence[CutRecord],
    released: Released | None,
    epochs: Sequence[Epoch],
) -> Cut | None:
    """Return the cut to truncate the stream at; None: do not truncate it.

    `tail`: the stream's present end.  `cuts`: the recorded cuts in order, none before the present head.  `released`:
    None: the stream has no subscribers.  `epochs`: all epochs from the first segment of these cuts on."""
    if policy.type is RetentionType.NONE:
        return None
    limit, maximum = policy.limit, policy.maximum or inf
    by_time = policy.type is RetentionType.TIME
    kept = [(tail.time_ms - cut.time_ms if by_time else tail.size - cut.size, cut.cut) for cut in cuts]
    # Cuts are in order of time, so the last one that retains enough retains least.
    enough = [(retained, cut) for retained, cut in kept if retained >= limit]
    latest = enough[-1][1] if enough else None
    if released is None:
        return None if latest is None else dict(latest)
    # The first cut within the maximum; if there is none, the cut that exceeds it least.
    forced = next((entry for entry in enough if entry[0] <= maximum), enough[-1] if enough else None)
    if by_time:
        over = [cut for retained, cut in enough if retained >= maximum]
        if forced is not None and over and not follows(known := known_segments(epochs), over[-1], released.cut):
            # If the two cuts overlap, `forced` may drop data younger than the maximum: truncate only at the older cut.
            return dict(forced[1] if follows(known, released.cut, over[-1]) else over[-1])
    elif (left := tail.size - released.size) >= limit:
        return dict(forced[1] if forced is not None and maximum <= left and forced[0] < left else released.cut)
    return None if latest is None else _earlier(latest, released.cut, epochs)


def nearest_at_or_after(cut: Cut, cuts: Sequence[CutRecord], known: Mapping[int, SegmentRange]) -> CutRecord:
    """Return the first recorded cut that is nowhere before `cut`; the last one when there is none.

    So the bytes before `cut` can be found by measuring only the segments between the two cuts."""
    place = bisect_left(cuts, True, key=lambda recorded: follows(known, cut, recorded.cut))
    return cuts[min(place, len(cuts) - 1)]


def held_back(target: Cut | None, held: Sequence[Mapping[int, int]], epochs: Sequence[Epoch]) -> Cut | None:
    """Return the cut to truncate a stream at that is behind `target` nowhere, nor behind any cut that a link holds.

    Unlike a subscriber, a link holds its part of a stream beyond the policy's maximum."""
    return target if target is None else reduce(lambda one, other: _earlier(one, dict(other), epochs), held, target)


def released_by_all(head: Cut, released: Sequence[Mapping[int, int]], epochs: Sequence[Epoch]) -> Cut | None:
    """Return the cut up to which all subscribers have released a stream: the head if one has released nothing; None: no
    subscribers."""
    if not released:
        return None
    # A subscriber with an empty cut has released nothing, so everything is kept.
    if not all(released):
        return dict(head)
    return reduce(lambda one, other: _earlier(one, other, epochs), (dict(cut) for cut in released))


def _earlier(one: Cut, other: Cut, epochs: Sequence[Epoch]) -> Cut:
    known = known_segments(epochs)
    if follows(known, one, other):
        return one
    return other if follows(known, other, one) else lower_bound(epochs, [one, other])
