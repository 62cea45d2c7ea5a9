"""How often somebody looks who waits for something in a table: tables do not tell of changes."""

from __future__ import annotations

import asyncio

from sarit.client.structures.limits import FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS


class Looks:
    """The pauses between looks of one who waits; they double from look to look."""

    def __init__(self) -> None:
        self._pause = FIRST_LOOK_SECONDS

    def __repr__(self) -> str:
        return f"Looks(next pause {self._pause} s)"

    def found(self) -> None:
        """Look again soon."""
        self._pause = FIRST_LOOK_SECONDS

    async def pause(self, at_most: float | None = None) -> None:
        """Wait until the next look, at most so many seconds."""
        await asyncio.sleep(self._pause if at_most is None else min(self._pause, at_most))
        self._pause = min(2 * self._pause, MAX_LOOK_SECONDS)
