"""How often a table is polled for what somebody waits for: tables do not tell of changes."""

from __future__ import annotations

import asyncio

from sarit.client.structures.limits import FIRST_WAITER_POLL_SECONDS, MAX_WAITER_POLL_SECONDS


class Polls:
    """The pauses between the polls of one who waits; they double from poll to poll."""

    def __init__(self) -> None:
        self._pause = FIRST_WAITER_POLL_SECONDS

    def __repr__(self) -> str:
        return f"Polls(next pause {self._pause} s)"

    def found(self) -> None:
        """Poll again soon."""
        self._pause = FIRST_WAITER_POLL_SECONDS

    async def pause(self, at_most: float | None = None) -> None:
        """Wait until the next poll, at most so many seconds."""
        await asyncio.sleep(self._pause if at_most is None else min(self._pause, at_most))
        self._pause = min(2 * self._pause, MAX_WAITER_POLL_SECONDS)
