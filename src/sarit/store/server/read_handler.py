"""Answers ReadSegment: at once from memory, in a task from chunks, or later at the tail.

Theory of operation.  A read whose bytes are in memory is answered in the same turn of the loop.  One that needs chunks
runs as a task, which acquires a slot of the connection's reply semaphore before it reads anything: what is read for a
client that takes no replies would stay in memory.

A read at the tail of an open segment is parked: it waits in `Segment.waiters` until bytes are appended, the segment is
sealed or deleted, or PARKED_READ_SECONDS have passed.  Then it is answered, in the last case with an empty reply,
which is legal: without one a client with a time-out of 30 s would drop the connection.  The same reply goes to a read
whose token has expired by the time it is woken: the client asks again, with a token that says whether it may.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Corrupt, SaritError
from sarit.store.container.reads import ReadResult
from sarit.store.hosting.health import Opening
from sarit.store.limits import (
    CHUNK_READ_MEMORY_BYTES,
    MAX_PARKED_READS_PER_CONNECTION,
    MAX_READ_BYTES,
    MIN_READ_TIMER_SECONDS,
    PARKED_READ_SECONDS,
    REQUEST_OVERHEAD_BYTES,
    ZERO_COPY_READ_BYTES,
)
from sarit.store.server.held_requests import when_hosted
from sarit.store.server.read_traces import ReadTraces
from sarit.store.server.replies import error_reply
from sarit.wire import commands as wire
from sarit.wire.commands import encode
from sarit.wire.damage import damage_reply

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sarit.store.container.reads import Reads
    from sarit.store.container.segment import Segment
    from sarit.store.server.request_connection import RequestConnection
    from sarit.store.store import SegmentStore


class _Parked:
    """A read that waits at the tail; the segment calls it once, when it has bytes or will never have any."""

    __slots__ = ("_handler", "command", "deadline", "expires", "reads", "segment")

    def __init__(
        self, handler: ReadHandler, reads: Reads, segment: Segment, command: wire.ReadSegment, deadline: float,
        expires: float,
    ) -> None:  # fmt: skip
        self._handler = handler
        self.reads = reads
        self.segment = segment
        self.command = command
        self.deadline = deadline
        self.expires = expires

    def __call__(self) -> None:
        self._handler.wake(self)


class ReadHandler:
    """The reads of one connection."""

    def __init__(self, connection: RequestConnection, store: SegmentStore) -> None:
        self._connection = connection
        self._store = store
        self._statistics = store.statistics
        self._tenants = store.quotas
        self._traces = ReadTraces.of(store.env)
        self._loop = asyncio.get_running_loop()
        # In the order of their deadlines.  One timer for all: a reader that follows the tail parks after each answer,
        # and hardly ever for long.
        self._parked: OrderedDict[_Parked, None] = OrderedDict()
        self._timer_set = False

    def read(self, command: wire.ReadSegment) -> None:
        """Answer at once if the bytes are in memory, else in a task."""
        if self._traces is not None:
            self._traces.arrived(command)
        if self._tenants.active and self._connection.quotas.read_delay(command.segment):
            self._spawn(command, self._read_when_paid(command))
            return
        try:
            reads = self._store.reads(command.segment)
            segment = reads.in_memory(command.segment)
        except Opening:
            self._spawn(command, self._read_when_hosted(command))
            return
        except SaritError as error:
            self._refuse_read(command, error)
            return
        try:
            # The task loads the segment, waits until its creation is durable, or until the client takes replies.
            if segment is None or not segment.created or not self._connection.writable:
                self._spawn_read(reads, command)
            else:
                self._read_segment(reads, segment, command)
        except SaritError as error:
            self._refuse_later(reads, command, error)

    def _read_segment(self, reads: Reads, segment: Segment, command: wire.ReadSegment) -> None:
        result = reads.from_memory(segment, command.offset, _limit(command))
        if result is None:
            self._spawn_read(reads, command)
        else:
            self._answer(reads, segment, command, result)

    def _answer(self, reads: Reads, segment: Segment, command: wire.ReadSegment, result: ReadResult) -> None:
        if result.length or result.end_of_segment:
            self._send_read(command, result)
        else:
            # No await since the read found nothing: an append in between would have woken nobody.
            self._park(reads, segment, command)

    def _spawn_read(self, reads: Reads, command: wire.ReadSegment) -> None:
        self._spawn(command, self._read_in_task(reads, command))

    def _spawn(self, command: wire.ReadSegment, work: Coroutine[Any, Any, None]) -> None:
        size = REQUEST_OVERHEAD_BYTES + len(command.segment) + len(command.token)
        self._connection.spawn(work, size)

    async def _read_when_paid(self, command: wire.ReadSegment) -> None:
        if await self._connection.quotas.wait_to_read(command.segment):
            await self._read_when_hosted(command)
        elif not self._connection.closed:
            # Without bytes, as at the tail: the client asks again, and waits again.
            self._send_read(command, ReadResult([], 0, True, False))

    async def _read_when_hosted(self, command: wire.ReadSegment) -> None:
        async def find() -> Reads:
            return self._store.reads(command.segment)

        try:
            reads = await when_hosted(find)
        except SaritError as error:
            self._refuse_read(command, error)
        else:
            await self._read_in_task(reads, command)

    async def _read_in_task(self, reads: Reads, command: wire.ReadSegment) -> None:
        try:
            async with self._connection.reply_semaphore.slot(CHUNK_READ_MEMORY_BYTES):
                # Found after the wait: the segment may be evicted during it.
                segment = await reads.find(command.segment)
                # Again from memory first: the wait for the slot may have been long.
                result = reads.from_memory(segment, command.offset, _limit(command))
                if result is None:
                    clock = self._store.env.clock
                    began = clock.monotonic()
                    result = await reads.from_chunks(segment, command.offset, _limit(command))
                    self._statistics.reads_from_chunks += 1
                    self._statistics.read_seconds.observe(clock.monotonic() - began)
                    if self._traces is not None:
                        self._traces.chunks_read(command, began)
                    # A view of a few bytes would keep a whole block of a chunk in memory until a slow client takes it.
                    if result.length < ZERO_COPY_READ_BYTES or len(result.parts) > 1:
                        result.parts = [b"".join(result.parts)]
                # Only a reply waits for the client; an empty result is parked without an await.
                if result.length or result.end_of_segment:
                    await self._connection.wait_writable()
                # It may have closed during one of the awaits; a parked read would keep the segment in memory.
                if not self._connection.closed:
                    self._answer(reads, segment, command, result)
        except SaritError as error:
            await self._refuse_confirmed(reads, command, error)

    def _park(self, reads: Reads, segment: Segment, command: wire.ReadSegment) -> None:
        if not reads.alive:  # the container failed while the segment was loaded: nobody would wake this read
            self._unpark(reads, segment, command)
            return
        if len(self._parked) >= MAX_PARKED_READS_PER_CONNECTION:
            self._connection.close(f"has {len(self._parked)} reads waiting at the tail, which is the limit")
            return
        expires = self._connection.token_expires(command.token)
        # Without the token, and with the segment's own name object: both may be long, and parked reads are many.
        command = wire.ReadSegment(segment.name, command.offset, command.suggested_length, "", command.request_id)
        if self._traces is not None:
            self._traces.parked(command)
        parked = _Parked(self, reads, segment, command, self._loop.time() + PARKED_READ_SECONDS, expires)
        self._parked[parked] = None
        segment.waiters.append(parked)
        if not self._timer_set:
            self._timer_set = True
            self._loop.call_later(PARKED_READ_SECONDS, self._expire)

    def wake(self, parked: _Parked) -> None:
        """The segment of a parked read has bytes, or will never have any."""
        if parked in self._parked:
            del self._parked[parked]
            if self._connection.closed:
                return
            if parked.expires <= self._store.env.clock.wall_ms() / 1000:
                self._send_read(parked.command, ReadResult([], 0, True, False))
            else:
                self._unpark(parked.reads, parked.segment, parked.command)

    def _expire(self) -> None:
        """Answer the reads whose deadline has passed; drop all when the connection is closed."""
        self._timer_set = False
        now = self._loop.time()
        while self._parked:
            parked = next(iter(self._parked))
            left = parked.deadline - now
            if left > 0 and not self._connection.closed:
                self._timer_set = True
                self._loop.call_later(max(left, MIN_READ_TIMER_SECONDS), self._expire)
                return
            del self._parked[parked]
            if parked in parked.segment.waiters:
                # Otherwise the segment would call it later, and would not count as idle until then.
                parked.segment.waiters.remove(parked)
            if not self._connection.closed:
                # Empty, at the tail, not the end of the segment: the client asks again.
                self._send_read(parked.command, ReadResult([], 0, True, False))

    def _unpark(self, reads: Reads, segment: Segment, command: wire.ReadSegment) -> None:
        if reads.left:
            # At the tail, as far as this store knew: the client asks again, and is sent to the other store.
            self._send_read(command, ReadResult([], 0, True, False))
        elif not reads.alive:
            self._connection.close()
        elif segment.sealed and not segment.deleted and command.offset >= segment.length:
            self._connection.send(encode(wire.SegmentIsSealed(command.request_id, command.segment, "", command.offset)))
        elif not self._connection.writable:
            # The task waits for the client: a segment that grows fast must not queue replies for a slow client.
            self._spawn_read(reads, command)
        else:
            # Called by the group commit (`wake_waiters`): an error of this read must not reach it.
            try:
                self._read_segment(reads, segment, command)
            except SaritError as error:
                self._refuse_later(reads, command, error)

    def _refuse_later(self, reads: Reads, command: wire.ReadSegment, error: SaritError) -> None:
        """Refuse a read, at once if another store cannot have changed what the refusal rests on."""
        if reads.may_answer(error):
            self._refuse_read(command, error)
        else:
            self._spawn(command, self._refuse_confirmed(reads, command, error))

    async def _refuse_confirmed(self, reads: Reads, command: wire.ReadSegment, error: SaritError) -> None:
        try:
            if not reads.may_answer(error):
                await reads.confirm()
        except SaritError as unconfirmed:
            error = unconfirmed
        self._refuse_read(command, error)

    def _refuse_read(self, command: wire.ReadSegment, error: SaritError) -> None:
        if isinstance(error, Corrupt):
            reply: wire.Command | None = damage_reply(
                command.request_id, command.segment, str(error), self._connection.hello_version
            )
        else:
            reply = error_reply(error, command.request_id, command.segment, command.offset)
        if reply is None:
            self._connection.close(f"read {command.segment}: {error}")
        else:
            self._connection.send(encode(reply))

    def _send_read(self, command: wire.ReadSegment, result: ReadResult) -> None:
        self._statistics.reads += 1
        self._statistics.read_bytes += result.length
        if self._tenants.active:
            self._connection.quotas.sent(command.segment, result.length)
        prefix, suffix = wire.segment_read_envelope(
            command.segment, command.offset, result.at_tail, result.end_of_segment, result.length, command.request_id
        )
        self._connection.send_parts([prefix, *result.parts, suffix])
        if self._traces is not None:
            self._traces.answered(command, result.length)


def _limit(command: wire.ReadSegment) -> int:
    # 8 bytes are the header of an event.  A client may suggest 0 or less, which would never be answered with bytes.
    return min(MAX_READ_BYTES, max(8, command.suggested_length))
