"""Limits the rate at which a node reads chunks, so that a reader of a backlog does not delay appends.

Without a limit, a reader that catches up takes all of a small machine (docs/decisions/0305).  The limiter holds the
latency of appends at a target by multiplicative increase and decrease (MIMD) of the read rate, every
READ_LIMIT_INTERVAL_SECONDS:

- While no appends arrive, reads are unlimited.
- When appends begin, reads start at the minimum rate.
- The latency of appends is a moving average (EWMA).  While it stays below the target, the rate grows, by increments
  that grow as well: so the rate exceeds the limit only by a little, and is high within seconds far from the limit.
- When the average exceeds the target, the rate is cut to _DECREASE times what was read, at once.

The latency target is APPEND_LATENCY_FACTOR times the baseline, which is learned while nobody reads, and never below
FAST_APPEND_SECONDS.

The minimum rate gives each reader READ_TO_APPEND_RATIO times the rate of the appends, so that every reader catches up.
No read waits longer than MAX_READ_WAIT_SECONDS for its turn, however many readers there are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.core.limits import MIB
from sarit.store.limits import (
    APPENDS_IDLE_SECONDS,
    FAST_APPEND_SECONDS,
    MAX_READ_WAIT_SECONDS,
    MIN_READ_BYTES_PER_SECOND,
    RATE_LIMITER_SLACK_SECONDS,
    READ_LIMIT_INTERVAL_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from sarit.env.ports import Clock

APPEND_LATENCY_FACTOR: Final = 1.3
READ_TO_APPEND_RATIO: Final = 2
# Reads are not limited for a light load of appends: fewer groups than this in an interval, and less than this on
# average in flight.
_LOAD_GROUPS: Final = 10
_LOAD_IN_FLIGHT: Final = 0.1
# The factors of MIMD: the cut above the target, and the growth per interval, which rises by the step up to the maximum.
_DECREASE: Final = 0.7
_INCREASE_STEP: Final = 0.001
_MAX_INCREASE: Final = 0.05
# The weights of one interval in the moving averages of append latency during reads, of the append rate, and of the
# baseline latency (whose first intervals weigh more).  All are small: during a flush five intervals in a row may be
# slow and the next five fast.
_LATENCY_WEIGHT: Final = 0.2
_RATE_WEIGHT: Final = 0.1
_BASELINE_WEIGHT: Final = 0.03


@dataclass(slots=True)
class _Interval:
    """The counts of one interval, from `since` on; `latency`: the sum over `groups`, `appended`, `read`: bytes."""

    since: float
    groups: int = 0
    latency: float = 0.0
    appended: int = 0
    read: int = 0
    readers: set[Hashable] = field(default_factory=set)


class ReadRateLimiter:
    """The rate limiter that all readers of a node's chunks share."""

    def __init__(self, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0
        self._rate = inf
        self._increases = 0
        self._latency = self._baseline = FAST_APPEND_SECONDS
        self._baseline_intervals = 0
        self._append_rate = 0.0
        self._readers = 1
        self._last_append = -inf
        self._interval = _Interval(clock.monotonic())

    def __repr__(self) -> str:
        return f"<ReadRateLimiter {self._rate / MIB:.0f} MiB/s>"

    @property
    def bytes_per_second(self) -> float:
        """The current rate; infinite while reads are unlimited."""
        return self._rate

    def observe_appends(self, began: float, size: int) -> None:
        """Record that a group of appends of `size` bytes became durable now; the first of them arrived at `began`."""
        now = self._clock.monotonic()
        interval = self._current_interval(now)
        interval.groups += 1
        interval.latency += now - began
        interval.appended += size
        self._last_append = now

    async def __call__(self, size: int, reader: Hashable) -> None:
        """Wait until `size` bytes of a chunk may be read.  `reader` identifies the reader by its place in a segment."""
        now = self._clock.monotonic()
        interval = self._current_interval(now)
        interval.read += size
        interval.readers.add(reader)
        # Start when the earlier reads have had their time, but at the latest MAX_READ_WAIT_SECONDS from now.
        start = min(max(self._next, now - RATE_LIMITER_SLACK_SECONDS), now + MAX_READ_WAIT_SECONDS)
        # Reserve the time before the await, so that the next caller queues after this one (0 s at an infinite rate).
        self._next = start + size / self._rate
        if start > now:
            await self._sleep(start - now)

    def _current_interval(self, now: float) -> _Interval:
        # Evaluate an interval at the first call after its end: without calls there is nothing to limit.
        interval = self._interval
        if now - interval.since >= READ_LIMIT_INTERVAL_SECONDS:
            self._evaluate(interval, now)
            interval = self._interval = _Interval(now)
        return interval

    def _evaluate(self, interval: _Interval, now: float) -> None:
        """Set the rate from what the last interval showed."""
        seconds = now - interval.since
        minimum = self._min_rate(interval, seconds)
        if not interval.groups:
            # End the limit only after APPENDS_IDLE_SECONDS: slow appends do not become durable in every interval.
            if now - self._last_append >= APPENDS_IDLE_SECONDS:
                self._rate = inf
            return
        # The branches below: a light load of appends, appends that begin, reads beside appends, appends alone.
        mean = interval.latency / interval.groups
        # Whether the interval had neither a read, nor one reserved earlier that fell into it.
        without_reads = not interval.read and self._next <= interval.since
        few = interval.groups < _LOAD_GROUPS * seconds / READ_LIMIT_INTERVAL_SECONDS
        if few and interval.latency < _LOAD_IN_FLIGHT * seconds:
            self._rate = inf
        elif self._rate == inf:
            # Appends have begun: limit the reads to the minimum, and let the rate grow from there.
            self._restart(minimum)
        elif interval.read:
            self._latency += _LATENCY_WEIGHT * (mean - self._latency)
            if self._latency > max(FAST_APPEND_SECONDS, APPEND_LATENCY_FACTOR * self._baseline):
                # Cut what was read, if that is less than the rate: cutting an unused rate would change nothing.
                self._restart(min(self._rate, interval.read / seconds) * _DECREASE)
            elif 2 * interval.read > self._rate * seconds:  # raise only a rate that was used
                self._increases += 1
                self._rate *= 1 + min(_MAX_INCREASE, _INCREASE_STEP * self._increases)
            self._rate = max(self._rate, minimum)
        elif without_reads:
            self._restart(max(minimum, self._rate * _DECREASE))  # the next reader starts slowly again
        if without_reads:
            # The baseline is a plain mean of the first intervals, then a moving average.
            self._baseline_intervals += 1
            self._baseline += max(_BASELINE_WEIGHT, 1 / self._baseline_intervals) * (mean - self._baseline)

    def _restart(self, rate: float) -> None:
        """Set the rate, and set the moving average of the latency to the baseline."""
        self._rate = rate
        self._increases = 0
        self._latency = self._baseline

    def _min_rate(self, interval: _Interval, seconds: float) -> float:
        """Return the rate, in bytes a second, at which every reader catches up with the appends."""
        weight = min(1.0, _RATE_WEIGHT * seconds / READ_LIMIT_INTERVAL_SECONDS)
        self._append_rate += weight * (interval.appended / seconds - self._append_rate)
        # Take the smaller count of two intervals, since a reader that moves on in a segment counts twice in one.
        readers, self._readers = min(self._readers, len(interval.readers)), len(interval.readers)
        return max(MIN_READ_BYTES_PER_SECOND, READ_TO_APPEND_RATIO * self._append_rate) * max(1, readers)
