"""Bounds the memory of the replies of one connection that are being made.

A finished reply waits in memory until its client takes it, and a client may ask for hundreds at once.  A large reply
needs a slot before it is made; slots are granted in order of arrival.  No slot is granted while the client does not
take what was sent, nor while the granted slots together exceed the limit.  A single slot may have any size, because a
reply larger than the limit must be possible.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ReplySemaphore:
    """A semaphore that grants slots of at most `max_bytes` together, in order of arrival; none while it is paused."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._open = True
        self._acquired_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<ReplySemaphore, {self._acquired_bytes} bytes acquired, {len(self._waiting)} waiting>"

    def pause(self) -> None:
        """Grant no more slots: the client does not take what was sent."""
        self._open = False

    def resume(self) -> None:
        """Grant slots again."""
        self._open = True
        self._grant()

    def set_limit(self, max_bytes: int) -> None:
        """Change the limit; a higher one grants slots at once."""
        self._max_bytes = max_bytes
        self._grant()

    @asynccontextmanager
    async def slot(self, reply_bytes: int) -> AsyncIterator[None]:
        """Hold a slot of `reply_bytes` during the `async with` block."""
        await self._acquire(reply_bytes)
        try:
            yield
        finally:
            self._release(reply_bytes)

    async def _acquire(self, reply_bytes: int) -> None:
        # Queue behind those that wait, even if this reply would fit: otherwise a large reply could wait for ever.
        if not self._waiting and self._fits(reply_bytes):
            self._acquired_bytes += reply_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((reply_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # Without a granted slot, the future is still in the queue, and `_grant` removes it.
            if turn.cancelled():
                self._grant()  # this future may have been the head of the queue, too large for the free bytes
            else:  # the slot was granted, but the task was cancelled before it ran
                self._release(reply_bytes)
            raise

    def _release(self, reply_bytes: int) -> None:
        self._acquired_bytes -= reply_bytes
        assert self._acquired_bytes >= 0, self
        self._grant()

    def _fits(self, reply_bytes: int) -> bool:
        # Any size fits while no slot is held, so that a reply larger than the limit is made alone.
        return self._open and (not self._acquired_bytes or self._acquired_bytes + reply_bytes <= self._max_bytes)

    def _grant(self) -> None:
        while self._waiting:
            reply_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(reply_bytes):
                    return
                # Charge the slot now, since other requests may come before the task wakes.
                self._acquired_bytes += reply_bytes
                turn.set_result(None)
            self._waiting.popleft()
