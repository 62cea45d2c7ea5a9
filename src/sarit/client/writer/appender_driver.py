"""The asyncio side of a segment appender: it connects the appender, passes replies to it and sends its frames.

    start -> endpoint from the controller -> connection of the pool -> SetupAppend -> open
      ^------------------- connection lost, wrong host ------------------------'

Replies that end the appender (sealed, deleted) and errors that cannot be retried go to the owner.

A *large event* is too long for an append (wire.md 4.5).  It is sent in these steps:

    CreateTransientSegment -> SetupAppend -> ConditionalBlockEnd 0, 1, 2 ... -> MergeSegments

The store deletes the transient segment with the connection.  A lost connection therefore leaves no trace, unless the
merge happened and only its reply was lost.  The merge replaces the writer's event number on the target, on condition
that it is still the one before (attribute id = writer id).  The next SetupAppend then says whether the event is stored,
as for every other block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.client.core.connection import APPENDS, Connection, PendingReply
from sarit.client.core.replies import error_of, expect
from sarit.client.limits import LARGE_EVENT_PIECE_BYTES
from sarit.client.writer.append_traces import AppendTraces
from sarit.client.writer.segment_appender import OPEN, SEALED, SETTING_UP, SegmentAppender
from sarit.core.errors import Corrupt, NotFound, SaritError, Sealed, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.env.background import gather
from sarit.wire.commands import (
    AppendSetup,
    AttributeUpdate,
    ConditionalBlockEnd,
    CreateTransientSegment,
    DataAppended,
    InvalidEventNumber,
    MergeSegments,
    NoSuchSegment,
    SegmentCreated,
    SegmentIsSealed,
    SegmentsMerged,
    SetupAppend,
    WrongHost,
    encode_parts,
)

if TYPE_CHECKING:
    from sarit.client.core.framing import Chunk
    from sarit.client.session.session import Session
    from sarit.client.writer.segment_appender import Block
    from sarit.core.names import SegmentId, StreamName

log = logging.getLogger(__name__)

_REPLACE_IF_EQUALS: Final = 4  # kind of AttributeUpdate


class Owner(Protocol):
    """The interface of a writer that its drivers use.

    The two counters are sums over all of its appenders.  The owner adds to them what it gives to an appender; the
    driver updates them after that."""

    unacked_bytes: int
    blocks_in_flight: int

    def progressed(self, driver: AppenderDriver) -> None:
        """Schedule a dispatch, because something was acknowledged, or the driver may send again."""

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """Place what the appender holds on the successors of its segment, which is sealed."""

    def failed(self, error: BaseException) -> None:
        """Record that the writer has failed."""


class AppenderDriver:
    """One appender and its connection.  `events` and `keys` collect what a batch has for this appender."""

    __slots__ = (
        "_backoff",
        "_connection",
        "_owner",
        "_released",
        "_session",
        "_started",
        "_traces",
        "appender",
        "events",
        "keys",
        "name",
        "segment",
    )

    def __init__(
        self, session: Session, stream: StreamName, segment: SegmentId, owner: Owner, name: str | None = None
    ) -> None:
        """`name`: what to append to instead of the segment itself, served where the segment is."""
        self.name = stream
        self.segment = segment
        # 16 random bytes: the writer id.  No other appender has it, so no other changes the number that the store
        # retains.
        self.appender = SegmentAppender(name or stream.segment(segment), session.env.random.bytes(16))
        self.events: list[bytes] = []
        self.keys: list[str | None] = []
        self._session = session
        self._owner = owner
        self._traces = AppendTraces.of(session.env)
        self._connection: Connection | None = None
        self._backoff = session.backoff()
        # True while a task connects or appends a large event: `dispatch` starts no second one.
        self._started = False
        # For ever: a task that is still connecting then sends no SetupAppend.
        self._released = False

    def __repr__(self) -> str:
        return f"AppenderDriver({self.appender!r})"

    def take(self) -> list[Chunk]:
        """Everything not acknowledged, in order, when the segment is sealed."""
        # The sums first: `take_unacknowledged` sets both counts of the appender to 0.
        self._owner.unacked_bytes -= self.appender.unacked_bytes
        self._owner.blocks_in_flight -= self.appender.blocks_in_flight
        if self._traces is not None:
            self._traces.drop()
        return self.appender.take_unacknowledged()

    def due(self, only: bool, more: int = 0) -> bool:
        """Return whether `dispatch` may send something, or starts to connect; a large event waits for acknowledgements.

        `more`: bytes that are to be added before."""
        return self._connection is None or self.appender.due(False, only, more)

    def dispatch(self, urgent: bool = False, only: bool = False) -> None:
        """Send what is due; see `SegmentAppender.blocks`."""
        appender = self.appender
        if self._connection is None:
            # Connect only when there is something to send.
            if not self._started and appender.unacked_bytes and appender.state != SEALED and not self._released:
                self._start()
            return
        # By difference: `blocks` makes any number of them, and the owner's sum must follow.
        before = appender.blocks_in_flight
        parts = appender.blocks(urgent, only)
        if parts:
            if self._traces is not None:
                self._traces.sent(appender, appender.blocks_sent_after(before))
            self._connection.send(parts)
            self._owner.blocks_in_flight += appender.blocks_in_flight - before
        elif not before and not self._started and appender.large_due() is not None:
            # Nothing is in flight, as a large event needs.  After its merge the appender is set up again.
            self._started = True
            self._session.background.spawn(self._large(), f"large event to {appender.segment}")

    def release(self) -> None:
        """Leave the connection for good (the writer is closed)."""
        self._leave()
        self._released = True

    def _leave(self) -> None:
        if self._connection is not None:
            # Late replies find no sink: the router drops them.
            self._connection.forget(self.appender.request_id)
            self._connection = None

    # -- connecting ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._session.background.spawn(self._attach(), f"connect {self.appender.segment}")

    async def _attach(self) -> None:
        try:
            while True:
                self._backoff.begin()
                try:
                    # `_attach_once` returns when SetupAppend is sent; `on_reply` takes the answer.
                    await self._attach_once()
                    return
                except Unavailable as error:
                    log.info("%s: %s", self.appender.segment, error)
                    # The store may be down, or the segment elsewhere: the next attempt asks the controller.
                    self._session.forget_endpoint(self.name, self.segment)
                    await self._back_off(error)
        except Exception as error:  # any error: otherwise the writer would not be notified
            self._owner.failed(error)

    async def _attach_once(self) -> None:
        connection, self.appender.token = await self._session.connect(self.name, self.segment, APPENDS)
        # `release` may have been called during the await above.
        if self._released:
            return
        sink = _ReplySink(self, connection)
        # Register before the driver keeps the connection: this raises Unavailable if the connection has ended.
        request_id = connection.expect(sink)
        self._connection = connection
        self._started = False
        # No await since `expect`: the loss of the connection cannot be reported in between.
        connection.send([self.appender.connecting(request_id)])

    async def _back_off(self, error: SaritError) -> None:
        """Pause before the next attempt.  Raises Unavailable when the retry timeout has passed."""
        await self._backoff.wait(error)

    def _progress_made(self) -> None:
        """Reset the pauses between attempts, because a block was acknowledged.

        AppendSetup does not reset them: otherwise a store that accepts no block would be retried without pauses."""
        if self._backoff.running:
            self._backoff.reset()

    def _reconnect(self, error: SaritError) -> None:
        """Leave a lost connection, and find a new one at once if there is something to send."""
        self._leave()
        # Blocks in flight become unsent again, so subtract them from the owner's sum.
        before = self.appender.blocks_in_flight
        self.appender.disconnected()
        self._owner.blocks_in_flight -= before
        # With `_started` a large event is under way, which gets the error, too, and reconnects after it.
        # With nothing to send, the next `dispatch` connects.
        if self.appender.state == SEALED or self._started or self._released or not self.appender.unacked_bytes:
            return
        self._started = True
        self._session.background.spawn(self._reattach(error), f"reconnect {self.appender.segment}")

    async def _reattach(self, error: SaritError) -> None:
        try:
            await self._back_off(error)
        except SaritError as last:
            self._owner.failed(last)
            return
        await self._attach()

    async def _large(self) -> None:
        """Append the next large event, then set the appender up again."""
        # The task starts a turn after `dispatch`: the connection may be gone by now.
        block = self.appender.large_due()
        connection = self._connection
        error: SaritError = Unavailable("the connection of the appender was closed")
        if block is not None and connection is not None:
            try:
                # Until it returns, `blocks` sends nothing behind the event.
                await _append_large(self._session, connection, self.appender, block)
                self._owner.unacked_bytes -= block.length
                self.appender.large_done()
                self._progress_made()
            except Unavailable as problem:
                error = problem
            except (Sealed, NotFound) as problem:
                # The event stays in the appender: the owner places it elsewhere with the rest.
                self._leave()
                self.appender.seal()
                self._owner.sealed(self, problem)
                return
            except Exception as problem:
                self._owner.failed(problem)
                return
        # Also after a success: the next SetupAppend confirms the number.
        self._started = False
        self._reconnect(error)
        self._owner.progressed(self)

    # -- replies --------------------------------------------------------------------------------

    def on_reply(self, command: Any, connection: Connection) -> bool:
        """Pass a reply to the appender.  Returns whether the appender leaves this connection."""
        # Of an earlier connection: its blocks were taken back, and their fate comes with AppendSetup.
        if connection is not self._connection:
            return True
        appender = self.appender
        kind = type(command)
        if kind is DataAppended or kind is AppendSetup:
            # By difference: one acknowledgement covers any number of blocks.
            before, held = appender.blocks_in_flight, appender.unacked_bytes
            try:
                if kind is DataAppended:
                    appender.acked(command.event_number)
                    self._owner.blocks_in_flight += appender.blocks_in_flight - before
                    self._progress_made()
                else:
                    # From here on an append may wait for as long as the store is throttled.
                    self._backoff.answered()
                    appender.opened_at(command.last_event_number)
            except Corrupt as corrupt:
                self._owner.failed(corrupt)
                return True
            self._owner.unacked_bytes -= held - appender.unacked_bytes
            if self._traces is not None:
                self._traces.acknowledged(appender)
            self._owner.progressed(self)
            return False
        error = error_of(command, appender.segment)
        if kind is SegmentIsSealed or kind is NoSuchSegment:
            # NoSuchSegment, too: a sealed segment may be deleted before this writer learns of the seal.
            # No `forget` here: True makes the router drop the sink.
            self._connection = None
            if appender.state in (SETTING_UP, OPEN):
                appender.seal()
                self._owner.sealed(self, error)
            return True
        if kind is WrongHost or kind is InvalidEventNumber or isinstance(error, Unavailable):
            if kind is InvalidEventNumber:
                # The store closes the connection with this reply.  All its appenders reconnect now, not when the end
                # arrives.
                connection.abort(f"{connection.name}: {error}")
            self._session.forget_endpoint(self.name, self.segment)
            self._reconnect(error)
            return True
        self._owner.failed(error)
        return True

    def on_lost(self, error: Unavailable, connection: Connection) -> None:
        """Reconnect, if the connection that ended is the present one."""
        if connection is self._connection:
            self._reconnect(error)


class _ReplySink:
    """An appender's registration on one connection: replies on an earlier connection are ignored."""

    __slots__ = ("_connection", "_driver", "place")

    def __init__(self, driver: AppenderDriver, connection: Connection) -> None:
        self._driver = driver
        self._connection = connection
        self.place = driver.name, driver.segment

    def reply(self, command: Any) -> bool:
        return self._driver.on_reply(command, self._connection)

    def lost(self, error: Unavailable) -> None:
        self._driver.on_lost(error, self._connection)


async def _append_large(session: Session, connection: Connection, appender: SegmentAppender, block: Block) -> None:
    """Append the event of `block` to the segment of `appender`.  After Unavailable the next SetupAppend says
    whether it is stored."""
    # Use another writer id, because only the merge may change the number of the appender's id.
    writer = session.env.random.bytes(16)
    created = await connection.ask(lambda i: CreateTransientSegment(i, writer, appender.segment, appender.token))
    name = expect(created, SegmentCreated, appender.segment).segment
    # The store takes blocks only from a writer that is set up.
    setup = await connection.ask(lambda i: SetupAppend(i, writer, name, appender.token))
    if expect(setup, AppendSetup, name).last_event_number != NULL_ATTRIBUTE_VALUE:
        raise Unavailable(f"{name}: a new segment has a writer already")
    await _fill(connection, writer, name, memoryview(block.chunks[0].data).cast("B"))
    # The merge sets the number of this event if the store has the number before.  If the reply is lost, the next
    # SetupAppend reports the number.
    update = AttributeUpdate(appender.writer_id, _REPLACE_IF_EQUALS, block.number, appender.stored_number())
    merged = await connection.ask(lambda i: MergeSegments(i, appender.segment, name, appender.token, (update,)))
    expect(merged, SegmentsMerged, appender.segment)


async def _fill(connection: Connection, writer: bytes, name: str, data: memoryview) -> None:
    """Write `data` into the transient segment, with all pieces in flight at once."""
    pending: list[tuple[int, PendingReply]] = []
    try:
        for number, offset in enumerate(range(0, len(data), LARGE_EVENT_PIECE_BYTES)):
            reply = PendingReply()
            request_id = connection.expect(reply)
            pending.append((request_id, reply))
            piece = data[offset : offset + LARGE_EVENT_PIECE_BYTES]
            connection.send(encode_parts(ConditionalBlockEnd(writer, number, offset, piece, request_id)))
        # One reply per piece.  A lost connection fails all of them.
        answers: list[Any] = await gather(*(reply.answer for _, reply in pending))
        for answer in answers:
            expect(answer, DataAppended, name)
    finally:
        # Remove the sinks, also after a cancellation.
        for request_id, reply in pending:
            connection.forget(request_id)
            reply.answer.cancel()
