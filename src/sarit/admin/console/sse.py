"""Server-sent events: what lasts as long as a page is open."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from sarit.admin.console.limits import CONSOLE_KEEP_ALIVE_SECONDS, CONSOLE_MAX_LIVE
from sarit.core.errors import SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

# An event of a stream: its name, its document, and an id ("" for none) from which the browser goes on.
Event = tuple[str, Any, str]

_ALIVE: Final = ": \n\n"


def encoded(event: Event) -> str:
    """One event as text."""
    name, document, last = event
    head = f"id: {last}\n" if last else ""
    return f"{head}event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n"


class Live:
    """All streams of events of one console."""

    def __init__(self, most: int = CONSOLE_MAX_LIVE) -> None:
        self._most = most
        self._open = 0

    def __repr__(self) -> str:
        return f"<Live, {self._open} open>"

    def response(self, events: AsyncGenerator[Event, None]) -> StreamingResponse:
        """Send events until the browser goes, or they end.  Raises Unavailable: too many are open."""
        if self._open >= self._most:
            raise Unavailable(f"{self._most} live views are open, which is the limit: close some of them")
        return StreamingResponse(self._text(events), media_type="text/event-stream")

    async def _text(self, events: AsyncGenerator[Event, None]) -> AsyncIterator[str]:
        self._open += 1
        try:
            # At once, so that the browser knows that it is connected.
            yield "retry: 2000\n\n"
            async with aclosing(events):
                async for text in _with_pauses(events):
                    yield text
        except SaritError as error:
            yield encoded(("failed", {"error": str(error)}, ""))
        finally:
            self._open -= 1


async def _with_pauses(events: AsyncGenerator[Event, None]) -> AsyncIterator[str]:
    """The texts of events; a comment in each pause, which finds out whether the browser is still there."""
    following: asyncio.Task[Event] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait((following,), timeout=CONSOLE_KEEP_ALIVE_SECONDS)
            if not done:
                yield _ALIVE
                continue
            finished, following = following, None
            try:
                event = finished.result()
            except StopAsyncIteration:
                return
            yield encoded(event)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
