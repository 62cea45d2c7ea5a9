"""Schedules the interpreter's cyclic garbage collection of a node, so that no collection stops a busy node.

Reference counts free nearly all that a node makes.  The collector finds the rest: cycles.  A collection visits objects
one by one while no client is served, and a node under load makes and holds a hundred thousand objects a second that
are no garbage.  So the interpreter's own collections are off, and a timer does one of three things:

* *Collect the young.*  It visits what was made since the last tick, when that is little.
* *Freeze.*  When it is much, or when a collection would take too large a share of the time, what was made is set
  aside in one step, unvisited.  Reference counts still free it.
* *Collect all*, set aside or not, after enough growth.  A large node takes a second for that.  So it waits until the
  event loop is idle, or until growth of the process's memory demands it (docs/internals/tuning.md).
"""

from __future__ import annotations

import asyncio
import gc
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.core.histogram import LATENCIES, Histogram
from sarit.env.real import RealClock
from sarit.env.real_limits import resident_memory
from sarit.process.limits import (
    FULL_GC_OBJECTS,
    GC_INTERVAL_FACTOR,
    GC_INTERVAL_SECONDS,
    GC_MEMORY_GROWTH_BYTES,
    MAX_GC_DELAY_SECONDS,
    MAX_YOUNG_GC_OBJECTS,
    QUIET_SECONDS,
    QUIET_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCK: Final = RealClock()


class GcScheduler:
    """Collections of one process, on its event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = _CLOCK.monotonic,  # the time of the loop does not advance within a turn
        processor: Callable[[], float] = _CLOCK.thread_seconds,
        memory: Callable[[], int] = resident_memory,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock, self._processor, self._memory = clock, processor, memory
        self._grown = 0
        self._tick_at, self._used = clock(), processor()
        self._busy_at = self._tick_at
        self._young_not_before = -inf
        # When a full collection became due.
        self._due_since = inf
        self._memory_after_full = 0
        # How long the loop stood still for each tick, in seconds.
        self.pauses = Histogram(LATENCIES)
        self.full_collections = 0

    def __repr__(self) -> str:
        return f"<GcScheduler, {self._grown} objects since the last full collection>"

    def start(self) -> GcScheduler:
        """Start the timer; it ends with the loop.  Itself.  What exists now is visited by full collections only."""
        gc.disable()
        self._collect_all()
        self._loop.call_later(GC_INTERVAL_SECONDS, self._tick)
        return self

    def _tick(self) -> None:
        now = self._clock()
        # Made less freed.  The interpreter's counter stops at 0, so freed objects do not hide later growth.
        grown = gc.get_count()[0]
        self._grown += grown
        self._note_load(now)
        if self._full_collection_now(now):
            self._collect_all()
        elif now >= self._young_not_before and _few_young_objects(grown):
            gc.collect(1)
        else:
            gc.freeze()
        took = self._clock() - now
        self.pauses.observe(took)
        self._young_not_before = max(self._young_not_before, now + GC_INTERVAL_FACTOR * took)
        # What the collection itself took is no load.
        self._tick_at, self._used = self._clock(), self._processor()
        self._loop.call_later(GC_INTERVAL_SECONDS, self._tick)

    def _note_load(self, now: float) -> None:
        if self._processor() - self._used > QUIET_SHARE * (now - self._tick_at):
            self._busy_at = now

    def _full_collection_now(self, now: float) -> bool:
        """Return whether enough objects were made, and nobody has to wait for it, or memory demands it."""
        if self._grown < FULL_GC_OBJECTS:
            return False
        self._due_since = min(self._due_since, now)
        if now - self._busy_at >= QUIET_SECONDS:
            return True
        waited = now - self._due_since >= MAX_GC_DELAY_SECONDS
        return waited and self._memory() - self._memory_after_full >= GC_MEMORY_GROWTH_BYTES

    def _collect_all(self) -> None:
        self.full_collections += 1
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._grown, self._due_since, self._memory_after_full = 0, inf, self._memory()


def _few_young_objects(grown: int) -> bool:
    """Return whether a collection of the young objects visits few.  Their number is counted only if `grown` allows it:
    freed
    old objects hide young ones from that."""
    return grown <= MAX_YOUNG_GC_OBJECTS and len(gc.get_objects(generation=0)) <= MAX_YOUNG_GC_OBJECTS
