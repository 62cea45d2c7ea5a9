"""Finds the segments that have grown, by comparing their lengths from time to time, so that an append pays nothing.

Only segments in memory are compared: a segment in use is there.  A segment that was loaded since the last comparison
counts as grown if it changed since then.  A segment that grew, was flushed and left memory between two comparisons is
missed, which takes a shortage of memory.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from sarit.core.names import is_transaction, is_transient
from sarit.store.limits import GROWTH_SLACK_MS

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.store.metering.scope_use import Serving

# How many segments one turn of the event loop compares, in less than 1 ms.
_SEGMENTS_PER_TURN: Final = 500


class GrowthMonitor:
    """The lengths of a store's segments, as of the last comparison."""

    def __init__(self, store: Serving, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lengths: dict[tuple[int, int], int] = {}
        self._compared_ms = 0

    def __repr__(self) -> str:
        return f"<GrowthMonitor of {len(self._lengths)} segments>"

    async def grown(self) -> list[str]:
        """Return the segments that may have grown since the last call; the first call returns all in memory."""
        since, self._compared_ms = self._compared_ms - GROWTH_SLACK_MS, self._clock.wall_ms()
        # Begin a new dict, so that segments that have left memory are dropped.
        lengths: dict[tuple[int, int], int] = {}
        found: list[str] = []
        served: set[int] = set()
        for container in self._store.serving():
            served.add(container.number)
            # Copy the list, because segments are created and evicted in other turns of the loop.
            segments = iter(list(container.state.segments.values()))
            while batch := list(itertools.islice(segments, _SEGMENTS_PER_TURN)):
                for segment in batch:
                    if segment.is_table or segment.deleted or not segment.length:
                        continue
                    key = container.number, segment.id
                    known = self._lengths.get(key)
                    lengths[key] = segment.length
                    if known is None:
                        if segment.modified_ms < since or is_transaction(segment.name) or is_transient(segment.name):
                            continue
                    elif known == segment.length or is_transaction(segment.name) or is_transient(segment.name):
                        continue
                    found.append(segment.name)
                await asyncio.sleep(0)
        # Keep the lengths of a container that recovers, for a comparison when it serves again.
        lengths |= {key: length for key, length in self._lengths.items() if key[0] not in served}
        self._lengths = lengths
        return found
