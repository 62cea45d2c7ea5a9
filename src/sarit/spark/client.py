"""The connector's port over the Python client: connections of a driver or a task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import sarit
from sarit.client.groups.values import Retention
from sarit.client.streams import watermarks
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, NotFound, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import MARK_PREFIX, StreamName
from sarit.env.real import RealClock
from sarit.spark.limits import SPARK_STREAMS_AT_ONCE
from sarit.spark.source.position import SegmentState
from sarit.spark.source.starts import HEAD, TAIL, Places, resolve
from sarit.spark.worker_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.client.streams.watermarks import Watermark
    from sarit.core.names import SegmentId
    from sarit.spark.options import Target
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.position import Position

T = TypeVar("T")


def connect(target: Target) -> Client:
    """Return a client for one driver or task.  Raises Unavailable when no controller replies in time."""
    # The same time bounds the search for a node at first, and the retries when it goes away.  Spark repeats the task.
    seconds = target.wait_seconds
    try:
        return sarit.connect(
            target.controller,
            wait=seconds,
            retry_timeout=seconds,
            credentials=target.credentials,
            tls=target.tls,
        )
    except Unavailable as error:
        raise Unavailable(
            f"no controller replied at {target.controller} within {seconds} s: "
            f"check option controller, or raise option waitSeconds ({error})"
        ) from None


def first_event(options: ReadOptions) -> bytes | None:
    """Return the oldest event of the first stream that a read selects, None when it is empty.  Raises NotFound."""
    with connect(options.target) as client:
        for stream in options.selection.resolve(client.list_streams):
            with client.reader(stream, end="tail", skip_truncated=True) as reader:
                for event in reader:
                    return event
    return None


# The clients of this process for its tasks, by target.  `get` raises Unavailable when no controller replies in time.
CLIENTS: Final[PerProcess[Target, Client]] = PerProcess(connect, lambda client: client.close())


def now_ms() -> int:
    """Return the present time in ms since 1970."""
    return RealClock().wall_ms()


class ConnectedStream:
    """Implements `StreamAccess` with a client: the given one, which it does not close, or else one of its own."""

    def __init__(self, target: Target, stream: StreamName, client: Client | None = None) -> None:
        self.stream = stream
        self._client = client or connect(target)
        self._owned = client is None

    def cut(self, which: str) -> Position:
        """Return the position that a value of option `start` or `end` means.  Raises NotFound, Truncated, Invalid."""
        if which in (HEAD, TAIL):
            found = self._client.cut(self.stream, which)
            assert found is not None
            return dict(found.positions)
        return resolve(Places("start or end", which, now_ms()).of(self.stream), self)

    def creation_id(self) -> bytes | None:
        """Return the id that distinguishes the stream from others of its name.  Raises NotFound."""
        return self._client.stream(self.stream).creation_id()

    def properties(self) -> dict[str, str]:
        """Return the properties of the stream.  Raises NotFound."""
        return self._client.stream(self.stream).properties()

    def epochs(self) -> list[dict[SegmentId, KeyRange]]:
        """Return the segments of each epoch with their parts of the key space, from the oldest that holds data."""
        epochs = self._client.stream(self.stream).epochs()
        return [{found.segment: KeyRange(found.low, found.high) for found in epoch.segments} for epoch in epochs]

    def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        """Return the event boundaries strictly between two offsets, ascending, about `step_bytes` apart."""
        return self._client.stream(self.stream).boundaries(segment, start, end, step_bytes)

    def cut_at(self, time_ms: int) -> Position:
        """Return a position: every event appended at or after `time_ms` is behind it."""
        return dict(self._client.stream(self.stream).cut_at(time_ms).positions)

    def marks(self) -> list[tuple[int, Position]]:
        """Return the watermarks that writers have noted, as (upper bound in ms, position), oldest first."""
        name = StreamName(self.stream.scope, MARK_PREFIX + self.stream.stream)
        reader = self._client.reader(name, end=TAIL, skip_truncated=True)
        try:
            found = [watermarks.decode(event) for event in reader]
        except NotFound:  # a server without watermarks
            return []
        return [(mark.upper, {s: offset for s, (_, offset) in mark.positions.items()}) for mark in found]

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Return the states of segments, without those of deleted segments."""
        infos = self._client.segment_infos(self.stream, segments)
        return {
            segment: SegmentState(info.start_offset, info.end_offset, info.sealed) for segment, info in infos.items()
        }

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """Return the successors of a segment, each with all of its predecessors."""
        found = self._client.successors(self.stream, segment)
        return {successor.segment: frozenset(successor.predecessors) for successor in found}

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Return where the events between two boundaries end, as far as a read of `max_bytes` shows."""
        return self._client.stream(self.stream).event_ends(segment, start, end, max_bytes)

    def watermarks(self, after: StreamCut | None) -> tuple[list[Watermark], StreamCut | None]:
        """Return the watermarks after those of an earlier call, and the argument of the next call."""
        marks = StreamName(self.stream.scope, MARK_PREFIX + self.stream.stream)
        try:
            tail = self._client.stream_cut_tail(marks)
            if after == tail:
                return [], tail
            # Skip truncated watermarks: they are old, and later ones say more.
            with self._client.reader(marks, "head" if after is None else after, tail, skip_truncated=True) as reader:
                return [watermarks.decode(event) for event in reader], tail
        except NotFound:  # a server without watermarks
            return [], None

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the events between two byte offsets, as (events binary, offsets int64)."""
        for batch in self._client.segment_batches(self.stream, segment, start, end):
            yield batch.column("event"), batch.column("offset")

    def close(self) -> None:
        """Release the connections, unless they are shared."""
        if self._owned:
            self._client.close()


class ConnectedSource:
    """Implements `SourceAccess` with one client."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._client = connect(target)
        self._threads: ThreadPoolExecutor | None = None

    def stream(self, name: StreamName) -> ConnectedStream:
        """Return access to a stream by this client."""
        return ConnectedStream(self._target, name, self._client)

    def list_streams(self, scope: str) -> Iterable[StreamName]:
        """Return the streams of a scope.  Raises NotFound."""
        return self._client.list_streams(scope)

    def publish(self, group: str, position: Mapping[StreamName, Position]) -> None:
        """Set the position of a reader group, and release what is before it to retention.

        Raises Conflict (the group has readers), Unavailable, NotFound."""
        cuts = {stream: StreamCut(stream, at) for stream, at in position.items()}
        try:
            found = self._client.reader_groups.open(group)
        except NotFound:
            # Create the group with a subscription, so that retention keeps what the query has not read.
            found = self._client.reader_groups.create(
                group, list(cuts), start=cuts, automatic_checkpoint=None, retention="manual"
            )
        info = found.info()
        if info.readers:
            raise Conflict(f"reader group {group} has readers ({', '.join(info.readers)}): name another one")
        if {stream: dict(cut.positions) for stream, cut in cuts.items()} != dict(info.config.starts):
            wanted = replace(
                info.config, starts=dict.fromkeys(cuts), ends=dict.fromkeys(cuts), retention=Retention.MANUAL
            )
            found.reset(cuts, config=wanted)
        found.update_retention_cut(*cuts.values())

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls concurrently.  Returns their results, in order."""
        if len(calls) < 2:
            return [call() for call in calls]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SPARK_STREAMS_AT_ONCE, "sarit-streams")
        made = [self._threads.submit(call) for call in calls]
        wait(made)
        return [one.result() for one in made]

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return RealClock().monotonic()

    def close(self) -> None:
        """Release the connections."""
        if self._threads is not None:
            self._threads.shutdown()
        self._client.close()


def shared_stream(target: Target, stream: StreamName) -> ConnectedStream:
    """Return access to a stream by the client that the tasks of this process share.  Raises Unavailable."""
    return ConnectedStream(target, stream, CLIENTS.get(target))
