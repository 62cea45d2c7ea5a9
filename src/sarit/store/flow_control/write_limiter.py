"""Limits the rate at which a node writes chunks, so that a flush does not delay appends.

A burst of chunk writes takes processor time, memory bandwidth and disk from the appends that arrive meanwhile.  Without
a limit, acknowledgements of appends took ten times as long (docs/internals/tuning.md).

The rate follows the dirty bytes: all of them are written within about FLUSH_DRAIN_SECONDS, so the rate converges to the
rate of the appends.  Over the soft limit of the memory budget the rate is unlimited and the pieces are larger.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from sarit.core.limits import MIB
from sarit.store.limits import (
    FLUSH_DRAIN_SECONDS,
    LARGE_PIECE_BYTES,
    MIN_FLUSH_BYTES_PER_SECOND,
    RATE_LIMITER_SLACK_SECONDS,
    SMALL_PIECE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.env.ports import Clock
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.read_limiter import ReadRateLimiter


class FlushRateLimiter:
    """The rate limiter that the flushers of all containers of a node share."""

    def __init__(
        self, clock: Clock, budget: MemoryBudget, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock = clock
        self._budget = budget
        self._sleep = sleep
        self._next = 0.0

    def __repr__(self) -> str:
        return f"<FlushRateLimiter {self.bytes_per_second() / MIB:.0f} MiB/s>"

    def bytes_per_second(self) -> float:
        """Return the current target rate; infinite while memory runs short."""
        if self._budget.over_soft_limit:
            return inf
        return max(MIN_FLUSH_BYTES_PER_SECOND, self._budget.dirty_bytes / FLUSH_DRAIN_SECONDS)

    async def __call__(self, left: int) -> int:
        """Wait until the next piece of a chunk may be written.  Returns its size in bytes, at most `left`."""
        # Ask for the rate at each piece: a flush in progress must hurry as soon as memory runs short.
        rate = self.bytes_per_second()
        size = min(left, LARGE_PIECE_BYTES if rate == inf else SMALL_PIECE_BYTES)
        now = self._clock.monotonic()
        # Make up for a timer that fired late by up to the slack; a longer pause must not allow a burst.
        start = max(self._next, now - RATE_LIMITER_SLACK_SECONDS)
        # Reserve the time before the await, so that the next caller queues after this one (0 s at an infinite rate).
        self._next = start + size / rate
        if start > now:
            await self._sleep(start - now)
        return size


@dataclass(frozen=True, slots=True)
class RateLimiters:
    """The rate limiters of a node: one for writes of chunks, one for reads of chunks."""

    flush: FlushRateLimiter
    read: ReadRateLimiter
