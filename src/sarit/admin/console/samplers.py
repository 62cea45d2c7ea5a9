"""Heat maps that are open: one sampler for each stream, for all who see it.

It begins with what the controller recorded: cuts of the stream, about one a minute,
each with the time it was recorded at.  From then on it asks for the lengths of the active segments at intervals.  It
goes on for some minutes after the last page was closed, so that a page that is opened again shows no gap.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call, stream_of
from sarit.admin.console.heat import Part, Sample, column, document
from sarit.admin.console.limits import (
    CONSOLE_HEAT_COLUMNS,
    CONSOLE_HEAT_LINGER_SECONDS,
    CONSOLE_HEAT_MAX_SAMPLERS,
    CONSOLE_HEAT_QUEUE_COLUMNS,
    CONSOLE_HEAT_RECORDED_COLUMNS,
    CONSOLE_HEAT_ROWS,
    CONSOLE_HEAT_SECONDS,
    CONSOLE_HEAT_SECONDS_PER_SEGMENT,
)
from sarit.client.streams.history import Ranges
from sarit.client.streams.recorded_cuts import recorded_cut
from sarit.core.errors import NotFound, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.heat import Column
    from sarit.admin.console.sse import Event, Live
    from sarit.client.aio import Client
    from sarit.client.streams.recorded_cuts import RecordedCut
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.admin.console")


class Sampler:
    """The heat of one stream."""

    def __init__(self, client: Client, clock: Clock, stream: StreamName) -> None:
        self._client = client
        self._clock = clock
        self._stream = stream
        self._ranges = Ranges(client.session, stream)
        self._columns: deque[Column] = deque(maxlen=CONSOLE_HEAT_COLUMNS)
        self._recorded: list[Column] = []
        self._last: Sample | None = None
        self._queues: set[asyncio.Queue[Column | None]] = set()
        self._began = asyncio.Event()
        self.left_at = clock.monotonic()  # when the last page was closed
        self.failure = ""
        self._ended = False
        self.task = asyncio.ensure_future(self._run())

    def __repr__(self) -> str:
        return f"<Sampler of {self._stream}, {len(self._queues)} pages>"

    @property
    def pages(self) -> int:
        """How many pages show it."""
        return len(self._queues)

    async def columns(self) -> AsyncGenerator[Event, None]:
        """Yield all columns so far in one event, then each new one."""
        queue: asyncio.Queue[Column | None] = asyncio.Queue(CONSOLE_HEAT_QUEUE_COLUMNS)
        self._queues.add(queue)
        try:
            await self._began.wait()
            # What comes while the browser takes the first event is in the queue, and in the deque, too.
            while not queue.empty():
                queue.get_nowait()
            known = [*self._recorded, *self._columns]
            interval_ms = int(CONSOLE_HEAT_SECONDS * 1000)
            yield "columns", {"interval_ms": interval_ms, "columns": list(map(document, known))}, ""
            while not self._ended or not queue.empty():
                found = await queue.get()
                if found is None:
                    break
                yield "column", document(found), ""
            yield "failed", {"error": self.failure or "the map is not drawn any more: load the page again"}, ""
        finally:
            self._queues.discard(queue)
            self.left_at = self._clock.monotonic()

    async def _run(self) -> None:
        try:
            self._last = await self._sample({})
            self._recorded = await self._from_records()
            self._began.set()
            while self._queues or self._clock.monotonic() - self.left_at < CONSOLE_HEAT_LINGER_SECONDS:
                parts = len(self._last.parts)
                await asyncio.sleep(max(CONSOLE_HEAT_SECONDS, parts * CONSOLE_HEAT_SECONDS_PER_SEGMENT))
                # A node that restarts leaves a gap: the next column is a long one.
                with suppress(Unavailable):
                    await self._next()
        except SaritError as error:
            self.failure = str(error)
        except Exception:
            _log.exception("the heat of %s is not sampled any more: unexpected error", self._stream)
        finally:
            self._ended = True
            self._began.set()
            for queue in self._queues:
                _put(queue, None)

    async def _next(self) -> None:
        assert self._last is not None
        found = await self._sample(self._last.parts)
        made = column(self._last, found, CONSOLE_HEAT_ROWS)
        self._last = found
        if made is not None:
            self._columns.append(made)
            for queue in self._queues:
                _put(queue, made)

    async def _sample(self, before: Mapping[SegmentId, Part]) -> Sample:
        """`before`: the parts of the sample before, some of which are sealed by now."""
        active = {found.segment: found for found in await self._client.stream(self._stream).segments()}
        earlier = self._last.active if self._last is not None else frozenset()
        infos = await self._client.segment_infos(self._stream, [*active, *(earlier - active.keys())])
        now = self._clock.wall_ms()
        parts = {
            segment: Part(active[segment].low, active[segment].high, info.end_offset)
            if segment in active
            else before[segment]._replace(end=info.end_offset)
            for segment, info in infos.items()
        }
        return Sample(now, parts, frozenset(active.keys() & parts.keys()))

    async def _from_records(self) -> list[Column]:
        """Return columns of earlier times, from the cuts that the controller recorded (none if it is not Sarit)."""
        assert self._last is not None
        samples = [self._last]
        try:
            for record in await self._recorded_cuts(self._last.time_ms):
                positions = record.cut.positions
                ranges = await self._ranges.of(positions)
                parts = {s: Part(ranges[s].low, ranges[s].high, end) for s, end in positions.items()}
                samples.append(Sample(record.time_ms, parts, frozenset(parts)))
        except NotFound:
            pass  # the history was truncated meanwhile
        except SaritError as error:
            _log.info("the heat map of %s begins now: its recorded cuts could not be read: %s", self._stream, error)
        samples.reverse()
        pairs = itertools.pairwise(samples)
        made = [column(*await self._with_sealed(*pair), CONSOLE_HEAT_ROWS) for pair in pairs]
        return [found for found in made if found is not None]

    async def _with_sealed(self, before: Sample, after: Sample) -> tuple[Sample, Sample]:
        """Return both samples, with the ends of the segments that were sealed in between added to the later one."""
        gone = before.active - after.active
        infos = await self._client.segment_infos(self._stream, gone)
        ended = {s: before.parts[s]._replace(end=info.end_offset) for s, info in infos.items() if info.sealed}
        return before, Sample(after.time_ms, {**after.parts, **ended}, after.active)

    async def _recorded_cuts(self, time_ms: int) -> list[RecordedCut]:
        """Return the cuts recorded up to a time, the newest first."""
        found: list[RecordedCut] = []
        while len(found) < CONSOLE_HEAT_RECORDED_COLUMNS:
            record = await recorded_cut(self._client.session, self._stream, time_ms)
            if record is None:
                break
            found.append(record)
            time_ms = record.time_ms - 1
        return found


class Samplers:
    """The samplers of one console."""

    def __init__(self, client: Client, clock: Clock, live: Live) -> None:
        self._client = client
        self._clock = clock
        self._live = live
        self._running: dict[StreamName, Sampler] = {}

    def __repr__(self) -> str:
        return f"<Samplers of {len(self._running)} streams>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/streams/{scope}/{stream}/heat/live", self.heat)]

    async def heat(self, request: Request) -> Any:
        """Columns of the heat map, live."""
        stream = stream_of(request)
        return self._live.response(self.sampler(stream).columns())

    def sampler(self, stream: StreamName) -> Sampler:
        """Return the sampler of a stream, or start one.  Raises Unavailable (too many are open)."""
        for name in [name for name, found in self._running.items() if found.task.done()]:
            del self._running[name]
        if stream not in self._running and len(self._running) >= CONSOLE_HEAT_MAX_SAMPLERS:
            unseen = [name for name, found in self._running.items() if not found.pages]
            if not unseen:
                raise Unavailable(f"{CONSOLE_HEAT_MAX_SAMPLERS} heat maps are open, which is the limit: close one")
            self._running.pop(min(unseen, key=lambda name: self._running[name].left_at)).task.cancel()
        if stream not in self._running:
            self._running[stream] = Sampler(self._client, self._clock, stream)
        return self._running[stream]

    async def close(self) -> None:
        """Cancel all samplers, and wait for their end."""
        tasks = [found.task for found in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _put(queue: asyncio.Queue[Column | None], found: Column | None) -> None:
    """Add a column for a page.  A page that is too slow loses the oldest columns."""
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(found)
