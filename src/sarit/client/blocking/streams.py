"""Writers and readers of the blocking face: the asyncio ones, behind a thread.

An event written goes straight into the intake of the asyncio writer (`writing/writer.py`), from whatever thread; the
loop's thread is woken when it sleeps.  When more than the bound is not acknowledged, `write` itself waits.
"""

from __future__ import annotations

import asyncio
import threading
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.client.reader.cursor import check_most
from sarit.client.streams.byte_streams import Adjoining
from sarit.core.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import pyarrow as pa

    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.reader.cursor import Events
    from sarit.client.reader.reader import EventReader as AioEventReader
    from sarit.client.streams.byte_streams import ByteReader as AioByteReader
    from sarit.client.streams.byte_streams import ByteWriter as AioByteWriter
    from sarit.client.writer.writer import EventWriter as AioEventWriter
    from sarit.core.cuts import StreamCut

T = TypeVar("T")

LOOK_AGAIN_SECONDS: Final = 1.0
DRAIN_EVERY_BYTES: Final = 4 * MIB


class EventWriter:
    """Writes events to one stream, exactly once each and in order per key; may be shared by threads.

    Make one with `client.writer(...)`; use it in a `with` block, or `close` it: that flushes.
    """

    def __init__(self, thread: LoopThread, writer: AioEventWriter, buffer_bytes: int) -> None:
        self._thread = thread
        self._writer = writer
        self._buffer_bytes = buffer_bytes
        self._space = threading.Event()
        self._called = False
        writer.bind_foreign_thread(self._wake, self._full, self._on_dispatched)
        # The same bound methods: another call per event would cost as much as the writing.
        self.write: Callable[..., None] = writer.write
        self.write_many: Callable[..., None] = writer.write_many

    def __repr__(self) -> str:
        return f"blocking {self._writer!r}"

    def flush(self) -> None:
        """Wait until everything written so far is durable.  Raises the writer's failure."""
        self._thread.run(self._writer.flush())

    def when_durable(self, then: Callable[[], object]) -> None:
        """Have `then` called, on the client's own thread, once everything written so far is durable.

        It is never called when the writer fails before."""

        def place() -> None:
            self._writer.flush_barrier().add_done_callback(lambda done: done.cancelled() or done.exception() or then())

        self._thread.call(place)

    def drain(self) -> None:
        """Wait while more than `buffer_bytes` are not acknowledged (`write` does so by itself)."""
        self._thread.run(self._writer.drain())

    def note_time(self, time: int) -> None:
        """Flush, then note that all events of this writer so far are of `time` or before, and all to come of `time` or
        later.  `time` is an integer in whatever unit the events' times are.

        Readers learn of it by watermarks (`times.py`).  Raises the writer's failure, Invalid (it goes back)."""
        self._thread.run(self._writer.note_time(time))

    def close(self) -> None:
        """Flush, then release the writer."""
        self._thread.run(self._writer.close())

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._thread.call(self._writer.abandon)

    # -- between the threads ----------------------------------------------------------------------

    def _wake(self) -> None:
        self._thread.call(self._writer.dispatch_soon)

    def _full(self) -> None:
        """The intake is full: have it emptied, and wait if too much is not acknowledged."""
        if not self._called:
            self._called = True
            self._thread.call(self._writer.dispatch_soon)
        while self._writer.pending_bytes() > self._buffer_bytes and self._writer.failure is None:
            self._thread.check()
            self._space.clear()
            if self._writer.pending_bytes() > self._buffer_bytes and self._writer.failure is None:
                self._space.wait(LOOK_AGAIN_SECONDS)

    def _on_dispatched(self) -> None:
        self._called = False
        if self._writer.pending_bytes() <= self._buffer_bytes or self._writer.failure is not None:
            self._space.set()


class EventReader:
    """Reads one stream; for one thread at a time.  Handing an event (or a batch) out counts as consuming it.

    What is found on the loop's thread is handed out on the caller's: a call that Ctrl-C ends consumes nothing."""

    def __init__(self, thread: LoopThread, reader: AioEventReader) -> None:
        self._thread = thread
        self._reader = reader

    def __repr__(self) -> str:
        return f"blocking {self._reader!r}"

    def __iter__(self) -> Iterator[bytes]:
        """The events, one by one; waits at the tail; ends at the end given, or when the stream is sealed."""
        while (events := self._thread.run(self._reader.next_events())) is not None:
            yield from events.left

    def batches(self) -> Iterator[list[bytes]]:
        """The events in lists, as they come."""
        while (events := self._thread.run(self._reader.next_events())) is not None:
            yield list(events.left)

    def next_events(self) -> Events | None:
        """Events not handed out yet (at least one), None at the end.  Hand them out through `left`."""
        return self._reader.waiting_events() or self._thread.run(self._reader.next_events())

    def read_events(self, most: int = 10_000, timeout: float | None = None) -> list[bytes]:
        """Up to `most` events, at least one; an empty list at the end, and after `timeout` seconds without any."""
        check_most(most)
        found = self._reader.waiting_events()
        if found is None:
            found = self._thread.run(_within(timeout, self._reader.next_events()))
        return [] if found is None else list(islice(found.left, most))

    def read_arrow(self, most: int | None = None, timeout: float | None = None) -> pa.RecordBatch | None:
        """Up to `most` events as a record batch (event, segment, offset); None at the end.

        After `timeout` seconds without any the batch is empty.
        """
        if most is not None:
            check_most(most)
        found = self._thread.run(_within(timeout, self._reader.next_table()))
        return None if found is False else self._reader.take_table(most)

    def arrow_batches(self, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """The events in record batches, as they come."""
        while (batch := self.read_arrow(most)) is not None:
            yield batch

    def position(self) -> StreamCut:
        """Behind the last event handed out, exactly: a reader started here goes on with the next."""
        return self._reader.position()

    @property
    def at_tail(self) -> bool:
        """Whether, at last sight, there was nothing more to read right now."""
        return self._reader.at_tail

    def close(self) -> None:
        """Stop fetching."""
        self._thread.call(self._reader.close)

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ByteWriter:
    """Appends bytes to a byte stream; `close` (or the end of a `with` block) flushes."""

    def __init__(self, thread: LoopThread, writer: AioByteWriter) -> None:
        self._thread = thread
        self._writer = writer
        self._since_drain = 0

    def __repr__(self) -> str:
        return f"blocking {self._writer!r}"

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; waits while too much is not acknowledged.  Failures come here or at `flush`."""
        whole = bytes(data)
        self._writer.check()
        self._thread.call(lambda: self._writer.failure is None and self._writer.write(whole))
        self._since_drain += len(whole)
        if self._since_drain >= DRAIN_EVERY_BYTES:
            self._since_drain = 0
            self._thread.run(self._writer.drain())
        return len(whole)

    def flush(self) -> None:
        """Wait until everything written is durable.  Raises the writer's failure."""
        self._thread.run(self._writer.flush())

    def tell(self) -> int:
        """The tail offset, behind everything written so far (flushes first)."""
        return self._thread.run(self._writer.tell())

    def head_offset(self) -> int:
        """Where the stream begins: bytes below were truncated."""
        return self._thread.run(self._writer.head_offset())

    def truncate(self, offset: int) -> None:
        """Forget the bytes below `offset`.  Raises Invalid, Truncated."""
        self._thread.run(self._writer.truncate(offset))

    def close(self) -> None:
        """Flush, then release the writer."""
        self._thread.run(self._writer.close())

    def __enter__(self) -> ByteWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._thread.call(self._writer.abandon)


class ByteReader:
    """Reads bytes of a byte stream; waits at the tail.  A read that Ctrl-C ends consumes nothing."""

    def __init__(self, thread: LoopThread, reader: AioByteReader) -> None:
        self._thread = thread
        self._reader = reader

    def __repr__(self) -> str:
        return f"blocking {self._reader!r}"

    def read(self, most: int = MIB, timeout: float | None = None) -> bytes:
        """Up to `most` bytes, at least one; none at the end of a sealed stream, or after `timeout` seconds."""
        self._thread.run(_within(timeout, self._reader.fill()))
        return self._reader.take(most)

    def read_exactly(self, count: int) -> bytes:
        """`count` bytes that follow each other; fewer only at the end of a sealed stream."""
        parts = Adjoining(self._reader, count)
        try:
            while parts.left and (part := self.read(parts.left)):
                parts.add(part)
        except BaseException:
            self.seek(parts.start)
            raise
        return parts.whole()

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._reader.tell()

    def seek(self, offset: int) -> None:
        """Go on reading at `offset`.  Raises Invalid when it is negative."""

        async def on_loop() -> None:
            self._reader.seek(offset)

        self._thread.run(on_loop())

    def head_offset(self) -> int:
        """Where the stream begins: bytes below were truncated."""
        return self._thread.run(self._reader.head_offset())

    def tail_offset(self) -> int:
        """Behind the newest byte, as of now."""
        return self._thread.run(self._reader.tail_offset())

    def close(self) -> None:
        """Stop fetching."""
        self._thread.call(self._reader.close)

    def __enter__(self) -> ByteReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _within(timeout: float | None, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        return None
