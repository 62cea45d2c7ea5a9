"""Bounds the shards that grow in a process: each of them has memory, and threads, of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from sarit.search.limits import HOUSEKEEPING_SECONDS, MAX_GROWING_SHARDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class GrowingSlots:
    """Places for shards that grow, given to indexers in the order in which they ask."""

    def __init__(self, most: int = MAX_GROWING_SHARDS) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<GrowingSlots, {self._taken} of {self._most} taken, {len(self._waiting)} wait>"

    @property
    def is_wanted(self) -> bool:
        """Whether an indexer waits: then those that have a place should give it up soon."""
        return bool(self._waiting)

    async def take(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Take a place, when it is the caller's turn.  `meanwhile`: is called now and then until that."""
        if self._taken < self._most:
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=HOUSEKEEPING_SECONDS)
                if not turn.done():
                    await meanwhile()
        except BaseException:
            if turn.done():
                self.give_back()
            else:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """Give a place to who has waited longest for one."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._taken -= 1
