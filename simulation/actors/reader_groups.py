"""A reader group on a stream that scales: readers join, crash, leave and come back under new names.

Most readers store their position with every event that they get, the others when they end.  When one is lost, another
client declares it offline at the stored position, so that every event is processed exactly once
(`checkers/delivery.py`).  Checkpoints run beside it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from checkers import delivery as checker
from checkers.delivery import Delivered, DeliveryHistory
from sarit.client.groups.reader import CheckpointEvent, EventBatch, GroupEvent
from sarit.core.errors import Conflict, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScalingPolicy
from simulation.actors.clients import (
    FRAME_BYTES,
    SCOPE,
    connect_client,
    discover_segments,
    retry_forever,
    scale_now_and_then,
)
from simulation.events import body, parse
from simulation.world import now

if TYPE_CHECKING:
    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.groups.group import ReaderGroup
    from sarit.client.groups.position import Position
    from sarit.client.groups.reader import GroupReader
    from simulation.cluster import Cluster

STREAM: Final = StreamName(SCOPE, "work")
GROUP: Final = f"{SCOPE}/team"
_KEYS: Final = 5
_ROUNDS: Final = 12
_CHECKPOINT_SECONDS: Final = 20.0
_DRAIN_SECONDS: Final = 60.0


class ReaderGroupActors:
    """All readers, the writer, and the history of deliveries."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.on = bool(cluster.options.group_readers)
        self.history = DeliveryHistory()
        self._ready = asyncio.Event()
        self._all = 0
        self.draining = False

    def __repr__(self) -> str:
        return f"<ReaderGroupActors, {len(self.history.delivered)} of {self._all} events delivered>"

    @property
    def acked_events(self) -> int:
        """Events that must be delivered."""
        return self._all

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        spawn = self.cluster.spawn
        work = [spawn(self._write(), "group writer"), spawn(self._scale(), "group scaler")]
        watch = [
            spawn(GroupMember(self, number).run(), f"group reader {number}")
            for number in range(self.cluster.options.group_readers)
        ]
        return work, [*watch, spawn(self._checkpoint(), "group checkpoints")]

    def check(self) -> list[Violation]:
        """All violations."""
        return checker.check(self.history)

    async def converge(self) -> None:
        """After the faults: wait until every event is delivered."""
        if not self.on:
            return
        self.draining = True
        until = now() + _DRAIN_SECONDS
        while len(self.history.delivered) < self._all and now() < until:  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.5)
        self.history.drained = True
        if len(self.history.delivered) < self._all:
            self.cluster.failures.append(f"liveness: {self} in {_DRAIN_SECONDS:.0f} s")
        client = await connect_client(self.cluster)
        await discover_segments(client, STREAM, self.history.graph, set[SegmentId]())
        await client.close()

    # -- actors -----------------------------------------------------------------------------------

    async def client(self) -> Client:
        """A new client; the stream exists."""
        client = await connect_client(self.cluster)
        segments = ScalingPolicy(min_segments=min(3, self.cluster.options.segments))
        await client.create_stream(STREAM, scaling=segments)
        return client

    async def group(self, client: Client) -> ReaderGroup:
        """The group, created by the first caller."""
        automatic = self.cluster.rng("team").choice((None, 1.0))
        make = partial(client.reader_groups.create, GROUP, STREAM, automatic_checkpoint=automatic)
        return await retry_forever(make)

    async def _write(self) -> None:
        client, rng, options = await self.client(), self.cluster.rng("team writer"), self.cluster.options
        await self.group(client)
        self._ready.set()
        writer, left = client.writer(STREAM), options.events
        numbers = dict.fromkeys(range(_KEYS), 0)
        while left:
            count = min(left, rng.randint(1, max(2, 2 * options.events // _ROUNDS)))
            left -= count
            for _ in range(count):
                sequence = rng.randrange(_KEYS)
                numbers[sequence] += 1
                writer.write(body(sequence, numbers[sequence], rng.randrange(options.event_bytes)), f"key-{sequence}")
            await writer.flush()
            self.history.acked.update(numbers)
            self._all = sum(numbers.values())
            await asyncio.sleep(rng.random() * 10 * options.think_seconds)
        await writer.close()
        await client.close()

    async def _scale(self) -> None:
        client = await self.client()
        await scale_now_and_then(self.cluster, client, STREAM, "team", times=(0, 2, 5), pause=3, segments=(3, 4))
        await client.close()

    async def _checkpoint(self) -> None:
        """Take checkpoints, one after the other."""
        await self._ready.wait()
        client, rng, number = await self.client(), self.cluster.rng("team checkpoints"), 0
        group = await self.group(client)
        while True:
            await asyncio.sleep(rng.random() * 4)
            number += 1
            try:
                taken = await group.checkpoint(f"checkpoint-{number}", _CHECKPOINT_SECONDS)
            except (Conflict, Unavailable) as error:
                self.cluster.trace.note("group checkpoint", repr(error))
                continue
            self.cluster.trace.probe("group_checkpoint")
            cut = taken.cuts[STREAM].positions
            self.history.cuts[taken.name] = {segment.packed: offset for segment, offset in cut.items()}

    async def ready(self) -> None:
        """Wait until there is a group."""
        await self._ready.wait()


class GroupMember:
    """A process that reads for the group; after a crash or a leave it comes back under another name."""

    def __init__(self, actors: ReaderGroupActors, number: int) -> None:
        self._actors = actors
        self._cluster = actors.cluster
        self._rng = actors.cluster.rng(f"team reader {number}")
        self._number = number
        self._pauses = self._rng.choice((0.05, 0.05, 0.5))
        self._stores_with_events = self._rng.random() < 0.7
        self._lives = 0

    async def run(self) -> None:
        """Until cancelled."""
        await self._actors.ready()
        while True:
            client = await self._actors.client()
            group = await self._actors.group(client)
            self._lives += 1
            name = f"reader-{self._number}-{self._lives}"
            try:
                reader = await group.reader(name)
            except (Unavailable, Conflict):  # it may have joined: nobody will read under this name
                await retry_forever(partial(group.reader_offline, name))
                await client.close()
                continue
            stored = await self._read(reader)
            # That of its last event may be older: segments have come and gone since.
            position = stored if self._stores_with_events else reader.position()
            if self._rng.random() < 0.5:
                self._cluster.trace.probe("group_reader_left")
                try:
                    await reader.close(position)
                except Unavailable as error:
                    self._cluster.trace.note("group reader", name, repr(error))
            else:
                self._cluster.trace.probe("group_reader_crashed")
            await client.close()
            await self._replace(name, position)

    async def _replace(self, name: str, position: Any) -> None:
        """Declare a reader offline at a position, so that others continue there."""
        client = await self._actors.client()
        group = await self._actors.group(client)
        await retry_forever(partial(group.reader_offline, name, position))
        await client.close()

    async def _read(self, reader: GroupReader) -> Position:
        """Read some events, or all while draining; each counts as processed when it is delivered.  The position stored
        with the last one."""
        stored = reader.position()
        while self._actors.draining or self._rng.random() > 0.03:
            try:
                found = await self._next(reader)
            except Unavailable as error:  # read again with the same reader, or end the process
                self._cluster.trace.note("group reader", reader.name, repr(error))
                self._cluster.trace.probe("group_read_unavailable")
                if self._rng.random() < 0.5:
                    continue
                return stored
            if isinstance(found, GroupEvent | EventBatch):
                stored = found.position
            if isinstance(found, CheckpointEvent):
                self._actors.history.met(reader.name, found.name)
            elif isinstance(found, GroupEvent):
                self._got(reader, found.segment.segment, found.offset, [found.event])
            elif isinstance(found, EventBatch):
                self._got(reader, found.segment.segment, found.offset, found.events)
            if self._rng.random() < self._pauses and not self._actors.draining:
                await asyncio.sleep(self._rng.random())
        return stored

    async def _next(self, reader: GroupReader) -> GroupEvent | EventBatch | CheckpointEvent | None:
        if self._rng.random() < 0.5:
            return await reader.read(0.5)
        return await reader.read_batch(self._rng.choice((1, 5, 1000)), 0.5)

    def _got(self, reader: GroupReader, segment: SegmentId, offset: int, events: list[bytes]) -> None:
        for event in events:
            found = parse(event)
            if found is None:
                self._cluster.failures.append(f"reader group torn: segment {segment} offset {offset}: {event[:60]!r}")
                return
            self._actors.history.delivered.append(Delivered(reader.name, segment.packed, offset, *found))
            offset += FRAME_BYTES + len(event)


__all__ = ["GROUP", "STREAM", "ReaderGroupActors"]
