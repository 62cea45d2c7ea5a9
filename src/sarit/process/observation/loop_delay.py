"""How late the event loop runs what is due: whether something blocks it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.histogram import LATENCIES, Histogram
from sarit.process.limits import LOOP_DELAY_WINDOW_SECONDS, LOOP_PROBE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopDelay:
    """A timer that measures by how much it is late; seconds.

    A turn of the loop that takes T is seen with a delay between T - LOOP_PROBE_SECONDS and T."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.delays = Histogram(LATENCIES)
        self._now = now
        self._window_began = self._due = now()
        self._longest = self._longest_before = 0.0

    def __repr__(self) -> str:
        return f"<LoopDelay {self.delays!r}>"

    def start(self) -> None:
        """Measure until the loop ends."""
        self._due = self._now() + LOOP_PROBE_SECONDS
        asyncio.get_running_loop().call_later(LOOP_PROBE_SECONDS, self.tick)

    @property
    def longest(self) -> float:
        """The longest delay of the last LOOP_DELAY_WINDOW_SECONDS, or up to twice as long."""
        return max(self._longest, self._longest_before)

    def tick(self) -> None:
        """Record how late the timer has run, and set it again."""
        now = self._now()
        delay = max(0.0, now - self._due)
        self.delays.observe(delay)
        if now - self._window_began >= LOOP_DELAY_WINDOW_SECONDS:
            self._longest_before, self._longest, self._window_began = self._longest, 0.0, now
        self._longest = max(self._longest, delay)
        self.start()
