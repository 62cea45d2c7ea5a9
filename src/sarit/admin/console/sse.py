"""Server-sent events: what lasts as long as a page is open."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from sarit.admin.console.limits import CONSOLE_KEEP_ALIVE_SECONDS, CONSOLE_MAX_LIVE, CONSOLE_MAX_LIVE_OF_USER
from sarit.core.errors import SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

# An event of a stream: its name, its document, and an id ("" for none) from which the browser goes on.
Event = tuple[str, Any, str]

_ALIVE: Final = ": \n\n"


def encoded(event: Event) -> str:
    """Return one event as text."""
    name, document, last = event
    head = f"id: {last}\n" if last else ""
    return f"{head}event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n"


class Places:
    """Places for live views: over all callers of a console, and of each caller."""

    def __init__(self, most: int = CONSOLE_MAX_LIVE) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()  # by the name of the caller

    def __repr__(self) -> str:
        return f"<Places, {self._taken.total()} of {self._most} taken>"

    def check(self, user: str | None) -> None:
        """Raises Unavailable: no place is free for a caller; `user` None: nobody logs in."""
        if self._taken.total() >= self._most:
            raise Unavailable(f"{self._most} live views are open, which is the limit: close some of them")
        if user is not None and self._taken[user] >= CONSOLE_MAX_LIVE_OF_USER:
            raise Unavailable(
                f"{CONSOLE_MAX_LIVE_OF_USER} live views of {user} are open, which is the limit: close some of them"
            )

    def take(self, user: str | None) -> None:
        """Take a place."""
        self._taken[user or ""] += 1

    def leave(self, user: str | None) -> None:
        """Give a place back."""
        self._taken -= Counter((user or "",))


class Live:
    """The streams of events of one caller; `user`: None where nobody logs in."""

    def __init__(self, places: Places, user: str | None = None) -> None:
        self._places = places
        self._user = user

    def __repr__(self) -> str:
        return f"<Live, {self._places!r}>"

    def response(self, events: AsyncGenerator[Event, None]) -> StreamingResponse:
        """Send events until the browser goes, or they end.  Raises Unavailable: too many are open."""
        self._places.check(self._user)
        return StreamingResponse(self._text(events), media_type="text/event-stream")

    async def _text(self, events: AsyncGenerator[Event, None]) -> AsyncIterator[str]:
        self._places.take(self._user)
        try:
            # Send something at once, so that the browser knows that it is connected.
            yield "retry: 2000\n\n"
            async with aclosing(events):
                async for text in _with_pauses(events):
                    yield text
        except SaritError as error:
            yield encoded(("failed", {"error": str(error)}, ""))
        finally:
            self._places.leave(self._user)


async def _with_pauses(events: AsyncGenerator[Event, None]) -> AsyncIterator[str]:
    """Yield the texts of events, and in each pause a comment, which finds out whether the browser is still there."""
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
