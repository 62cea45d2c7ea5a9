"""The scan of a search: the events between two cuts, slice by slice, until a bound is reached.

It holds one slice, and what its reader fetches ahead.  Each slice is matched on a thread, so that the event loop goes
on, and gives a step.  A step says where the scan has come to: everything between the start and that position was
searched, and a scan that starts there misses no event and finds none again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from sarit.client.core.segments import segment_infos
from sarit.client.limits import SEARCH_SLICE_BYTES, SEARCH_SLICE_EVENTS
from sarit.client.reader.pointers import EventPointer
from sarit.client.reader.reader import EventReader
from sarit.client.streams import history
from sarit.core.cuts import StreamCut
from sarit.core.errors import SaritError
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sarit.client.reader.cursor import Events
    from sarit.client.search.matchers import Matched, Matcher
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId


class Ended(StrEnum):
    """Reasons for which a scan ends: everything was searched, or a bound of `ScanBounds` was reached."""

    RANGE = "end"
    BYTES = "bytes"
    SECONDS = "seconds"
    HITS = "hits"


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """The most that one scan does: bytes that it reads, seconds that it takes, hits that it returns."""

    bytes: int
    seconds: float
    hits: int


@dataclass(frozen=True, slots=True)
class Hit:
    """An event that matches, and where it is.  `time_ms`: when it happened, since 1970; None: the matcher does not know
    it."""

    pointer: EventPointer
    event: bytes
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The work of a scan since the step before, and where it is.

    `hits`: of this step.  `position`: everything before it was searched.  `events`, `bytes`: searched so far, with
    headers.  `partly`: events so far of which only the beginning, or nothing, was matched.  `ended`: None while
    the scan goes on."""

    hits: tuple[Hit, ...]
    position: StreamCut
    events: int
    bytes: int
    partly: int
    ended: Ended | None = None


async def scan(
    session: Session, start: StreamCut, end: StreamCut, matcher: Matcher, bounds: ScanBounds
) -> AsyncGenerator[Step, None]:
    """Yield steps until the end or a bound; the last one says which.  Truncated data is skipped.

    Raises NotFound, Invalid (a cut of another stream), Unavailable, Corrupt."""

    async def between() -> tuple[StreamCut, StreamCut]:
        return start, end

    deadline = asyncio.get_running_loop().time() + bounds.seconds
    worker = session.env.threads.worker("search")
    reader = EventReader(session, start.stream, between, skip_truncated=True)
    step = Step((), start, 0, 0, 0)
    found = 0
    try:
        await reader.open()
        while not step.ended:
            try:
                async with asyncio.timeout_at(deadline):
                    ready = await reader.next_events()
            except SaritError:  # also one that is a TimeoutError
                raise
            except TimeoutError:
                step = replace(step, hits=(), ended=Ended.SECONDS)
            else:
                if ready is None:
                    step = replace(step, hits=(), position=reader.position(), ended=Ended.RANGE)
                else:
                    part = _take(ready)
                    matched = await worker.run(partial(matcher.match, part.events))
                    step = _next(step, part, matched, reader.position(), bounds, bounds.hits - found)
                    found += len(step.hits)
            yield step
    finally:
        reader.close()
        await worker.close()


async def distance(session: Session, start: StreamCut, end: StreamCut) -> int:
    """Return how many bytes lie between two cuts and are not truncated.  Raises NotFound, Invalid."""
    infos = await segment_infos(session, start.stream, await history.between(session, start, end))
    first, last = start.positions, end.positions
    return sum(
        max(0, last.get(segment, info.end_offset) - max(info.start_offset, first.get(segment, 0)))
        for segment, info in infos.items()
    )


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some events of one segment that follow one another; `offsets`: where each begins."""

    segment: SegmentId
    events: list[bytes]
    offsets: list[int]

    def end_of(self, place: int) -> int:
        """Return where an event ends."""
        return self.offsets[place] + len(self.events[place]) + EVENT_HEADER_BYTES


def _take(ready: Events) -> _Slice:
    """Take a slice of what a reader has at hand."""
    part = _Slice(ready.segment, [], [])
    offset = ready.position()
    end = offset + SEARCH_SLICE_BYTES
    for event in ready.left:
        part.events.append(event)
        part.offsets.append(offset)
        offset += len(event) + EVENT_HEADER_BYTES
        if offset >= end or len(part.events) == SEARCH_SLICE_EVENTS:
            break
    return part


def _next(step: Step, part: _Slice, matched: Matched, position: StreamCut, bounds: ScanBounds, left: int) -> Step:
    """Return the step after a slice.  `position`: after the slice; `left`: how many hits may still be returned."""
    places, taken = matched.places[:left], len(part.events)
    ended = None
    if len(matched.places) >= left:
        # What is behind the last hit is searched by the next scan.
        ended, taken = Ended.HITS, places[-1] + 1
        position = StreamCut(position.stream, {**position.positions, part.segment: part.end_of(places[-1])})
    size = step.bytes + part.end_of(taken - 1) - part.offsets[0]
    if not ended and size >= bounds.bytes:
        ended = Ended.BYTES
    hits = tuple(
        Hit(EventPointer(position.stream, part.segment, part.offsets[place], part.end_of(place) - part.offsets[place]),
            part.events[place], time_ms)
        for place, time_ms in zip(places, matched.times or repeat(None), strict=False)
    )  # fmt: skip
    return Step(hits, position, step.events + taken, size, step.partly + matched.partly, ended)
