"""Spreads the writing and the reading of chunks over time, so that appends do not wait for either.

Writing.  A burst takes processor, memory bandwidth and disk from the appends that come meanwhile: their
acknowledgements wait ten times as long (docs/decisions/0303).  The rate follows what is not
flushed: all of it within about SPREAD_SECONDS, so it settles at the rate of the appends.  Above
half of the bound on un-flushed bytes nothing is held back, and pieces are larger.

Reading.  A reader of a backlog takes all there is of a small machine (docs/decisions/0305).  While it does not
show in how long appends take to be durable, nothing is held back; when it does, reads get slower by steps, and
faster again when it does not.  They stay faster than appends come, so every reader catches up, and none waits longer
than MAX_READ_WAIT_SECONDS for its turn, however many there are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.core.limits import KIB, MIB

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.store.budget import Budget

SPREAD_SECONDS: Final = 1.0
MIN_BYTES_PER_SECOND: Final = 32 * MIB
# Each is synced by itself: small ones keep the log's syncs short, large ones cost less.
SMALL_PIECE_BYTES: Final = 256 * KIB
LARGE_PIECE_BYTES: Final = 4 * MIB
_SLACK_SECONDS: Final = 0.02

# Reads are held back when appends take longer than this on average, and DISTURBED times what they do when nobody reads.
FAST_APPEND_SECONDS: Final = 0.0007
DISTURBED: Final = 1.5
MIN_READ_BYTES_PER_SECOND: Final = 64 * MIB
READS_TO_APPENDS: Final = 2
MAX_READ_WAIT_SECONDS: Final = 1.0
# The rate is looked at so often; fewer groups of appends than that are no load to give way to.
_LOOK_SECONDS: Final = 0.1
_LOAD_GROUPS: Final = 10
_SLOWER: Final = 0.8
_FASTER: Final = 1.1
_REMEMBERED: Final = 0.1


class FlushPace:
    """One for all containers of a node: they take turns."""

    def __init__(self, clock: Clock, budget: Budget) -> None:
        self._clock = clock
        self._budget = budget
        self._next = 0.0

    def __repr__(self) -> str:
        return f"<FlushPace {self.bytes_per_second() / MIB:.0f} MiB/s>"

    def bytes_per_second(self) -> float:
        """The rate aimed at now; infinite when memory runs short."""
        unflushed = self._budget.unflushed_bytes
        if unflushed * 2 > self._budget.max_unflushed_bytes:
            return inf
        return max(MIN_BYTES_PER_SECOND, unflushed / SPREAD_SECONDS)

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


class ReadPace:
    """One for all readers of a node's chunks: they take turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0
        self._rate = inf
        self._undisturbed = FAST_APPEND_SECONDS
        self._since = clock.monotonic()
        self._groups = self._appended = self._read = 0
        self._waited = 0.0

    def __repr__(self) -> str:
        return f"<ReadPace {self._rate / MIB:.0f} MiB/s>"

    @property
    def bytes_per_second(self) -> float:
        """The rate reads are held to now; infinite when they are not."""
        return self._rate

    def appended(self, seconds: float, size: int) -> None:
        """A group of appends of `size` bytes was durable `seconds` after the first of it came."""
        self._groups += 1
        self._waited += seconds
        self._appended += size

    async def __call__(self, size: int) -> None:
        """Wait for the turn to read `size` bytes of a chunk."""
        now = self._clock.monotonic()
        if now - self._since >= _LOOK_SECONDS:
            self._look(now - self._since)
            self._since = now
        self._read += size
        start = min(max(self._next, now - _SLACK_SECONDS), now + MAX_READ_WAIT_SECONDS)
        self._next = start + size / self._rate
        if start > now:
            await asyncio.sleep(start - now)

    def _look(self, seconds: float) -> None:
        groups, waited, appended, read = self._groups, self._waited, self._appended, self._read
        self._groups = self._appended = self._read = 0
        self._waited = 0.0
        if groups < _LOAD_GROUPS * seconds / _LOOK_SECONDS:
            self._rate = inf
            return
        mean, done = waited / groups, read / seconds
        if done < MIN_READ_BYTES_PER_SECOND:  # hardly anything was read: this is how long appends take by themselves
            self._undisturbed += _REMEMBERED * (mean - self._undisturbed)
        if mean > max(FAST_APPEND_SECONDS, DISTURBED * self._undisturbed):
            least = max(MIN_READ_BYTES_PER_SECOND, READS_TO_APPENDS * appended / seconds)
            self._rate = max(least, min(self._rate, done) * _SLOWER)
        else:
            self._rate *= _FASTER


@dataclass(frozen=True, slots=True)
class Paces:
    """How fast a node writes and reads chunks."""

    flush: FlushPace
    read: ReadPace
