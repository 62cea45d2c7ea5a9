"""Events on the screen: live tails, pages of history, and events written by hand.

A tail costs the node little, however fast the stream is.  In each interval it scans a bounded number of bytes and shows
a bounded number of events.  One that follows the tail and cannot keep up skips to the end of the stream, and says how
many bytes it skipped: a person wants to see what happens now.  One that began further back shows everything, slowly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import body_of, call, stream_of, whole_number
from sarit.admin.console.documents import event_document, event_of, segment_of, text_of
from sarit.admin.console.limits import (
    CONSOLE_BROWSE_EVENTS,
    CONSOLE_BROWSE_SECONDS,
    CONSOLE_MAX_EVENT_BYTES,
    CONSOLE_MAX_FILTER_CHARS,
    CONSOLE_SHOWN_EVENT_BYTES,
    CONSOLE_TAIL_BEHIND_SECONDS,
    CONSOLE_TAIL_EVENTS,
    CONSOLE_TAIL_INTERVAL_SECONDS,
    CONSOLE_TAIL_SCANNED_BYTES,
)
from sarit.admin.console.positions import cut_of
from sarit.client.limits import MAX_EVENT_BYTES
from sarit.client.reader.pointers import EventPointer
from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.decoding import EventDecoder
    from sarit.admin.console.schema_view import SchemasView
    from sarit.admin.console.sse import Event, Live
    from sarit.client.aio import Client
    from sarit.client.reader.reader import EventReader
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.security.permissions import Caller


@dataclass(slots=True)
class Taken:
    """The result of one interval: events to show, how many were scanned, whether the reader may have more."""

    shown: list[dict[str, Any]]
    scanned: int = 0
    bytes: int = 0
    more: bool = False
    ended: bool = False


def matches(event: bytes, wanted: bytes) -> bool:
    """Return whether an event contains a text; letters of ASCII in any case.  `wanted` is in lower case."""
    return not wanted or wanted in event.lower()


async def take(
    reader: EventReader, wanted: bytes, seconds: float, most: int, decoder: EventDecoder | None = None
) -> Taken:
    """Scan what comes within `seconds`: at most CONSOLE_TAIL_SCANNED_BYTES bytes, and `most` events to show.

    `decoder`: adds to each event what its schema makes of it."""
    events: list[bytes] | None = None if decoder is None else []
    taken = await _taken(reader, wanted, seconds, most, events)
    if decoder is not None and events:
        for document, decoded in zip(taken.shown, await decoder.decode(events), strict=True):
            document |= decoded
    return taken


async def _taken(reader: EventReader, wanted: bytes, seconds: float, most: int, events: list[bytes] | None) -> Taken:
    """Scan as `take` does.  `events`: gets the bytes of the events to show."""
    taken = Taken([])
    deadline = asyncio.get_running_loop().time() + seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        try:
            async with asyncio.timeout(left):
                found = await reader.next_events()
        except SaritError:  # raise it even if it is a TimeoutError
            raise
        except TimeoutError:
            return taken
        if found is None:
            taken.ended = True
            return taken
        offset = found.position()
        for event in found.left:
            if matches(event, wanted):
                taken.shown.append(event_document(event, found.segment, offset, CONSOLE_SHOWN_EVENT_BYTES))
                if events is not None:
                    events.append(event)
            offset += len(event) + EVENT_HEADER_BYTES
            taken.scanned += 1
            taken.bytes += len(event) + EVENT_HEADER_BYTES
            if taken.bytes >= CONSOLE_TAIL_SCANNED_BYTES or len(taken.shown) >= most:
                taken.more = True
                return taken
    return taken


class EventCalls:
    """Calls on the events of a stream."""

    def __init__(
        self, client: Client, clock: Clock, live: Live, schemas: SchemasView | None = None,
        caller: Caller | None = None,
    ) -> None:  # fmt: skip
        """`schemas`: the registry that decoded events need, asked with the rights of `caller`; None: there is none."""
        self._client = client
        self._clock = clock
        self._live = live
        self._schemas = schemas
        self._caller = caller

    def __repr__(self) -> str:
        return "<EventCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        one = "/streams/{scope}/{stream}"
        return [
            call(f"{one}/tail/live", self.tail),
            call(f"{one}/events", self.browse),
            call(f"{one}/events", self.write, "POST"),
            call(f"{one}/event", self.whole),
        ]

    async def tail(self, request: Request) -> Any:
        """Live events.  Parameters: `from` (head, tail, a time, a cut), `filter`, `decode=1`: by their schemas."""
        stream = stream_of(request)
        # A browser that connects again says what it has.
        start = request.headers.get("last-event-id") or request.query_params.get("from", "tail")
        cut = await cut_of(self._client, stream, start, self._clock.wall_ms())
        wanted, decoder = _filter(request), await self._decoder(request, stream)
        return self._live.response(self.events(stream, cut, wanted, skips=start == "tail", decoder=decoder))

    async def _decoder(self, request: Request, stream: StreamName) -> EventDecoder | None:
        """Return what decodes the events of a stream, if that is asked for.  Raises Invalid: it cannot be."""
        if not whole_number(request, "decode", 0, 0, 1):
            return None
        if self._schemas is None:
            raise Invalid("this process has no schema registry: start it with --registry on to see decoded events")
        from sarit.admin.console.decoding import EventDecoder

        properties = await self._client.stream(stream).properties()
        return EventDecoder(self._schemas, self._caller, stream, properties, self._client.session.env)

    async def events(
        self, stream: StreamName, start: StreamCut, wanted: bytes, *, skips: bool, decoder: EventDecoder | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they come, in lists.  `skips`: whether to skip to the tail when too far behind it.

        `decoder`: as of `take`; it is closed at the end."""
        reader = self._client.reader(stream, start, skip_truncated=True)
        behind_since: float | None = None
        try:
            await reader.open()
            while True:
                began = self._clock.monotonic()
                found = await take(reader, wanted, CONSOLE_TAIL_INTERVAL_SECONDS, CONSOLE_TAIL_EVENTS, decoder)
                if found.scanned:
                    yield _batch(found, reader.position())
                if found.ended:
                    yield "end", {"reason": "the stream is sealed, and this was its last event"}, ""
                    return
                now = self._clock.monotonic()
                behind_since = (behind_since or now) if found.more else None
                if skips and behind_since is not None and now - behind_since > CONSOLE_TAIL_BEHIND_SECONDS:
                    old, reader = reader, self._client.reader(stream, "tail", skip_truncated=True)
                    position = old.position()
                    old.close()
                    await reader.open()
                    behind_since = None
                    yield "skipped", {"bytes": _bytes_between(position, reader.position())}, ""
                await asyncio.sleep(max(0.0, CONSOLE_TAIL_INTERVAL_SECONDS - (self._clock.monotonic() - began)))
        finally:
            reader.close()
            if decoder is not None:
                await decoder.close()

    async def browse(self, request: Request) -> Any:
        """Return a page of events from a place on, and where the next page begins."""
        stream = stream_of(request)
        limit = whole_number(request, "limit", CONSOLE_BROWSE_EVENTS, 1, CONSOLE_BROWSE_EVENTS)
        wanted = _filter(request)
        place = request.query_params.get("from", "head")
        start = await cut_of(self._client, stream, place, self._clock.wall_ms())
        async with self._client.reader(stream, start, "tail", skip_truncated=True) as reader:
            found = await take(reader, wanted, CONSOLE_BROWSE_SECONDS, limit)
            return {
                "events": found.shown, "scanned": found.scanned, "next": to_text(reader.position()),
                "at_end": found.ended,
            }  # fmt: skip

    async def whole(self, request: Request) -> Any:
        """Return one event, as far as CONSOLE_MAX_EVENT_BYTES.  Parameters: `segment`, `offset`, `size` in bytes."""
        stream, given = stream_of(request), request.query_params
        segment = segment_of(given.get("segment", ""))
        offset = whole_number(request, "offset", 0, 0, (1 << 63) - 1)
        size = whole_number(request, "size", 0, 0, MAX_EVENT_BYTES)
        pointer = EventPointer(stream, segment, offset, size + EVENT_HEADER_BYTES)
        event = await self._client.stream(stream).fetch_event(pointer)
        return event_document(event, segment, offset, CONSOLE_MAX_EVENT_BYTES)

    async def write(self, request: Request) -> Any:
        """Body: "text" or "base64", "key"; with "headers" or "event_time" it is written as an envelope, with its key.

        Durable when it is answered."""
        body = await body_of(request)
        key = text_of(body, "key", "") or None
        event = event_of(body, key, self._clock.wall_ms())
        if len(event) > CONSOLE_MAX_EVENT_BYTES:
            raise Invalid(f"an event of {len(event)} bytes: the console writes at most {CONSOLE_MAX_EVENT_BYTES}")
        async with self._client.writer(stream_of(request)) as writer:
            writer.write(event, key=key)
            await writer.flush()
        return {"bytes": len(event), "key": key}


def _batch(found: Taken, position: StreamCut) -> Event:
    document = {"events": found.shown, "scanned": found.scanned, "bytes": found.bytes}
    return "events", document, to_text(position)


def _filter(request: Request) -> bytes:
    text = request.query_params.get("filter", "")
    if len(text) > CONSOLE_MAX_FILTER_CHARS:
        raise Invalid(f"filter: at most {CONSOLE_MAX_FILTER_CHARS} characters")
    return text.encode(errors="replace").lower()


def _bytes_between(start: StreamCut, end: StreamCut) -> int | None:
    """None: the stream has scaled in between, and nobody counted."""
    if start.positions.keys() != end.positions.keys():
        return None
    return sum(end.positions[segment] - at for segment, at in start.positions.items())


__all__ = ["EventCalls", "Taken", "matches", "take"]
