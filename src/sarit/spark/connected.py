"""The connector's port over the Python client: a driver's or a task's connection to one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sarit
from sarit.spark.position import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.core.names import SegmentId
    from sarit.spark.access import StreamAccess
    from sarit.spark.options import Target
    from sarit.spark.position import Position


def _client(target: Target) -> Client:
    # One time for both: to find a node at first, and to go on trying when it goes away.  Spark repeats a failed task.
    return sarit.connect(target.controller, wait=target.wait_seconds, retry_timeout=target.wait_seconds)


class ConnectedStream:
    """`StreamAccess` over a client of its own."""

    def __init__(self, target: Target) -> None:
        self._stream = target.stream
        self._client = _client(target)

    def cut(self, which: str) -> Position:
        """The position named "head", "tail", or by the text of a stream cut.  Raises NotFound, Invalid."""
        found = self._client.cut(self._stream, which)
        cut = found if found is not None else self._client.stream_cut_head(self._stream)
        return dict(cut.positions)

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Start, end and sealed of each; deleted segments are left out."""
        infos = self._client.segment_infos(self._stream, segments)
        return {
            segment: SegmentState(info.start_offset, info.end_offset, info.sealed) for segment, info in infos.items()
        }

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """The segments that follow, each with all of its predecessors."""
        found = self._client.successors(self._stream, segment)
        return {successor.segment: frozenset(successor.predecessors) for successor in found}

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Events between two byte offsets, as (events binary, offsets int64)."""
        for batch in self._client.segment_batches(self._stream, segment, start, end):
            yield batch.column("event"), batch.column("offset")

    def close(self) -> None:
        """Release the connections."""
        self._client.close()


def connect(target: Target) -> StreamAccess:
    """A connection for one driver or task.  Raises Unavailable when no controller replies in time."""
    return ConnectedStream(target)


def append(target: Target, batches: Iterator[pa.RecordBatch], *, keyed: bool) -> int:
    """Append the rows of a task; their number, once all are durable.

    The columns are `event` and, when `keyed`, `routing_key`."""
    rows = 0
    with _client(target) as client, client.writer(target.stream) as writer:
        for batch in batches:
            keys = batch.column("routing_key") if keyed else None
            writer.write_many(batch.column("event"), keys)
            rows += batch.num_rows
        writer.flush()
    return rows
