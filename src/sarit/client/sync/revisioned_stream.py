"""A revisioned stream: entries appended on the condition that no other entry came between.

A stream of one segment, in the layout of Pravega's Java client, so that both can use one stream at once
(client_behaviour.md par. 5; Pravega `RevisionedStreamClientImpl`, `ConditionalOutputStreamImpl`):

    entry     0 int32, length int32, value; stored as an event is
    revision  the offset after an entry: everything written up to there.  The next entry begins there
    mark      one attribute of the segment that holds an offset, changed by compare-and-set

Theory of operation.  Every writer has an id of its own and numbers its attempts 1, 2, 3 ...; the store keeps the last
number that succeeded *with* the data.  A conditional append is refused (`ConditionalCheckFailed`) unless the segment
is exactly as long as expected; a refusal does not change the number.  When the connection is lost before the reply,
the writer asks (SetupAppend, which waits for appends in flight): the number of the attempt or above says that it
succeeded, a lower one that it did not and will not, so that it can be tried again.  An attempt is therefore done
once or not at all, and its outcome is known unless the retry timeout ends first (Unavailable: it may be either).
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sarit.client.core.connection import APPENDS, Connection
from sarit.client.core.iteration import Items, Pulled
from sarit.client.core.replies import error_of, expect
from sarit.client.core.segments import ask_store, segment_info, truncate_segment
from sarit.client.limits import MAX_REVISIONED_ENTRY_BYTES, REVISIONED_READ_BYTES
from sarit.client.session.guard import guarded
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated, Unavailable
from sarit.core.limits import EVENT_HEADER_BYTES, NULL_ATTRIBUTE_VALUE
from sarit.core.policies import RetentionPolicy, ScalingPolicy, StreamConfig
from sarit.core.public import public
from sarit.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    ConditionalAppend,
    ConditionalCheckFailed,
    DataAppended,
    GetSegmentAttribute,
    ReadSegment,
    SegmentAttribute,
    SegmentAttributeUpdated,
    SegmentIsSealed,
    SegmentRead,
    SetupAppend,
    UpdateSegmentAttribute,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sarit.client.session.session import Backoff, Session
    from sarit.core.names import SegmentId, StreamName

MARK_ATTRIBUTE: Final = UUID("7df9a874-246c-c9d6-9397-cdd19ead68c5").bytes
_HEADER: Final = struct.Struct(">ii")


@public
@dataclass(frozen=True, slots=True, order=True)
class Revision:
    """A position in a revisioned stream.

    `offset`: bytes from the beginning of the stream to the end of the last entry that is included.  `index`: the
    update within an entry of several; 0 except in what a synchronizer passes to `apply`.
    """

    offset: int
    index: int = 0

    def __post_init__(self) -> None:
        if self.offset < 0 or self.index < 0:
            raise Invalid(f"a revision at offset {self.offset}, index {self.index}: neither may be negative")


@guarded("session")
class RevisionedStream:
    """One stream of one segment.  Create one with `await client.coordination.revisioned("scope/stream")`.

    Writes of one object are serialized; reads are not.  Every method raises NotFound when the stream was deleted, and
    Unavailable when its store does not reply in time.
    """

    def __init__(self, session: Session, stream: StreamName, segment: SegmentId) -> None:
        self.stream = stream
        self.segment = segment
        self.session = session
        self._name = stream.segment(segment)
        self._writer_id = session.env.random.bytes(16)
        self._number = 0
        self._connection: Connection | None = None
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, session: Session, stream: StreamName) -> RevisionedStream:
        """Return the revisioned stream of that name.  Raises NotFound, Invalid (it has several segments)."""
        controller = session.controller
        active = await session.with_retry(lambda: controller.current_segments(stream))
        found = [each.segment for each in active]
        if not found:  # sealed: it can still be read
            found = list(await session.with_retry(lambda: controller.head_segments(stream)))
        if len(found) != 1:
            raise Invalid(f"{stream} has {len(found)} segments: a revisioned stream has one, and never scales")
        return cls(session, stream, found[0])

    def __repr__(self) -> str:
        return f"RevisionedStream({self.stream}, {self.session.state()})"

    # -- reading --------------------------------------------------------------------------------

    async def fetch_latest(self) -> Revision:
        """Return the revision after the newest entry."""
        return Revision((await self._info()).end_offset)

    async def oldest(self) -> Revision:
        """Return the revision the oldest entry begins at."""
        return Revision((await self._info()).start_offset)

    def read_from(self, start: Revision) -> AsyncIterator[tuple[Revision, bytes]]:
        """Return the entries after `start` as of now, each with the revision after it.

        Raises Truncated (`start` lies below the oldest entry), Invalid (it lies beyond the newest), Corrupt."""

        async def end() -> int:
            info = await self._info()
            if start.offset < info.start_offset:
                raise Truncated(f"{self._name}: offset {start.offset} was truncated", info.start_offset)
            if start.offset > info.end_offset:
                raise Invalid(f"{self._name}: offset {start.offset} lies beyond the end, {info.end_offset}")
            return int(info.end_offset)

        return Items(Pulled(_Entries(self, start, end).next))

    def read_news(self, start: Revision) -> AsyncIterator[tuple[Revision, bytes]]:
        """Read as `read_from` does, in one request instead of two, for a caller that knows of an entry after `start`.

        Waits for one when there is none.  Raises Truncated, Corrupt."""
        return Items(Pulled(_Entries(self, start, None).next))

    async def wait_beyond(self, revision: Revision) -> None:
        """Wait until there may be more than `revision`: an entry, a truncation, a seal, or some seconds have passed."""
        reply = await self._request(lambda i, name, token: ReadSegment(name, revision.offset, 1, token, i), waits=True)
        if type(reply) not in (SegmentRead, SegmentIsSealed):
            error = error_of(reply, self._name)
            if not isinstance(error, Truncated):
                raise error

    async def _read(self, offset: int, length: int) -> tuple[bytes, bool]:
        """Return at least one byte, and whether the bytes reach the tail.  The caller knows that there are some."""
        while True:
            # Its offset may be the tail: the caller may know of an entry that the store does not have yet.
            reply = await self._request(lambda i, name, token: ReadSegment(name, offset, length, token, i), waits=True)
            read = expect(reply, SegmentRead, self._name)
            if read.data:
                return bytes(read.data), read.at_tail or read.end_of_segment

    async def _info(self) -> Any:
        return await segment_info(self.session, self.stream, self.segment)

    async def _request(self, make: Callable[[int, str, str], Any], *, waits: bool = False) -> Any:
        return await ask_store(self.session, self.stream, self.segment, make, waits=waits)

    # -- writing --------------------------------------------------------------------------------

    async def write_conditionally(self, expected: Revision, value: bytes) -> Revision | None:
        """Append `value` if `expected` is the newest revision.  Returns the new revision, or None.

        Raises Invalid (too long), Sealed; Unavailable: it may have been written or not."""
        after = expected.offset + EVENT_HEADER_BYTES + len(value)
        written = await self._append(
            value, lambda number, request: ConditionalAppend(self._writer_id, number, expected.offset, value, request)
        )
        return Revision(after) if written else None

    async def write_unconditionally(self, value: bytes) -> None:
        """Append `value`.  Raises Invalid (too long), Sealed; Unavailable: it may have been written or not."""
        data = _HEADER.pack(0, len(value)) + value
        await self._append(
            value, lambda number, request: AppendBlockEnd(self._writer_id, len(data), data, 1, number, request)
        )

    async def _append(self, value: bytes, make: Callable[[int, int], Any]) -> bool:
        """Append one numbered entry.  Returns whether its condition held."""
        if len(value) > MAX_REVISIONED_ENTRY_BYTES:
            raise Invalid(f"the value has {len(value)} bytes; the maximum is {MAX_REVISIONED_ENTRY_BYTES}")
        # Before the lock: the time in which it waits for other writes counts.
        backoff = self.session.backoff().begin()
        async with self._writing:
            self._number += 1  # after a refusal, too: every number stands for one attempt
            while True:
                try:
                    return await self._attempt(self._number, make, backoff)
                except Unavailable as error:
                    self._connection = None
                    self.session.forget_endpoint(self.stream, self.segment)
                    await backoff.wait(error)
                except BaseException:  # cancelled or refused: the store must be asked for our last number again
                    self._connection = None
                    raise

    async def _attempt(self, number: int, make: Callable[[int, int], Any], backoff: Backoff) -> bool:
        connection = self._connection
        if connection is None or connection.closed:
            connection, last = await self._set_up()
            if last >= number:
                return True  # an earlier attempt was written, and its reply was lost
        # The append may wait for as long as the store is throttled.
        backoff.answered()
        reply = await connection.ask(lambda request: make(number, request), (self.stream, self.segment))
        if type(reply) is ConditionalCheckFailed:
            return False
        if type(reply) is not DataAppended:
            raise error_of(reply, self._name)
        return True

    async def _set_up(self) -> tuple[Connection, int]:
        """Return a connection on which this writer is set up, and its last number that the store has."""
        place = self.stream, self.segment
        connection, token = await self.session.connect(*place, APPENDS)
        reply = await connection.ask(lambda i: SetupAppend(i, self._writer_id, self._name, token), place)
        last: int = expect(reply, AppendSetup, self._name).last_event_number
        self._connection = connection
        return connection, last

    # -- mark and truncation ----------------------------------------------------------------------

    async def get_mark(self) -> Revision | None:
        """Return the revision of the mark, if it is set."""
        reply = await self._request(lambda i, name, token: GetSegmentAttribute(i, name, MARK_ATTRIBUTE, token))
        value = expect(reply, SegmentAttribute, self._name).value
        return None if value == NULL_ATTRIBUTE_VALUE else Revision(value)

    async def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Set the mark to `new` if it is `expected` (None: not set).  Returns whether it was."""
        requests = 0

        def make(request: int, name: str, token: str) -> UpdateSegmentAttribute:
            nonlocal requests
            requests += 1
            values = [NULL_ATTRIBUTE_VALUE if mark is None else mark.offset for mark in (new, expected)]
            return UpdateSegmentAttribute(request, name, MARK_ATTRIBUTE, values[0], values[1], token)

        reply = await self._request(make)
        if expect(reply, SegmentAttributeUpdated, self._name).success:
            return True
        # The reply to an earlier request may have been lost, and that request have set the mark.
        return requests > 1 and await self.get_mark() == new

    async def truncate(self, revision: Revision) -> None:
        """Delete the entries before `revision`; no effect when they are deleted already.  Raises Invalid."""
        info = await self._info()
        if revision.offset > info.end_offset:
            raise Invalid(f"{self._name}: offset {revision.offset} lies beyond the end, {info.end_offset}")
        try:
            await truncate_segment(self.session, self.stream, self.segment, revision.offset)
        except Truncated as error:
            # Otherwise the stream is truncated that far already, and nothing is left to do.
            if error.start_offset < revision.offset:
                raise


class _Entries:
    """The entries of a stream after a revision, in lists: up to what `end` returns, or (None) up to the tail."""

    def __init__(self, stream: RevisionedStream, start: Revision, end: Callable[[], Awaitable[int]] | None) -> None:
        self._stream = stream
        self._find_end = end
        self._end: int | None = None
        self._offset = start.offset
        self._buffered = bytearray()
        self._at_tail = False

    def __repr__(self) -> str:
        return f"_Entries(of {self._stream!r} from {self._offset} to {self._end})"

    async def next(self) -> list[tuple[Revision, bytes]] | None:
        """Read some entries.  Returns None at the end.  A cancelled call changes nothing."""
        if self._find_end is not None:
            self._end, self._find_end = await self._find_end(), None
        while True:
            found = self._parsed()
            if found:
                return found
            here, end = self._offset + len(self._buffered), self._end
            if self._offset >= end if end is not None else self._at_tail and not self._buffered:
                return None
            wanted = REVISIONED_READ_BYTES if end is None else min(REVISIONED_READ_BYTES, end - here)
            data, at_tail = await self._stream._read(here, wanted)
            # A full read may have stopped at the last byte.  To read on there would wait for a new entry.
            if end is None and not at_tail:
                end = (await self._stream._info()).end_offset
            self._buffered += data
            self._at_tail, self._end = at_tail, end

    def _parsed(self) -> list[tuple[Revision, bytes]]:
        """Take the whole entries from the buffer, up to a damaged one.  Raises Corrupt if that is the first."""
        found, at = list[tuple[Revision, bytes]](), 0
        try:
            while (length := self._entry_length(at)) is not None:
                value = bytes(self._buffered[at + EVENT_HEADER_BYTES : at + length])
                at += length
                found.append((Revision(self._offset + at), value))
        except Corrupt:
            if not found:
                raise
        del self._buffered[:at]
        self._offset += at
        return found

    def _entry_length(self, at: int) -> int | None:
        """Return the length of the entry at `at`, header included; None while it is not complete."""
        if len(self._buffered) - at < EVENT_HEADER_BYTES:
            return None
        kind, length = _HEADER.unpack_from(self._buffered, at)
        if kind != 0 or not 0 <= length <= MAX_REVISIONED_ENTRY_BYTES:
            raise Corrupt(f"{self._stream.stream}: no entry begins at offset {self._offset + at}")
        whole = EVENT_HEADER_BYTES + int(length)
        return whole if len(self._buffered) - at >= whole else None


async def open_or_create(session: Session, stream: StreamName) -> RevisionedStream:
    """Return the revisioned stream of that name, created when there is none.  Raises NotFound (scope), Invalid."""
    try:
        return await RevisionedStream.open(session, stream)
    except NotFound:
        config = StreamConfig(ScalingPolicy(min_segments=1), RetentionPolicy(), ())
        await session.with_retry(lambda: session.controller.create_stream(stream, config))
        return await RevisionedStream.open(session, stream)
