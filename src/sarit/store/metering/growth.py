"""Which segments have grown: found by comparing their lengths from time to time, so that an append pays nothing.

Only segments in memory are compared: to grow, a segment must be there.  One that came into memory since the last
comparison has grown if it was changed since then.  One that grew, was flushed and has left memory in between is missed;
that takes a shortage of memory.
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

# Compared in one turn of the event loop: less than 1 ms of work.
_SEGMENTS_PER_TURN: Final = 500


class GrowthMonitor:
    """Compares the lengths of the segments of a store."""

    def __init__(self, store: Serving, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lengths: dict[tuple[int, int], int] = {}
        self._compared_ms = 0

    def __repr__(self) -> str:
        return f"<GrowthMonitor of {len(self._lengths)} segments>"

    async def grown(self) -> list[str]:
        """Return the segments that may have grown since the last call; at the first one, all that are in memory."""
        since, self._compared_ms = self._compared_ms - GROWTH_SLACK_MS, self._clock.wall_ms()
        # A new dict: what has left memory goes with the old one.
        lengths: dict[tuple[int, int], int] = {}
        found: list[str] = []
        served: set[int] = set()
        for container in self._store.serving():
            served.add(container.number)
            # A copy: other turns of the loop create and evict segments.
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
        # A container that recovers is compared when it serves again.
        lengths |= {key: length for key, length in self._lengths.items() if key[0] not in served}
        self._lengths = lengths
        return found
