"""The part of the blocking client that is written by hand; the rest is generated (`tools/generate_blocking.py`).

Each class here belongs to the blocking class of its name.  `tools/blocking_manifest.py` says why each method is here.

A blocking write goes straight into the intake of the asyncio writer (`writer/writer.py`), on the caller's thread.  The
loop's thread is woken when it is idle.  The writer calls `_full` when the intake is full: then `write` itself blocks
while more than `buffer_bytes` are not acknowledged.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.client.core.typed import W
from sarit.client.limits import BYTE_WRITER_DRAIN_BYTES, FULL_BUFFER_POLL_SECONDS
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from sarit.client.aio import Client
    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.streams.byte_streams import ByteWriter
    from sarit.client.sync.synchronizer import StateSynchronizer
    from sarit.client.transactions.transaction import Transaction
    from sarit.client.writer.writer import EventWriter

S = TypeVar("S")


class ClientOverrides:
    """The end of a client and of its thread."""

    def __init__(self, thread: LoopThread, inner: Client) -> None:
        self._thread = thread
        self._inner = inner

    def close(self) -> None:
        """End all writers and readers; a writer that was not closed loses what it has not flushed."""
        if self._thread.alive:
            with suppress(Invalid):  # another thread closes it, too
                self._thread.run(self._inner.close())
            self._thread.close()


class EventWriterOverrides(Generic[W]):
    """Binds an asyncio writer to callers on other threads."""

    def __init__(self, thread: LoopThread, inner: EventWriter[W]) -> None:
        # Not the thread itself: the inner writer refers to these methods, and lives until its client ends.
        self._running = thread.running
        self._inner = inner
        self._buffer_bytes = inner.buffer_bytes
        self._space = threading.Event()
        self._woken = False
        inner.bind_foreign_thread(self._wake, self._full, self._on_dispatched)

    def write(self, event: W, key: str | None = None) -> None:
        """Write one event, with a `key` or without: `bytes`, `str` or Envelope, or a value of the writer's serializer.

        It is durable when a later `flush` returns.  Events of one key stay in order; events without a key spread over
        the segments.  The key of an Envelope is its routing key, unless `key` is given.  Blocks while more than
        `buffer_bytes` are not acknowledged.  Raises the writer's failure, if it has one; Invalid for what is no event.
        """
        self._inner.write(event, key)

    def write_many(
        self,
        events: Iterable[W] | pa.Array | pa.ChunkedArray,
        keys: Iterable[str | None] | pa.Array | pa.ChunkedArray | None = None,
    ) -> None:
        """Write a batch: a list of `bytes`, `str` or Envelopes, or an Arrow array of binary or string.

        `keys` is one key (or None) per event, as a list or an Arrow array of string; None: the keys of the Envelopes.
        A writer with a serializer takes a list of values; when one does not fit, none is written.  Blocks and raises as
        `write` does."""
        self._inner.write_many(events, keys)

    def when_durable(self, then: Callable[[], object]) -> None:
        """Have `then` called, on the client's own thread, once everything written so far is durable.

        It is never called when the writer fails before."""

        def place() -> None:
            self._inner.flush_barrier().add_done_callback(lambda done: done.cancelled() or done.exception() or then())

        self._running.call(place)

    def _wake(self) -> None:
        self._running.call(self._inner.dispatch_soon)

    def _full(self) -> None:
        """Have the full intake emptied, and block while too much is not acknowledged."""
        if not self._woken:
            self._woken = True
            self._running.call(self._inner.dispatch_soon)
        while self._over_buffer():
            self._running.check()
            self._space.clear()
            if self._over_buffer():
                self._space.wait(FULL_BUFFER_POLL_SECONDS)

    def _on_dispatched(self) -> None:
        """On the loop, after the intake was emptied."""
        self._woken = False
        if not self._over_buffer():
            self._space.set()

    def _over_buffer(self) -> bool:
        return self._inner.pending_bytes() > self._buffer_bytes and self._inner.failure is None


class TransactionOverrides(Generic[W]):
    """The writes of a transaction."""

    def __init__(self, thread: LoopThread, inner: Transaction[W]) -> None:
        self._events = EventWriterOverrides(thread, inner.events)

    def write(self, event: W, key: str | None = None) -> None:
        """Write one event; readers see it after the commit.  See `EventWriter.write`.  Raises Conflict (it ended)."""
        self._events.write(event, key)

    def write_many(
        self,
        events: Iterable[W] | pa.Array | pa.ChunkedArray,
        keys: Iterable[str | None] | pa.Array | pa.ChunkedArray | None = None,
    ) -> None:
        """Write a batch; readers see it after the commit.  See `EventWriter.write_many`; raises as `write` does."""
        self._events.write_many(events, keys)


class ByteWriterOverrides:
    """The writes of a byte stream."""

    def __init__(self, thread: LoopThread, inner: ByteWriter) -> None:
        self._thread = thread
        self._inner = inner
        self._since_drain_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; blocks while too much is not acknowledged.  Failures are raised here or by `flush`."""
        whole = bytes(data)
        self._inner.check()
        self._thread.call(lambda: self._inner.failure is None and self._inner.write(whole))
        self._since_drain_bytes += len(whole)
        if self._since_drain_bytes >= BYTE_WRITER_DRAIN_BYTES:
            self._since_drain_bytes = 0
            self._thread.run(self._inner.drain())
        return len(whole)


class StateSynchronizerOverrides(Generic[S]):
    """The fetch of a shared state."""

    def __init__(self, thread: LoopThread, inner: StateSynchronizer[S]) -> None:
        self._thread = thread
        self._inner = inner

    def fetch(self) -> S:
        """Apply what was written since; the state.  Raises Corrupt, NotFound (nobody initialised it)."""
        self._thread.run(self._inner.fetch())
        return self._inner.state
