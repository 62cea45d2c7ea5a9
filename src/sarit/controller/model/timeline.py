"""Decides which of the cuts recorded at a stream's tail are retained, and which is the answer for a time.

Every event appended at or after a record's time is behind its cut.  So the newest record at or before a time answers
for that time.

The records of a stream are thinned as they age: of each minute, ten minutes, hour or day, the first is retained.
These spans begin at multiples of their length, so the first record of a longer span is the first of a shorter one, and
the result does not depend on how often records are thinned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.controller.limits import MAX_TIMELINE_CUTS, TIMELINE_AGES_MS, TIMELINE_OLDEST_SPAN_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

# In place of a size: no transaction was half merged at the cut.  What lies before it is the stream of one moment.
CLEAN: Final = 1
# How often the records of a stream are thinned; each stream has its own phase.
THINNING_INTERVAL_MS: Final = TIMELINE_AGES_MS[0][0]


def span_of(age_ms: int) -> int:
    """Return the length in ms of the spans in which one record of this age is retained."""
    return next((span for limit, span in TIMELINE_AGES_MS if age_ms < limit), TIMELINE_OLDEST_SPAN_MS)


def surplus(times_ms: Sequence[int], now_ms: int) -> list[int]:
    """Return the times of the records to remove; at most the newest MAX_TIMELINE_CUTS stay.  `times_ms`: ascending."""
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
    """Return whether a stream's thinning time lies between its last record and `now_ms`: once in THINNING_INTERVAL_MS.
    `phase_ms`: the stream's place in that interval."""
    return (last_ms + phase_ms) // THINNING_INTERVAL_MS < (now_ms + phase_ms) // THINNING_INTERVAL_MS


def newest_at(records: Sequence[tuple[int, int]], time_ms: int) -> int | None:
    """Return the index of the record that answers for a time: the newest at or before it; None: there is none.

    `records`: (time, version) of each, by time; versions rise in the order of recording.  The two orders differ only if
    the wall clock was set back.  Then some times came twice, and only the record of the first time answers for them."""
    first_later: int | None = None
    for place in range(len(records) - 1, -1, -1):
        time, number = records[place]
        if time <= time_ms and (first_later is None or number < first_later):
            return place
        first_later = number if first_later is None else min(number, first_later)
    return None
