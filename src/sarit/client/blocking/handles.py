"""One stream by name, for the blocking face: `client/streams/` and `client/reader/batch.py` behind a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.reader.batch import DEFAULT_PARALLEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.client.aio import Cut
    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.core.values import SegmentRange
    from sarit.client.reader import batch as batches
    from sarit.client.reader.pointers import EventPointer
    from sarit.client.streams import event_time as times
    from sarit.client.streams import stream as streams
    from sarit.client.streams.history import Epoch
    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId, StreamName


class Stream:
    """Make one with `client.stream("scope/stream")`; it asks nothing until it is used."""

    def __init__(self, thread: LoopThread, stream: streams.Stream) -> None:
        self._thread = thread
        self._stream = stream

    def __repr__(self) -> str:
        return f"blocking {self._stream!r}"

    @property
    def name(self) -> StreamName:
        """`scope/stream`."""
        return self._stream.name

    def segments(self) -> list[SegmentRange]:
        """The active segments by range; none when the stream is sealed.  Raises NotFound."""
        return self._thread.run(self._stream.segments())

    def epochs(self) -> list[Epoch]:
        """The generations of its segments, from the oldest that holds data to the newest.  Raises NotFound."""
        return self._thread.run(self._stream.epochs())

    def scale(self, segments: int) -> bool:
        """Go on with so many segments of equal width; False when it has them.

        Writers and readers go on meanwhile, in order per key.  Raises NotFound, Invalid, Conflict (it is sealed, or
        somebody else scaled it meanwhile)."""
        return self._thread.run(self._stream.scale(segments))

    def split(self, segment: SegmentId, into: int = 2) -> bool:
        """Replace one segment by several of equal width.  Raises NotFound, Invalid, Conflict."""
        return self._thread.run(self._stream.split(segment, into))

    def merge(self, segments: Iterable[SegmentId]) -> bool:
        """Replace neighbouring segments by one.  Raises NotFound, Invalid, Conflict."""
        return self._thread.run(self._stream.merge(segments))

    def batch(
        self,
        start: Cut = "head",
        end: Cut = "tail",
        *,
        parallel: int = DEFAULT_PARALLEL,
        skip_truncated: bool = False,
    ) -> BatchReader:
        """Everything between two cuts, `parallel` segments at once, in no order.

        Raises NotFound, Invalid, Truncated (unless `skip_truncated`)."""
        made = self._stream.batch(start, end, parallel=parallel, skip_truncated=skip_truncated)
        return BatchReader(self._thread, self._thread.run(made))

    def read_slice(self, part: batches.Slice) -> Iterator[pa.RecordBatch]:
        """One slice of a batch, which may have come from another process, as record batches.  Raises Truncated."""
        return self._thread.iterate(self._stream.read_slice(part))

    def next_cut(self, start: Cut, distance_bytes: int, *, approximate: bool = False) -> StreamCut:
        """A cut about so many bytes behind `start`; `start` itself at the tail.

        It reads what lies between to find where events begin; `approximate`: it asks the store, at no cost, for streams
        without events of more than 8 MiB.  Raises NotFound, Invalid, Truncated."""
        return self._thread.run(self._stream.next_cut(start, distance_bytes, approximate=approximate))

    def fetch_event(self, pointer: EventPointer) -> bytes:
        """One event again, by the pointer that came with it.  Raises Truncated (it is gone), Invalid, Unavailable."""
        return self._thread.run(self._stream.fetch_event(pointer))

    def time_windows(self) -> TimeWindows:
        """Which times the positions of one reader lie between."""
        return TimeWindows(self._thread, self._stream.time_windows())


class BatchReader:
    """Everything between two cuts, in no order; `slices` says what there is to read."""

    def __init__(self, thread: LoopThread, reader: batches.BatchReader) -> None:
        self.slices = reader.slices
        self._thread = thread
        self._reader = reader

    def __repr__(self) -> str:
        return f"blocking {self._reader!r}"

    @property
    def total_bytes(self) -> int:
        """How much there is to read, headers of events included."""
        return self._reader.total_bytes

    def arrow_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches (event, segment, offset); those of one segment in order.  Raises Truncated."""
        return self._thread.iterate(self._reader.arrow_batches())

    def batches(self) -> Iterator[list[bytes]]:
        """Lists of events; those of one segment in order.  Raises Truncated."""
        return self._thread.iterate(self._reader.batches())

    def __iter__(self) -> Iterator[bytes]:
        """The events one by one.  Raises Truncated."""
        for events in self.batches():
            yield from events


class TimeWindows:
    """The time windows of one reader.  Positions must not go back."""

    def __init__(self, thread: LoopThread, windows: times.TimeWindows) -> None:
        self._thread = thread
        self._windows = windows

    def __repr__(self) -> str:
        return f"blocking {self._windows!r}"

    def at(self, position: StreamCut) -> times.TimeWindow:
        """The window at a reader's `position()`.  Raises NotFound, Invalid."""
        return self._thread.run(self._windows.at(position))
