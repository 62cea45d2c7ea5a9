"""The port of the connector to one stream, so that planning is tested without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.position import Position, SegmentState


class StreamAccess(Protocol):
    """One stream, for a driver or a task.  Calls block; they raise the kinds of `core.errors`."""

    stream: StreamName

    def cut(self, which: str) -> Position:
        """The position named "head", "tail", or by the text of a stream cut."""

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Start, end and sealed of each, at about one moment; deleted segments are left out."""

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """The segments that follow, each with all of its predecessors."""

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Events between two byte offsets, as (events binary, offsets int64)."""

    def close(self) -> None:
        """Release the connections."""
