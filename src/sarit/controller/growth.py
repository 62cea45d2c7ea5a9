"""Tells several parts of a controller which segments have grown.

A store tells each connection once (`Segments.grown`).  So one object asks, and keeps for each listener what it has not
fetched yet.  Nobody listens but the timeline unless there are links.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.env.background import ignore_outcome, shielded

if TYPE_CHECKING:
    from sarit.controller.ports import Segments


class Growth:
    """The segments that have grown, by listener."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._listeners: list[GrowthListener] = []
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Growth for {len(self._listeners)} listeners>"

    def listen(self, most: int) -> GrowthListener:
        """Return a listener, which holds the names of `most` segments at most."""
        listener = GrowthListener(self, most)
        self._listeners.append(listener)
        return listener

    async def ask(self) -> None:
        """Ask the stores now, or wait for the answer to a question that is under way.  Raises what the stores raise."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(ignore_outcome)
        # When the caller is cancelled the question goes on: what it finds is reported only once.
        await shielded(self._asking)

    async def _ask(self) -> None:
        found = await self._segments.grown()
        for listener in self._listeners:
            listener.add(found)


class GrowthListener:
    """The segments that have grown since one listener fetched them last.

    `overflowed`: there were more than it holds, so that some were left out of what it fetched last."""

    def __init__(self, growth: Growth, most: int) -> None:
        self.overflowed = False
        self._growth = growth
        self._most = most
        self._found: dict[str, None] = {}
        self._is_full = False

    def __repr__(self) -> str:
        return f"<GrowthListener of {len(self._found)} segments>"

    def add(self, segments: list[str]) -> None:
        """Note segments that have grown."""
        for segment in segments:
            if len(self._found) >= self._most:
                self._is_full = True
                return
            self._found[segment] = None

    async def grown(self) -> list[str]:
        """Return the segments that may have grown since the last call.  Raises what the stores raise."""
        await self._growth.ask()
        found, self.overflowed = list(self._found), self._is_full
        self._found, self._is_full = {}, False
        return found
