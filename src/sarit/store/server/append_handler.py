"""The writers of one connection: set-ups, appends, and what became of them.

An append that fails is answered after everything before it; InvalidEventNumber also closes the
connection (a client that got it on a live one would hang).

A session ends when its segment is sealed or gone, or the set-up is refused.  What its writer had sent already still
comes, so we remember such writers, the latest MAX_WRITERS_PER_CONNECTION of them.  An append of one that we do not
know ends the connection: passed over, its client would wait for the answer for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, Sealed
from sarit.core.limits import (
    BLOCK_OVERHEAD_BYTES,
    MAX_APPEND_BYTES,
    MAX_SEGMENT_NAME_BYTES,
    MAX_WRITERS_PER_CONNECTION,
    NULL_ATTRIBUTE_VALUE,
    REQUEST_OVERHEAD_BYTES,
)
from sarit.core.names import is_transaction, is_transient
from sarit.store.container.state import WrongEventNumber
from sarit.store.server.replies import error_reply
from sarit.wire import commands as wire
from sarit.wire.append import data_appended
from sarit.wire.commands import ProtocolError, encode

if TYPE_CHECKING:
    from sarit.store.container.container import Container
    from sarit.store.container.writer_session import WriterSession
    from sarit.store.server.connection import StoreConnection
    from sarit.store.store import SegmentStore
    from sarit.wire.append import Append

_RUST_WIRE_VERSION = 15


class AppendHandler:
    """`sessions.ReplySink` for one connection."""

    def __init__(self, connection: StoreConnection, store: SegmentStore) -> None:
        self._connection = connection
        self._store = store
        self._sessions: dict[bytes, WriterSession] = {}
        self._setting_up: dict[bytes, asyncio.Task[None]] = {}
        self._held: dict[bytes, list[tuple[Append, int | None]]] = {}
        # Writers without a session: the segment that is missing for them, or None when they were told what is wrong.
        self._ended: dict[bytes, str | None] = {}
        # What memory holds for appends that are not acknowledged.
        self.unacked_bytes = 0

    def __repr__(self) -> str:
        return f"<AppendRequests {len(self._sessions)} writers, {self.unacked_bytes} bytes not acknowledged>"

    def __len__(self) -> int:
        return len(self._sessions)

    def end(self) -> None:
        """The connection is gone."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        if self.unacked_bytes:
            for opened in self._store.opened():  # all of them: a writer may have left one for a segment of another
                opened.container.refuse_closed()

    def writes_to(self, container: Container) -> bool:
        """Whether a writer of this connection writes to `container`."""
        return any(session.container is container for session in self._sessions.values())

    def set_up(self, command: wire.SetupAppend) -> None:
        """Begin a writer's session; its appends are held until that is done."""
        writer = command.writer_id
        self._forget(writer)
        before = self._setting_up.get(writer)
        if before is None and len(self._sessions) + len(self._setting_up) >= MAX_WRITERS_PER_CONNECTION:
            self._connection.close(f"has set up {MAX_WRITERS_PER_CONNECTION} writers, the most allowed")
            return
        self._held.setdefault(writer, [])
        held_bytes = REQUEST_OVERHEAD_BYTES + len(command.segment) + len(command.token)
        task = self._connection.spawn(self._set_up_writer(command, before), held_bytes)
        self._setting_up[writer] = task

    async def _set_up_writer(self, command: wire.SetupAppend, before: asyncio.Task[None] | None) -> None:
        writer, segment = command.writer_id, command.segment
        if before is not None:
            await asyncio.wait([before])
            self._forget(writer)  # what it made, if for another segment: nobody else would end it
        last = NULL_ATTRIBUTE_VALUE
        session = None
        try:
            session = await self._store.container(segment).set_up_writer(segment, writer, self)
            last = session.last
        except NotFound:
            # The Rust client repeats a refused set-up without pause, but handles a refused append.
            if self._connection.hello_version != _RUST_WIRE_VERSION or _answers_refusals(segment):
                self._refuse_set_up(writer, wire.NoSuchSegment(command.request_id, segment, "", -1))
                return
            self._end(writer, segment)
        except Invalid as error:
            reply = error_reply(error, command.request_id, segment)
            assert reply is not None
            self._refuse_set_up(writer, reply)
            return
        except SaritError:
            self._connection.close()
            return
        if session is not None and session.container.failure is not None:
            self._connection.close()  # it failed meanwhile, when this connection did not count as served by it
        if self._connection.closed:
            if session is not None:
                session.close()
            return
        if session is not None:
            self._sessions[writer] = session
        self._connection.send(encode(wire.AppendSetup(command.request_id, segment, writer, last)))
        if self._setting_up.get(writer) is asyncio.current_task():
            del self._setting_up[writer]
            try:
                for append, expected in self._release(writer):
                    self.append(append, expected)
            except ProtocolError as error:
                self._connection.abort(f"broke the protocol: {error}")

    def _refuse_set_up(self, writer: bytes, reply: wire.Command) -> None:
        self._connection.send(encode(reply))
        if self._setting_up.get(writer) is asyncio.current_task():  # else a later set-up holds appends
            del self._setting_up[writer]
            self._release(writer)
            self._end(writer, None)

    def _forget(self, writer: bytes) -> None:
        """End what the last set-up of a writer began."""
        older = self._sessions.pop(writer, None)
        if older is not None:
            older.close()
        self._ended.pop(writer, None)

    def _end(self, writer: bytes, missing: str | None) -> None:
        """A writer has no session: what it sends is for a `missing` segment, or it was told what is wrong."""
        self._ended.pop(writer, None)
        self._ended[writer] = missing
        if len(self._ended) > MAX_WRITERS_PER_CONNECTION:
            del self._ended[next(iter(self._ended))]

    def _release(self, writer: bytes) -> list[tuple[Append, int | None]]:
        """What was held for a writer, counted no more."""
        held = self._held.pop(writer, [])
        self.unacked_bytes -= sum(append.length + BLOCK_OVERHEAD_BYTES for append, _ in held)
        return held

    def append(self, append: Append, expected_offset: int | None) -> None:
        """Hand an append to its session.

        Raises ProtocolError: it is too long, its event number goes back, or nobody knows its writer."""
        if append.length > MAX_APPEND_BYTES:  # a connection's end: a refusal would let the events behind it pass
            raise ProtocolError(f"an append of {append.length} bytes came; the most is {MAX_APPEND_BYTES}")
        # First of all: while a set-up runs behind another one, the session of that one must not overtake what is held.
        if append.writer_id in self._setting_up:
            self.unacked_bytes += append.length + BLOCK_OVERHEAD_BYTES
            self._held[append.writer_id].append((append, expected_offset))
            return
        session = self._sessions.get(append.writer_id)
        if session is None:
            self._append_without_session(append)
            return
        if append.last_event_number < session.last:
            raise ProtocolError(f"event number {append.last_event_number} came after {session.last}")
        self.unacked_bytes += append.length + BLOCK_OVERHEAD_BYTES
        session.waiting += 1
        session.append(append, expected_offset)

    def _append_without_session(self, append: Append) -> None:
        if append.writer_id not in self._ended:
            raise ProtocolError(f"an append came of writer {append.writer_id.hex()}, which was never set up on it")
        missing = self._ended[append.writer_id]
        if missing is not None:
            self._connection.send(encode(wire.NoSuchSegment(append.request_id, missing, "", -1)))
        # else: it was told; the client sets the writer up anew.

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """The append is durable."""
        session.waiting -= 1
        self.unacked_bytes -= append.length + BLOCK_OVERHEAD_BYTES
        if self._connection.closed:
            return
        self._connection.send(
            data_appended(append.writer_id, append.last_event_number, previous, append.request_id, end_offset)
        )
        if self._connection.paused:
            self._connection.apply_backpressure()

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """The append did not happen, or its outcome is unknown."""
        session.waiting -= 1
        self.unacked_bytes -= append.length + BLOCK_OVERHEAD_BYTES
        if self._connection.closed:
            return
        if self._connection.paused:
            self._connection.apply_backpressure()
        writer, number = append.writer_id, append.last_event_number
        if isinstance(error, WrongEventNumber):
            self._connection.send(encode(wire.InvalidEventNumber(writer, append.request_id, "", number)))
            self._connection.close(f"sent event {number} of writer {writer.hex()} out of turn")
        elif isinstance(error, Conflict):
            self._connection.send(encode(wire.ConditionalCheckFailed(writer, number, append.request_id)))
        elif isinstance(error, Sealed | NotFound):
            if self._sessions.get(writer) is session:
                session.close()
                del self._sessions[writer]
                self._end(writer, None)
                offset = number if isinstance(error, Sealed) else -1
                reply = error_reply(error, append.request_id, session.segment.name, offset)
                assert reply is not None
                self._connection.send(encode(reply))
        else:
            self._connection.close()

    def gone(self, session: WriterSession) -> None:
        """The session's segment is deleted or merged: appends that wait are refused, and end it."""
        if not session.waiting and self._sessions.get(session.writer) is session:
            session.close()
            del self._sessions[session.writer]
            self._end(session.writer, session.segment.name)


def _answers_refusals(segment: str) -> bool:
    """Whether the Rust client is told at set-up, too, that a segment is missing: of these it repeats no set-up."""
    return is_transaction(segment) or is_transient(segment) or len(segment) > MAX_SEGMENT_NAME_BYTES
