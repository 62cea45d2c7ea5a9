"""The connector's port over the Python client: connections of a driver or a task."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sarit
from sarit.client.groups.values import Retention
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, NotFound
from sarit.env.real import RealClock
from sarit.spark.source.position import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.options import Target
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.position import Position


def connect(target: Target) -> Client:
    """A client for one driver or task.  Raises Unavailable when no controller replies in time."""
    # One time for both: to find a node at first, and to go on trying when it goes away.  Spark repeats a failed task.
    return sarit.connect(target.controller, wait=target.wait_seconds, retry_timeout=target.wait_seconds)


def first_event(options: ReadOptions) -> bytes | None:
    """The oldest event of the first stream that a read selects, None when it is empty.  Raises NotFound."""
    with connect(options.target) as client:
        for stream in options.selection.resolve(client.list_streams):
            with client.reader(stream, end="tail", skip_truncated=True) as reader:
                for event in reader:
                    return event
    return None


class ConnectedStream:
    """`StreamAccess` over a client: its own, or one that it shares and does not close."""

    def __init__(self, target: Target, stream: StreamName, client: Client | None = None) -> None:
        self.stream = stream
        self._client = client or connect(target)
        self._owned = client is None

    def cut(self, which: str) -> Position:
        """The position named "head", "tail", or by the text of a stream cut.  Raises NotFound, Invalid."""
        found = self._client.cut(self.stream, which)
        cut = found if found is not None else self._client.stream_cut_head(self.stream)
        return dict(cut.positions)

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Start, end and sealed of each; deleted segments are left out."""
        infos = self._client.segment_infos(self.stream, segments)
        return {
            segment: SegmentState(info.start_offset, info.end_offset, info.sealed) for segment, info in infos.items()
        }

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """The segments that follow, each with all of its predecessors."""
        found = self._client.successors(self.stream, segment)
        return {successor.segment: frozenset(successor.predecessors) for successor in found}

    def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        """Event boundaries strictly between two offsets, ascending."""
        return self._client.stream(self.stream).boundaries(segment, start, end, step_bytes)

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Where the events between two boundaries end, as far as a read of `max_bytes` shows."""
        return self._client.stream(self.stream).event_ends(segment, start, end, max_bytes)

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Events between two byte offsets, as (events binary, offsets int64)."""
        for batch in self._client.segment_batches(self.stream, segment, start, end):
            yield batch.column("event"), batch.column("offset")

    def close(self) -> None:
        """Release the connections, unless they are shared."""
        if self._owned:
            self._client.close()


class ConnectedSource:
    """`SourceAccess` over one client."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._client = connect(target)

    def stream(self, name: StreamName) -> ConnectedStream:
        """One stream."""
        return ConnectedStream(self._target, name, self._client)

    def list_streams(self, scope: str) -> Iterable[StreamName]:
        """The streams of a scope.  Raises NotFound."""
        return self._client.list_streams(scope)

    def publish(self, group: str, position: Mapping[StreamName, Position]) -> None:
        """Set the position of a reader group, and release what is before it to retention.

        Raises Conflict (the group has readers), Unavailable, NotFound."""
        cuts = {stream: StreamCut(stream, at) for stream, at in position.items()}
        try:
            found = self._client.reader_groups.open(group)
        except NotFound:
            # Retention retains what the group has not released.
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

    def monotonic(self) -> float:
        """Seconds, of a clock that never goes back."""
        return RealClock().monotonic()

    def close(self) -> None:
        """Release the connections."""
        self._client.close()
