"""When a stream reached which cut: which of the cuts recorded at its tail stay, and which answers for a time.  Pure.

A record says: every event appended at or after its time is behind its cut.  The newest record at or before a time says
so for that time, too.

The records of a stream are thinned as they age: of each minute, ten minutes, hour or day, the first is retained.
These spans begin at multiples of themselves, so the first of a longer one is the first of a shorter one: thinning often
or seldom retains the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.controller.limits import MAX_TIMELINE_CUTS, TIMELINE_AGES_MS, TIMELINE_OLDEST_SPAN_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of streams whose cuts are thinned together, each has a time of its own in the hour.
THINNING_INTERVAL_MS: Final = TIMELINE_AGES_MS[0][0]


def span_of(age_ms: int) -> int:
    """Return the span of which one record is retained, in ms, for records of an age in ms."""
    return next((span for limit, span in TIMELINE_AGES_MS if age_ms < limit), TIMELINE_OLDEST_SPAN_MS)


def surplus(times_ms: Sequence[int], now_ms: int) -> list[int]:
    """Return which records to remove, by their times (ascending); at most MAX_TIMELINE_CUTS stay, the newest ones."""
    kept: list[int] = []
    before: int | None = None
    for time in times_ms:
        span = span_of(now_ms - time)
        if before is None or before // span != time // span:
            kept.append(time)
        before = time
    stay = set(kept[-MAX_TIMELINE_CUTS:])
    return [time for time in times_ms if time not in stay]


def is_thinning_due(phase_ms: int, last_ms: int, now_ms: int) -> bool:
    """Return whether to thin with a record at `now_ms` after one at `last_ms`: about once in THINNING_INTERVAL_MS."""
    return (last_ms + phase_ms) // THINNING_INTERVAL_MS < (now_ms + phase_ms) // THINNING_INTERVAL_MS


def newest_at(records: Sequence[tuple[int, int]], time_ms: int) -> int | None:
    """Return which record answers for a time: the newest at or before it; None: there is none.

    `records`: the time of each, ascending, and a number that rises from one that was recorded to the next.  They differ
    in order only if the wall clock was set back.  Then a time came twice, and only what was recorded the first time
    answers for it."""
    first_later: int | None = None
    for place in range(len(records) - 1, -1, -1):
        time, number = records[place]
        if time <= time_ms and (first_later is None or number < first_later):
            return place
        first_later = number if first_later is None else min(number, first_later)
    return None
