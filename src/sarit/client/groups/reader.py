"""One reader of a group: the events of its segments, its checkpoints, and its position.

Invariant: what was handed out counts as consumed when the next call is made, or the reader is closed.  A block that
ends with an error has not consumed it: that event (or batch) is handed out again by whichever reader has the segment
next.

Between two events (or batches) the reader runs a round of its membership in the group (`member.py`).  So a user who
stops calling delays checkpoints, and the reader retains its segments.  A round may outlast the call's timeout when the
store is not available.  It then continues in a task of its own, which the next call awaits before it hands out
anything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, cast

from sarit.client.core.deadline import within
from sarit.client.core.iteration import Pulled
from sarit.client.core.typed import V
from sarit.client.groups import state as group_state
from sarit.client.groups.member import Member
from sarit.client.groups.position import Position
from sarit.client.groups.sources import Source, Sources
from sarit.client.groups.state import AddReader, Update
from sarit.client.groups.stream_cuts import GroupTimeWindows
from sarit.client.reader.cursor import Events, arrow_schema, check_most
from sarit.client.reader.decoding import DecodedEvents, Decoding
from sarit.client.reader.pointers import EventPointer
from sarit.client.session.guard import guarded
from sarit.client.session.parts import watch, weakly
from sarit.core.errors import Conflict, Corrupt, Invalid, SaritError
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import StreamName
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import pyarrow as pa

    from sarit.client.groups.shared_state import SharedState
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment, Offsets, Ranges
    from sarit.client.session.session import Session
    from sarit.client.streams.event_time import TimeWindow


@public
class GroupEvent(Generic[V]):
    """An event, its offset, and the position of its reader after it."""

    __slots__ = ("_decoded", "_offsets_before", "_ranges", "event", "offset", "segment")
    _decoded: V

    def __init__(
        self, event: bytes, segment: GroupSegment, offset: int, offsets: Mapping[GroupSegment, int], ranges: Ranges
    ) -> None:
        self.event = event
        self.segment = segment
        self.offset = offset
        self._offsets_before = offsets
        self._ranges = ranges

    def __repr__(self) -> str:
        return f"GroupEvent({len(self.event)} bytes at {self.offset} of {self.segment})"

    @property
    def value(self) -> V:
        """The event as the reader's deserializer decoded it; its bytes without a deserializer."""
        # Readers of bytes never set `_decoded`, so that an event costs them nothing more.
        return cast("V", getattr(self, "_decoded", self.event))

    @property
    def position(self) -> Position:
        """The position after this event: store it together with the result of processing the event."""
        after = self.offset + EVENT_HEADER_BYTES + len(self.event)
        return Position({**self._offsets_before, self.segment: after}, self._ranges)

    @property
    def pointer(self) -> EventPointer:
        """The pointer with which `client.stream(...).fetch_event` fetches the event again."""
        return EventPointer(*self.segment, self.offset, EVENT_HEADER_BYTES + len(self.event))


@public
@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint to pass: store the position and what belongs to it, then read on."""

    name: str
    position: Position


@public
@dataclass(frozen=True, slots=True)
class EventBatch(Generic[V]):
    """Events of one segment in order, the first at byte `offset`; `position` is after the last.

    `values`: as the reader's deserializer decoded them; the same list as `events` without a deserializer."""

    events: list[bytes]
    segment: GroupSegment
    offset: int
    position: Position
    values: list[V]


@public
@dataclass(frozen=True, slots=True)
class ArrowBatch:
    """A record batch (event, segment, offset) of one segment; `position` is after the last event."""

    events: pa.RecordBatch
    segment: GroupSegment
    position: Position


@guarded("_session", local=("position", "close"), unguarded=("client_closed",))
class GroupReader(Generic[V]):
    """Reads the segments assigned to it.  Create one with `await group.reader(name)`; for one task at a time.

    Use it as a block, which closes it.  When an error leaves the block, what was handed out last is read again.
    The reading methods raise Conflict when the reader is not in the group any more (the group was reset, or the reader
    was declared offline), Truncated when unread data was truncated, Invalid when the reader is closed."""

    def __init__(
        self,
        session: Session,
        shared: SharedState,
        name: str,
        *,
        skip_truncated: bool = False,
        death_timeout: float | None = None,
        decoding: Decoding[V] | None = None,
    ) -> None:
        self.name = name
        self._decoding = decoding
        self._session = session
        self._shared = shared
        self._sources = Sources(session, weakly(self._notify), skip_truncated)
        self._death_timeout = death_timeout
        self._member: Member | None = None
        self._unwatch: Callable[[], object] = lambda: None
        self._leaving: tuple[Member, Offsets] | None = None  # closed here, but not yet removed from the group's state
        self._current: Events | DecodedEvents[V] | None = None
        self._source: Source | None = None
        self._offsets_before: dict[GroupSegment, int] = {}
        self._event_offset = 0
        self._handed_out_offset: int | None = (
            None  # where in `_source` begins what was handed out last, while it is not done
        )
        self._wake: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._schema: Any = None
        self._windows = GroupTimeWindows(session)

    def __repr__(self) -> str:
        state = self._session.state(closed=self._member is None)
        return f"GroupReader({self._shared.name}, {self.name}, {state}, {len(self._sources)} segments)"

    async def open(self) -> GroupReader[V]:
        """Join.  Raises Conflict: a reader of that name is in the group; what binding the deserializer raises."""
        if self._decoding is not None:
            for stream in self._shared.state.config.starts:
                await self._decoding.open(stream)

        def join(state: GroupState) -> list[Update]:
            if self.name in state.assigned:
                raise Conflict(
                    f"reader {self.name} is in group {self._shared.name} already: choose another name, or declare that "
                    "one offline if it is lost"
                )
            return [AddReader(self.name)]

        await self._shared.update(join)
        self._member = Member(
            self._session,
            self._shared,
            self.name,
            self._sources,
            # Weakly: the heartbeat refers to its member, and would keep a reader that its user has dropped.
            weakly(self._positions, {}),
            weakly(self._notify),
            self._death_timeout,
        )
        self._session.register(self, weakly=True)
        heartbeat = self._session.background.spawn(self._member.heartbeat.run(), f"reader {self.name}")
        self._heartbeat_task = heartbeat
        # To the group it is then lost: it sends no more heartbeats.
        what = f"reader {self.name} of group {self._shared.name}"
        self._unwatch = watch(self, self._session, what, partial(_release, self._member, self._sources, heartbeat))
        return self

    # -- state --------------------------------------------------------------------------------------

    @property
    def segments(self) -> list[GroupSegment]:
        """The segments assigned to this reader."""
        return sorted(self._sources.segments)

    @property
    def at_end(self) -> bool:
        """Whether the whole group had read everything when its state was last fetched: up to its ends, or sealed
        streams."""
        return self._member is not None and self._member.at_end

    @property
    def skipped(self) -> int:
        """How many events were passed over because the deserializer could not decode them (`on_error`)."""
        return 0 if self._decoding is None else self._decoding.skipped

    def position(self) -> Position:
        """Return the position after the last event handed out."""
        return Position(self._positions(), self._shared.state.ranges)

    async def time_window(self, stream: StreamName | str) -> TimeWindow:
        """Return the time window of the group in one of its streams: no reader will read an event of `lower` or before.

        Readers report their positions every few seconds, so the window lags a little.  After a reader was lost, its
        last events are read again.  Raises Invalid (the group does not read the stream), Unavailable."""
        name = StreamName.parse(stream) if isinstance(stream, str) else stream
        return await self._windows.at(name, self._shared.state, self._positions())

    def _positions(self) -> dict[GroupSegment, int]:
        # A cursor is after the whole piece that was parsed last; the user may have taken a part of it.
        offsets = self._sources.positions()
        if self._current is not None and self._source is not None and self._source.segment in offsets:
            offsets[self._source.segment] = self._current.position()
        return offsets

    # -- reading ------------------------------------------------------------------------------------

    async def read(self, timeout: float | None = None) -> GroupEvent[V] | CheckpointEvent | None:
        """Return the next event, or a checkpoint; None after `timeout` seconds without one, or at the end
        (`at_end`)."""
        found = await self._next(timeout)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        if self._decoding is not None:
            return self._decoded_event(found, self._source)
        self._handed_out_offset = self._event_offset
        event = next(found.left)
        made: GroupEvent[V] = GroupEvent(
            event, self._source.segment, self._event_offset, self._offsets_before, self._shared.state.ranges
        )
        self._event_offset += EVENT_HEADER_BYTES + len(event)
        return made

    def _decoded_event(self, found: DecodedEvents[V], source: Source) -> GroupEvent[V]:
        self._handed_out_offset, event, value = found.take()
        made: GroupEvent[V] = GroupEvent(
            event, source.segment, self._handed_out_offset, self._offsets_before, self._shared.state.ranges
        )
        made._decoded = value
        return made

    async def read_batch(
        self, most: int = 10_000, timeout: float | None = None
    ) -> EventBatch[V] | CheckpointEvent | None:
        """Up to `most` events of one segment, as `read` has one.  Raises Invalid (`most` is below 1)."""
        check_most(most)
        found = await self._next(timeout)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        if self._decoding is not None:
            offset, events, values = found.take_many(most)
        else:
            offset = self._event_offset
            values = events = list(found.left) if most >= found.count_left() else list(islice(found.left, most))
        self._handed_out_offset = offset
        self._event_offset = after = found.position()
        position = Position({**self._offsets_before, self._source.segment: after}, self._shared.state.ranges)
        return EventBatch(events, self._source.segment, offset, position, values)

    async def read_arrow(self, timeout: float | None = None) -> ArrowBatch | CheckpointEvent | None:
        """Events of one segment as a record batch, as `read` has one.

        Raises Invalid (the reader has a deserializer)."""
        if self._decoding is not None:
            raise Invalid(f"reader {self.name} has a deserializer: read record batches with one that has none")
        if self._schema is None:
            self._schema = arrow_schema()
        found = await self._next(timeout, arrow=True)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        segment = self._source.segment
        if isinstance(found, Events):
            # Take the position before `table`, which counts all events as handed out.
            self._handed_out_offset = found.position()
            batch = found.table(self._schema)
            assert batch is not None
        else:
            self._handed_out_offset, batch = found.column(2)[0].as_py(), found
        return ArrowBatch(batch, segment, Position(self._positions(), self._shared.state.ranges))

    def __aiter__(self) -> AsyncIterator[GroupEvent[V]]:
        """Return the events, one by one, until everything is read.  Checkpoints are passed without being handed out."""
        return Pulled(self._next_event)

    async def _next_event(self) -> GroupEvent[V] | None:
        while isinstance(found := await self.read(), CheckpointEvent):
            pass
        return found

    async def _next(self, timeout: float | None, arrow: bool = False) -> Any:
        """Return events not handed out yet (or a record batch), a checkpoint, or None at the end or after `timeout`."""
        # A call for the next event means that the last one was processed.
        self._handed_out_offset = None
        member = self._require_member()
        clock = self._session.env.clock
        end = None if timeout is None else clock.monotonic() + timeout
        while True:
            if member.round is not None or member.due():
                checkpoint = await self._manage(member, end)
                if member.round is not None:
                    return None  # the timeout is over, the round is not
                if checkpoint is not None:
                    return CheckpointEvent(checkpoint, self.position())
            if self._current is not None and self._current.count_left():
                return self._current
            if isinstance(current := self._current, DecodedEvents) and not current.finished:
                await self._decode(current, end)
                if end is not None and clock.monotonic() >= end and not current.count_left():
                    return None
                continue
            found = self._take(arrow)
            if self._decoding is not None and found is not None:
                self._current = DecodedEvents(found)
                continue
            if found is not None:
                return found
            # Taking may have found the end of a segment, which a round completes.
            if member.due():
                continue
            # An ended segment must be completed first: it may have successors.
            if member.at_end and not self._sources.ended:
                return None
            left = member.seconds_until_due()
            if end is not None:
                now = clock.monotonic()
                if now >= end:
                    return None
                left = min(left, end - now)
            await self._wait(left)

    async def _decode(self, current: DecodedEvents[V], end: float | None) -> None:
        """Decode the next of the current events, until `end` of the clock."""
        assert self._decoding is not None
        assert self._source is not None
        left = None if end is None else max(0.0, end - self._session.env.clock.monotonic())
        await within(left, self._decoding.fill(self._source.segment.stream, current))

    def _require_member(self) -> Member:
        if self._failure is not None:
            raise self._failure
        if self._member is None:
            raise Invalid(f"reader {self.name} is not open")
        return self._member

    async def _manage(self, member: Member, end: float | None) -> str | None:
        """Run a round until `end`.  Returns the checkpoint to hand out.  A longer round continues in `member.round`."""
        task = member.round
        if task is None:
            task = self._session.background.spawn(_outcome(member.manage), f"round of reader {self.name}")
            member.round = task
        left = None if end is None else max(0.0, end - self._session.env.clock.monotonic())
        # `asyncio.wait` leaves the task running at a timeout or cancellation: no round ends in the middle.
        await asyncio.wait((task,), timeout=left)
        if not task.done():
            return None
        member.round = None
        if task.cancelled():  # the reader or its client was closed meanwhile: raise that
            self._require_member()
        checkpoint = task.result()
        # After Conflict the reader is not in the group, so no later call can succeed.  After other errors the next call
        # begins a new round.
        if isinstance(checkpoint, Conflict):
            await self._stop(checkpoint)
        if isinstance(checkpoint, SaritError):
            raise checkpoint
        # A segment that this reader released or lost goes to another reader, from the position in the state.
        if self._source is not None and self._source.segment not in self._sources:
            self._source = self._current = None
        self._offsets_before = self._sources.positions()
        return checkpoint

    def _take(self, arrow: bool) -> Any:
        """Return the next events of any segment; None when none have come."""
        self._current = None
        source, self._source = self._source, None
        # To the end of the queue: segments take turns, a piece each.
        if source is not None:
            self._sources.consumed(source)
        try:
            while (taken := self._sources.take()) is not None:
                source, piece = taken
                found = source.cursor.table(piece, self._schema) if arrow else source.cursor.events(piece)
                if found is None:
                    self._sources.consumed(source)
                    continue
                self._source = source
                if isinstance(found, Events):
                    self._current, self._event_offset = found, found.start
                    self._offsets_before = self._sources.positions()
                return found
        except Corrupt:
            # The damaged segment is not fetched any more, but stays assigned to this reader at its position.  The
            # caller gets the error once, and the reader goes on with its other segments.
            raise
        except Exception as error:
            self._failure = error
            raise
        return None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _wait(self, seconds: float) -> None:
        # No await since the last test found nothing: no notification is lost before the future is in place.
        self._wake = self._session.loop.create_future()
        await asyncio.wait((self._wake,), timeout=seconds)

    # -- the end ------------------------------------------------------------------------------------

    async def close(self, position: Position | None = None, *, rewind: bool = False) -> None:
        """Leave the group; other readers continue at `position`, or after the last event handed out.

        Never before the reader's last checkpoint, or where it got a segment; `rewind`: at `position` all the same.
        Raises Unavailable: the reader may still be in the group, with its segments; close it again."""
        if self._member is not None:
            # Kept before anything can fail: after an error, `close` can be called again.
            self._leaving = self._member, dict((position or self.position()).offsets)
            await self._stop(Invalid(f"reader {self.name} is closed"))
            self._session.register(self, weakly=True)  # until it is removed from the group's state
        if self._leaving is None:
            return
        member, offsets = self._leaving
        if position is not None:
            offsets = dict(position.offsets)

        def leave(state: GroupState) -> list[Update]:
            # A later reader of the same name must stay.
            same = self.name in state.assigned and member.is_current(state)
            return [group_state.removal(state, self.name, offsets, rewind=rewind)] if same else []

        await self._shared.update(leave)
        self._leaving = None
        self._session.unregister(self)

    def _consumed_position(self) -> Position:
        """Return the position before what was handed out last: an error means that it was not processed."""
        offsets = self._positions()
        if self._handed_out_offset is not None and self._source is not None and self._source.segment in offsets:
            offsets[self._source.segment] = self._handed_out_offset
        return Position(offsets, self._shared.state.ranges)

    async def _stop(self, why: SaritError) -> None:
        """Stop to fetch events and to follow the group's state, which is not changed."""
        # Set the failure before the wait below, because calls that wake meanwhile must raise it.
        self._failure = why
        self._session.unregister(self)
        self._unwatch()
        self._sources.close()
        tasks: list[asyncio.Task[Any]] = [] if self._heartbeat_task is None else [self._heartbeat_task]
        self._heartbeat_task = None
        if self._member is not None:
            self._member.heartbeat.end()
            tasks += [] if self._member.round is None else [self._member.round]
            self._member = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def client_closed(self) -> None:
        """Stop without leaving the group, because the client is closed: the group counts the reader as lost."""
        self._leaving = None
        self._failure = Invalid("the client was closed")
        if self._member is not None:
            self._member.heartbeat.end()
            self._member = None
        self._sources.close()
        self._notify()

    async def __aenter__(self) -> GroupReader[V]:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        failed = (
            kind is not None and self._member is not None
        )  # a reader closed inside the block has left at its position
        await self.close(self._consumed_position() if failed else None)


def _release(member: Member, sources: Sources, heartbeat: asyncio.Task[None]) -> None:
    member.heartbeat.end()
    heartbeat.cancel()
    if member.round is not None:
        member.round.cancel()
    sources.close()


async def _outcome(work: Callable[[], Awaitable[str | None]]) -> str | SaritError | None:
    """Return the result of `work`, or its error: when no call awaits the task, an exception would be reported as
    lost."""
    try:
        return await work()
    except SaritError as error:
        return error
