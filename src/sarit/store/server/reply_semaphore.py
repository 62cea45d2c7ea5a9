"""Who may make a reply now, of the requests of one connection.

A reply that is made waits in memory until its client takes it, and hundreds may be asked for at once.  So whoever
will make a large one passes here first, in the order they came: while the client takes what is sent, and while all
that are inside hold no more together than a bound.  One is always let in, whatever it holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ReplySemaphore:
    """Lets those in that hold at most `most_bytes` together; nobody while it is closed."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._open = True
        self._inside_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<Turnstile, {self._inside_bytes} bytes inside, {len(self._waiting)} waiting>"

    def close(self) -> None:
        """Let nobody in."""
        self._open = False

    def open(self) -> None:
        """Let in who waits."""
        self._open = True
        self._let_in()

    def limit(self, most_bytes: int) -> None:
        """Another bound."""
        self._most_bytes = most_bytes
        self._let_in()

    @asynccontextmanager
    async def room(self, held_bytes: int) -> AsyncIterator[None]:
        """Wait for one's turn; what is made inside holds so many bytes."""
        await self._enter(held_bytes)
        try:
            yield
        finally:
            self._leave(held_bytes)

    async def _enter(self, held_bytes: int) -> None:
        if not self._waiting and self._admits(held_bytes):
            self._inside_bytes += held_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((held_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()  # who stood behind it
            else:  # let in, but cancelled before it knew
                self._leave(held_bytes)
            raise

    def _leave(self, held_bytes: int) -> None:
        self._inside_bytes -= held_bytes
        self._let_in()

    def _admits(self, held_bytes: int) -> bool:
        return self._open and (not self._inside_bytes or self._inside_bytes + held_bytes <= self._most_bytes)

    def _let_in(self) -> None:
        while self._waiting:
            held_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._admits(held_bytes):
                    return
                self._inside_bytes += held_bytes
                turn.set_result(None)
            self._waiting.popleft()
