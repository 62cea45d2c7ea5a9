"""Spreads the writing and the reading of chunks over time, so that appends do not wait for either.

Writing.  A burst takes processor, memory bandwidth and disk from the appends that come meanwhile: their
acknowledgements wait ten times as long (docs/decisions/0303).  The rate follows what is not
flushed: all of it within about SPREAD_SECONDS, so it settles at the rate of the appends.  Above
half of the bound on un-flushed bytes nothing is held back, and pieces are larger.

Reading.  A reader of a backlog takes all there is of a small machine (docs/decisions/0305).  While no appends come,
nothing is held back.  While they come, reads begin at the least rate, and get faster by more and more as long as it
does not show in how long appends take to be durable; when it does, slower at once.  At the least rate each reader is
READS_TO_APPENDS times as fast as appends come, so every one catches up, and none waits longer than
MAX_READ_WAIT_SECONDS for its turn, however many there are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.core.limits import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sarit.env.ports import Clock
    from sarit.store.flow_control.memory_budget import MemoryBudget

SPREAD_SECONDS: Final = 1.0
MIN_BYTES_PER_SECOND: Final = 32 * MIB
# Each is synced by itself: small ones keep the log's syncs short, large ones cost less.
SMALL_PIECE_BYTES: Final = 256 * KIB
LARGE_PIECE_BYTES: Final = 4 * MIB
_SLACK_SECONDS: Final = 0.02

# Reads are held back when appends take longer, on average of some looks, and DISTURBED times what they do when nobody
# reads.
FAST_APPEND_SECONDS: Final = 0.0007
DISTURBED: Final = 1.3
MIN_READ_BYTES_PER_SECOND: Final = 64 * MIB
READS_TO_APPENDS: Final = 2
MAX_READ_WAIT_SECONDS: Final = 1.0
# The rate is looked at so often.  Fewer groups of appends than that, with hardly one under way at a time, are no load
# to give way to.
_LOOK_SECONDS: Final = 0.1
_LOAD_GROUPS: Final = 10
_LOAD_UNDER_WAY: Final = 0.1
# Appends that take longer than a look are not there in every one.
_NO_APPENDS_SECONDS: Final = 1.0
# Down at once, up by more with each look in a row that shows no harm.  On the verge of harm few looks find it; far from
# it reads are fast within seconds.
_SLOWER: Final = 0.7
_FASTER: Final = 0.001
_FASTEST: Final = 0.05
# How much one look counts: for what appends take beside reads, for how fast they come, and for what they take when
# nobody reads (the first looks at once).  Not one alone: while a flush goes on, five are slow, and the next five not.
_NOW: Final = 0.2
_LATELY: Final = 0.1
_EVER: Final = 0.03


class FlushRateLimiter:
    """One for all containers of a node: they take turns."""

    def __init__(self, clock: Clock, budget: MemoryBudget) -> None:
        self._clock = clock
        self._budget = budget
        self._next = 0.0

    def __repr__(self) -> str:
        return f"<FlushPace {self.bytes_per_second() / MIB:.0f} MiB/s>"

    def bytes_per_second(self) -> float:
        """The rate aimed at now; infinite when memory runs short."""
        if self._budget.over_soft_limit:
            return inf
        return max(MIN_BYTES_PER_SECOND, self._budget.dirty_bytes / SPREAD_SECONDS)

    async def __call__(self, left: int) -> int:
        """Wait for the turn of the next piece of a chunk; its size in bytes, at most `left`."""
        rate = self.bytes_per_second()
        size = min(left, LARGE_PIECE_BYTES if rate == inf else SMALL_PIECE_BYTES)
        now = self._clock.monotonic()
        # A little behind is caught up: timers are coarse, and a turn may come late.
        start = max(self._next, now - _SLACK_SECONDS)
        self._next = start + size / rate
        if start > now:
            await asyncio.sleep(start - now)
        return size


@dataclass(slots=True)
class _Window:
    """What happened since `since`."""

    since: float
    groups: int = 0
    waited: float = 0.0
    appended: int = 0
    read: int = 0
    readers: set[Hashable] = field(default_factory=set)


class ReadRateLimiter:
    """One for all readers of a node's chunks: they take turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0
        self._rate = inf
        self._harmless = 0
        self._beside = self._undisturbed = FAST_APPEND_SECONDS
        self._learned = 0
        self._appends = 0.0
        self._readers = 1
        self._last_append = -inf
        self._window = _Window(clock.monotonic())

    def __repr__(self) -> str:
        return f"<ReadPace {self._rate / MIB:.0f} MiB/s>"

    @property
    def bytes_per_second(self) -> float:
        """The rate reads are held to now; infinite when they are not."""
        return self._rate

    def appended(self, began: float, size: int) -> None:
        """A group of appends of `size` bytes is durable now; the first of it came at `began`."""
        now = self._clock.monotonic()
        window = self._current(now)
        window.groups += 1
        window.waited += now - began
        window.appended += size
        self._last_append = now

    async def __call__(self, size: int, reader: Hashable) -> None:
        """Wait for the turn to read `size` bytes of a chunk; `reader` tells those apart that read elsewhere."""
        now = self._clock.monotonic()
        window = self._current(now)
        window.read += size
        window.readers.add(reader)
        start = min(max(self._next, now - _SLACK_SECONDS), now + MAX_READ_WAIT_SECONDS)
        self._next = start + size / self._rate
        if start > now:
            await asyncio.sleep(start - now)

    def _current(self, now: float) -> _Window:
        window = self._window
        seconds = now - window.since
        if seconds >= _LOOK_SECONDS:
            self._look(window, now)
            window = self._window = _Window(now)
        return window

    def _look(self, window: _Window, now: float) -> None:
        seconds = now - window.since
        least = self._least(window, seconds)
        if not window.groups:
            if now - self._last_append >= _NO_APPENDS_SECONDS:
                self._rate = inf
            return
        mean = window.waited / window.groups
        quiet = not window.read and self._next <= window.since  # nor any read that was asked for before
        few = window.groups < _LOAD_GROUPS * seconds / _LOOK_SECONDS
        if few and window.waited < _LOAD_UNDER_WAY * seconds:
            self._rate = inf
        elif self._rate == inf:
            self._begin(least)
        elif window.read:
            self._beside += _NOW * (mean - self._beside)
            if self._beside > max(FAST_APPEND_SECONDS, DISTURBED * self._undisturbed):
                self._begin(min(self._rate, window.read / seconds) * _SLOWER)
            elif 2 * window.read > self._rate * seconds:  # what is not used says nothing
                self._harmless += 1
                self._rate *= 1 + min(_FASTEST, _FASTER * self._harmless)
            self._rate = max(self._rate, least)
        elif quiet:
            self._begin(max(least, self._rate * _SLOWER))  # the next reader begins anew
        if quiet:
            self._learned += 1
            self._undisturbed += max(_EVER, 1 / self._learned) * (mean - self._undisturbed)

    def _begin(self, rate: float) -> None:
        """Read at `rate`, and see from now on what that does."""
        self._rate = rate
        self._harmless = 0
        self._beside = self._undisturbed

    def _least(self, window: _Window, seconds: float) -> float:
        """The rate, in bytes a second, at which every reader gains on the appends."""
        self._appends += min(1.0, _LATELY * seconds / _LOOK_SECONDS) * (window.appended / seconds - self._appends)
        # One that passes from a place to the next is in both for a look.
        readers, self._readers = min(self._readers, len(window.readers)), len(window.readers)
        return max(MIN_READ_BYTES_PER_SECOND, READS_TO_APPENDS * self._appends) * max(1, readers)


@dataclass(frozen=True, slots=True)
class RateLimiters:
    """How fast a node writes and reads chunks."""

    flush: FlushRateLimiter
    read: ReadRateLimiter
