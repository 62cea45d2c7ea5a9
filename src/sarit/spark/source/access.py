"""The connector's interfaces to streams, by which planning is tested without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.client.streams.watermarks import Watermark
    from sarit.core.cuts import StreamCut
    from sarit.core.keyspace import KeyRange
    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.position import Position, SegmentState


T = TypeVar("T")


class StreamAccess(Protocol):
    """One stream, for a driver or a task.  Calls block; they raise errors of `core.errors`."""

    stream: StreamName

    def cut(self, which: str) -> Position:
        """Return the position that a value of option `start` or `end` means now (`starts.py`)."""

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Return the states of segments at about the same moment, without those of deleted segments."""

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """Return the successors of a segment, each with all of its predecessors."""

    def creation_id(self) -> bytes | None:
        """Return the id that distinguishes the stream from others of its name; None: the server lacks the call."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the stream; none if the server lacks the call."""

    def epochs(self) -> Sequence[Mapping[SegmentId, KeyRange]]:
        """Return the segments of each epoch with their parts of the key space, from the oldest that holds data."""

    def cut_at(self, time_ms: int) -> Position:
        """Return a position recorded by the node: every event appended at or after `time_ms` is behind it."""

    def marks(self) -> Sequence[tuple[int, Position]]:
        """Return the stream's watermarks as (upper bound in ms, position), oldest first: no event before the position
        has a later time."""

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the events between two byte offsets, as (events binary, offsets int64)."""

    def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        """Return event boundaries that the store knows strictly between two offsets, about `step_bytes` apart."""

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Return where the events between two boundaries end, as far as a read of at most `max_bytes` shows."""

    def watermarks(self, after: StreamCut | None) -> tuple[list[Watermark], StreamCut | None]:
        """Return the watermarks after those of an earlier call, oldest first, and the argument for the next call."""

    def close(self) -> None:
        """Release the connections."""


class SourceAccess(Protocol):
    """The streams of one query, for its driver.  Calls block; they raise errors of `core.errors`."""

    def stream(self, name: StreamName) -> StreamAccess:
        """Return access to a stream, without any request to the server.  `close` of this object releases it."""

    def list_streams(self, scope: str) -> Iterable[StreamName]:
        """Return the streams of a scope."""

    def publish(self, group: str, position: Mapping[StreamName, Position]) -> None:
        """Set the position of a reader group ("scope/group") without readers, which is created if it does not exist."""

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls concurrently.  Returns their results, in order.  Raises the first error after all have ended."""

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""

    def close(self) -> None:
        """Release the connections."""
