"""Admission control: decides where the next micro-batch ends, by limits in bytes and events.

Theory of operation.  The driver does not read the data to find where a micro-batch ends.  It asks the store for an
event boundary near the limit, which reads nothing, and reads `SPARK_SAMPLE_BYTES` at the position of a segment.  Such a
sample shows where the next events end, which makes small limits exact, and the mean size of an event, by which a
number of events is converted to bytes.

A micro-batch always makes progress: the next event of one segment is taken whatever its size.  Segments take turns in
that, so that none starves.  The rest of a limit is divided in proportion to the unread bytes of each segment (of all
streams alike); what a segment cannot use goes to the next ones.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.limits import BOUNDARY_STEP_BYTES
from sarit.spark.limits import SPARK_SAMPLE_BYTES
from sarit.spark.source.position import split_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.access import StreamAccess

    Place = tuple[StreamName, SegmentId]
    # The unread bytes of each segment, as two event boundaries.
    Waiting = Mapping[Place, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a micro-batch; None: no bound.  `min_events`: wait for so many events, for up to `max_delay_ms`."""

    max_events: int | None = None
    max_bytes: int | None = None
    min_events: int | None = None
    max_delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the events after `start` end, by a read of at most `SPARK_SAMPLE_BYTES` up to `end`."""

    start: int
    end: int
    ends: tuple[int, ...]

    @property
    def mean_bytes(self) -> float:
        """The mean size of the sample's events in bytes; 1 if it has none."""
        return (self.ends[-1] - self.start) / len(self.ends) if self.ends else 1.0

    def covers(self, end: int) -> bool:
        """Return whether another sample up to `end` would show no more events."""
        return self.end >= end or (bool(self.ends) and self.ends[-1] - self.start >= SPARK_SAMPLE_BYTES)


class Probe:
    """Samples unread bytes and asks stores for event boundaries.  Caches the last sample of each segment."""

    def __init__(self, access: Callable[[StreamName], StreamAccess]) -> None:
        self._access = access
        self._samples: dict[Place, Sample] = {}

    def sample(self, place: Place, start: int, end: int) -> Sample:
        """Return a sample of the events from `start` to `end`.  Raises NotFound, Truncated."""
        known = self._samples.get(place)
        if known is None or known.start != start or not known.covers(end):
            stream, segment = place
            ends = self._access(stream).event_ends(segment, start, end, SPARK_SAMPLE_BYTES)
            known = self._samples[place] = Sample(start, end, tuple(at for at in ends if at <= end))
        return known

    def mean_bytes(self, place: Place, start: int, end: int) -> float:
        """Estimate the mean size of events near `start`, by an earlier sample of the segment if there is one."""
        known = self._samples.get(place)
        return (known if known is not None and known.ends else self.sample(place, start, end)).mean_bytes

    def events(self, place: Place, start: int, end: int) -> int:
        """Estimate the number of events from `start` to `end`; exact if the sample shows all of them."""
        sample = self.sample(place, start, end)
        whole = bisect_right(sample.ends, end)
        if whole and sample.ends[whole - 1] == end:
            return whole
        return max(round((end - start) / sample.mean_bytes), whole, 1)

    def boundary(self, place: Place, start: int, most: int) -> int:
        """Return the last event boundary in (`start`, `most`] that the store knows; `start` when it knows none."""
        window = 2 * BOUNDARY_STEP_BYTES
        while True:
            # Look further back if there is no boundary near the limit, as with a long event.
            low = max(start, most - window)
            found = self.boundaries(place, low, most + 1, max(1, (most - low) // 2))
            if found or low == start:
                return found[-1] if found else start
            window *= 8

    def boundaries(self, place: Place, start: int, end: int, step_bytes: int) -> list[int]:
        """Return event boundaries that the store knows strictly between two offsets, about `step_bytes` apart."""
        stream, segment = place
        return self._access(stream).boundaries(segment, start, end, step_bytes)

    def retain(self, places: Waiting) -> None:
        """Forget the samples of other segments."""
        self._samples = {place: sample for place, sample in self._samples.items() if place in places}


def admitted(
    waiting: Waiting, limits: Limits, probe: Probe, last: Place | None
) -> tuple[dict[Place, int], Place | None]:
    """Return where the micro-batch ends in each segment, and the segment whose turn it was.  `last`: the segment whose
    turn was before.  Raises NotFound, Truncated."""
    ends = {place: end for place, (_, end) in sorted(waiting.items())}
    if not waiting or (limits.max_bytes is None and limits.max_events is None):
        return ends, last
    first = next((place for place in ends if last is None or place > last), next(iter(ends)))
    starts = {place: start for place, (start, _) in waiting.items()}
    if limits.max_bytes is not None:
        ends = _bounded(starts, ends, first, limits.max_bytes, probe, in_events=False)
    if limits.max_events is not None:
        ends = _bounded(starts, ends, first, limits.max_events, probe, in_events=True)
    return ends, first


def _bounded(
    starts: Mapping[Place, int], ends: dict[Place, int], first: Place, budget: int, probe: Probe, *, in_events: bool
) -> dict[Place, int]:
    backlog = {place: end - starts[place] for place, end in ends.items()}
    if not in_events and sum(backlog.values()) <= budget:
        return ends
    # Take one event of the segment whose turn it is, whatever its size, before the limit is divided.
    taken = _first_event(probe, first, starts[first], ends[first])
    begins = {**starts, first: taken}
    backlog[first] -= taken - starts[first]
    budget -= 1 if in_events else taken - starts[first]
    if budget <= 0:
        return begins
    # Divide the rest of the limit among all segments; what a segment does not use goes to the next ones.
    bounded, spare = dict(ends), 0
    within = _within_events if in_events else _within_bytes
    for place, allowance in split_budget(backlog, budget).items():
        span = (starts[place], begins[place], ends[place])
        bounded[place], used = within(probe, place, span, allowance + spare)
        spare += allowance - used
    return bounded


def _first_event(probe: Probe, place: Place, start: int, end: int) -> int:
    ends = probe.sample(place, start, end).ends
    # Without ends the events were truncated or deleted meanwhile: to pass over them is progress.
    return ends[0] if ends else end


def _within_bytes(probe: Probe, place: Place, span: tuple[int, int, int], count: int) -> tuple[int, int]:
    """Return an event boundary at most `count` bytes after what is taken, and the bytes up to there.  `span`: where the
    sample begins, up to where events are taken already, and the end of the segment's unread bytes."""
    start, begin, end = span
    limit = begin + count
    if end <= limit:
        return end, end - begin
    at = probe.boundary(place, begin, limit) if count > SPARK_SAMPLE_BYTES else begin
    if at == begin:
        sampled = probe.sample(place, start, end).ends
        index = bisect_right(sampled, limit)
        at = max(begin, sampled[index - 1]) if index else begin
    return at, at - begin


def _within_events(probe: Probe, place: Place, span: tuple[int, int, int], count: int) -> tuple[int, int]:
    """Return an event boundary about `count` events after what is taken, and the number of events up to there; exact if
    the sample shows them.  `span`: as for `_within_bytes`."""
    start, begin, end = span
    sample = probe.sample(place, start, end)
    index = bisect_right(sample.ends, begin)
    ends = sample.ends[index : bisect_right(sample.ends, end)]
    if count <= 0 or not sample.ends:
        return begin, 0
    if len(ends) >= count:
        return ends[count - 1], count
    if begin == end or (ends and ends[-1] == end):
        return end, len(ends)
    limit = begin + int(count * sample.mean_bytes)
    known = ends[-1] if ends else begin
    at = end if limit >= end else max(known, probe.boundary(place, begin, limit))
    return at, min(count, max(len(ends), round((at - begin) / sample.mean_bytes)))
