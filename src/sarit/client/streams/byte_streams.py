"""Byte streams: a stream of one segment as a plain sequence of bytes, no framing.

Written through the same segment appenders as events: a broken connection neither loses nor doubles a byte.  A byte
stream has one segment for ever, because offsets mean nothing across segments.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from sarit.client.core import segments
from sarit.client.core.deadline import Once, within
from sarit.client.core.framing import Chunk
from sarit.client.limits import MAX_BYTE_WRITER_UNACKED_BYTES, WRITE_CHUNK_BYTES
from sarit.client.reader.fetch import SegmentFetch
from sarit.client.session.guard import guarded
from sarit.client.session.parts import Hooks, Unacknowledged, warn_of_loss, watch
from sarit.client.writer.appender_driver import AppenderDriver
from sarit.client.writer.segment_appender import FlushBarrier
from sarit.core.errors import Invalid, SaritError, Sealed, Truncated
from sarit.core.limits import MIB
from sarit.env.background import shielded

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.core.values import SegmentInfo
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


async def only_segment(session: Session, stream: StreamName) -> SegmentId:
    """Return the segment of a byte stream.  Raises NotFound, Invalid when there are several."""
    found = [r.segment for r in await session.with_retry(lambda: session.controller.current_segments(stream))]
    if not found:
        found = list(await session.with_retry(lambda: session.controller.head_segments(stream)))
    if len(found) != 1:
        raise Invalid(f"{stream} has {len(found)} segments: a byte stream has one; create it with segments=1")
    return found[0]


@guarded(
    "_session",
    local=("close", "abandon", "flush"),
    unguarded=("check", "client_closed", "drain", "failed", "progressed", "sealed"),
)
class ByteWriter:
    """Appends bytes.  `write` neither blocks nor awaits; `flush` waits until all is durable."""

    def __init__(self, session: Session, stream: StreamName) -> None:
        self.stream = stream
        self.unacked_bytes = 0
        self.blocks_in_flight = 0
        self._session = session
        self._driver: AppenderDriver | None = None
        self._early: list[Chunk] = []
        self._early_bytes = 0
        self._opening: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        self._closed = False
        self._dispatch_due = False
        self._changed: asyncio.Future[None] | None = None
        session.register(self, Hooks(None, self._unacknowledged))

    def __repr__(self) -> str:
        state = self._session.state(closed=self._closed, failed=self.failure is not None)
        return f"ByteWriter({self.stream}, {state}, {self.unacked_bytes} bytes not acknowledged)"

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`.  Returns the number of bytes taken, which is all.  Raises the writer's failure."""
        self.check()
        # A copy, unless it is bytes already: the caller may reuse its buffer.
        view = memoryview(bytes(data))
        for start in range(0, len(view), WRITE_CHUNK_BYTES):
            piece = view[start : start + WRITE_CHUNK_BYTES]
            # One event per chunk: the appender numbers events.
            chunk = Chunk(piece, len(piece), 1, plain=True)
            if self._driver is None:
                self._early.append(chunk)
                self._early_bytes += chunk.length
            else:
                self._add(self._driver, chunk)
        self._dispatch_soon()
        return len(view)

    def _add(self, driver: AppenderDriver, chunk: Chunk) -> None:
        driver.appender.add(chunk)
        self.unacked_bytes += chunk.length

    async def drain(self) -> None:
        """Wait while too many bytes are not acknowledged.  Raises the writer's failure."""
        self.check()
        while self.unacked_bytes + self._early_bytes > MAX_BYTE_WRITER_UNACKED_BYTES:
            await asyncio.wait((self._change(),))
            self.check()

    async def flush(self) -> None:
        """Wait until everything written is durable.  Raises the writer's failure."""
        if self.failure is None:  # which says more
            self._session.check()
        driver = await self._open()
        if driver.appender.unacked_bytes:
            done: asyncio.Future[None] = self._session.loop.create_future()
            FlushBarrier(lambda: None if done.done() else done.set_result(None), [driver.appender])
            driver.dispatch(urgent=True)
            # A failure does not end the barrier: `_change` wakes this, and `check` raises.
            while not done.done():
                await asyncio.wait((done, self._change()), return_when=asyncio.FIRST_COMPLETED)
                self.check()

    async def tell(self) -> int:
        """Return the tail offset, after everything written so far (flushes first)."""
        await self.flush()
        return (await self._info()).end_offset

    async def head_offset(self) -> int:
        """Return the offset at which the stream begins: bytes before it were truncated."""
        return (await self._info()).start_offset

    async def truncate(self, offset: int) -> None:
        """Delete the bytes before `offset`.  Raises Invalid, Truncated."""
        segment = await only_segment(self._session, self.stream)
        await segments.truncate_segment(self._session, self.stream, segment, offset)

    async def close(self) -> None:
        """Flush, then release the writer.  Raises what `flush` raises; the writer is closed in any case."""
        if self._closed:
            return
        try:
            await self.flush()  # raises an earlier failure, too: it may not have been reported yet
        finally:
            self.abandon(quiet=True)

    def abandon(self, *, quiet: bool = False) -> None:
        """Release the writer without waiting; what is not acknowledged may or may not be stored.

        Logs how much may be lost, unless `quiet`."""
        if not (quiet or self._closed):
            warn_of_loss(self._unacknowledged())
        self._closed = True
        self._session.unregister(self)
        if self._driver is not None:
            self._driver.release()
        self._notify()

    def client_closed(self) -> None:
        """Stop, because the client is closed.  If anything may be lost, a later `close` raises Invalid."""
        if self.unacked_bytes + self._early_bytes:
            self.failed(
                Invalid(f"the client was closed before the writer of {self.stream}: some bytes may be unstored")
            )
        else:
            self.abandon(quiet=True)

    async def __aenter__(self) -> ByteWriter:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()

    def _unacknowledged(self) -> Unacknowledged:
        return Unacknowledged(self.unacked_bytes + self._early_bytes, f"bytes of {self.stream}", self.flush)

    async def _info(self) -> SegmentInfo:
        segment = await only_segment(self._session, self.stream)
        return await segments.segment_info(self._session, self.stream, segment)

    def check(self) -> None:
        """Raises the writer's failure, or Invalid when it is closed."""
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise Invalid(f"the writer of {self.stream} is closed")

    async def _open(self) -> AppenderDriver:
        self.check()
        if self._driver is None:
            self._begin()
            assert self._opening is not None
            # Shield the task, because several callers may wait for it, and a cancelled caller must not cancel it.
            await shielded(self._opening)
            self.check()
        assert self._driver is not None
        return self._driver

    def _begin(self) -> None:
        if self._opening is None:
            self._opening = self._session.background.spawn(self._find(), f"open {self.stream}")

    async def _find(self) -> None:
        try:
            segment = await only_segment(self._session, self.stream)
        except Exception as error:  # any: a flush would wait for ever
            self.failed(error)
            return
        if self._closed:
            return
        # Nothing is awaited until `_early` is empty: no later write overtakes it.
        self._driver = AppenderDriver(self._session, self.stream, segment, self)
        for chunk in self._early:
            self._add(self._driver, chunk)
        self._early.clear()
        self._early_bytes = 0
        self._dispatch()

    def _dispatch_soon(self) -> None:
        if self._driver is None:
            self._begin()
        elif not self._dispatch_due:
            self._dispatch_due = True
            self._session.loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due = False
        if self._driver is not None and not self._closed:
            self._driver.dispatch()
        self._notify()

    def _change(self) -> asyncio.Future[None]:
        """Done with the next progress or failure; shared by all that wait, so `await` it by `asyncio.wait` alone."""
        if self._changed is None or self._changed.done():
            self._changed = self._session.loop.create_future()
        return self._changed

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # -- what the driver reports ------------------------------------------------------------------

    def progressed(self, driver: AppenderDriver) -> None:
        """Schedule a dispatch, because the driver may send again."""
        self._dispatch_soon()

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """Fail, because the segment takes no more bytes, and a byte stream has no successors."""
        self.failed(Sealed(f"byte stream {self.stream} is sealed (or was scaled): it takes no more bytes"))

    def failed(self, error: BaseException) -> None:
        """Keep the first error that no retry can cure, and wake whoever waits."""
        if self.failure is None:
            self.failure = error
        self._notify()


class ContiguousParts:
    """Collects `count` contiguous bytes of a reader, again whenever the reader skips truncated bytes."""

    __slots__ = ("_parts", "_reader", "_wanted", "left", "start")

    def __init__(self, reader: ByteReader, count: int) -> None:
        self._reader = reader
        self._wanted = count
        self._parts: list[bytes] = []
        self.left = count
        self.start = reader.tell()

    def add(self, part: bytes) -> None:
        """Add a part that the reader has just handed out."""
        begin = self._reader.tell() - len(part)
        if begin != self.start + self._wanted - self.left:
            self.start, self.left = begin, self._wanted
            self._parts.clear()
        self._parts.append(part)
        self.left -= len(part)

    def whole(self) -> bytes:
        """Return all of them as one."""
        return b"".join(self._parts)


@guarded("_session", local=("tell", "seek", "close"), unguarded=("fill", "take"))
class ByteReader:
    """Reads bytes from `offset` on; waits at the tail.

    Bytes that were truncated raise Truncated; with `skip_truncated` reading continues after them, as `tell` shows."""

    def __init__(self, session: Session, stream: StreamName, offset: int = 0, *, skip_truncated: bool = False) -> None:
        self.stream = stream
        self._session = session
        self._skip_truncated = skip_truncated
        self._offset = offset
        self._only = Once(partial(only_segment, session, stream))
        self._fetch: SegmentFetch | None = None
        self._unwatch: Callable[[], object] = lambda: None
        self._piece = memoryview(b"")
        self._ended = False
        self._moved = asyncio.Event()

    def __repr__(self) -> str:
        return f"ByteReader({self.stream}, {self._session.state()}, at {self._offset})"

    async def read(self, most: int = MIB, timeout: float | None = None) -> bytes:
        """Return up to `most` bytes, at least one; none (`b""`) after `timeout` seconds without any, or at the end
        (`at_end`)."""
        await within(timeout, self.fill())
        return self.take(most)

    def take(self, most: int) -> bytes:
        """Hand out up to `most` of the bytes that are at hand (`fill`)."""
        data = bytes(self._piece[:most])
        self._piece = self._piece[most:]
        self._offset += len(data)
        return data

    async def read_exactly(self, count: int) -> bytes:
        """`count` contiguous bytes; fewer only at the end of a sealed stream.

        A call that fails or is cancelled consumes nothing."""
        parts = ContiguousParts(self, count)
        try:
            while parts.left and (part := await self.read(parts.left)):
                parts.add(part)
        except BaseException:
            self.seek(parts.start)
            raise
        return parts.whole()

    @property
    def at_end(self) -> bool:
        """Whether a read has come to the end of a sealed stream."""
        return self._ended

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._offset

    def seek(self, offset: int) -> None:
        """Continue reading at `offset`.  Raises Invalid when it is negative."""
        if offset < 0:
            raise Invalid(f"cannot seek to {offset}")
        ahead = offset - self._offset
        if 0 <= ahead <= len(self._piece):
            self._piece = self._piece[ahead:]
        else:
            self._piece = memoryview(b"")
            self.close()
        self._offset = offset
        self._ended = False

    async def head_offset(self) -> int:
        """Return the offset at which the stream begins: bytes before it were truncated."""
        return (await self._info()).start_offset

    async def tail_offset(self) -> int:
        """Return the offset after the newest byte, as of now."""
        return (await self._info()).end_offset

    def close(self) -> None:
        """Stop fetching; a later read starts it again."""
        self._unwatch()
        if self._fetch is not None:
            self._fetch.close()
            self._fetch = None

    async def __aenter__(self) -> ByteReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _info(self) -> SegmentInfo:
        return await segments.segment_info(self._session, self.stream, await self._only.get())

    async def fill(self) -> None:
        """Have bytes at hand, unless at the end.  Raises Truncated, NotFound."""
        if len(self._piece):
            return
        while True:
            fetch = await self._fetching()
            piece = fetch.take()
            if piece is not None:
                self._piece = memoryview(piece)
                return
            if fetch.failure is not None:
                self._fetch = None
                if not (self._skip_truncated and isinstance(fetch.failure, Truncated)):
                    raise fetch.failure
                self._offset = fetch.failure.start_offset
                continue
            if fetch.exhausted:
                self._ended = True
                return
            # No await since `take`: no notification is missed.
            self._moved.clear()
            await self._moved.wait()

    async def _fetching(self) -> SegmentFetch:
        if self._fetch is None:
            segment, moved = await self._only.get(), self._moved
            fetch = SegmentFetch(self._session, self.stream, segment, self._offset, None, lambda _: moved.set())
            self._fetch, self._unwatch = fetch, watch(self, self._session, f"a reader of {self.stream}", fetch.close)
            fetch.start()
        return self._fetch
