"""The whole Python client: writers, transactions and readers of a stream, through scaling and crashes.

Every event belongs to a *sequence*: one writer's events of one key (an event without a key is a sequence of its own).
It holds the numbers of its sequence and of itself.  A flush barrier of the writer acknowledges events.  Now and then a
reader is replaced by one that starts at its `position()`, and must continue exactly there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from checkers import log as log_checker
from checkers import txn as txn_checker
from checkers.log import ANY_SEGMENT, TORN, LogHistory, Violation
from checkers.stream import StreamHistory
from sarit.core.errors import Conflict, Invalid, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScaleType, ScalingPolicy
from simulation.actors.clients import FRAME_BYTES, SCOPE, connect_client, retry_forever
from simulation.actors.readers import within_deadline
from simulation.actors.stream_transactions import StreamCommitter
from simulation.events import body, parse
from simulation.world import now

if TYPE_CHECKING:
    from sarit.client.aio import Client
    from simulation.cluster import Cluster

STREAM: Final = StreamName(SCOPE, "orders")
KEYS: Final = 5
_MOST_SCALES: Final = 4
_SCALE_FACTOR: Final = 2


class Streams:
    """All actors on the stream, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log = LogHistory()
        self.stream = StreamHistory()
        self.name = STREAM
        # The transactions whose commit was requested: the events of each of their sequences.
        self.commit_requests: list[dict[int, int]] = []
        self.acked_events = 0
        self._sequences = 0
        self._readers = 0
        self._clients: list[Client] = []
        self._segments: dict[int, int] = {}

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        cluster, options = self.cluster, self.cluster.options
        if not options.stream_writers:
            return [], []
        work = [
            cluster.spawn(StreamWriter(self, number).run(), f"stream writer {number}")
            for number in range(options.stream_writers)
        ]
        work += [
            cluster.spawn(StreamCommitter(self, number).run(), f"stream transactions {number}")
            for number in range(options.stream_transactions)
        ]
        if cluster.rng("streams").random() < 0.6:
            work.append(cluster.spawn(self._scale(), "scaler"))
        watch = [
            cluster.spawn(StreamReader(self, number).run(), f"stream reader {number}")
            for number in range(options.readers)
        ]
        return work, watch

    def check(self) -> list[Violation]:
        """All violations."""
        return [
            *log_checker.check(self.log),
            *txn_checker.check(self.log, self.sizes),
            *self.stream.check(),
        ]

    @property
    def sizes(self) -> dict[int, int]:
        """The events of transactions with one sequence, which must be whole."""
        return dict(next(iter(request.items())) for request in self.commit_requests if len(request) == 1)

    @property
    def may_commit(self) -> set[int]:
        """The sequences of all transactions whose commit was requested."""
        return {sequence for request in self.commit_requests for sequence in request}

    # -- names ------------------------------------------------------------------------------------

    def new_sequence(self) -> int:
        """A new sequence number."""
        self._sequences += 1
        return self._sequences

    def new_reader(self) -> int:
        """A new reader number."""
        self._readers += 1
        return self._readers

    def segment(self, packed: int) -> int:
        """The number of a segment."""
        return self._segments.setdefault(packed, len(self._segments))

    # -- the stream -------------------------------------------------------------------------------

    async def client(self) -> Client:
        """A new client; the stream exists."""
        client = await connect_client(self.cluster)
        self._clients.append(client)
        scaling = ScalingPolicy(min_segments=self.cluster.options.segments)
        if rate := self.cluster.options.scaling_rate:
            scaling = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, rate, _SCALE_FACTOR, self.cluster.options.segments)
        await client.create_stream(STREAM, scaling=scaling)
        return client

    async def _scale(self) -> None:
        """Split and merge segments a few times."""
        client = await self.client()
        rng = self.cluster.rng("scaler")
        session = client.session
        for _ in range(rng.randint(1, _MOST_SCALES)):
            await asyncio.sleep(rng.random() * 2)
            ranges = await session.with_retry(lambda: session.controller.current_segments(STREAM))
            ranges.sort(key=lambda found: found.low)
            self.stream.active([(found.low, found.high) for found in ranges])
            if len(ranges) > 1 and rng.random() < 0.5:
                at = rng.randrange(len(ranges) - 1)
                sealed, new = ranges[at : at + 2], [(ranges[at].low, ranges[at + 1].high)]
            else:
                sealed = [rng.choice(ranges)]
                low, high = sealed[0].low, sealed[0].high
                middle = low + (high - low) * (0.2 + 0.6 * rng.random())
                new = [(low, middle), (middle, high)]
            try:
                await session.controller.start_scale(
                    STREAM, [one.segment for one in sealed], new, self.cluster.clients.env.clock.wall_ms()
                )
                self.cluster.trace.probe("scaled")
            except (Unavailable, Conflict, Invalid) as error:
                self.cluster.trace.note("scale", repr(error))
        await client.close()

    async def scan(self, name: str, *, only_found: bool = False) -> None:
        """Read all of the stream through the client, as a scan; a new client each time.

        `only_found`: its segments are those that its head leads to, not all that any reader has seen."""
        if not self.cluster.options.stream_writers:
            return
        client = await self.client()
        found = await self._learn_graph(client)
        reader = StreamReader(self, self._readers, client)
        await reader.read_to_the_tail()
        seen = [SegmentId.unpack(packed) for packed in self._segments]
        segments = [segment for segment in seen if segment in found or not only_found]
        infos = await client.segment_infos(STREAM, segments)
        for segment, info in infos.items():
            number = self.segment(segment.packed)
            self.log.scanned(reader.number, number, info.start_offset, info.end_offset)
        self.cluster.trace.note("stream scanned", name, len(infos))
        await client.close()

    async def _learn_graph(self, client: Client) -> set[SegmentId]:
        """All segments from the head on."""
        controller = client.session.controller
        current = await client.session.with_retry(lambda: controller.current_segments(STREAM))
        if current:  # else the stream is sealed, since its mirror was promoted
            self.stream.active([(found.low, found.high) for found in current])
        waiting = list(await client.session.with_retry(lambda: controller.head_segments(STREAM)))
        seen = set(waiting)
        while waiting:
            segment = waiting.pop()
            self.segment(segment.packed)
            for successor in await client.successors(STREAM, segment):
                self.stream.follows(
                    self.segment(successor.segment.packed),
                    sorted(self.segment(before.packed) for before in successor.predecessors),
                )
                if successor.segment not in seen:
                    seen.add(successor.segment)
                    waiting.append(successor.segment)
        return seen

    async def close(self) -> None:
        """End all clients."""
        for client in self._clients:
            await client.close()


class StreamWriter:
    """Writes events with and without keys; now and then it "crashes", and a new writer continues."""

    def __init__(self, streams: Streams, number: int) -> None:
        self._streams = streams
        self._options = streams.cluster.options
        self._rng = streams.cluster.rng(f"stream writer {number}")
        self._sequences: dict[str, list[int]] = {}

    async def run(self) -> None:
        """Until everything is acknowledged, or lost in a crash."""
        rng, options = self._rng, self._options
        client = await self._streams.client()
        left = options.events
        writer = client.writer(STREAM, buffer_bytes=rng.choice((2_000, 100_000)))
        while left:
            count = min(left, rng.randint(1, 2 * options.block_events))
            left -= count
            for _ in range(count):
                self._write(writer)
            self._add_barrier(writer)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 2 * options.think_seconds)
            await (writer.flush() if rng.random() < 0.1 else writer.drain())
            if options.client_crashes and not self._streams.cluster.quiet and rng.random() < 0.03:
                self._streams.cluster.trace.probe("stream_writer_crashed")
                writer.abandon()
                self._sequences.clear()
                writer = client.writer(STREAM)
        await writer.close()
        await client.close()

    def _write(self, writer: Any) -> None:
        rng, streams = self._rng, self._streams
        key = rng.choice([None, *(f"key-{n}" for n in range(KEYS))])
        sequence = (
            [streams.new_sequence(), 0] if key is None else self._sequences.get(key) or [streams.new_sequence(), 0]
        )
        sequence[1] += 1
        self._sequences[key if key is not None else f"keyless {sequence[0]}"] = sequence
        event = body(sequence[0], sequence[1], rng.randrange(self._options.event_bytes))
        streams.log.sent(sequence[0], sequence[1], ANY_SEGMENT, FRAME_BYTES + len(event), now())
        writer.write(event, key)

    def _add_barrier(self, writer: Any) -> None:
        """Everything written so far is acknowledged when the flush barrier is done."""
        written = [(sequence, number) for sequence, number in self._sequences.values()]
        for name in [name for name in self._sequences if name.startswith("keyless")]:
            del self._sequences[name]

        def passed(barrier: asyncio.Future[None]) -> None:
            if not barrier.cancelled() and barrier.exception() is None:
                for sequence, number in written:
                    self._streams.log.acked(sequence, number, ANY_SEGMENT, -1, now())
                self._streams.acked_events += len(written)
                self._streams.cluster.trace.note("acknowledged", len(written))

        writer.flush_barrier().add_done_callback(passed)


class StreamReader:
    """Reads the stream from its head with both read calls, and resumes from `position` now and then."""

    def __init__(self, streams: Streams, number: int, client: Client | None = None) -> None:
        self.number = streams.new_reader()
        self._streams = streams
        self._rng = streams.cluster.rng(f"stream reader {number}")
        self._client = client
        self._seen: set[int] = set()

    async def run(self) -> None:
        """Follow the tail, until cancelled."""
        self._client = await self._streams.client()
        reader = self._client.reader(STREAM)
        await retry_forever(reader.open)
        while await self._take(reader, 1.0):
            if self._rng.random() < 0.05:
                self._streams.cluster.trace.probe("stream_reader_resumed")
                position = reader.position()
                reader.close()
                reader = self._client.reader(STREAM, position)

    async def read_to_the_tail(self) -> None:
        """Read everything up to the tail."""
        assert self._client is not None
        reader = self._client.reader(STREAM, end="tail")
        while await within_deadline(self._take(reader, None), f"stream at {reader!r}"):
            pass
        reader.close()

    async def _take(self, reader: Any, timeout: float | None) -> bool:
        """Read once; False at the end."""
        begun = now()
        if self._rng.random() < 0.5:
            batch = await reader.read_arrow(self._rng.choice((None, 3)), timeout=timeout)
            if batch is None:
                return False
            for event, segment, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self._got(segment, offset, event, begun)
            return True
        try:
            async with asyncio.timeout(timeout):
                events = await reader.next_events()
        except Unavailable:
            raise
        except TimeoutError:
            return True
        if events is None:
            return False
        offset = events.position()
        for event in events.left:
            self._got(events.segment.packed, offset, event, begun)
            offset += FRAME_BYTES + len(event)
        return True

    def _got(self, packed: int, offset: int, event: bytes, begun: float) -> None:
        streams, segment = self._streams, self._streams.segment(packed)
        found = parse(event)
        sequence, number = (TORN, 0) if found is None else found
        fresh = segment not in self._seen
        self._seen.add(segment)
        streams.log.read(
            self.number, (segment, offset), (sequence, number, FRAME_BYTES + len(event)),
            fresh=fresh, begun=begun, ended=now(),
        )  # fmt: skip
        if found is not None:
            streams.stream.delivered(self.number, segment, sequence, number)


__all__ = ["STREAM", "Streams"]
