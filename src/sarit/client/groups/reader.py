"""One reader of a group: events of the segments it owns, checkpoints, and its position.

Whatever is handed out counts as consumed when the next thing is asked for, or the reader is closed.  A block that an
error leaves has not consumed it: that event (or batch) comes again, to whoever reads the segment next.  Between two
events (or batches) the reader does its part in the group (`member.py`), so a user who stops asking holds up checkpoints
and keeps its segments.  When the store is away that takes longer than a time-out allows: it goes on in a task of its
own then, which the next call waits for before it hands out anything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from sarit.client.groups.member import Member
from sarit.client.groups.position import Position
from sarit.client.groups.sources import Source, Sources
from sarit.client.groups.state import AddReader, RemoveReader, Update
from sarit.client.groups.stream_cuts import GroupTimeWindows
from sarit.client.reader.cursor import Events, arrow_schema, check_most
from sarit.client.reader.pointers import EventPointer
from sarit.core.errors import Conflict, Invalid, SaritError
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import pyarrow as pa

    from sarit.client.core.session import Session
    from sarit.client.groups.shared import SharedState
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment, Offsets, Ranges
    from sarit.client.streams.event_time import TimeWindow


class GroupEvent:
    """An event, where it begins, and where its reader stood behind it."""

    __slots__ = ("_offsets_before", "_ranges", "event", "offset", "segment")

    def __init__(
        self, event: bytes, segment: GroupSegment, offset: int, held: Mapping[GroupSegment, int], ranges: Ranges
    ) -> None:
        self.event = event
        self.segment = segment
        self.offset = offset
        self._offsets_before = held
        self._ranges = ranges

    def __repr__(self) -> str:
        return f"GroupEvent({len(self.event)} bytes at {self.offset} of {self.segment})"

    @property
    def position(self) -> Position:
        """Behind this event: store it with what came of the event."""
        behind = self.offset + EVENT_HEADER_BYTES + len(self.event)
        return Position({**self._offsets_before, self.segment: behind}, self._ranges)

    @property
    def pointer(self) -> EventPointer:
        """Where it is, to fetch it again with `client.stream(...).fetch_event`."""
        return EventPointer(*self.segment, self.offset, EVENT_HEADER_BYTES + len(self.event))


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint has to be passed: store the position (and what else belongs to it), then ask for the next event."""

    name: str
    position: Position


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one segment in order, the first of them at `offset`; `position` is behind the last."""

    events: list[bytes]
    segment: GroupSegment
    offset: int
    position: Position


@dataclass(frozen=True, slots=True)
class ArrowBatch:
    """A record batch (event, segment, offset) of one segment; `position` is behind the last event."""

    events: pa.RecordBatch
    segment: GroupSegment
    position: Position


class GroupReader:
    """Reads its share of what a group reads.  Make one with `await group.reader(name)`; for one task at a time.

    As a block it is closed at the end; when an error leaves the block, what was handed out last comes again.
    All that reads raises Conflict when the reader is not in the group any more (a reset, or somebody declared it
    offline), Truncated when data it was to read was truncated, Invalid when it is closed."""

    def __init__(
        self,
        session: Session,
        shared: SharedState,
        name: str,
        *,
        skip_truncated: bool = False,
        death_timeout: float | None = None,
    ) -> None:
        self.name = name
        self._session = session
        self._shared = shared
        self._sources = Sources(session, self._notify, skip_truncated)
        self._death_timeout = death_timeout
        self._member: Member | None = None
        self._leaving: tuple[Member, Offsets] | None = None  # closed, and the group does not know it yet
        self._current: Events | None = None
        self._source: Source | None = None
        self._offsets_before: dict[GroupSegment, int] = {}
        self._event_offset = 0
        self._handed_out_offset: int | None = (
            None  # where in `_source` begins what was handed out last, while it is not done
        )
        self._wake: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._member_task: asyncio.Task[str | SaritError | None] | None = None
        self._schema: Any = None
        self._windows = GroupTimeWindows(session)

    def __repr__(self) -> str:
        return f"GroupReader({self._shared.name}, {self.name}, {self._sources!r})"

    async def open(self) -> GroupReader:
        """Join.  Raises Conflict: a reader of that name is in the group."""

        def join(state: GroupState) -> list[Update]:
            if self.name in state.assigned:
                raise Conflict(
                    f"reader {self.name} is in group {self._shared.name} already: choose another name, or declare that "
                    "one offline if it is lost"
                )
            return [AddReader(self.name)]

        await self._shared.update(join)
        self._member = Member(
            self._session, self._shared, self.name, self._sources, self._positions, self._notify, self._death_timeout
        )
        self._session.register(self)
        self._heartbeat_task = self._session.background.spawn(self._member.heartbeat.run(), f"reader {self.name}")
        return self

    # -- what is known ------------------------------------------------------------------------------

    @property
    def segments(self) -> list[GroupSegment]:
        """The segments that are this reader's now."""
        return sorted(self._sources.segments)

    @property
    def at_end(self) -> bool:
        """Whether the whole group has read everything, at last sight: the ends given, or sealed streams."""
        return self._member is not None and self._member.at_end

    def position(self) -> Position:
        """Behind the last event handed out, exactly."""
        return Position(self._positions(), self._shared.state.ranges)

    async def time_window(self, stream: StreamName | str) -> TimeWindow:
        """Between which times the group stands in one of its streams: what is of `lower` or before does not come any
        more, to no reader.

        How far the others are is told every few seconds, so the window lies a little behind; after a reader was lost,
        its last events come again.  Raises Invalid (the group does not read the stream), Unavailable."""
        name = StreamName.parse(stream) if isinstance(stream, str) else stream
        return await self._windows.at(name, self._shared.state, self._positions())

    def _positions(self) -> dict[GroupSegment, int]:
        held = self._sources.positions()
        if self._current is not None and self._source is not None and self._source.segment in held:
            held[self._source.segment] = self._current.position()
        return held

    # -- reading ------------------------------------------------------------------------------------

    async def read(self, timeout: float | None = None) -> GroupEvent | CheckpointEvent | None:
        """The next event; or a checkpoint; None after `timeout` seconds without one, or when all is read (`at_end`)."""
        found = await self._next(timeout)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        self._handed_out_offset = self._event_offset
        event = next(found.left)
        made = GroupEvent(
            event, self._source.segment, self._event_offset, self._offsets_before, self._shared.state.ranges
        )
        self._event_offset += EVENT_HEADER_BYTES + len(event)
        return made

    async def read_batch(self, most: int = 10_000, timeout: float | None = None) -> EventBatch | CheckpointEvent | None:
        """Up to `most` events of one segment, as `read` has one.  Raises Invalid (`most` is below 1)."""
        check_most(most)
        found = await self._next(timeout)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        self._handed_out_offset = offset = self._event_offset
        events = list(found.left) if most >= found.count_left() else list(islice(found.left, most))
        self._event_offset = behind = found.position()
        position = Position({**self._offsets_before, self._source.segment: behind}, self._shared.state.ranges)
        return EventBatch(events, self._source.segment, offset, position)

    async def read_arrow(self, timeout: float | None = None) -> ArrowBatch | CheckpointEvent | None:
        """Events of one segment as a record batch, as `read` has one."""
        if self._schema is None:
            self._schema = arrow_schema()
        found = await self._next(timeout, arrow=True)
        if isinstance(found, CheckpointEvent) or found is None:
            return found
        assert self._source is not None
        segment = self._source.segment
        if isinstance(found, Events):
            self._handed_out_offset = found.position()
            batch = found.table(self._schema)
            assert batch is not None
        else:
            self._handed_out_offset, batch = found.column(2)[0].as_py(), found
        return ArrowBatch(batch, segment, Position(self._positions(), self._shared.state.ranges))

    async def __aiter__(self) -> AsyncIterator[GroupEvent]:
        """The events, one by one, until everything is read; checkpoints are passed on the way."""
        while True:
            found = await self.read()
            if isinstance(found, GroupEvent):
                yield found
            elif found is None:
                return

    async def _next(self, timeout: float | None, arrow: bool = False) -> Any:
        """Events not handed out yet (or a record batch); a checkpoint; None."""
        self._handed_out_offset = None
        member = self._require_member()
        clock = self._session.env.clock
        end = None if timeout is None else clock.monotonic() + timeout
        while True:
            if self._member_task is not None or member.due():
                checkpoint = await self._manage(member, end)
                if self._member_task is not None:
                    return None  # the time is over
                if checkpoint is not None:
                    return CheckpointEvent(checkpoint, self.position())
            if self._current is not None and self._current.count_left():
                return self._current
            found = self._take(arrow)
            if found is not None:
                return found
            if member.due():
                continue
            if member.at_end and not self._sources.ended:
                return None
            left = member.seconds_until_due()
            if end is not None:
                now = clock.monotonic()
                if now >= end:
                    return None
                left = min(left, end - now)
            await self._wait(left)

    def _require_member(self) -> Member:
        if self._failure is not None:
            raise self._failure
        if self._member is None:
            raise Invalid(f"reader {self.name} is not open")
        return self._member

    async def _manage(self, member: Member, end: float | None) -> str | None:
        """Do our part in the group; the checkpoint to hand out.  At `end` it is left in `_member_task`, to go on."""
        task = self._member_task
        if task is None:
            task = self._session.background.spawn(_outcome(member.manage), f"part of reader {self.name}")
            self._member_task = task
        left = None if end is None else max(0.0, end - self._session.env.clock.monotonic())
        await asyncio.wait((task,), timeout=left)
        if not task.done():
            return None
        self._member_task = None
        if task.cancelled():  # the reader, or its client, was closed meanwhile: say so
            self._require_member()
        checkpoint = task.result()
        if isinstance(checkpoint, Conflict):
            await self._stop(checkpoint)
        if isinstance(checkpoint, SaritError):
            raise checkpoint
        if self._source is not None and self._source.segment not in self._sources:  # given away
            self._source = self._current = None
        self._offsets_before = self._sources.positions()
        return checkpoint

    def _take(self, arrow: bool) -> Any:
        """What comes next of any segment; None when nothing has come."""
        self._current = None
        source, self._source = self._source, None
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
        except Exception as error:
            self._failure = error
            raise
        return None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _wait(self, seconds: float) -> None:
        self._wake = self._session.loop.create_future()
        await asyncio.wait((self._wake,), timeout=seconds)

    # -- the end ------------------------------------------------------------------------------------

    async def close(self, position: Position | None = None) -> None:
        """Leave the group; others go on at `position`, or behind the last event handed out.

        Raises Unavailable: the group may not know it, and the reader's segments are nobody else's; close it again."""
        if self._member is not None:
            self._leaving = self._member, dict((position or self.position()).offsets)
            await self._stop(Invalid(f"reader {self.name} is closed"))
            self._session.register(self)  # until the group knows it
        if self._leaving is None:
            return
        member, offsets = self._leaving
        if position is not None:
            offsets = dict(position.offsets)

        def leave(state: GroupState) -> list[Update]:
            same = self.name in state.assigned and member.is_current(state)
            return [RemoveReader(self.name, offsets)] if same else []

        await self._shared.update(leave)
        self._leaving = None
        self._session.unregister(self)

    def _consumed_position(self) -> Position:
        """Behind all that is done: what was handed out last is not before the next thing is asked for."""
        offsets = self._positions()
        if self._handed_out_offset is not None and self._source is not None and self._source.segment in offsets:
            offsets[self._source.segment] = self._handed_out_offset
        return Position(offsets, self._shared.state.ranges)

    async def _stop(self, why: SaritError) -> None:
        """Stop fetching and following; the group is not told."""
        self._failure = why
        self._session.unregister(self)
        self._sources.close()
        if self._member is not None:
            self._member.heartbeat.end()
            self._member = None
        tasks = [task for task in (self._heartbeat_task, self._member_task) if task is not None]
        self._heartbeat_task = self._member_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def client_closed(self) -> None:
        """The client ends before the reader: to the group it is lost."""
        self._leaving = None
        self._failure = Invalid("the client was closed")
        if self._member is not None:
            self._member.heartbeat.end()
            self._member = None
        self._sources.close()
        self._notify()

    async def __aenter__(self) -> GroupReader:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        failed = kind is not None and self._member is not None  # a reader that was closed before has said where it was
        await self.close(self._consumed_position() if failed else None)


async def _outcome(work: Callable[[], Awaitable[str | None]]) -> str | SaritError | None:
    """What comes of `work`, an error as well: nobody may be there to take it."""
    try:
        return await work()
    except SaritError as error:
        return error
