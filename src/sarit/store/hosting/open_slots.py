"""The limit of how many containers a store opens at once."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from sarit.store.limits import MAX_CONCURRENT_OPENS


class OpenSlots:
    """Slots for MAX_CONCURRENT_OPENS openings at once: preferred containers first, then in order of arrival."""

    def __init__(self, slots: int = MAX_CONCURRENT_OPENS) -> None:
        self._free = slots
        self._arrivals = 0
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    async def acquire(self, *, preferred: bool) -> None:
        """Wait for a slot; `release` gives it back."""
        if self._free:
            self._free -= 1
            return
        self._arrivals += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (not preferred, self._arrivals, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        while self._waiting:
            _, _, granted = heappop(self._waiting)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
