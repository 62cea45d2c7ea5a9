"""A search for a query without an index: all events of a range are read, and the best hits are kept.

Order.  Events of parallel segments come in no order of time.  So the whole range is read before the first hit is shown:
hits are in the order of the times of events, and events of the same time in that of their segments and offsets.
Memory holds as many hits as are asked for, and SEARCH_HIT_BYTES of them at most.

Times.  The time of an event is what its document or its envelope says, or else when it was appended, about
(`append_times.py`).  To find events whose times lie in a range, the stream is read from what was appended
SEARCH_EARLY_MS before its begin; up to the tail if events say their times, since events may be written long after they
happened, and else up to the end of the range.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sarit.client.core.segments import head_cut, tail_cut
from sarit.client.limits import SEARCH_EARLY_MS, SEARCH_HIT_BYTES, SEARCH_MAX_HITS
from sarit.client.search.append_times import append_times
from sarit.client.search.mappings import scan_fields
from sarit.client.search.query_matcher import QueryMatcher
from sarit.client.search.results import SearchHit, SearchResult
from sarit.client.search.scan import ScanBounds, distance, scan
from sarit.client.search.time_range import cut_behind
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.search.field_values import ordered_ms
from sarit.search.limits import MAX_HISTOGRAM_BUCKETS
from sarit.search.query_parser import bind, parse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sarit.client.search.append_times import AppendTimes
    from sarit.client.search.scan import Ended, Hit
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName
    from sarit.search.document_maker import Decode

SORTS: Final = ("newest", "oldest")
_UNBOUNDED: Final = ScanBounds(1 << 62, 1e9, 1 << 62)


@dataclass(frozen=True, slots=True)
class ScanQuestion:
    """A question to a stream.

    `start`, `end`: cuts between which events are read; None: as far as the times demand, or the head and the tail.
    `from_ms`, `to_ms`: times of events since 1970, from the first to before the second; None: any.  `sort`: "newest"
    or "oldest".  `limit`: of hits.  `bucket_ms`: the width of the buckets of a histogram over time; 0: none is wanted.
    `decode`: makes documents of payloads that are no JSON."""

    query: str
    start: StreamCut | None = None
    end: StreamCut | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    sort: str = "newest"
    limit: int = 20
    bucket_ms: int = 0
    bounds: ScanBounds = _UNBOUNDED
    decode: Decode | None = None


@dataclass(frozen=True, slots=True)
class TimedHit:
    """An event that matches, and when it happened, in milliseconds since 1970."""

    hit: Hit
    time_ms: int


@dataclass(frozen=True, slots=True)
class ScanState:
    """A scan, as far as it has come.

    `range_bytes`: of what there is to read; `bytes`, `events`: that were read.  `total`: events that match.  `hits`:
    the best of them, in their order.  `partly`: events of which a part is not searched.  `position`, `end`: everything
    from the start of the scan to `position` was searched, and what is left is from there to `end`.  `left_out`: hits
    that are not among `hits` since those fill the memory.  `buckets`: (begin in ms, events that match), ascending; at
    the end of the scan only.  `ended`: why the scan has ended; None: it goes on."""

    range_bytes: int
    position: StreamCut
    end: StreamCut
    bytes: int = 0
    events: int = 0
    total: int = 0
    hits: tuple[TimedHit, ...] = ()
    partly: int = 0
    left_out: int = 0
    buckets: tuple[tuple[int, int], ...] = ()
    ended: Ended | None = None


async def scan_query(session: Session, stream: StreamName, question: ScanQuestion) -> AsyncGenerator[ScanState, None]:
    """Yield states of a scan until it ends; the first one before anything is read.

    Raises NotFound, Invalid (the query, a cut of another stream), Unavailable, Corrupt."""
    _check(question)
    parsed = parse(question.query)
    now_ms = session.env.clock.wall_ms()
    start = await _start(session, stream, question)
    fields = await scan_fields(session, stream, start, question.decode)
    matcher = QueryMatcher(bind(parsed, fields.mapping), fields.mapping, question.decode)
    end = question.end
    if end is None and question.to_ms is not None and not fields.own_times:
        end = await cut_behind(session, stream, question.to_ms, now_ms)
    end = end or await tail_cut(session, stream)
    state = ScanState(await distance(session, start, end), start, end)
    yield state
    best = _Best(question)
    times: AppendTimes | None = None
    async with aclosing(scan(session, start, end, matcher, question.bounds)) as steps:
        async for step in steps:
            for hit in step.hits:
                time_ms = hit.time_ms
                if time_ms is None:
                    if times is None:
                        times = await append_times(session, stream, question.from_ms or 0, now_ms)
                    time_ms = times.of(hit.pointer.segment, hit.pointer.offset)
                best.add(TimedHit(hit, ordered_ms(time_ms)))
            state = replace(
                state, position=step.position, bytes=step.bytes, events=step.events, total=best.total,
                hits=best.hits(), partly=step.partly, left_out=best.left_out, ended=step.ended,
                buckets=best.buckets() if step.ended else (),
            )  # fmt: skip
            yield state


async def search_by_scan(session: Session, stream: StreamName, question: ScanQuestion) -> ScanState:
    """Return the last state of a scan.  Raises NotFound, Invalid, Unavailable, Corrupt."""
    async with aclosing(scan_query(session, stream, question)) as states:
        async for state in states:
            last = state
    return last


async def result_of_scan(
    session: Session, stream: StreamName, question: ScanQuestion, *, events: bool = True
) -> SearchResult:
    """Return what a scan has found as the result of a search in an index."""
    found = await search_by_scan(session, stream, question)
    hits = tuple(
        SearchHit(
            one.hit.pointer.segment, one.hit.pointer.offset, one.time_ms,
            event=one.hit.event if events else None, pointer=one.hit.pointer if events else None,
        )
        for one in found.hits
    )  # fmt: skip
    return SearchResult(hits, found.total, found.buckets, {}, found.position, session.env.clock.wall_ms(), b"")


def _check(question: ScanQuestion) -> None:
    if question.bucket_ms < 0:
        raise Invalid("the buckets of a histogram have a width above 0")
    if question.sort not in SORTS:
        raise Invalid(f"a scan sorts its hits by time, newest or oldest first: {question.sort[:20]!a} needs an index")
    if not 0 <= question.limit <= SEARCH_MAX_HITS:
        raise Invalid(f"a search returns 0 to {SEARCH_MAX_HITS:,} hits: ask for fewer, or for another range of times")


async def _start(session: Session, stream: StreamName, question: ScanQuestion) -> StreamCut:
    """Return where to begin to read."""
    if question.start is not None:
        return question.start
    if question.from_ms is None:
        return await head_cut(session, stream)
    at = max(0, question.from_ms - SEARCH_EARLY_MS)
    return StreamCut(stream, await session.with_retry(lambda: session.controller.cut_at(stream, at)))


class _Best:
    """The best hits so far, and how many there were."""

    def __init__(self, question: ScanQuestion) -> None:
        self.total = 0
        self.left_out = 0
        self._question = question
        self._kept: list[tuple[tuple[int, int, int], TimedHit]] = []
        self._bytes = 0
        self._buckets: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"<_Best {len(self._kept)} of {self.total}>"

    def add(self, found: TimedHit) -> None:
        """Add a hit, if it is within the range of times."""
        low, high = self._question.from_ms, self._question.to_ms
        if (low is not None and found.time_ms < low) or (high is not None and found.time_ms >= high):
            return
        self.total += 1
        if width := self._question.bucket_ms:
            self._buckets[found.time_ms // width * width] += 1
            if len(self._buckets) > MAX_HISTOGRAM_BUCKETS:
                raise Invalid(f"the histogram has more than {MAX_HISTOGRAM_BUCKETS:,} buckets: give wider ones")
        sign = -1 if self._question.sort == "newest" else 1
        pointer = found.hit.pointer
        key = (sign * found.time_ms, sign * pointer.segment.packed, sign * pointer.offset)
        full = len(self._kept) >= self._question.limit
        if full and (not self._kept or key > self._kept[-1][0]):
            return
        insort(self._kept, (key, found), key=lambda one: one[0])
        self._bytes += len(found.hit.event)
        if full:
            self._drop()
        while self._bytes > SEARCH_HIT_BYTES and len(self._kept) > 1:
            self._drop()
            self.left_out += 1

    def hits(self) -> tuple[TimedHit, ...]:
        """Return the best hits in their order."""
        return tuple(found for _, found in self._kept)

    def buckets(self) -> tuple[tuple[int, int], ...]:
        """Return the histogram."""
        return tuple(sorted(self._buckets.items()))

    def _drop(self) -> None:
        _, dropped = self._kept.pop()
        self._bytes -= len(dropped.hit.event)


__all__ = ["SORTS", "ScanQuestion", "ScanState", "TimedHit", "result_of_scan", "scan_query", "search_by_scan"]
