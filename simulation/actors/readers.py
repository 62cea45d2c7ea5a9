"""Readers on the wire protocol: at the tail, from the middle again, and complete scans."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.errors import Unavailable
from sarit.wire import commands as wire
from simulation.actors.links import Link
from simulation.events import BrokenBytes, SegmentParser
from simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from simulation.cluster import Cluster
    from simulation.events import History

T = TypeVar("T")
ANSWER_DEADLINE_SECONDS: Final = 60.0


async def within_deadline(work: Awaitable[T], what: str) -> T:
    """Await `work`, which must end within ANSWER_DEADLINE_SECONDS: for use when no faults are active."""
    try:
        async with asyncio.timeout(ANSWER_DEADLINE_SECONDS):
            return await work
    except Unavailable:
        raise
    except TimeoutError:
        raise AssertionError(f"liveness: {what}: no answer within {ANSWER_DEADLINE_SECONDS:.0f} s") from None


async def segment_info(link: Link, history: History, segment: str) -> wire.StreamSegmentInfo:
    """Ask for start and length, and record the reply.  Raises Unavailable."""
    begun = now()
    answer = await link.ask(lambda request: wire.GetStreamSegmentInfo(request, segment, ""))
    if not isinstance(answer, wire.StreamSegmentInfo):
        raise AssertionError(f"info of {segment}: {answer}")
    history.log.info(history.segment(segment), answer.start_offset, answer.write_offset, begun, now())
    return answer


class TailReader:
    """Follows segments; now and then goes back to an offset where an event is known to begin."""

    def __init__(self, cluster: Cluster, history: History, number: int, segments: list[str]) -> None:
        self._cluster = cluster
        self._history = history
        self._rng: random.Random = cluster.rng(f"reader {number}")
        self._link = Link(cluster, self._rng, f"reader {number}")
        self._segments = segments
        self._parsers: dict[str, SegmentParser] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            segment = self._rng.choice(self._segments)
            try:
                await self._read_some(segment)
            except Unavailable:
                await asyncio.sleep(0.02)
            await asyncio.sleep(self._rng.random() * self._cluster.options.think_seconds)
            if not self._cluster.quiet and self._cluster.options.breaks and self._rng.random() < 0.02:
                self._link.drop()

    def _place(self, segment: str) -> SegmentParser:
        parser = self._parsers.get(segment)
        if parser is None or self._rng.random() < 0.05:
            known = self._history.boundaries.get(self._history.segment(segment), [])
            offset = self._rng.choice([0, *known[-50:]]) if parser is not None else 0
            parser = self._at(segment, offset)
        return parser

    def _at(self, segment: str, offset: int) -> SegmentParser:
        parser = SegmentParser(self._history, self._history.new_reader(), segment, offset)
        self._parsers[segment] = parser
        return parser

    async def _read_some(self, segment: str) -> None:
        if self._rng.random() < 0.1:
            await segment_info(self._link, self._history, segment)
        for _ in range(self._rng.choice((1, 3, 20))):
            parser = self._place(segment)
            size = self._rng.choice((64, 500, 5000, 200_000))
            begun = now()
            read = asyncio.ensure_future(self._link.ask(read_command(segment, parser.position, size)))
            read.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([read], timeout=self._rng.choice((0.2, 1.0)))
            if not read.done():
                read.cancel()  # it waits at the tail: try another segment
                return
            if not self._take(segment, parser, read.result(), begun):
                return

    def _take(self, segment: str, parser: SegmentParser, answer: Any, begun: float) -> bool:
        if isinstance(answer, wire.SegmentIsTruncated):
            self._cluster.trace.probe("read_below_start")
            self._at(segment, answer.start_offset)
            return True
        if not isinstance(answer, wire.SegmentRead):
            raise AssertionError(f"read of {segment} at {parser.position}: {answer}")
        assert answer.offset == parser.position, f"asked for {parser.position}, got {answer.offset}"
        try:
            parser.feed(bytes(answer.data), begun, now())
        except BrokenBytes as error:
            self._cluster.trace.note("bug", str(error))
            self._at(segment, 0)
        return bool(answer.data)


def read_command(segment: str, offset: int, length: int) -> Callable[[int], wire.ReadSegment]:
    """A read at `offset`, for `Link.ask`."""
    return lambda request: wire.ReadSegment(segment, offset, length, "", request)


async def scan(cluster: Cluster, history: History, segments: list[str], name: str) -> None:
    """Read every segment once from start to end, and record that as a scan.  Nothing writes meanwhile."""
    reader = history.new_reader()
    rng = cluster.rng(f"scan {name}")
    link = Link(cluster, rng, f"scan {name}")
    for segment in segments:
        info = await within_deadline(
            link.retry_forever(partial(segment_info, link, history, segment)), f"info of {segment}"
        )
        parser = SegmentParser(history, reader, segment, info.start_offset)
        while parser.position < info.write_offset:
            begun = now()
            size = rng.choice((100, 4000, 1 << 20))
            answer = await within_deadline(
                link.retry_forever(partial(link.ask, read_command(segment, parser.position, size))),
                f"scan {name} of {segment} at {parser.position}",
            )
            if not isinstance(answer, wire.SegmentRead):
                cluster.failures.append(f"vanished: scan {name}: {segment} at {parser.position}: {answer}")
                break
            try:
                parser.feed(bytes(answer.data), begun, now())
            except BrokenBytes as error:
                cluster.trace.note("bug", str(error))
                break
        history.log.scanned(reader, history.segment(segment), info.start_offset, info.write_offset)
    link.drop()


class Truncator:
    """Truncates segments at offsets where events are known to end."""

    def __init__(self, cluster: Cluster, history: History, segments: list[str]) -> None:
        self._cluster = cluster
        self._history = history
        self._rng = cluster.rng("truncator")
        self._link = Link(cluster, self._rng, "truncator")
        self._segments = segments

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._rng.random())
            segment = self._rng.choice(self._segments)
            number = self._history.segment(segment)
            known = self._history.boundaries.get(number)
            if not known:
                continue
            offset = self._rng.choice(known[: len(known) // 2 + 1])
            begun = now()
            ended = float("inf")
            try:
                truncate = partial(wire.TruncateSegment, segment=segment, truncation_offset=offset, token="")
                answer = await self._link.ask(truncate)
                if not isinstance(answer, wire.SegmentTruncated | wire.SegmentIsTruncated):
                    raise AssertionError(f"truncate {segment} at {offset}: {answer}")
                ended = now()
            except Unavailable:
                continue
            finally:
                self._history.log.truncated(number, offset, begun, ended)
