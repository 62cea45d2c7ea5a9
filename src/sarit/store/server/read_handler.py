"""Answers ReadSegment: at once from memory, in a task from chunks, or later at the tail.

Theory of operation.  A read whose bytes are in memory is answered in the same turn of the loop.  A read that needs
chunks runs as a task, which acquires a slot of the connection's reply semaphore before it reads anything: bytes that
are read for a client that takes no replies would stay in memory.

A read at the tail of an open segment is parked: it waits in `Segment.waiters` until bytes are appended, the segment is
sealed or deleted, or PARKED_READ_SECONDS have passed.  Then it is answered, in the last case with an empty reply,
which is legal: without one a client with a time-out of 30 s would drop the connection.  A read whose token has expired
meanwhile also gets an empty reply: the client asks again, with a new token.
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
    """A read that waits at the tail; the segment calls it once, when it has more bytes or will never have any."""

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
        # Parked reads in order of their deadlines, with one timer for all: a reader that follows the tail parks after
        # each answer, and hardly ever for long.
        self._parked: OrderedDict[_Parked, None] = OrderedDict()
        self._timer_set = False

    def read(self, command: wire.ReadSegment) -> None:
        """Answer a read at once if the bytes are in memory, else in a task."""
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
            # Use a task if the segment must be loaded, its creation is not durable, or the client takes no replies.
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
            # Park without an await since the read found nothing: an append in between would wake nobody.
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
            # Answer without bytes, as at the tail: the client asks again, and waits again.
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
                # Find the segment after the wait, during which it may have been evicted.
                segment = await reads.find(command.segment)
                # Try memory again, since the wait for the slot may have been long.
                result = reads.from_memory(segment, command.offset, _limit(command))
                if result is None:
                    clock = self._store.env.clock
                    began = clock.monotonic()
                    result = await reads.from_chunks(segment, command.offset, _limit(command))
                    self._statistics.reads_from_chunks += 1
                    self._statistics.read_seconds.observe(clock.monotonic() - began)
                    if self._traces is not None:
                        self._traces.chunks_read(command, began)
                    # Copy a few bytes, since a view would keep a whole block of a chunk in memory for a slow client.
                    if result.length < ZERO_COPY_READ_BYTES or len(result.parts) > 1:
                        result.parts = [b"".join(result.parts)]
                # Wait for the client only with a reply to send; an empty result is parked without an await.
                if result.length or result.end_of_segment:
                    await self._connection.wait_writable()
                # Drop the read if the connection has closed meanwhile: parked, it would keep the segment in memory.
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
        # Park a command without the token, and with the segment's own name object: there may be many parked reads.
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
        """Answer a parked read whose segment has more bytes, or will never have any."""
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
                # Remove the waiter, with which the segment would not count as idle.
                parked.segment.waiters.remove(parked)
            if not self._connection.closed:
                # Send an empty reply (at the tail, not the end of the segment), so that the client asks again.
                self._send_read(parked.command, ReadResult([], 0, True, False))

    def _unpark(self, reads: Reads, segment: Segment, command: wire.ReadSegment) -> None:
        if reads.left:
            # Send an empty reply: the client asks again, and is sent to the other store.
            self._send_read(command, ReadResult([], 0, True, False))
        elif not reads.alive:
            self._connection.close()
        # A read behind the end is refused below: its client would take the seal for the end, and go on behind it.
        elif segment.sealed and not segment.deleted and command.offset == segment.length:
            self._connection.send(encode(wire.SegmentIsSealed(command.request_id, command.segment, "", command.offset)))
        elif not self._connection.writable:
            # Wait for the client in a task: a segment that grows fast must not queue replies for a slow client.
            self._spawn_read(reads, command)
        else:
            # Catch the error of this read, which must not reach the group commit that calls this (`wake_waiters`).
            try:
                self._read_segment(reads, segment, command)
            except SaritError as error:
                self._refuse_later(reads, command, error)

    def _refuse_later(self, reads: Reads, command: wire.ReadSegment, error: SaritError) -> None:
        """Refuse a read: at once if no other store can own the container, else after a proof of that."""
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
    # Read at least the 8 bytes of an event's header: a client may suggest 0 or less, which would never bring bytes.
    return min(MAX_READ_BYTES, max(8, command.suggested_length))
