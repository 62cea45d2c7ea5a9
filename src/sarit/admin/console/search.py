"""Searches over a stretch of a stream, as live views: hits as they are found, and how far the search has come.

A search ends at a bound of bytes, of seconds or of hits, and the page asks whether to go on: it continues from the cut
that the last report names.  It ends, too, when the browser leaves.  A search rests as long as it works, so that appends
go on; at most CONSOLE_MAX_SEARCHES run at once in a process.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.console.calls import call, stream_of
from sarit.admin.console.documents import event_document
from sarit.admin.console.limits import (
    CONSOLE_MAX_SEARCHES,
    CONSOLE_SEARCH_BYTES,
    CONSOLE_SEARCH_HITS,
    CONSOLE_SEARCH_REPORT_SECONDS,
    CONSOLE_SEARCH_SECONDS,
    CONSOLE_SEARCH_SHARE,
    CONSOLE_SHOWN_EVENT_BYTES,
)
from sarit.admin.console.positions import cut_of, is_time
from sarit.client.search.matchers import FieldMatcher, PatternMatcher, TextMatcher
from sarit.client.search.scan import ScanBounds, distance, scan
from sarit.client.search.time_range import cut_behind
from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, Unavailable
from sarit.core.times import parse_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.sse import Event, Live
    from sarit.client.aio import Client
    from sarit.client.search.matchers import Matcher
    from sarit.client.search.scan import Hit, Step
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock

_BOUNDS: Final = ScanBounds(CONSOLE_SEARCH_BYTES, CONSOLE_SEARCH_SECONDS, CONSOLE_SEARCH_HITS)


class SearchPlaces:
    """Places for searches, over all callers of a process."""

    def __init__(self, most: int = CONSOLE_MAX_SEARCHES) -> None:
        self._most = most
        self._taken = 0

    def __repr__(self) -> str:
        return f"<SearchPlaces, {self._taken} of {self._most} taken>"

    def __enter__(self) -> None:
        """Take a place.  Raises Unavailable: no place is free."""
        if self._taken >= self._most:
            raise Unavailable(
                f"{self._most} searches run on this process, which is the limit: try again when one of them has ended"
            )
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        """Give the place back."""
        self._taken -= 1


class SearchCalls:
    """The call that searches a stream."""

    def __init__(self, client: Client, clock: Clock, live: Live, places: SearchPlaces) -> None:
        self._client = client
        self._clock = clock
        self._live = live
        self._places = places

    def __repr__(self) -> str:
        return f"<SearchCalls, {self._places!r}>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/streams/{scope}/{stream}/search/live", self.search)]

    async def search(self, request: Request) -> Any:
        """Send hits and progress live.  Parameters: `kind` (text, pattern, field, query), `text`, and of a field its
        `path`; `from` and `until`: head, tail, a time or a cut.

        Raises Unavailable: too many searches run."""
        given, stream = request.query_params, stream_of(request)
        # Take a place before the matcher is made, which occupies a thread.  `reports` takes its own when it begins,
        # since a generator that never begins could not give one back.
        with self._places:
            # A browser that connects again sends the position of the last event that it got.
            start = request.headers.get("last-event-id") or given.get("from", "head")
            first = await cut_of(self._client, stream, start, self._clock.wall_ms())
            kind, text = given.get("kind", "text"), given.get("text", "")
            if kind == "query":
                matcher = await self._query_matcher(stream, text)
            else:
                matcher = await self._matcher(kind, text, given.get("path", ""))
            last = await self._end(stream, given.get("until", "tail"))
        return self._live.response(self.reports(first, last, matcher))

    async def _matcher(self, kind: str, text: str, path: str) -> Matcher:
        # On a thread: the first pattern loads the engine of regular expressions, which takes a while.
        worker = self._client.session.env.threads.worker("search")
        try:
            return await worker.run(partial(matcher_of, kind, text, path))
        finally:
            await worker.close()

    async def _query_matcher(self, stream: StreamName, text: str) -> Matcher:
        """Return a matcher of a query for the fields of a stream, which stay the same while a search goes on from one
        place to the next.  Raises Invalid, NotFound."""
        from sarit.client.search.mappings import scan_mapping
        from sarit.client.search.query_matcher import QueryMatcher
        from sarit.search.query_parser import bind, parse

        parsed = parse(text)
        mapping = await scan_mapping(self._client.session, stream)
        return QueryMatcher(bind(parsed, mapping), mapping)

    async def _end(self, stream: StreamName, until: str) -> StreamCut:
        now = self._clock.wall_ms()
        if is_time(until):
            return await cut_behind(self._client.session, stream, parse_time(until, now), now)
        return await cut_of(self._client, stream, until, now)

    async def reports(
        self, start: StreamCut, end: StreamCut, matcher: Matcher, bounds: ScanBounds = _BOUNDS
    ) -> AsyncGenerator[Event, None]:
        """Yield the number of bytes to search, then steps: all with hits, and some of the others to show progress."""
        session, monotonic = self._client.session, self._clock.monotonic
        with self._places:
            total = await distance(session, start, end)
            yield "begun", {"bytes": total, "until": to_text(end)}, ""
            reported = began = monotonic()
            async with aclosing(scan(session, start, end, matcher, bounds)) as steps:
                async for step in steps:
                    if step.hits or step.ended or monotonic() - reported >= CONSOLE_SEARCH_REPORT_SECONDS:
                        reported = monotonic()
                        yield "step", _document(step), to_text(step.position)
                    worked = monotonic() - began
                    await asyncio.sleep(worked / CONSOLE_SEARCH_SHARE - worked)
                    began = monotonic()


def matcher_of(kind: str, text: str, path: str) -> Matcher:
    """Return what a page searches for.  Raises Invalid."""
    if kind == "text":
        return TextMatcher(text)
    if kind == "pattern":
        return PatternMatcher(text)
    if kind == "field":
        return FieldMatcher(path, text)
    raise Invalid("kind: give text, pattern, field or query")


def _document(step: Step) -> dict[str, Any]:
    return {
        "events": list(map(_hit, step.hits)), "scanned": step.events, "bytes": step.bytes, "partly": step.partly,
        "ended": step.ended or "",
    }  # fmt: skip


def _hit(hit: Hit) -> dict[str, Any]:
    return event_document(hit.event, hit.pointer.segment, hit.pointer.offset, CONSOLE_SHOWN_EVENT_BYTES)


__all__ = ["SearchCalls", "SearchPlaces", "matcher_of"]
