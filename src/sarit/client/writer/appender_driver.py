"""The asyncio side of a lane: connects it, feeds its replies to it, sends what it wants sent.

    start -> endpoint from the controller -> connection of the pool -> SetupAppend -> open
      ^------------------- connection lost, wrong host ------------------------'

Replies that end the lane (sealed, gone) and errors that no retry cures go to the owner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from sarit.client.core.connection import APPENDS, Connection
from sarit.client.core.replies import error_of
from sarit.client.writer.large import append_large
from sarit.client.writer.segment_appender import OPEN, SEALED, SETTING_UP, SegmentAppender
from sarit.core.errors import Corrupt, NotFound, SaritError, Sealed, Unavailable
from sarit.wire.commands import (
    AppendSetup,
    DataAppended,
    InvalidEventNumber,
    NoSuchSegment,
    SegmentIsSealed,
    WrongHost,
)

if TYPE_CHECKING:
    from sarit.client.core.framing import Chunk
    from sarit.client.core.session import Session
    from sarit.core.names import SegmentId, StreamName

log = logging.getLogger(__name__)


class Owner(Protocol):
    """A writer, as its lanes see it."""

    unacked_bytes: int
    blocks_in_flight: int

    def progressed(self, driver: AppenderDriver) -> None:
        """The lane was acknowledged something, or may send again: pump it soon."""

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """The lane's segment takes no more: place what it holds elsewhere."""

    def failed(self, error: BaseException) -> None:
        """The writer cannot go on."""


class AppenderDriver:
    """One lane and its connection.  `events` and `keys` gather what a batch has for this lane."""

    __slots__ = (
        "_backoff",
        "_connection",
        "_owner",
        "_released",
        "_session",
        "_started",
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
        self.appender = SegmentAppender(name or stream.segment(segment), segment, session.env.random.bytes(16))
        self.events: list[bytes] = []
        self.keys: list[str | None] = []
        self._session = session
        self._owner = owner
        self._connection: Connection | None = None
        self._backoff = session.backoff()
        self._started = False
        self._released = False

    def __repr__(self) -> str:
        return f"AppenderDriver({self.appender!r})"

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; `dispatch` sends it."""
        self.appender.add(chunk)
        self._owner.unacked_bytes += chunk.length

    def take(self) -> list[Chunk]:
        """Everything not acknowledged, in order, of a lane that is sealed."""
        self._owner.unacked_bytes -= self.appender.unacked_bytes
        self._owner.blocks_in_flight -= self.appender.blocks_in_flight
        return list(self.appender.take_unacknowledged())

    def due(self, only: bool, more: int = 0) -> bool:
        """Whether `dispatch` may send something, or begins to connect; a large event goes by what is acknowledged.

        `more`: bytes that are to be added before."""
        return self._connection is None or self.appender.due(False, only, more)

    def dispatch(self, urgent: bool = False, only: bool = False) -> None:
        """Send what is due; see `SegmentAppender.blocks`."""
        appender = self.appender
        if self._connection is None:
            if not self._started and appender.busy and appender.state != SEALED and not self._released:
                self._start()
            return
        before = appender.blocks_in_flight
        parts = appender.blocks(urgent, only)
        if parts:
            self._connection.send(parts)
            self._owner.blocks_in_flight += appender.blocks_in_flight - before
        if appender.large_due() is not None and not self._started:
            self._started = True
            self._session.background.spawn(self._large(), f"large event to {appender.segment}")

    def release(self) -> None:
        """Leave the connection for good (the writer is closed)."""
        self._leave()
        self._released = True

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.machine.forget(self.appender.request_id)
            self._connection = None

    # -- connecting ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._session.background.spawn(self._attach(), f"connect {self.appender.segment}")

    async def _attach(self) -> None:
        try:
            while True:
                try:
                    await self._attach_once()
                    return
                except Unavailable as error:
                    log.info("%s: %s", self.appender.segment, error)
                    self._session.forget_endpoint(self.name, self.segment)
                    await self._backoff.wait(error)
        except Exception as error:  # whatever it is: nobody else would tell the writer
            self._owner.failed(error)

    async def _attach_once(self) -> None:
        endpoint = await self._session.endpoint(self.name, self.segment)
        self.appender.token = await self._session.controller.token(self.name)
        connection = await self._session.connections.to(endpoint, APPENDS)
        if self._released:
            return
        sink = _ReplySink(self, connection)
        request_id = connection.expect(sink)
        self._connection = connection
        self._started = False
        connection.send([self.appender.connecting(request_id)])

    def _again(self, error: SaritError) -> None:
        """The lane lost its connection: find a new one, now if there is something to send."""
        self._leave()
        before = self.appender.blocks_in_flight
        self.appender.disconnected()
        self._owner.blocks_in_flight -= before
        if self.appender.state == SEALED or self._started or self._released or not self.appender.busy:
            return
        self._started = True
        self._session.background.spawn(self._reattach(error), f"reconnect {self.appender.segment}")

    async def _reattach(self, error: SaritError) -> None:
        try:
            await self._backoff.wait(error)
        except SaritError as last:
            self._owner.failed(last)
            return
        await self._attach()

    async def _large(self) -> None:
        """Append the large event whose turn it is, then set the lane up again."""
        block = self.appender.large_due()
        connection = self._connection
        error: SaritError = Unavailable("the lane was closed")
        if block is not None and connection is not None:
            try:
                await append_large(self._session, connection, self.appender, block)
                self._owner.unacked_bytes -= block.length
                self.appender.large_done()
                self._backoff.reset()
            except Unavailable as problem:
                error = problem
            except (Sealed, NotFound) as problem:
                self._leave()
                self.appender.seal()
                self._owner.sealed(self, problem)
                return
            except Exception as problem:
                self._owner.failed(problem)
                return
        self._started = False
        self._again(error)
        self._owner.progressed(self)

    # -- replies --------------------------------------------------------------------------------

    def on_reply(self, command: Any, connection: Connection) -> bool:
        """Handle a reply for the lane; True when the lane leaves this connection."""
        if connection is not self._connection:
            return True
        appender = self.appender
        kind = type(command)
        if kind is DataAppended or kind is AppendSetup:
            before, held = appender.blocks_in_flight, appender.unacked_bytes
            try:
                if kind is DataAppended:
                    appender.acked(command.event_number)
                    appender.tail_offset = command.segment_write_offset
                    self._owner.blocks_in_flight += appender.blocks_in_flight - before
                    self._backoff.reset()  # not at AppendSetup: a store that takes none of our blocks is left in peace
                else:
                    appender.opened_at(command.last_event_number)
            except Corrupt as corrupt:
                self._owner.failed(corrupt)
                return True
            self._owner.unacked_bytes -= held - appender.unacked_bytes
            self._owner.progressed(self)
            return False
        error = error_of(command, appender.segment)
        if kind is SegmentIsSealed or kind is NoSuchSegment:
            self._connection = None
            if appender.state in (SETTING_UP, OPEN):
                appender.seal()
                self._owner.sealed(self, error)
            return True
        if kind is WrongHost or kind is InvalidEventNumber or isinstance(error, Unavailable):
            if kind is InvalidEventNumber:
                connection.abort(f"{connection.name}: {error}")
            self._session.forget_endpoint(self.name, self.segment)
            self._again(error)
            return True
        self._owner.failed(error)
        return True

    def on_lost(self, error: Unavailable, connection: Connection) -> None:
        """The connection ended."""
        if connection is self._connection:
            self._again(error)


class _ReplySink:
    """A lane's place on one connection; replies of an earlier one are not taken for the present one's."""

    __slots__ = ("_connection", "_driver")

    def __init__(self, driver: AppenderDriver, connection: Connection) -> None:
        self._driver = driver
        self._connection = connection

    def reply(self, command: Any) -> bool:
        return self._driver.on_reply(command, self._connection)

    def lost(self, error: Unavailable) -> None:
        self._driver.on_lost(error, self._connection)
