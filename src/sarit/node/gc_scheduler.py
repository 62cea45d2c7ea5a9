"""When the interpreter of a node looks for garbage: often, so that no look goes through much.

By itself it looks when so many more objects were made than freed.  What a node frees at a checkpoint is old and what it
makes is young: the two cancel out, and the next look goes through all that came up meanwhile, 100,000 objects and more,
while nobody is served.  So a timer has it look at what is young, and at everything when enough has come up
(docs/decisions/0307).
"""

from __future__ import annotations

import asyncio
import gc

from sarit.core.limits import (
    FULL_GC_OBJECTS,
    GC_INTERVAL_FACTOR,
    GC_INTERVAL_SECONDS,
    GC_THRESHOLDS,
    MAX_GC_INTERVAL_SECONDS,
)
from sarit.env.real import RealClock


class GcScheduler:
    """The looks of one process; on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = RealClock()  # the loop's own stands still within a turn
        self._grown = 0

    def __repr__(self) -> str:
        return f"<GcScheduler, {self._grown} objects since the last full one>"

    def start(self) -> None:
        """What is there now stays: it is never looked at again.  The timer ends with the loop."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._loop.call_later(GC_INTERVAL_SECONDS, self._collect)

    def _collect(self) -> None:
        begun = self._clock.monotonic()
        self._grown += gc.get_count()[0]
        if self._grown < FULL_GC_OBJECTS:
            gc.collect(1)
        else:
            self._grown = 0
            gc.collect()
        took = self._clock.monotonic() - begun
        # Where it is what came up since the last look that takes long, a longer pause makes the next one longer still.
        pause = min(GC_INTERVAL_FACTOR * took, MAX_GC_INTERVAL_SECONDS)
        self._loop.call_later(max(GC_INTERVAL_SECONDS, pause), self._collect)
