"""Spreads the writing of chunks over time, so that flushing does not come in bursts.

A burst takes processor, memory bandwidth and disk from the appends that come meanwhile: their
acknowledgements wait ten times as long (docs/decisions/0303).  The rate follows what is not
flushed: all of it within about SPREAD_SECONDS, so it settles at the rate of the appends.  Above
half of the bound on un-flushed bytes nothing is held back, and pieces are larger.
"""

from __future__ import annotations

import asyncio
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
