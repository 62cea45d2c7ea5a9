"""One client connection of the segment store: frames in, replies out, in bounded memory.

Appends go from the decoder to their container in the same turn of the loop, without a task
and without an object per event.  A read that memory can answer is answered in that turn too;
the others, and all other requests, run as tasks.

Back-pressure.  Reading from the socket stops while the client does not take our replies, while unacknowledged
appends and running requests hold more than the connection's limit of unacknowledged bytes, while too many requests run,
and while a quota or the budget of frames demands it (`connection_quotas.py`, `connection_budget.py`).  All but the last
two count by the memory they hold.  Large replies are made only while the client takes them, and not all at once
(`reply_semaphore.py`).  A connection is served FRAMES_PER_TURN frames, then others have a turn (`frame_turns.py`).
Acknowledgements and replies gathered in one turn leave in one write.
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
# The first bytes of an HTTP request, read as the type of a frame.
_HTTP_ANSWER = http_answer("the wire protocol of a segment store")
# SetupAppend, ConditionalAppend, ConditionalBlockEnd: none may come while a block is open.
_APPEND_FAMILY = frozenset((1, 5, 89))


class ConnectionRegistry(Protocol):
    """The list of open connections, and the budgets that they share."""

    refusals: HostBuckets
    floods: RepeatedLog

    def connection_opened(self, connection: StoreConnection) -> None:
        """Note that a connection can be written to; called once."""

    def connection_closed(self, connection: StoreConnection) -> None:
        """The transport is closed; called once."""

    def connection_admitted(self, connection: StoreConnection) -> None:
        """Note that a connection has asked for something, with a valid token where one is needed; called at most
        once."""

    def incomplete_frame(self, connection: StoreConnection, held_bytes: int, *, new_frame: bool) -> None:
        """Note how many bytes a connection holds of a frame or block that is not complete; see
        `IncompleteFrames.holds`."""


class StoreConnection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    def __init__(
        self, store: SegmentStore, control: ControlHandler, registry: ConnectionRegistry, window: Window | None = None,
        internal: InternalHandler | None = None, checks: Callable[[str], Checks] | None = None,
    ) -> None:  # fmt: skip
        """`internal`: answers the controllers of this installation; None: no internal command is answered.

        `checks`: makes the checks of tokens for a peer; None: none is asked for."""
        self._make_checks = checks
        self._checks: Checks = NO_TOKENS
        self._control = control
        self._internal = internal
        self._session: InternalSession | None = None  # once the connection has introduced itself
        self._registry = registry
        self._reader = FrameReader(window)
        self._assembler = AppendAssembler()
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._flush_scheduled = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.paused = False
        self.reply_semaphore = ReplySemaphore(MAX_CONNECTION_UNACKED_BYTES)
        self._tasks: dict[asyncio.Task[None], int] = {}  # -> bytes it holds
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
        self.requested = False  # whether it may stay: a complete frame came; where tokens are needed, it is admitted
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
        self._registry.connection_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        incomplete = self._reader.buffered_bytes + self._assembler.buffered_bytes
        if not self.closed and incomplete:
            _log.warning("connection %s ended inside a frame or block; %d bytes are discarded", self.peer, incomplete)
        self.closed = True
        self._registry.connection_closed(self)
        # At once: tasks that end may keep this object for a while.
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
        # They refer to this object.  Without this it would be in a cycle, which only a full garbage collection finds.
        del self._appends, self._reads

    # Called when the transport holds more unsent bytes than its limit (`set_memory_limits`).
    def pause_writing(self) -> None:
        self._writable.clear()
        self.reply_semaphore.pause()
        self.apply_backpressure()

    def resume_writing(self) -> None:
        self._writable.set()
        self.reply_semaphore.resume()
        self.apply_backpressure()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._reads_received += 1
        self._statistics.received_bytes += nbytes
        self._appends.may_measure = True
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            other = None if self._framed else other_protocol(self._reader.refused_code, _HTTP_ANSWER)
            if other is None:
                return self.abort(f"broke the protocol: {error}")
            self._out.append(other[0])
            return self.close(other[1])
        if frames:
            self._framed = True
            self.requested = self._budget.served or self._make_checks is None
        self._serve(self._turns.received(frames))
        # A frame ended the connection (versions, a bound): what the client sent after it is not served.
        if self.closed:
            return
        held = self._reader.held_bytes + self._assembler.buffered_bytes
        if held != self._held_bytes or (held and frames):
            self._held_bytes = held
            self._registry.incomplete_frame(self, held, new_frame=bool(frames))

    def _serve(self, frames: list[tuple[int, Buffer]] | None = None) -> None:
        """Serve frames; None: those of the next turn, which begins."""
        if frames is None:
            self._turn_scheduled = False
            # If a bound has stopped it, `apply_backpressure` schedules the next turn when that ends.
            if self.closed or self.paused:
                return
            frames = self._turns.next_turn()
        try:
            for code, payload in frames:
                self._frame(code, payload)
                if self.closed:
                    return
        except ProtocolError as error:
            return self.abort(f"broke the protocol: {error}")
        # Once per turn, after all its frames: a connection exceeds its bounds by one turn at most.
        self.apply_backpressure()

    def close(self, reason: str | None = None) -> None:
        """Send what is queued, then end the connection; log `reason`: what it did."""
        if not self.closed:
            if reason is not None:
                _log.warning("connection %s closed: it %s", self.peer, reason)
            # In this order: after `closed` is set, `_flush` writes nothing.
            self._flush()
            self.closed = True
            self._transport.close()
            # The transport itself waits without a limit until the client has taken all that was sent.
            self._closing = self._loop.call_later(CONNECTION_CLOSE_SECONDS, self._transport.abort)

    def memory(self) -> ConnectionMemory:
        """Return the memory that the store holds for this client."""
        unsent = self._transport.get_write_buffer_size()
        incomplete = max(self._reader.buffered_bytes + self._assembler.buffered_bytes, self._held_bytes)
        return ConnectionMemory(unsent, incomplete, self._reads_received, self.paused)

    def set_memory_limits(self, unsent_bytes: int, unacked_bytes: int) -> None:
        """Answer only below `unsent_bytes` of replies not taken; read only below `unacked_bytes` not acknowledged."""
        # A closing transport is not read from again: no limit matters to it.
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits(high=unsent_bytes)
            self._max_unacked_bytes = unacked_bytes
            self.reply_semaphore.set_limit(unacked_bytes)
            self.apply_backpressure()

    def abort(self, reason: str | None = None) -> None:
        """End the connection at once, with replies unsent; log `reason`: what it did."""
        if not self.closed:
            if reason is not None:
                _log.warning("connection %s closed: it %s", self.peer, reason)
            self.closed = True
            self._transport.abort()

    def token_expires(self, token: str) -> float:
        """When a token that was accepted expires, in seconds since 1970; infinite where none is asked for."""
        return inf if self._session is not None else self._checks.expires(token)

    def writes_to(self, container: Container) -> bool:
        """Return whether a writer of this connection writes to `container`."""
        return self._appends.writes_to(container)

    def apply_backpressure(self) -> None:
        """Stop or resume reading from the socket."""
        if self.closed:
            return
        # Unacknowledged appends and requests hold our memory; replies not taken hold it, too, and new requests make
        # more of them.
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
            self._loop.call_soon(self._serve)
        reading = not (stop or turn_over)
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- frames in --------------------------------------------------------------------------------

    def _frame(self, code: int, payload: Buffer) -> None:
        # The append path goes first, past the table of commands: no command object for a block.
        if code == _APPEND_BLOCK_END:
            self._appends.append(self._assembler.block_end(payload), None)
            return
        # `block` checks it for itself, and all other commands may come between a block and its end.
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
                    self.close()  # the line in the log is for the user, not for each connection
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
            # A conditional append is one event.  Its expected offset is checked when the append gets its offset.
            data = wire.event_bytes(command)
            append = Append(command.writer_id, [data], len(data), 1, command.event_number, command.request_id)
            self._appends.append(append, command.expected_offset)
        elif isinstance(command, wire.ConditionalBlockEnd):
            length = len(command.data)
            # A view would keep the rest of a longer payload in memory.
            block = command.data if len(payload) <= length + KIB else bytes(command.data)
            append = Append(command.writer_id, [block], length, 1, command.event_number, command.request_id)
            self._appends.append(append, command.expected_offset)
        elif self._control.handles(command):
            # A task, since it waits for the log or the index.  Replies may overtake each other: each has a request id.
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
        # Also to a client that speaks none of our versions: it reads ours before the connection ends.
        self.send(encode(wire.Hello(WIRE_VERSION, OLDEST_WIRE_VERSION)))
        if hello.low_version > WIRE_VERSION or hello.high_version < OLDEST_WIRE_VERSION:
            self.close(f"speaks versions {hello.low_version} to {hello.high_version} only")

    async def _answer(self, command: wire.Command, *, groups_alone: bool = False) -> None:
        # Each request has a task, and so a context, of its own.
        current_request_id.set(str(command.request_id))  # type: ignore[attr-defined]
        size = reply_bytes(command)
        try:
            if size:
                # The slot is held until the reply is sent: what waits for a slow client counts.
                async with self.reply_semaphore.slot(size):
                    await self._answer_now(command, groups_alone)
            else:
                await self._answer_now(command, groups_alone)
        except Opening:

            async def again() -> None:
                # Not inside the slot while it waits: others may be answered meanwhile.
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
            reply = await self._control.answer(command, groups_alone=groups_alone)
            if self.quotas.quotas.active and self._session is None:
                self.quotas.answered(command, reply)
            if isinstance(command, wire.MergeSegments) and isinstance(reply, wire.SegmentsMerged):
                # Before the next await: the connection may end during it, and would try to delete what is merged.
                self._transients.merged(command.source)
        if reply is None and self._session is not None:
            # A controller has many other requests on this connection: it does not end because of one.
            reply = outcome_unknown(command)
        if isinstance(reply, wire.WrongHost) and self.hello_version == RUST_WIRE_VERSION:
            reply = await self._control.forward(command, reply, groups_alone=groups_alone)
        if _log.isEnabledFor(logging.DEBUG):
            said = "closes the connection" if reply is None else f"is answered with {type(reply).__name__}"
            _log.debug("%s of %s %s", type(command).__name__, self.peer, said)
        await self.wait_writable()
        if reply is None:
            # The outcome is unknown, or the protocol has no reply for it (`replies.py`).
            self.close()
        else:
            self.send_parts(encode_parts(reply))

    async def wait_writable(self) -> None:
        """Wait until the client takes what is sent."""
        # All waiters wake at once, and the first of them to write may fill the transport again.
        while not self._writable.is_set():
            await self._writable.wait()

    # -- replies out --------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent."""
        return self._writable.is_set()

    def send(self, frame: bytes) -> None:
        """Send a frame with the others of this turn."""
        self._out.append(frame)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            # Callbacks that are ready now run before it: their frames leave in the same write.
            self._loop.call_soon(self._flush)

    def send_parts(self, parts: list[Buffer]) -> None:
        """Send a frame made of parts, large ones at once."""
        self._out.extend(parts)
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes > SEND_BATCH_BYTES:
            self._flush()  # the transport can pause us before the next reply is made
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._out_bytes = 0
        out, self._out = self._out, []
        # `close` has flushed.  A frame that came after it is dropped.
        if out and not self.closed:
            self._statistics.sent_bytes += sum(map(len, out))
            self._transport.writelines(out)

    def spawn(self, work: Coroutine[Any, Any, None], memory_bytes: int = REQUEST_OVERHEAD_BYTES) -> asyncio.Task[None]:
        """Run a request's work, which holds `memory_bytes`, as a task that ends with the connection."""
        task = asyncio.ensure_future(work)
        # Charged now and not when the task begins: one read may spawn many before any of them runs.
        self._tasks[task] = memory_bytes
        self._request_bytes += memory_bytes
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._request_bytes -= self._tasks.pop(task)
        assert self._request_bytes >= 0, self
        if task.cancelled():
            self.close()  # only the connection's end cancels; otherwise the client would wait for its reply for ever
        elif task.exception() is not None:
            _log.error("connection %s: a request failed", self.peer, exc_info=task.exception())
            self.close("met a bug in the server")
        if self.paused:
            self.apply_backpressure()


Factory = Callable[[], StoreConnection]
