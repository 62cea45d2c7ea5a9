"""A stream whose writers note times, its watermarks, and readers that use them.

The number of an event is its time: after event n the writer notes n, so that the next event is later.  A writer may
stop without leaving ("crash"): it must not delay watermarks for longer than the time-out.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers import watermarks as checker
from checkers.watermarks import Mark, WatermarkHistory
from sarit.client.streams import watermarks
from sarit.core.names import MARK_PREFIX, SegmentId, StreamName
from sarit.core.policies import ScalingPolicy
from simulation.actors.clients import (
    SCOPE,
    connect_client,
    discover_segments,
    next_rows,
    retry_forever,
    scale_now_and_then,
)
from simulation.events import body, parse
from simulation.options import NEVER_SECONDS, WRITER_SECONDS
from simulation.world import now

if TYPE_CHECKING:
    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.writer.writer import EventWriter
    from simulation.cluster import Cluster

STREAM: Final = StreamName(SCOPE, "timed")
MARKS: Final = StreamName(SCOPE, MARK_PREFIX + "timed")
_KEYS: Final = 4
_MOST_NOTES: Final = 25
_MARK_SECONDS: Final = 60.0


class EventTimeActors:
    """All actors on the stream, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        options = cluster.options
        self.cluster = cluster
        self.on = bool(options.event_time_writers)
        self.history = WatermarkHistory(WRITER_SECONDS if options.writers_expire else NEVER_SECONDS)
        self._noted_first = 0
        self._all_begun = asyncio.Event()
        self._open: list[tuple[int, EventWriter]] = []
        self._ended: set[SegmentId] = set()
        self._highest = 0
        self._clients: list[Client] = []

    def __repr__(self) -> str:
        return f"<EventTimeActors by {self.cluster.options.event_time_writers}, {len(self.history.marks)} watermarks>"

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        spawn = self.cluster.spawn
        work = [spawn(self._write(n), f"event time writer {n}") for n in range(self.cluster.options.event_time_writers)]
        work.append(spawn(self._scale(), "event time scaler"))
        watch = [spawn(self._read(), "event time reader"), spawn(self._read_marks(), "watermark reader")]
        return work, watch

    def check(self) -> list[Violation]:
        """All violations."""
        return checker.check(self.history)

    async def converge(self) -> None:
        """After the faults: all writers note a last time, and a watermark must reach it."""
        if not self.on:
            return
        last = self._highest + 1
        for number, writer in self._open:
            await self._note(number, writer, last)
        until = now() + _MARK_SECONDS
        client = await connect_client(self.cluster)
        reader = client.reader(MARKS)
        reached = not self._open
        while not reached and now() < until:
            rows = await next_rows(reader, 1.0)
            reached = any(watermarks.decode(event).lower >= last for _, _, event, _ in rows or ())
        if not reached:
            self.cluster.failures.append(f"liveness: no watermark reached {last} in {_MARK_SECONDS:.0f} s; {self}")
        elif self._open:
            self.cluster.trace.probe("final_watermark_read")
        for number, writer in self._open:
            self.history.leaves(number, now())
            await writer.close()
        await discover_segments(client, STREAM, self.history.graph, self._ended)
        reader.close()
        for each in (client, *self._clients):
            await each.close()

    # -- actors -----------------------------------------------------------------------------------

    async def _client(self) -> Client:
        client = await connect_client(self.cluster)
        segments = ScalingPolicy(min_segments=min(3, self.cluster.options.segments))
        await client.create_stream(STREAM, scaling=segments)
        return client

    async def _write(self, number: int) -> None:
        cluster, options = self.cluster, self.cluster.options
        client, rng = await self._client(), cluster.rng(f"timed writer {number}")
        self._clients.append(client)
        writer = client.writer(STREAM, name=f"writer-{number}")
        await self._note(number, writer, 0)
        self._noted_first += 1
        if self._noted_first == options.event_time_writers:
            self._all_begun.set()
        await self._all_begun.wait()
        crashes = options.writers_expire and number == 0 and rng.random() < 0.5
        time = 0
        for _ in range(rng.randint(1, _MOST_NOTES)):
            for _ in range(rng.randint(1, 2 * options.block_events)):
                time += rng.randint(1, 3)
                writer.write(body(number, time, rng.randrange(options.event_bytes)), f"key-{rng.randrange(_KEYS)}")
            await asyncio.sleep(rng.random() * 8 * options.think_seconds)
            if rng.random() < 0.7:
                await self._note(number, writer, time)
        if crashes:
            cluster.trace.probe("event_time_writer_crashed")
            self.history.leaves(number, now())
            writer.abandon()
            return
        await self._note(number, writer, time)
        if rng.random() < 0.3:
            self.history.leaves(number, now())
            await retry_forever(writer.close)
            return
        self._open.append((number, writer))

    async def _note(self, number: int, writer: EventWriter, time: int) -> None:
        self._highest = max(self._highest, time)
        begun, ended = now(), inf
        # Recorded before the call: a watermark may contain it before the writer gets the reply.
        self.history.noted(number, time, begun, ended)
        await retry_forever(lambda: writer.note_time(time))
        self.history.notes[number].pop()
        self.history.noted(number, time, begun, now())

    async def _scale(self) -> None:
        client = await self._client()
        await scale_now_and_then(self.cluster, client, STREAM, "timed", times=(0, 1, 3), pause=4, segments=(3, 4))
        await client.close()

    async def _read(self) -> None:
        """Follow the stream, and read the time window now and then."""
        client, rng = await self._client(), self.cluster.rng("timed reader")
        stream = client.stream(STREAM)
        reader, windows = client.reader(STREAM), stream.time_windows()
        await self._all_begun.wait()
        await retry_forever(reader.open)
        while (rows := await next_rows(reader, 1.0)) is not None:
            for segment, offset, event, _ in rows:
                found = parse(event)
                if found is None:
                    self.cluster.failures.append(f"event time torn: segment {segment} offset {offset}: {event[:60]!r}")
                    return
                self.history.events[segment, offset] = found
                self.history.got(1, *found, now())
            if rows and rng.random() < 0.3:
                window = await retry_forever(lambda: windows.at(reader.position()))
                if window.lower is not None:
                    self.cluster.trace.probe("time_window_read")
                    self.history.reported(1, window.lower, now())

    async def _read_marks(self) -> None:
        """Follow the watermarks."""
        client = await self._client()
        await self._all_begun.wait()
        reader = client.reader(MARKS)
        await retry_forever(reader.open)
        while (rows := await next_rows(reader, 1.0)) is not None:
            for _, _, event, _ in rows:
                mark = watermarks.decode(event)
                cut = {segment.packed: offset for segment, (_, offset) in mark.positions.items()}
                self.history.marks.append(Mark(mark.lower, mark.upper, cut, now()))
                self.cluster.trace.probe("watermark")


__all__ = ["MARKS", "STREAM", "EventTimeActors"]
