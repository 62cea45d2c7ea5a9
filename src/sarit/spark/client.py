"""The connector's port over the Python client: connections of a driver or a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sarit
from sarit.spark.source.position import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.options import Target
    from sarit.spark.sink.options import WriteOptions
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
    """`StreamAccess` over a client of its own."""

    def __init__(self, target: Target, stream: StreamName) -> None:
        self.stream = stream
        self._client = connect(target)

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

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Events between two byte offsets, as (events binary, offsets int64)."""
        for batch in self._client.segment_batches(self.stream, segment, start, end):
            yield batch.column("event"), batch.column("offset")

    def close(self) -> None:
        """Release the connections."""
        self._client.close()


def append(options: WriteOptions, batches: Iterator[pa.RecordBatch], *, keyed: bool) -> int:
    """Append the rows of a task; their number, once all are durable.

    The columns are `event` and, when `keyed`, `routing_key`."""
    rows = 0
    with connect(options.target) as client, client.writer(options.stream) as writer:
        for batch in batches:
            keys = batch.column("routing_key") if keyed else None
            writer.write_many(batch.column("event"), keys)
            rows += batch.num_rows
        writer.flush()
    return rows
