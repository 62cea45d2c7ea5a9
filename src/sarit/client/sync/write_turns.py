"""Fairness among processes that write one state under conditions.

The last writer knows the newest state without reading, and would win every race against processes that must read first.
So a process that writes without a break pauses for a moment after every 64 writes, for the time of a few: others can
read and write in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.client.limits import MAX_WRITE_PAUSE_SECONDS

if TYPE_CHECKING:
    from sarit.env.ports import Clock

WRITES_BEFORE_PAUSE: Final = 64
PAUSE_PER_WRITE: Final = 6


class WriteTurns:
    """The writes of one process to one state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._consecutive = 0  # writes that followed each other without a break
        self._ended = 0.0  # when the last write ended, in seconds of the monotonic clock

    def __repr__(self) -> str:
        return f"WriteTurns({self._consecutive} writes without a break)"

    async def yield_to_others(self, began: float) -> None:
        """Pause after a write that began then, if it is the last one of many without a break."""
        ended = self._clock.monotonic()
        took = ended - began
        # Without a break: it began within the time of one write after the last one.
        self._consecutive = self._consecutive + 1 if began - self._ended <= took else 1
        self._ended = ended
        if self._consecutive >= WRITES_BEFORE_PAUSE:
            self._consecutive = 0
            await asyncio.sleep(min(PAUSE_PER_WRITE * took, MAX_WRITE_PAUSE_SECONDS))
