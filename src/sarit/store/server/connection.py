"""One client connection of the segment store: receives frames and sends replies, in bounded memory.

Appends go from the decoder to their container in the same turn of the event loop, without a task and without an object
per event.  A read from memory is also answered in that turn.  Other reads, and all other requests, run as tasks.

Back-pressure.  Reading from the socket stops while the client does not take our replies, while unacknowledged
appends and running requests hold more than the connection's limit of unacknowledged bytes, while too many requests run,
and while a quota or the budget of frames demands it (`connection_quotas.py`, `connection_budget.py`).  Large replies
are made only while the client takes them, and not all at once (`reply_semaphore.py`).  After FRAMES_PER_TURN frames of
a connection, others have a turn (`frame_turns.py`).  The acknowledgements and replies of one turn are sent by one
write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

from sarit.core.errors import Unavailable
from sarit.core.http_answer import http_answer, other_protocol
from sarit.core.limits import KIB
from sarit.core.request_ids import current_request_id
from sarit.store.hosting.health import Opening
from sarit.store.limits import (
    CONNECTION_CLOSE_SECONDS,
    MAX_CONNECTION_UNACKED_BYTES,
    MAX_REQUESTS_PER_CONNECTION,
    REQUEST_OVERHEAD_BYTES,
    SEND_BATCH_BYTES,
)
from sarit.store.server.access import NO_TOKENS
from sarit.store.server.append_handler import AppendHandler
from sarit.store.server.connection_budget import ConnectionBudget
from sarit.store.server.connection_quotas import ConnectionQuotas
from sarit.store.server.connection_reaper import ConnectionMemory
from sarit.store.server.control_handler import FORWARDED
from sarit.store.server.frame_turns import FrameTurns
from sarit.store.server.held_requests import when_hosted
from sarit.store.server.internal_handler import InternalHandler, InternalSession, outcome_unknown, refusal
from sarit.store.server.memory_cost import reply_bytes, request_bytes
from sarit.store.server.read_handler import ReadHandler
from sarit.store.server.reply_semaphore import ReplySemaphore
from sarit.store.server.transient_segments import TransientSegments
from sarit.wire import commands as wire
from sarit.wire.commands import ProtocolError, decode, encode, encode_parts
from sarit.wire.damage import RUST_WIRE_VERSION
from sarit.wire.frames import Append, AppendAssembler, FrameReader
from sarit.wire.limits import OLDEST_WIRE_VERSION, WIRE_VERSION

if TYPE_CHECKING:
    from sarit.core.bucket import HostBuckets
    from sarit.core.repeated_log import RepeatedLog
    from sarit.env.ports import Buffer
    from sarit.store.container.container import Container
    from sarit.store.server.access import Checks
    from sarit.store.server.control_handler import ControlHandler
    from sarit.store.store import SegmentStore
    from sarit.wire.frames import Window

_log = logging.getLogger("sarit.store.server.connection")

_APPEND_BLOCK = 3
_APPEND_BLOCK_END = 4
# The answer to an HTTP request, which is recognized by its first bytes, read as the type of a frame.
_HTTP_ANSWER = http_answer("the wire protocol of a segment store")
# The codes of SetupAppend, ConditionalAppend and ConditionalBlockEnd, which may not come while a block is open.
_APPEND_FAMILY = frozenset((1, 5, 89))


class ConnectionRegistry(Protocol):
    """The open connections of a listener, and the budgets that they share."""

    refusals: HostBuckets
    floods: RepeatedLog

    def connection_opened(self, connection: StoreConnection) -> None:
        """Record that a connection has opened; called once."""

    def connection_closed(self, connection: StoreConnection) -> None:
        """Record that a connection's transport is closed; called once."""

    def connection_admitted(self, connection: StoreConnection) -> None:
        """Record that a connection has sent its first request, with a valid token where one is needed."""

    def incomplete_frame(self, connection: StoreConnection, held_bytes: int, *, new_frame: bool) -> None:
        """Note how many bytes a connection holds of an incomplete frame or block (as `IncompleteFrames.holds`)."""


class StoreConnection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    # Objects with more than 30 attributes and without slots: the interpreter looks up each of their methods by name.
    __slots__ = (
        "_appends", "_assembler", "_budget", "_checks", "_closing", "_control", "_flush_scheduled", "_framed",
        "_held_bytes", "_internal", "_loop", "_make_checks", "_max_unacked_bytes", "_out", "_out_bytes", "_reader",
        "_reading", "_reads", "_reads_received", "_registry", "_request_bytes", "_session", "_statistics",
        "_take_append", "_tasks", "_transients", "_transport", "_turn_scheduled", "_turns", "_writable", "closed",
        "get_buffer", "hello_version", "host", "opened", "paused", "peer", "quotas", "reply_semaphore", "requested",
    )  # fmt: skip

    def __init__(
        self, store: SegmentStore, control: ControlHandler, registry: ConnectionRegistry, window: Window | None = None,
        internal: InternalHandler | None = None, checks: Callable[[str], Checks] | None = None,
    ) -> None:  # fmt: skip
        """`internal`: the handler of internal commands from controllers; None: all of them are refused.

        `checks`: returns the access checks for a peer; None: no tokens are required."""
        self._make_checks = checks
        self._checks: Checks = NO_TOKENS
        self._control = control
        self._internal = internal
        self._session: InternalSession | None = None  # set once the connection has introduced itself
        self._registry = registry
        self._reader = FrameReader(window)
        # Have the transport call the reader, without a call in between.
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]
        self._assembler = AppendAssembler()
        self._transport: asyncio.Transport
        self._take_append: Callable[[Append, int | None], None]
        self._loop = asyncio.get_running_loop()
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._flush_scheduled = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.paused = False
        self.reply_semaphore = ReplySemaphore(MAX_CONNECTION_UNACKED_BYTES)
        self._tasks: dict[asyncio.Task[None], int] = {}  # the tasks of requests, with the bytes that each holds
        self._request_bytes = 0
        self._transients = TransientSegments(store, control)
        self.hello_version = 0
        self.peer = "?"
        self.host = ""
        self._turns = FrameTurns()
        self._turn_scheduled = False
        self._reading = True
        self._budget = ConnectionBudget(self, registry.refusals, registry.floods)
        self.quotas = ConnectionQuotas(self, store.quotas)
        self._appends = AppendHandler(self, store)
        self._reads = ReadHandler(self, store)
        self._reads_received = 0
        self._statistics = store.statistics
        self._held_bytes = 0  # as last reported to the registry
        self._max_unacked_bytes = MAX_CONNECTION_UNACKED_BYTES
        self.opened = store.env.clock.monotonic()
        self.requested = False  # whether a complete frame came, or, where tokens are needed, an admitted request
        self._framed = False
        self._closing: asyncio.TimerHandle | None = None
        self.closed = False

    def __repr__(self) -> str:
        if self.closed:
            return f"<StoreConnection {self.peer}, closed>"
        return f"<StoreConnection {self.peer}, {len(self._appends)} writers, {len(self._tasks)} requests>"

    # -- transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer, self.host = f"{peer[0]}:{peer[1]}", str(peer[0])
        if self._make_checks is not None:
            self._checks = self._make_checks(self.peer)
        # From here on the registry has it choose again.
        self._take_append = self._appends.entrance()
        self._registry.connection_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        incomplete = self._reader.buffered_bytes + self._assembler.buffered_bytes
        if not self.closed and incomplete:
            _log.warning("connection %s ended inside a frame or block; %d bytes are discarded", self.peer, incomplete)
        self.closed = True
        self._registry.connection_closed(self)
        # Free the buffers now, since tasks that end may keep this object for a while.
        self._reader.release()
        self._assembler = AppendAssembler()
        self._turns.clear()
        if self._closing is not None:
            self._closing.cancel()
        self._budget.connection_closed()
        self._checks.connection_closed()
        self.quotas.connection_closed()
        self._writable.set()
        self._appends.connection_closed()
        for task in self._tasks:
            # `_finished` removes a task from the dict in a later turn of the loop, so this may iterate over it.
            task.cancel()
        self._transients.connection_closed()
        if self._session is not None:
            self._session.close()
        # Break the reference cycles of the handlers with this object, which only a full garbage collection would find.
        del self._appends, self._reads, self._take_append

    # asyncio calls this when the transport holds more unsent bytes than its limit (`set_memory_limits`).
    def pause_writing(self) -> None:
        self._writable.clear()
        self.reply_semaphore.pause()
        self.apply_backpressure()

    def resume_writing(self) -> None:
        self._writable.set()
        self.reply_semaphore.resume()
        self.apply_backpressure()

    def buffer_updated(self, nbytes: int) -> None:
        self._reads_received += 1
        self._statistics.received_bytes += nbytes
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            other = None if self._framed else other_protocol(self._reader.refused_code, _HTTP_ANSWER)
            if other is None:
                return self.abort(f"broke the protocol: {error}")
            self._out.append(other[0])
            return self.close(other[1])
        if frames and not self._framed:
            self._framed = True
            self.requested = self.requested or self._make_checks is None
        self._serve(self._turns.received(frames))
        # Stop if a frame ended the connection (unsupported version, a bound).
        if self.closed:
            return
        held = self._reader.held_bytes + self._assembler.buffered_bytes
        if (held or self._held_bytes) and (frames or held != self._held_bytes):
            self._held_bytes = held
            self._registry.incomplete_frame(self, held, new_frame=bool(frames))

    def _next_turn(self) -> None:
        self._turn_scheduled = False
        # While a bound stops the connection, no turn begins: `apply_backpressure` schedules it when that ends.
        if not (self.closed or self.paused):
            self._serve(self._turns.next_turn())

    def _serve(self, frames: list[tuple[int, Buffer]]) -> None:
        requests, take_append = False, self._take_append
        try:
            for code, payload in frames:
                # Handle appends before the table of commands, so that a block needs no command object.
                if code == _APPEND_BLOCK_END:
                    take_append(self._assembler.block_end(payload), None)
                else:
                    requests = True
                    self._frame(code, payload)
                if self.closed:
                    return
        except ProtocolError as error:
            return self.abort(f"broke the protocol: {error}")
        # Check the bounds once, after all frames of the turn: a connection exceeds them by one turn at most.  Appends
        # can exceed the one of unacknowledged bytes alone; a quota that stops the connection calls this itself.
        if (
            requests
            or self._appends.unacked_bytes + self._request_bytes > self._max_unacked_bytes
            or not self._turns.left
            or not self._reading
        ):
            self.apply_backpressure()

    def close(self, reason: str | None = None) -> None:
        """Send what is queued, then end the connection.  `reason`: what the connection did, for the log."""
        if not self.closed:
            if reason is not None:
                _log.warning("connection %s closed: it %s", self.peer, reason)
            # Flush before `closed` is set, because `_flush` writes nothing afterwards.
            self._flush()
            self.closed = True
            self._transport.close()
            # Abort later, since the transport itself would wait without a limit for a client that takes no replies.
            self._closing = self._loop.call_later(CONNECTION_CLOSE_SECONDS, self._transport.abort)

    def memory(self) -> ConnectionMemory:
        """Return the memory that the store holds for this client."""
        unsent = self._transport.get_write_buffer_size()
        incomplete = max(self._reader.buffered_bytes + self._assembler.buffered_bytes, self._held_bytes)
        return ConnectionMemory(unsent, incomplete, self._reads_received, self.paused)

    def set_memory_limits(self, unsent_bytes: int, unacked_bytes: int) -> None:
        """Set the bytes of unsent replies above which no reply is made, and the bytes of unacknowledged appends and
        requests above which the socket is not read."""
        # A closing transport needs no limits, since it is not read from again.
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits(high=unsent_bytes)
            self._max_unacked_bytes = unacked_bytes
            self.reply_semaphore.set_limit(unacked_bytes)
            self.apply_backpressure()

    def abort(self, reason: str | None = None) -> None:
        """End the connection at once, without its unsent replies.  `reason`: what the connection did, for the log."""
        if not self.closed:
            if reason is not None:
                _log.warning("connection %s closed: it %s", self.peer, reason)
            self.closed = True
            self._transport.abort()

    def token_expires(self, token: str) -> float:
        """Return when an accepted token expires, in seconds since 1970; infinity where none is required."""
        return inf if self._session is not None else self._checks.expires(token)

    def choose_entrance(self) -> None:
        """Choose the way of appends again: quotas have been switched on or off."""
        if not self.closed:
            self._take_append = self._appends.entrance()

    def writes_to(self, container: Container) -> bool:
        """Return whether a writer of this connection writes to `container`."""
        return self._appends.writes_to(container)

    def apply_backpressure(self) -> None:
        """Stop or resume reading from the socket."""
        if self.closed:
            return
        # Stop at too many unacknowledged bytes, and while replies are not taken, to which new requests would add.
        stop = (
            self._appends.unacked_bytes + self._request_bytes > self._max_unacked_bytes
            or not self._writable.is_set()
            or len(self._tasks) > MAX_REQUESTS_PER_CONNECTION
            or self.quotas.stopped
            or self._budget.slowed
        )
        self.paused = stop
        turn_over = not self._turns.left
        if turn_over and not stop and not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._next_turn)
        reading = not (stop or turn_over)
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- frames in --------------------------------------------------------------------------------

    def _frame(self, code: int, payload: Buffer) -> None:
        # Refuse these inside a block.  `block` checks it for itself, and all other commands may come there.
        if code in _APPEND_FAMILY:
            self._assembler.check_closed()
        if code == _APPEND_BLOCK:
            self._assembler.block(payload)
            return
        command = decode(code, payload)
        if self._session is None:
            if not self._checks.admit(command, self):
                self._budget.refused()
                return
            if self._checks.user and not self.quotas.user:
                refused = self.quotas.connected(self._checks.user, command)
                if refused is not None:
                    self.send(encode(refused))
                    self.close()  # without a reason, since `TenantQuotas` logs one line for the user
                    return
        if isinstance(command, wire.KeepAlive | wire.Hello):
            if self._budget.greeting():
                self._greet(command)
            return
        if not self._budget.served:
            self.requested = True
            self._budget.serve()
            self._registry.connection_admitted(self)
        if isinstance(command, wire.ReadSegment):
            self._reads.read(command)
        elif isinstance(command, wire.SetupAppend):
            self._appends.set_up(command)
        elif isinstance(command, wire.ConditionalAppend):
            # A conditional append is one event; its expected offset is checked when the append gets its offset.
            data = wire.event_bytes(command)
            append = Append(command.writer_id, [data], len(data), 1, command.event_number, command.request_id)
            self._take_append(append, command.expected_offset)
        elif isinstance(command, wire.ConditionalBlockEnd):
            length = len(command.data)
            # Copy the data of a longer payload, since a view would keep the rest of it in memory.
            block = command.data if len(payload) <= length + KIB else bytes(command.data)
            append = Append(command.writer_id, [block], length, 1, command.event_number, command.request_id)
            self._take_append(append, command.expected_offset)
        elif self._control.handles(command):
            # Answer in a task, since this waits for log or index.  Replies may overtake each other: they have ids.
            groups_alone = self._session is None and self._checks.groups_alone
            answer = partial(self._answer, command, groups_alone=groups_alone)
            if self.quotas.quotas.active and self._session is None:
                answer = partial(self.quotas.answer, command, len(payload), answer)
            self.spawn(answer(), request_bytes(command, len(payload)))
        elif self._session is not None and self._session.handles(command):
            self.spawn(self._answer(command), request_bytes(command, len(payload)))
        elif isinstance(command, wire.Introduce) and self._internal is not None and self._session is None:
            self._session = self._internal.introduce(bytes(command.secret))
            self.send(encode(refusal(command) if self._session is None else wire.Introduced(command.request_id)))
            if self._session is None:
                self.close("does not know the secret of this installation")
        elif command.code >= wire.FIRST_INTERNAL:
            self.send(encode(refusal(command)))
            self.close(f"sent {type(command).__name__} without an introduction")
        else:
            raise ProtocolError(f"sent {type(command).__name__}, which is not a request")

    def _greet(self, hello: wire.KeepAlive | wire.Hello) -> None:
        if isinstance(hello, wire.KeepAlive):
            self.send(encode(hello))
            return
        self.hello_version = hello.high_version
        # Answer also a client that speaks none of our versions, so that it learns them before the connection ends.
        self.send(encode(wire.Hello(WIRE_VERSION, OLDEST_WIRE_VERSION)))
        if hello.low_version > WIRE_VERSION or hello.high_version < OLDEST_WIRE_VERSION:
            self.close(f"speaks versions {hello.low_version} to {hello.high_version} only")

    async def _answer(self, command: wire.Command, *, groups_alone: bool = False) -> None:
        # Set this in the context of the request's task.
        current_request_id.set(str(command.request_id))  # type: ignore[attr-defined]
        size = reply_bytes(command)
        try:
            if size:
                # Hold the slot until the reply is sent, so that a reply that waits for a slow client counts.
                async with self.reply_semaphore.slot(size):
                    await self._answer_now(command, groups_alone)
            else:
                await self._answer_now(command, groups_alone)
        except Opening:

            async def again() -> None:
                # Wait outside of the slot, so that other requests can be answered meanwhile.
                async with self.reply_semaphore.slot(size) if size else nullcontext():
                    await self._answer_now(command, groups_alone)

            try:
                await when_hosted(again)
            except Unavailable:
                if self._session is None:
                    self.close()
                else:
                    self.send(encode(outcome_unknown(command)))

    async def _answer_now(self, command: wire.Command, groups_alone: bool) -> None:
        if isinstance(command, wire.CreateTransientSegment):
            reply = await self._transients.create(command)
        elif self._session is not None and self._session.handles(command):
            reply = await self._session.answer(command)
        else:
            client = self._session is None or getattr(command, "token", "") == FORWARDED
            reply = await self._control.answer(command, groups_alone=groups_alone, client=client)
            if self.quotas.quotas.active and self._session is None:
                self.quotas.answered(command, reply)
            if isinstance(command, wire.MergeSegments) and isinstance(reply, wire.SegmentsMerged):
                # Note the merge before the next await, because the connection may end then, and delete the segment.
                self._transients.merged(command.source)
        if reply is None and self._session is not None:
            # Answer a controller instead of closing the connection, which has many other requests.
            reply = outcome_unknown(command)
        if isinstance(reply, wire.WrongHost) and self.hello_version == RUST_WIRE_VERSION:
            reply = await self._control.forward(command, reply, groups_alone=groups_alone)
        if _log.isEnabledFor(logging.DEBUG):
            said = "closes the connection" if reply is None else f"is answered with {type(reply).__name__}"
            _log.debug("%s of %s %s", type(command).__name__, self.peer, said)
        await self.wait_writable()
        if reply is None:
            # Close: the outcome is unknown, or the protocol has no reply for the error (`replies.py`).
            self.close()
        else:
            self.send_parts(encode_parts(reply))

    async def wait_writable(self) -> None:
        """Wait until the client takes what is sent."""
        # Check again after each wait: all waiters wake at once, and the first to write may fill the transport.
        while not self._writable.is_set():
            await self._writable.wait()

    # -- replies out --------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent."""
        return self._writable.is_set()

    def send(self, frame: bytes) -> None:
        """Queue a frame, to be sent with the others of this turn of the event loop."""
        self._out.append(frame)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            # Flush after the callbacks that are ready now, so that their frames leave in the same write.
            self._loop.call_soon(self._flush)

    def send_parts(self, parts: list[Buffer]) -> None:
        """Queue a frame made of parts; send it at once if more than SEND_BATCH_BYTES are queued."""
        self._out.extend(parts)
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes > SEND_BATCH_BYTES:
            self._flush()  # the transport can pause us before the next reply is made
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        out, self._out = self._out, []
        # Drop frames that came after `close`, which has flushed.
        if not out or self.closed:
            return
        if self._out_bytes:  # send large parts without a copy
            self._out_bytes = 0
            self._statistics.sent_bytes += sum(map(len, out))
            self._transport.writelines(out)
        else:
            frames = b"".join(out)
            self._statistics.sent_bytes += len(frames)
            self._transport.write(frames)

    def spawn(self, work: Coroutine[Any, Any, None], memory_bytes: int = REQUEST_OVERHEAD_BYTES) -> asyncio.Task[None]:
        """Run a request, which holds `memory_bytes`, as a task that ends with the connection."""
        task = asyncio.ensure_future(work)
        # Charge the memory now: one read of the socket may spawn many tasks before any of them runs.
        self._tasks[task] = memory_bytes
        self._request_bytes += memory_bytes
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._request_bytes -= self._tasks.pop(task)
        assert self._request_bytes >= 0, self
        if task.cancelled():
            self.close()  # so that the client does not wait for its reply for ever, whoever cancelled the task
        elif task.exception() is not None:
            _log.error("connection %s: a request failed", self.peer, exc_info=task.exception())
            self.close("met a bug in the server")
        if self.paused:
            self.apply_backpressure()


Factory = Callable[[], StoreConnection]
