"""The writers of one connection: handles SetupAppend and appends, and sends the answers.

A writer has one `WriterSession` from each SetupAppend on (its states: `container/writer_session.py`).  This module
decides what the client is answered.

- An append that fails is answered after everything before it.
- InvalidEventNumber also closes the connection: a client that got it on an open one would hang.
- The client sends on until it has read that its segment is sealed or missing, or that its set-up was refused.  So
  ended writers are retained, the latest MAX_WRITERS_PER_CONNECTION of them: their appends are answered with
  NoSuchSegment, or dropped when the client has its answer already.
- While the container of a writer is opened or leaves, set-ups and appends wait.  When it has left, the first append
  is answered with WrongHost, and the others are dropped: the client asks for the new store, and sets up there.
- An append of an unknown writer ends the connection: if it were dropped, its client would wait for an answer for ever.

No flag for quotas or traces is read at each append.  `entrance` returns the function that takes the appends of a
connection; the connection calls it at its start, and when the first quota comes or the last one goes.  With traces the
sessions answer to `TracedReplies`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sarit.core.errors import Conflict, Corrupt, Forbidden, Invalid, Moved, NotFound, SaritError, Sealed
from sarit.core.names import is_transaction, is_transient
from sarit.store.container.container import require_writable
from sarit.store.container.state import WrongEventNumber
from sarit.store.container.writer_session import OPEN, State, WriterSession
from sarit.store.limits import (
    BLOCK_OVERHEAD_BYTES,
    MAX_APPEND_BYTES,
    MAX_WRITERS_PER_CONNECTION,
    MOVED_DELAY_SECONDS,
    REQUEST_OVERHEAD_BYTES,
    SAMPLE_SECONDS,
)
from sarit.store.server.append_traces import TracedReplies
from sarit.store.server.held_requests import when_hosted
from sarit.store.server.replies import error_reply
from sarit.wire import commands as wire
from sarit.wire.commands import ProtocolError, encode
from sarit.wire.damage import RUST_WIRE_VERSION, damage_reply
from sarit.wire.frames import data_appended
from sarit.wire.limits import MAX_SEGMENT_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.store.container.container import Container
    from sarit.store.server.request_connection import RequestConnection
    from sarit.store.store import SegmentStore
    from sarit.wire.frames import Append

    Take = Callable[[Append, int | None], None]


class AppendHandler:
    """The `ReplySink` of the writers of one connection."""

    def __init__(self, connection: RequestConnection, store: SegmentStore) -> None:
        self._connection = connection
        self._store = store
        self._tenants = store.quotas
        self._sessions: dict[bytes, WriterSession] = {}
        self._set_ups: dict[WriterSession, asyncio.Task[None]] = {}
        # Writers whose session ended, with the reason; None when the client has got its answer.
        self._ended: dict[bytes, _Ended | None] = {}
        # Appends that wait because of a quota, in order of arrival; the connection is not read from meanwhile.
        self._over_quota: deque[tuple[Append, int | None]] = deque()
        connection.quotas.when_paid(self.take_waiting)
        # The memory of unacknowledged appends.
        self.unacked_bytes = 0
        self._sampling = store.statistics.append_sampling
        self._replies = None if store.env.traces is None else TracedReplies(self, store.env.traces, store.env.clock)

    def __repr__(self) -> str:
        return f"<AppendHandler, {len(self._sessions)} writers, {self.unacked_bytes} bytes unacknowledged>"

    def __len__(self) -> int:
        return len(self._sessions)

    def connection_closed(self) -> None:
        """End all sessions of the connection."""
        for session in self._sessions.values():
            # Appends in the log still become durable; their acknowledgement is dropped.
            session.close()
        self._sessions.clear()
        self._over_quota.clear()
        # Break the reference cycle with this object, which only a full garbage collection would find.
        self._replies = None
        # Free the memory of appends of these sessions that wait at an append gate.  The sweep comes a little later,
        # because many connections end at once.
        if self.unacked_bytes:
            for opened in self._store.opened():  # in all containers, since a replaced session may have had another
                opened.container.append_gate.sweep_ended()

    def writes_to(self, container: Container) -> bool:
        """Return whether a writer of this connection writes to `container`."""
        return any(session.container is container for session in self._sessions.values())

    # -- set-up -------------------------------------------------------------------------------

    def set_up(self, command: wire.SetupAppend) -> None:
        """Begin a writer's session; its appends are pending until the set-up is done."""
        writer = command.writer_id
        # Remove the older session before the check of the bound, since a writer that is set up again counts once.
        older = self._sessions.pop(writer, None)
        if len(self._sessions) >= MAX_WRITERS_PER_CONNECTION:
            self._connection.close(f"has set up {MAX_WRITERS_PER_CONNECTION} writers, which is the limit")
            return
        self._ended.pop(writer, None)
        if self._tenants.active:
            self._connection.quotas.stop_if_owed(command.segment)
        session = self._sessions[writer] = WriterSession(writer, self._replies or self)
        before = None
        if older is not None:
            older.replace()
            # Move the pending appends to the newer session, in order; `unacked_bytes` counts them already.
            session.pending, older.pending = older.pending, []
            before = self._set_ups.get(older)
        size = REQUEST_OVERHEAD_BYTES + len(command.segment) + len(command.token)
        self._set_ups[session] = self._connection.spawn(self._set_up(session, command, before), size)

    async def _set_up(
        self, session: WriterSession, command: wire.SetupAppend, before: asyncio.Task[None] | None
    ) -> None:
        try:
            if before is not None:  # wait for the set-up that this one replaces, so that answers are sent in order
                # `asyncio.wait` neither raises the error of that task nor cancels it.
                await asyncio.wait([before])
            await self._open(session, command)
        finally:
            del self._set_ups[session]

    async def _open(self, session: WriterSession, command: wire.SetupAppend) -> None:
        segment = command.segment
        try:
            container = await when_hosted(partial(self._set_up_at_container, session, segment))
        except NotFound:
            # Refuse the first append instead of the set-up, which the Rust client would repeat without a pause.
            if self._connection.hello_version != RUST_WIRE_VERSION or _answers_refusals(segment):
                self._refuse_set_up(session, wire.NoSuchSegment(command.request_id, segment, "", -1))
                return
            session.segment_missing()
        except Moved as error:
            # Delay the answer: the Rust client retries thousands of times a second until another store answers.
            if self._connection.hello_version == RUST_WIRE_VERSION:
                await asyncio.sleep(MOVED_DELAY_SECONDS)
            self._refuse_set_up(session, _reply(error, command.request_id, segment))
            return
        except (Invalid, Forbidden) as error:
            self._refuse_set_up(session, _reply(error, command.request_id, segment))
            return
        except Corrupt as error:
            if self._connection.hello_version <= RUST_WIRE_VERSION:
                # Close the connection, which the Rust client retries with pauses, unlike a refused set-up.
                self._connection.close(f"cannot set up a writer: {error}")
                return
            reply = damage_reply(command.request_id, segment, str(error), self._connection.hello_version)
            self._refuse_set_up(session, reply)
            return
        except SaritError:
            # The protocol has no reply for other errors (`replies.py`).
            self._connection.close()
            return
        else:
            if container.failure is not None:
                self._connection.close()  # at the failure, the listener did not know this connection as a writer's
        if self._connection.closed:
            # An open session owns the writer's attribute: give it up for the writer's next connection.
            session.close()
            return
        # Send AppendSetup before the pending appends are submitted, whose acknowledgements must follow it.
        self._connection.send(encode(wire.AppendSetup(command.request_id, segment, session.writer, session.last)))
        if self._sessions.get(session.writer) is session:  # otherwise a newer session has the pending appends
            self._take_pending(session, segment)

    async def _set_up_at_container(self, session: WriterSession, segment: str) -> Container:
        container = self._store.container(segment)
        try:
            # Look in memory first, without a call, since nearly every set-up finds its segment there.
            found = container.state.names.get(segment)
            if found is None or found.mirror:
                require_writable(await container.metadata.require(segment))
            await container.set_up_writer(segment, session)
        except SaritError:
            await container.confirm()
            raise
        return container

    def _take_pending(self, session: WriterSession, segment: str) -> None:
        if session.state is State.MISSING:
            # From here on `append` answers each of them with NoSuchSegment.
            self._end(session, _Ended(segment, moved=False))
        try:
            # Pass pending appends to `append` again: when they came, the session had no event number to compare with.
            for append, expected_offset in self._pop_pending(session):
                self.entrance()(append, expected_offset)
        except ProtocolError as error:
            # Abort here, because `buffer_updated` does not catch an error in the task of the set-up.
            self._connection.abort(f"broke the protocol: {error}")

    def _refuse_set_up(self, session: WriterSession, reply: wire.Command) -> None:
        session.refuse_set_up()
        self._connection.send(encode(reply))
        if self._sessions.get(session.writer) is session:
            self._pop_pending(session)  # drop the appends: the client sends them again after its next set-up
            self._end(session, None)

    def _pop_pending(self, session: WriterSession) -> list[tuple[Append, int | None]]:
        """Remove and return the pending appends of a session, and subtract them from `unacked_bytes`."""
        pending, session.pending = session.pending, []
        self.unacked_bytes -= sum(append.length + BLOCK_OVERHEAD_BYTES for append, _ in pending)
        assert self.unacked_bytes >= 0, self
        return pending

    def _end(self, session: WriterSession, ended: _Ended | None) -> None:
        """Retain a writer whose session ended, with the reason; None when the client has got its answer."""
        del self._sessions[session.writer]
        # Remove an older entry, so that the writer becomes the newest: the oldest is dropped below.
        self._ended.pop(session.writer, None)
        self._ended[session.writer] = ended
        if len(self._ended) > MAX_WRITERS_PER_CONNECTION:
            del self._ended[next(iter(self._ended))]

    # -- appends ------------------------------------------------------------------------------

    def entrance(self) -> Take:
        """Return the function that takes the appends of the connection, until quotas are switched on or off."""
        take = self.append if self._replies is None else partial(self._append_traced, self._replies)
        # Keep the quotas' way while appends wait, even if the last quota is gone: later appends stay behind them.
        return partial(self._append_within_quota, take) if self._tenants.active or self._over_quota else take

    def append(self, append: Append, expected_offset: int | None) -> None:
        """Pass an append to the session of its writer.

        Raises ProtocolError when it is too long, its event number decreases, or its writer is unknown."""
        if append.length > MAX_APPEND_BYTES:  # end the connection: after a refusal, later events would be stored
            raise ProtocolError(f"an append of {append.length} bytes came; the most is {MAX_APPEND_BYTES}")
        session = self._sessions.get(append.writer_id)
        if session is None:
            self._append_without_session(append)
            return
        if append.last_event_number < session.last:  # never true during the set-up, when `last` is NULL
            raise ProtocolError(f"event number {append.last_event_number} came after {session.last}")
        # Count the append before the session gets it, since a refusal may come within that call.
        self.unacked_bytes += append.length + BLOCK_OVERHEAD_BYTES
        if self._sampling.due:
            self._measure(append)
        session.append(append, expected_offset)

    def _measure(self, append: Append) -> None:
        append.arrival = self._store.env.clock.monotonic()
        self._sampling.due = False
        asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self._sampling.renew)

    def _append_traced(self, replies: TracedReplies, append: Append, expected_offset: int | None) -> None:
        replies.append_arrived(append)
        self.append(append, expected_offset)

    def _append_within_quota(self, take: Take, append: Append, expected_offset: int | None) -> None:
        """Charge an append to its quotas and pass it to `take`, or queue it if it has to wait."""
        session = self._sessions.get(append.writer_id)
        # Appends that come during the set-up are charged after it, when the session has a segment.
        segment = session.segment.name if session is not None and session.state is OPEN else None
        if segment is None or self._connection.quotas.take(segment, append.length):
            take(append, expected_offset)
        else:
            self._over_quota.append((append, expected_offset))
            self.unacked_bytes += append.length + BLOCK_OVERHEAD_BYTES

    def take_waiting(self) -> None:
        """Submit the appends that waited for a quota, until a quota stops the connection again."""
        try:
            while self._over_quota and not self._connection.closed and not self._connection.quotas.stopped:
                append, expected_offset = self._over_quota.popleft()
                self.unacked_bytes -= append.length + BLOCK_OVERHEAD_BYTES
                self.entrance()(append, expected_offset)
                if self._over_quota and self._over_quota[-1][0] is append:
                    self._over_quota.rotate(1)  # the append was queued again: move it before those that came later
            self._connection.choose_entrance()
        except ProtocolError as error:
            self._connection.abort(f"broke the protocol: {error}")

    def _append_without_session(self, append: Append) -> None:
        if append.writer_id not in self._ended:
            raise ProtocolError(f"an append came of writer {append.writer_id.hex()}, which was never set up on it")
        ended = self._ended[append.writer_id]
        if ended is not None and ended.moved:
            self._ended[append.writer_id] = None
            self._connection.send(encode(wire.WrongHost(append.request_id, ended.segment, "")))
        elif ended is not None:
            self._connection.send(encode(wire.NoSuchSegment(append.request_id, ended.segment, "", -1)))
        # Otherwise drop the append: the client has its answer, and sets the writer up again.

    # -- ReplySink ----------------------------------------------------------------------------

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """Acknowledge a durable append to the client."""
        self.unacked_bytes -= append.length + BLOCK_OVERHEAD_BYTES
        if append.arrival is not None:
            self._store.statistics.observe_append(self._store.env.clock.monotonic() - append.arrival)
        # Build the frame without a command object, since this runs once for each append.
        connection = self._connection
        if connection.closed:
            return
        connection.send(
            data_appended(append.writer_id, append.last_event_number, previous, append.request_id, end_offset)
        )
        # An acknowledgement frees memory, so it can end a pause, but not begin one.
        if connection.paused:
            connection.apply_backpressure()

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """Answer an append that is not stored; close the connection if the outcome is unknown."""
        self.unacked_bytes -= append.length + BLOCK_OVERHEAD_BYTES
        assert self.unacked_bytes >= 0, self
        if self._connection.closed:
            return
        if self._connection.paused:
            self._connection.apply_backpressure()
        writer, number = append.writer_id, append.last_event_number
        # Check for WrongEventNumber before Conflict, which is its base class.
        if isinstance(error, WrongEventNumber):
            self._connection.send(encode(wire.InvalidEventNumber(writer, append.request_id, "", number)))
            self._connection.close(f"sent event {number} of writer {writer.hex()} out of turn")
        elif isinstance(error, Conflict):
            self._connection.send(encode(wire.ConditionalCheckFailed(writer, number, append.request_id)))
        elif isinstance(error, Sealed | NotFound | Moved):
            if self._sessions.get(writer) is session:  # otherwise the session ended, and the client has its answer
                # Answer once for each session: the client sent the appends after this one before it read the answer.
                session.append_refused()
                self._pop_pending(session)  # drop appends that wait for the container to leave: the client resends them
                self._end(session, None)
                # SegmentIsSealed has no field for the event number: the field of the offset holds it.
                offset = number if isinstance(error, Sealed) else -1
                self._connection.send(encode(_reply(error, append.request_id, session.segment.name, offset)))
        else:
            # Nobody knows whether the append is stored.  The writer learns its last event from the next AppendSetup.
            self._connection.close()

    def segment_missing(self, session: WriterSession) -> None:
        """End the session of a segment that is deleted or merged, when no append waits for an answer."""
        assert self._sessions[session.writer] is session, session
        session.segment_missing()
        self._end(session, _Ended(session.segment.name, moved=False))

    def moved(self, session: WriterSession) -> None:
        """Answer the first pending append with WrongHost and drop the others, as the container has left this store."""
        if self._connection.closed or self._sessions.get(session.writer) is not session:
            return
        pending = self._pop_pending(session)
        session.append_refused()
        self._end(session, _Ended(session.segment.name, moved=True))
        for append, _ in pending:
            self._append_without_session(append)
        if self._connection.paused:
            self._connection.apply_backpressure()


class _Ended(NamedTuple):
    """Why a writer's appends are not taken any more: its segment is missing, or has moved to another store."""

    segment: str
    moved: bool


def _reply(error: SaritError, request_id: int, segment: str, offset: int = -1) -> wire.Command:
    """Return the reply for an error for which the protocol has one."""
    reply = error_reply(error, request_id, segment, offset)
    assert reply is not None
    return reply


def _answers_refusals(segment: str) -> bool:
    """Return whether the Rust client does not repeat a refused set-up of this segment without a pause."""
    return is_transaction(segment) or is_transient(segment) or len(segment) > MAX_SEGMENT_NAME_BYTES
