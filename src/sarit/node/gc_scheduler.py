"""Schedules the interpreter's cyclic garbage collection of a node: often, so that each collection is short.

By itself the interpreter collects when a number of objects more were made than freed.  A checkpoint frees old objects
while the node makes young ones.  The two cancel out, and the next collection traverses all objects made meanwhile,
100,000 and more, while no client is served.  So a timer collects the young generations, and all of them when enough
objects have accumulated (docs/decisions/0307).  A full collection of a large node takes hundreds of milliseconds.  It
waits for a quiet moment (docs/decisions/0323).
"""

from __future__ import annotations

import asyncio
import gc
from math import inf

from sarit.core.limits import (
    FULL_GC_OBJECTS,
    GC_INTERVAL_FACTOR,
    GC_INTERVAL_SECONDS,
    GC_THRESHOLDS,
    LONG_GC_SECONDS,
    MAX_GC_DELAY_SECONDS,
    MAX_GC_INTERVAL_SECONDS,
    QUIET_GC_OBJECTS,
)
from sarit.env.real import RealClock


class GcScheduler:
    """Collections of one process, on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = RealClock()  # the time of the loop does not advance within a turn
        self._grown = 0
        self._collections = 0
        # Of the last full collection.  None has been made yet: it may be long.
        self._full_seconds = inf
        self._due_since: float | None = None

    def __repr__(self) -> str:
        return f"<GcScheduler, {self._grown} objects since the last full collection>"

    def start(self) -> None:
        """Start the timer.  Objects that exist now are never collected.  The timer ends with the loop."""
        gc.collect()
        # No later collection traverses what the imports and recovery made.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._collections = _collections()
        self._loop.call_later(GC_INTERVAL_SECONDS, self._collect)

    def _collect(self) -> None:
        begun = self._clock.monotonic()
        grown = self._objects_made()
        self._grown += grown
        full = self._grown >= FULL_GC_OBJECTS and self._may_collect_all(begun, grown)
        gc.collect(2 if full else 1)
        took = self._clock.monotonic() - begun
        self._collections = _collections()
        if full:
            self._full_seconds, self._grown, self._due_since = took, 0, None
        # Bounded: when new objects make a collection long, a longer pause would make the next one longer still.
        pause = min(GC_INTERVAL_FACTOR * took, MAX_GC_INTERVAL_SECONDS)
        self._loop.call_later(max(GC_INTERVAL_SECONDS, pause), self._collect)

    def _objects_made(self) -> int:
        """Objects made less objects freed since the last call of `_collect`, about."""
        # The interpreter has collected by itself meanwhile, and each time counted from 0 again.
        return gc.get_count()[0] + (_collections() - self._collections) * gc.get_threshold()[0]

    def _may_collect_all(self, now: float, grown: int) -> bool:
        """Whether a full collection may be made now: it is short, or nobody waits, or it has waited for long."""
        if self._due_since is None:
            self._due_since = now
        waited = now - self._due_since >= MAX_GC_DELAY_SECONDS
        return self._full_seconds <= LONG_GC_SECONDS or grown < QUIET_GC_OBJECTS or waited


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats()[:2])
