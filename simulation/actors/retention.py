"""A stream with a retention policy: written, scaled, read, released by a subscriber, and observed.

The policy limits size or time.  It may have a maximum, which ignores subscribers.  Where the wall clock jumps it limits
size: retention by time is then not guaranteed across a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from checkers import retention as checker
from checkers.retention import Head, Policy, RetentionHistory
from sarit.core.errors import NotFound, SaritError, Truncated, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy
from sarit.rpc import convert
from sarit.rpc.generated import controller_pb2 as pb
from simulation.actors.clients import (
    FRAME_BYTES,
    SCOPE,
    connect_client,
    discover_segments,
    next_rows,
    packed,
    retry_forever,
    scale_now_and_then,
)
from simulation.events import HEAD_BYTES, body, parse
from simulation.world import now

if TYPE_CHECKING:
    from checkers.graph import Cut
    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.reader.reader import EventReader
    from simulation.cluster import Cluster

STREAM: Final = StreamName(SCOPE, "kept")
GROUP: Final = "subscriber"
_GROUP_ID: Final = "11111111-2222-3333-4444-555555555555"
_MANUAL: Final = 1
_KEEP_SECONDS: Final = 3
_LEAST_BYTES: Final = 2_000
_MAXIMUM: Final = 4
_PIECES: Final = 12
_PIECES_IN_LIMIT: Final = 3
_PIECE_SECONDS: Final = 0.3
_POLL_SECONDS: Final = 0.8
_CONVERGE_SECONDS: Final = 2.0
_CONVERGE_ROUNDS: Final = 5
_SPARE: Final = 6
_KEYS: Final = 4
# About so many writers come and go, one after the other.
_ROUNDS: Final = 10


class RetentionActors:
    """All actors on the stream, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        options = cluster.options
        self.cluster = cluster
        self.on = bool(options.retention)
        self.kind = "size" if options.retention == "seconds" and options.clock_jumps else options.retention
        self.limit = max(_LEAST_BYTES, options.events * (HEAD_BYTES + options.event_bytes // 2) // 4)
        self.subscribed = self.kind == "forced" or cluster.rng("kept").random() < 0.5
        self.history = RetentionHistory(self._promise())
        self.sent: dict[tuple[int, int], float] = {}
        self._ended: set[SegmentId] = set()
        self._sequences = 0
        self._begun = asyncio.Event()
        self._converging = False
        self._releasing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<RetentionActors by {self.kind or 'nothing'}, {len(self.history.heads)} heads seen>"

    def _promise(self) -> Policy:
        if self.kind == "seconds":
            return Policy(seconds=_KEEP_SECONDS)
        return Policy(bytes=self.limit, forced=self.kind == "forced")

    def _policy(self) -> RetentionPolicy:
        if self.kind == "seconds":
            return RetentionPolicy(RetentionType.TIME, _KEEP_SECONDS * 1000)
        return RetentionPolicy(RetentionType.SIZE, self.limit, _MAXIMUM * self.limit if self.kind == "forced" else 0)

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        spawn = self.cluster.spawn
        work = [spawn(self._write(), "retention writer"), spawn(self._scale(), "retention scaler")]
        watch = [spawn(self._observe(), "retention observer"), spawn(self._read(), "retention reader")]
        return work, watch

    def check(self) -> list[Violation]:
        """All violations."""
        return checker.check(self.history)

    async def converge(self) -> None:
        """After the faults: write until the policy has truncated the stream to its limit."""
        if not self.on:
            return
        self._converging = True  # the reader releases nothing any more: its position is older than the tail
        client = await connect_client(self.cluster)
        piece = self.limit // _PIECES_IN_LIMIT
        most = self.limit * (_MAXIMUM if self.kind == "forced" else 1) + _SPARE * piece
        rounds = _MAXIMUM * _CONVERGE_ROUNDS if self.kind == "forced" else _CONVERGE_ROUNDS
        retained = -1
        for _ in range(rounds):
            for _ in range(_PIECES):
                await self._write_some(client, piece)
                await asyncio.sleep(_PIECE_SECONDS)
            if self.subscribed and self.kind != "forced":
                await self._release(client, dict((await client.stream_cut_tail(STREAM)).positions))
            await asyncio.sleep(_CONVERGE_SECONDS + (_KEEP_SECONDS if self.kind == "seconds" else 0))
            retained = await self.observe_head(client)
            if 0 <= retained <= most:
                break
        self.history.retained_at_end = (retained, most)
        if self.history.heads[-1].cut != self.history.heads[0].cut:
            self.cluster.trace.probe("retention_truncated")
        if self.subscribed and self.kind != "seconds":
            await self._release_the_rest(client)
        await client.close()

    async def _release_the_rest(self, client: Client) -> None:
        """Release all but somewhat more than the limit, and write no more: the stream must begin there.

        The released cut is in the middle of what was written at once, so rarely has the controller recorded it."""
        before = await client.stream_cut_tail(STREAM)
        await self._write_some(client, self.limit + self.limit // _PIECES_IN_LIMIT)
        released = dict((await client.stream(STREAM).next_cut(before, 1)).positions)
        await self._release(client, released)
        wanted = {segment.packed: offset for segment, offset in released.items()}
        for _ in range(_CONVERGE_ROUNDS):
            await asyncio.sleep(_CONVERGE_SECONDS)
            await self.observe_head(client)
            self.history.released_at_end = (wanted, self.history.heads[-1].cut)
            if self.history.heads[-1].cut == wanted:
                break

    # -- actors -----------------------------------------------------------------------------------

    async def _client(self) -> Client:
        client = await connect_client(self.cluster)
        segments = ScalingPolicy(min_segments=min(2, self.cluster.options.segments))
        await client.create_stream(STREAM, scaling=segments, retention=self._policy())
        return client

    async def _write(self) -> None:
        """Write the drawn number of events slowly; create the subscriber before the first."""
        client, options = await self._client(), self.cluster.options
        rng = self.cluster.rng("kept writer")
        await self.observe_head(client)
        if self.subscribed:
            await self._subscribe(client)
        self._begun.set()
        left = options.events
        while left:
            count = min(left, rng.randint(1, max(2 * options.block_events, options.events // _ROUNDS)))
            left -= count
            await self._write_some(client, count * (HEAD_BYTES + options.event_bytes // 2))
            await asyncio.sleep(rng.random() * 4 * options.think_seconds + 0.05)
        await client.close()

    async def _write_some(self, client: Client, size: int) -> None:
        """Write events of about `size` bytes in total with a new writer."""
        self._sequences += 1
        sequence, number, rng = self._sequences, 0, self.cluster.rng(f"kept {self._sequences}")
        async with client.writer(STREAM) as writer:
            while size > 0:
                number += 1
                event = body(sequence, number, rng.randrange(self.cluster.options.event_bytes))
                self.sent[sequence, number] = now()
                writer.write(event, f"key-{rng.randrange(_KEYS)}")
                size -= FRAME_BYTES + len(event)

    async def _scale(self) -> None:
        client = await self._client()
        await scale_now_and_then(self.cluster, client, STREAM, "kept", times=(0, 2, 4), pause=3, segments=(2, 3))
        await client.close()

    async def _observe(self) -> None:
        """Observe the head again and again."""
        client, rng = await self._client(), self.cluster.rng("kept watcher")
        while True:
            await asyncio.sleep(_POLL_SECONDS * 2 * rng.random())
            await self.observe_head(client)

    async def observe_head(self, client: Client) -> int:
        """Record the head; return the bytes from the head to the tail, -1 when unknown."""
        begun = now()
        while True:
            try:
                head = await client.stream_cut_head(STREAM)
                break
            except (Unavailable, NotFound):  # the stream may not be created yet
                await asyncio.sleep(0.2)
        ended, most = now(), -1
        try:
            segments = await discover_segments(client, STREAM, self.history.graph, self._ended)
            infos = await client.segment_infos(STREAM, segments)
            if all(segment in segments for segment in head.positions) and len(infos) == len(segments):
                most = sum(info.end_offset - head.positions.get(s, 0) for s, info in infos.items())
        except SaritError as error:
            self.cluster.trace.note("retention observer", repr(error))
        cut = packed(head)
        self.history.heads.append(Head(begun, ended, cut, most))
        return most

    async def _read(self) -> None:
        """Follow the stream, as the subscriber if there is one, and release the position now and then."""
        client, rng = await self._client(), self.cluster.rng("kept reader")
        await self._begun.wait()
        reader: EventReader = client.reader(STREAM, skip_truncated=not self.subscribed or self.kind == "forced")
        await retry_forever(reader.open)
        while (rows := await self._next(reader)) is not None:
            for segment, offset, event, _ in rows:
                found = parse(event)
                if found is None:
                    self.cluster.failures.append(f"retention torn: segment {segment} offset {offset}: {event[:60]!r}")
                    return
                self.history.event(segment, offset, self.sent[found])
            if self.subscribed and not self._converging and rows and rng.random() < 0.2:
                await self._release(client, dict(reader.position().positions))
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() * 4)

    async def _next(self, reader: EventReader) -> list[tuple[int, int, bytes, float]] | None:
        try:
            return await next_rows(reader, 1.0)
        except Truncated:
            if self._converging:  # the tail was released on behalf of the subscriber
                return None
            raise

    # -- the subscriber ---------------------------------------------------------------------------

    async def _subscribe(self, client: Client) -> None:
        controller = client.session.controller
        cut = await self._head(client)
        wanted = pb.ReaderGroupConfiguration(
            scope=SCOPE, readerGroupName=GROUP, readerGroupId=_GROUP_ID, retentionType=_MANUAL,
            startingStreamCuts=[convert.cut_message(STREAM, cut)],
        )  # fmt: skip
        reply = await client.session.with_retry(lambda: controller.call(controller.stub.createReaderGroup, wanted))
        assert reply.status == pb.CreateReaderGroupResponse.SUCCESS, reply
        # Until the reply nothing protected the cut: the stream may have been truncated beyond it.
        self.history.released(GROUP, await self._head(client), now())

    async def _head(self, client: Client) -> Cut:
        head = await retry_forever(lambda: client.stream_cut_head(STREAM))
        return packed(head)

    async def _release(self, client: Client, positions: dict[SegmentId, int]) -> None:
        """Release everything before a position."""
        async with self._releasing:
            await self._send_release(client, {segment.packed: offset for segment, offset in positions.items()})

    async def _send_release(self, client: Client, cut: Cut) -> None:
        self.history.released(GROUP, cut, now())
        self.cluster.trace.probe("retention_released")
        controller = client.session.controller
        request = pb.SubscriberStreamCut(
            subscriber=f"{SCOPE}/{GROUP}", generation=0, readerGroupId=_GROUP_ID,
            streamCut=convert.cut_message(STREAM, cut),
        )  # fmt: skip
        reply = await client.session.with_retry(
            lambda: controller.call(controller.stub.updateSubscriberStreamCut, request)
        )
        if reply.status != pb.UpdateSubscriberStatus.SUCCESS:
            self.cluster.failures.append(f"retention release: {reply.status} to {cut}")


__all__ = ["STREAM", "RetentionActors"]
