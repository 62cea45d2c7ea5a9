"""The gate that all bytes of a link pass: who is next, when, and how much is in memory at once."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sarit.env.ports import Clock
    from sarit.mirror.order import LinkRate, Turn


class Gate:
    """Admits pieces in order of their turns, at a rate, and with a bound on what is admitted and has not left."""

    def __init__(self, rate: LinkRate, clock: Clock, closed: Callable[[], float] = lambda: 0.0) -> None:
        """`closed`: returns for how many seconds nothing may be sent at all."""
        self.rate = rate
        self._clock = clock
        self._closed = closed
        self._inside = 0
        self._waiting: list[tuple[Turn, int, int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Gate, {self._inside} bytes inside, {len(self._waiting)} wait>"

    @asynccontextmanager
    async def passing(self, turn: Turn, length: int, charged: int | None = None) -> AsyncIterator[None]:
        """Admit `length` bytes, which are in memory until the block ends.  `charged`: what they count on the way."""
        admitted = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (turn, self._count, length, length if charged is None else charged, admitted))
        self._admit()
        try:
            await admitted
            yield
        finally:
            if admitted.done() and not admitted.cancelled():
                self._inside -= length
            admitted.cancel()
            self._admit()

    def close(self) -> None:
        """Admit nothing any more, and forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _admit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            _, _, length, charged, admitted = self._waiting[0]
            if admitted.done():  # its caller was cancelled
                heapq.heappop(self._waiting)
                continue
            if self._inside and self._inside + length > self.rate.in_flight_bytes:
                return  # who leaves admits the next
            now = self._clock.monotonic()
            if (wait := max(self.rate.wait(now), self._closed())) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._admit)
                return
            heapq.heappop(self._waiting)
            self.rate.use(charged, now)
            self._inside += length
            admitted.set_result(None)
