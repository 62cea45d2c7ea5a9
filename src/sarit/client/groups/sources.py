"""The segments that one reader of a group reads: fetched ahead, taken in turn.

Like `client/reader/reader.py`, but the member decides which segments there are: they are added and removed one by one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sarit.client.limits import MIN_SEGMENT_READ_BYTES, READER_BUFFER_BYTES, SEGMENT_READ_BYTES
from sarit.client.reader.cursor import EventCursor
from sarit.client.reader.fetch import SegmentFetch
from sarit.core.errors import Corrupt, NotFound, Truncated

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.groups.values import GroupSegment
    from sarit.client.session.session import Session
    from sarit.env.ports import Buffer


class Source:
    """One segment: its fetch and its parser."""

    __slots__ = ("cursor", "fetch", "queued", "segment")

    def __init__(self, segment: GroupSegment, fetch: SegmentFetch, cursor: EventCursor) -> None:
        self.segment = segment
        self.fetch = fetch
        self.cursor = cursor
        self.queued = False


class Sources:
    """`wake` is called when there may be bytes to take.  `ended`: segment -> its end, once all was taken; -1:
    deleted."""

    def __init__(self, session: Session, wake: Callable[[], None], skip_truncated: bool) -> None:
        self.ended: dict[GroupSegment, int] = {}
        self._session = session
        self._wake = wake
        self._skip_truncated = skip_truncated
        self._sources: dict[GroupSegment, Source] = {}
        # The segments there are: an ended one has no source, and still counts until it is completed or removed.
        self._limits: dict[GroupSegment, int | None] = {}
        self._ready: deque[Source] = deque()

    def __repr__(self) -> str:
        return f"Sources({len(self._sources)} open, {len(self.ended)} ended)"

    def __contains__(self, segment: GroupSegment) -> bool:
        return segment in self._limits

    def __len__(self) -> int:
        return len(self._limits)

    @property
    def segments(self) -> list[GroupSegment]:
        """All segments, ended or not."""
        return list(self._limits)

    def positions(self) -> dict[GroupSegment, int]:
        """Return the offset of each segment after what was taken and parsed."""
        sources = self._sources.copy()  # a copy: the blocking client asks from another thread
        return {segment: source.cursor.offset for segment, source in sources.items()} | self.ended

    def add(self, segment: GroupSegment, offset: int, limit: int | None) -> None:
        """Read a segment from `offset` to `limit`; a negative offset: it has ended."""
        self._limits[segment] = limit
        if offset < 0:
            self.ended[segment] = offset
            self._wake()
        else:
            self._open(segment, offset)

    def _open(self, segment: GroupSegment, offset: int) -> None:
        count = max(len(self._limits), 1)
        # Half of the reader's buffer is divided among the segments it has now.
        read_bytes = min(max(READER_BUFFER_BYTES // (2 * count), MIN_SEGMENT_READ_BYTES), SEGMENT_READ_BYTES)
        limit = self._limits[segment]
        # The offset may lie behind the end: then there is nothing to read.
        stop = None if limit is None else max(limit, offset)
        source: Source
        fetch = SegmentFetch(
            self._session, segment.stream, segment.segment, offset, stop, lambda _: self._enqueue(source), read_bytes
        )
        source = Source(segment, fetch, EventCursor(segment.segment, offset))
        self._sources[segment] = source
        fetch.start()

    def remove(self, segment: GroupSegment) -> None:
        """Stop reading a segment."""
        self._limits.pop(segment, None)
        self.ended.pop(segment, None)
        source = self._sources.pop(segment, None)
        if source is not None:
            source.fetch.close()

    def close(self) -> None:
        """Stop reading all segments."""
        for segment in self.segments:
            self.remove(segment)

    def _enqueue(self, source: Source) -> None:
        # A source that was removed may still be called back by its fetch.
        if not source.queued and self._sources.get(source.segment) is source:
            source.queued = True
            self._ready.append(source)
            self._wake()

    def consumed(self, source: Source) -> None:
        """Mark as consumed what was taken from a source last: it may have more, or have ended."""
        if source.fetch.ready or source.fetch.exhausted:
            self._enqueue(source)

    def take(self) -> tuple[Source, Buffer] | None:
        """Return the next bytes of a source that has some, or None.

        Raises Truncated (unless those are skipped), Corrupt, Unavailable."""
        while self._ready:
            source = self._ready.popleft()
            source.queued = False
            # Removed, or opened again, while it was queued.
            if self._sources.get(source.segment) is not source:
                continue
            if source.fetch.failure is not None:
                self._failed(source, source.fetch.failure)
            elif source.fetch.exhausted:
                self._finish(source)
            elif (piece := source.fetch.take()) is not None:
                return source, piece
        return None

    def _finish(self, source: Source) -> None:
        if source.cursor.partial_bytes:
            raise Corrupt(f"{source.fetch.name} ends at {source.cursor.offset} in the middle of an event")
        del self._sources[source.segment]
        source.fetch.close()
        self.ended[source.segment] = source.cursor.offset
        self._wake()

    def _failed(self, source: Source, error: Exception) -> None:
        if not isinstance(error, Truncated | NotFound):
            raise error
        start = error.start_offset if isinstance(error, Truncated) else -1
        if not self._skip_truncated:
            what = f"begins at {start} now" if start >= 0 else "is gone"
            raise Truncated(
                f"the group is at {source.cursor.offset} of {source.fetch.name}, which was truncated and {what}: "
                "reset the group to a later cut, or read with skip_truncated=True",
                start,
            )
        # A truncated segment goes on where it begins now; a deleted one has ended, and its successors follow.
        del self._sources[source.segment]
        if start >= 0:
            self._open(source.segment, start)
        else:
            self.ended[source.segment] = -1
            self._wake()
