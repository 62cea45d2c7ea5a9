"""Asks the store for event boundaries near offsets, at any time; and events in pieces, in which none may be found."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from checkers import boundaries
from checkers.boundaries import Located
from sarit.core.errors import Unavailable
from sarit.wire import commands as wire
from simulation.actors.appends import Appends
from simulation.actors.links import Link
from simulation.actors.readers import segment_info, within_deadline
from simulation.events import HEAD_BYTES, body, framed
from simulation.world import now

if TYPE_CHECKING:
    import random

    from checkers.log import Violation
    from simulation.cluster import Cluster
    from simulation.events import History

_TARGETS_OF_A_SCAN = 12
_MOST_PIECES = 6


class Locators:
    """The actors, and what the store answered."""

    def __init__(self, cluster: Cluster, history: History, segments: list[str]) -> None:
        self.cluster = cluster
        self.history = history
        self.segments = segments
        self.located: list[Located] = []

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and one to be cancelled."""
        spawn, options = self.cluster.spawn, self.cluster.options
        work = [spawn(PieceWriter(self).run(), "large events")] if options.large_events else []
        return work, [spawn(self.run(), "locator")]

    async def run(self) -> None:
        """Ask now and then, until cancelled."""
        rng = self.cluster.rng("locator")
        link = Link(self.cluster, rng, "locator")
        while True:
            await asyncio.sleep(0.1 + rng.random() * 10 * self.cluster.options.think_seconds)
            try:
                await self._locate(link, rng, rng.choice(self.segments))
            except Unavailable:
                continue

    async def scan(self, name: str) -> None:
        """Ask for some offsets of each segment, when no faults are active."""
        rng = self.cluster.rng(f"locate {name}")
        link = Link(self.cluster, rng, f"locate {name}")
        for segment in self.segments:
            for _ in range(_TARGETS_OF_A_SCAN):
                await within_deadline(
                    link.retry_forever(partial(self._locate, link, rng, segment)), f"locate in {segment}, {name}"
                )
        link.drop()

    async def _locate(self, link: Link, rng: random.Random, segment: str) -> None:
        info = await segment_info(link, self.history, segment)
        target = rng.randint(info.start_offset, info.write_offset)
        answer = await link.ask(lambda request: wire.LocateOffset(request, segment, target, ""))
        if not isinstance(answer, wire.OffsetLocated):
            raise AssertionError(f"locate {target} in {segment}: {answer}")
        number = self.history.segment(segment)
        # A truncation may come in between: then the answer is above the new start.
        reach = 1 << 62 if self.cluster.options.truncations else self._reach()
        self.located.append(Located(number, target, answer.offset, info.write_offset, reach))
        self.cluster.trace.probe("offset_located")

    def _reach(self) -> int:
        """A step, and the longest append or event."""
        options = self.cluster.options
        longest = 2 * max(options.block_events, _MOST_PIECES) * (HEAD_BYTES + options.event_bytes)
        return options.boundary_step_bytes + options.inline_below_bytes + longest

    def check(self) -> list[Violation]:
        """Answers that are no event boundaries, or too far."""
        return boundaries.check(self.history.log, self.located)


class PieceWriter:
    """Appends events in pieces to transient segments, and merges these, as clients append what is too long."""

    def __init__(self, locators: Locators) -> None:
        self._history = locators.history
        self._cluster = locators.cluster
        self._segments = locators.segments
        self._rng = locators.cluster.rng("large events")
        self._link = Link(self._cluster, self._rng, "large events")

    async def run(self) -> None:
        """A drawn number of events; one that meets a lost connection is given up."""
        for _ in range(self._cluster.options.large_events):
            await asyncio.sleep(self._rng.random() * 20 * self._cluster.options.think_seconds)
            try:
                await self._one(self._rng.choice(self._segments))
            except Unavailable:
                self._cluster.trace.probe("large_event_given_up")
                self._link.drop()

    async def _one(self, target: str) -> None:
        rng, history = self._rng, self._history
        writer = history.new_writer()
        pieces = rng.randint(2, _MOST_PIECES)
        event = framed(body(writer, 1, rng.randrange(self._cluster.options.event_bytes * pieces)))
        created = await self._link.ask(
            lambda request: wire.CreateTransientSegment(request, writer.to_bytes(16, "big"), target, "")
        )
        if not isinstance(created, wire.SegmentCreated):
            raise AssertionError(f"a transient segment of {target}: {created}")
        appends = Appends(self._link, writer.to_bytes(16, "big"), created.segment)
        if await appends.set_up() is None:
            raise Unavailable("the connection was lost, and the segment with it")
        cuts = sorted(rng.sample(range(1, len(event)), pieces - 1))
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(event)], strict=True), 1):
            answer = await appends.conditional(event[begin:end], number, begin)
            if not isinstance(answer, wire.DataAppended):
                raise Unavailable(f"a piece was answered {answer}: the connection was lost, and the segment with it")
            if rng.random() < 0.3:
                # A checkpoint may come in between.
                await asyncio.sleep(rng.random() * 2 * self._cluster.options.flush_interval)
        segment = history.segment(target)
        history.log.sent(writer, 1, segment, len(event), now())
        merged = await self._link.ask(lambda request: wire.MergeSegments(request, target, created.segment, ""))
        if isinstance(merged, wire.SegmentsMerged):
            history.log.acked(writer, 1, segment, merged.new_target_write_offset, now())
            history.acked_events += 1
            self._cluster.trace.probe("large_event_merged")
