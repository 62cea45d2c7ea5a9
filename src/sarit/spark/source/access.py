"""The ports of the connector to streams, so that planning is tested without a store."""

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
    """One stream, for a driver or a task.  Calls block; they raise the kinds of `core.errors`."""

    stream: StreamName

    def cut(self, which: str) -> Position:
        """Return the position that a value of the options `start` and `end` means, as of now (`starts.py`)."""

    def states(self, segments: Iterable[SegmentId]) -> dict[SegmentId, SegmentState]:
        """Start, end and sealed of each, at about one moment; deleted segments are left out."""

    def successors(self, segment: SegmentId) -> dict[SegmentId, frozenset[SegmentId]]:
        """Return the segments that follow, each with all of its predecessors."""

    def creation_id(self) -> bytes | None:
        """Return the id that distinguishes the stream from others of its name; None from a server that has no such
        call."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the stream; none from a server that has no such call."""

    def epochs(self) -> Sequence[Mapping[SegmentId, KeyRange]]:
        """Return the segments of each epoch with their parts of the key space, from the oldest that holds data."""

    def cut_at(self, time_ms: int) -> Position:
        """Return a position that every event appended at or after a time is behind, by the node's record."""

    def marks(self) -> Sequence[tuple[int, Position]]:
        """Return the watermarks that writers have noted, oldest first: no event before the position is later than the
        time."""

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Events between two byte offsets, as (events binary, offsets int64)."""

    def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        """Event boundaries strictly between two offsets that the store knows, ascending, about `step_bytes` apart."""

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Return where the events between two boundaries end, as far as a read of at most `max_bytes` shows."""

    def watermarks(self, after: StreamCut | None) -> tuple[list[Watermark], StreamCut | None]:
        """Return the watermarks of the stream after those of an earlier call, oldest first, and the argument of the
        next."""

    def close(self) -> None:
        """Release the connections."""


class SourceAccess(Protocol):
    """The streams of one query, for its driver.  Calls block; they raise the kinds of `core.errors`."""

    def stream(self, name: StreamName) -> StreamAccess:
        """Return access to one stream; nothing is asked yet.  It is released with the others."""

    def list_streams(self, scope: str) -> Iterable[StreamName]:
        """Return the streams of a scope."""

    def publish(self, group: str, position: Mapping[StreamName, Position]) -> None:
        """Set the position of a reader group ("scope/group") that has no readers; it is created when there is none."""

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of calls of its streams, made at the same time.  All have ended when the first error is
        raised,
        in their order."""

    def monotonic(self) -> float:
        """Seconds, of a clock that never goes back."""

    def close(self) -> None:
        """Release the connections."""
