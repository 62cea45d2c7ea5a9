"""Schedules the interpreter's cyclic garbage collection of a node: often, so that each collection is short.

By itself the interpreter collects when a number of objects more were made than freed.  A checkpoint frees old objects
while the node makes young ones.  The two cancel out, and the next collection traverses all objects made meanwhile,
100,000 and more, while no client is served.  So a timer collects the young generations, and all of them when enough
objects have accumulated (docs/decisions/0307).
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
    """Collections of one process, on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = RealClock()  # the time of the loop does not advance within a turn
        self._grown = 0

    def __repr__(self) -> str:
        return f"<GcScheduler, {self._grown} objects since the last full collection>"

    def start(self) -> None:
        """Start the timer.  Objects that exist now are never collected.  The timer ends with the loop."""
        gc.collect()
        # No later collection traverses what the imports and recovery made.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._loop.call_later(GC_INTERVAL_SECONDS, self._collect)

    def _collect(self) -> None:
        begun = self._clock.monotonic()
        # Objects made less objects freed since the last collection of the youngest generation.
        self._grown += gc.get_count()[0]
        if self._grown < FULL_GC_OBJECTS:
            gc.collect(1)
        else:
            self._grown = 0
            gc.collect()
        took = self._clock.monotonic() - begun
        # Bounded: when new objects make a collection long, a longer pause would make the next one longer still.
        pause = min(GC_INTERVAL_FACTOR * took, MAX_GC_INTERVAL_SECONDS)
        self._loop.call_later(max(GC_INTERVAL_SECONDS, pause), self._collect)
