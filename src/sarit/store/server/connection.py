"""One client connection of the segment store: frames in, replies out, in bounded memory.

Appends go from the decoder to their container in the same turn of the loop, without a task
and without an object per event.  A read that memory can answer is answered in that turn too;
the others, and all other requests, run as tasks.

Back-pressure.  Reading from the socket stops while the client does not take our replies, while
appends that are not acknowledged and requests under way hold more than MAX_CONNECTION_UNACKED_BYTES,
and while too many requests are under way.  All count by what memory holds for them.  Large replies are
made only while the client takes them, and not all at once (`turnstile.py`).
Acknowledgements and replies gathered in one turn leave in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

from sarit.core.limits import (
    KIB,
    MAX_CONNECTION_UNACKED_BYTES,
    MAX_REQUESTS_PER_CONNECTION,
    OLDEST_WIRE_VERSION,
    REQUEST_OVERHEAD_BYTES,
    WIRE_VERSION,
)
from sarit.store.server.append_handler import AppendHandler
from sarit.store.server.connection_reaper import Holding
from sarit.store.server.memory_cost import reply_bytes, request_bytes
from sarit.store.server.read_handler import ReadHandler
from sarit.store.server.reply_semaphore import ReplySemaphore
from sarit.store.server.transient_segments import TransientSegments
from sarit.wire import commands as wire
from sarit.wire.append import Append, AppendAssembler
from sarit.wire.commands import ProtocolError, decode, encode, encode_parts
from sarit.wire.frames import FrameReader

if TYPE_CHECKING:
    from sarit.env.ports import Buffer
    from sarit.store.container.container import Container
    from sarit.store.server.control_handler import ControlHandler
    from sarit.store.store import SegmentStore
    from sarit.wire.frames import Window

_log = logging.getLogger("sarit.store.server.connection")

CLOSE_SECONDS = 10.0
_APPEND_BLOCK = 3
_APPEND_BLOCK_END = 4
# SetupAppend, ConditionalAppend, ConditionalBlockEnd: none may come while a block is open.
_APPEND_FAMILY = frozenset((1, 5, 89))
_FLUSH_AT_BYTES = 1 << 20


class Registry(Protocol):
    """Who keeps the list of open connections."""

    def opened(self, connection: StoreConnection) -> None:
        """It can be written to."""

    def closed(self, connection: StoreConnection) -> None:
        """It is gone."""


class StoreConnection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    def __init__(
        self, store: SegmentStore, requests: ControlHandler, registry: Registry, window: Window | None = None
    ) -> None:
        self._requests = requests
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
        self.turnstile = ReplySemaphore(MAX_CONNECTION_UNACKED_BYTES)
        self._tasks: dict[asyncio.Task[None], int] = {}  # what each holds, in bytes
        self._waiting_bytes = 0
        self._transients = TransientSegments(store, requests)
        self.hello_version = 0
        self._peer = "?"
        self._appends = AppendHandler(self, store)
        self._reads = ReadHandler(self, store)
        self._received = 0
        self._most_unacked = MAX_CONNECTION_UNACKED_BYTES
        self._closing: asyncio.TimerHandle | None = None
        self.closed = False

    def __repr__(self) -> str:
        return f"<StoreConnection {self._peer}, {len(self._appends)} writers, {len(self._tasks)} requests>"

    # -- transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._registry.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed and (held := self._half_bytes()):
            _log.warning("connection %s ended in the middle of a frame or block: its %d bytes go", self._peer, held)
        self.closed = True
        self._registry.closed(self)
        if self._closing is not None:
            self._closing.cancel()
        self._writable.set()
        self._appends.end()
        for task in self._tasks:
            task.cancel()
        self._transients.end()

    def pause_writing(self) -> None:
        self._writable.clear()
        self.turnstile.close()
        self.balance()

    def resume_writing(self) -> None:
        self._writable.set()
        self.turnstile.open()
        self.balance()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._received += 1
        try:
            for code, payload in self._reader.received(nbytes):
                self._frame(code, payload)
                if self.closed:
                    return
        except ProtocolError as error:
            self._drop(f"broke the protocol: {error}")
        self.balance()

    def close(self, reason: str | None = None) -> None:
        """End the connection; log why when there is a reason."""
        if not self.closed:
            if reason is not None:
                _log.warning("connection %s closed: it %s", self._peer, reason)
            self._flush()
            self.closed = True
            self._transport.close()
            # The transport waits until the client has taken all that was sent, for ever if need be.
            self._closing = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def holding(self) -> Holding:
        """The memory this client makes us hold."""
        unsent = self._transport.get_write_buffer_size()
        return Holding(unsent, self._half_bytes(), self._received, self.paused)

    def _half_bytes(self) -> int:
        return self._reader.held_bytes + self._assembler.held_bytes

    def limit_held(self, unsent_bytes: int, unacked_bytes: int) -> None:
        """Answer no more while more bytes of replies are not taken; read no more while more are not acknowledged."""
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits(high=unsent_bytes)
            self._most_unacked = unacked_bytes
            self.turnstile.limit(unacked_bytes)
            self.balance()

    def drop(self, reason: str) -> None:
        """End the connection at once, whatever is still to be sent; `reason`: it did what."""
        if not self.closed:
            self._drop(reason)

    def serves(self, container: Container) -> bool:
        """Whether a writer of this connection writes to `container`."""
        return self._appends.serves(container)

    def _drop(self, reason: str) -> None:
        _log.warning("connection %s closed: it %s", self._peer, reason)
        self.closed = True
        self._transport.abort()

    def balance(self) -> None:
        """Stop or resume reading by what is bound for this client."""
        stop = (
            self._appends.unacked_bytes + self._waiting_bytes > self._most_unacked
            or not self._writable.is_set()
            or len(self._tasks) > MAX_REQUESTS_PER_CONNECTION
        )
        if stop != self.paused and not self.closed:
            self.paused = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- frames in --------------------------------------------------------------------------------

    def _frame(self, code: int, payload: Buffer) -> None:
        if code == _APPEND_BLOCK_END:
            self._appends.append(self._assembler.block_end(payload), None)
            return
        if code in _APPEND_FAMILY:
            self._assembler.check_closed()
        if code == _APPEND_BLOCK:
            self._assembler.block(payload)
            return
        command = decode(code, payload)
        if isinstance(command, wire.ReadSegment):
            self._reads.read(command)
        elif isinstance(command, wire.KeepAlive):
            self.send(encode(command))
        elif isinstance(command, wire.SetupAppend):
            self._appends.set_up(command)
        elif isinstance(command, wire.ConditionalAppend):
            data = wire.event_bytes(command)
            append = Append(command.writer_id, [data], len(data), 1, command.event_number, command.request_id)
            self._appends.append(append, command.expected_offset)
        elif isinstance(command, wire.ConditionalBlockEnd):
            length = len(command.data)
            # A view would keep what stands behind it.
            block = command.data if len(payload) <= length + KIB else bytes(command.data)
            append = Append(command.writer_id, [block], length, 1, command.event_number, command.request_id)
            self._appends.append(append, command.expected_offset)
        elif isinstance(command, wire.Hello):
            self._hello(command)
        elif self._requests.handles(command):
            self.spawn(self._answer(command), request_bytes(command, len(payload)))
        else:
            raise ProtocolError(f"sent {type(command).__name__}, which is not a request")

    def _hello(self, hello: wire.Hello) -> None:
        self.hello_version = hello.high_version
        self.send(encode(wire.Hello(WIRE_VERSION, OLDEST_WIRE_VERSION)))
        if hello.low_version > WIRE_VERSION or hello.high_version < OLDEST_WIRE_VERSION:
            self.close(f"speaks versions {hello.low_version} to {hello.high_version} only")

    async def _answer(self, command: wire.Command) -> None:
        if held := reply_bytes(command):
            async with self.turnstile.room(held):
                await self._answer_now(command)
        else:
            await self._answer_now(command)

    async def _answer_now(self, command: wire.Command) -> None:
        if isinstance(command, wire.CreateTransientSegment):
            reply = await self._transients.create(command)
        else:
            reply = await self._requests.answer(command)
            if isinstance(command, wire.MergeSegments) and isinstance(reply, wire.SegmentsMerged):
                self._transients.merged(command.source)
        await self.until_writable()
        if reply is None:
            self.close()
        else:
            self.send_parts(encode_parts(reply))

    async def until_writable(self) -> None:
        """Wait while the client does not take what is sent."""
        # Everybody who waits is woken at once, and the first to write may close the gate again.
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
            self._loop.call_soon(self._flush)

    def send_parts(self, parts: list[Buffer]) -> None:
        """Send a frame made of parts, large ones at once."""
        self._out.extend(parts)
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes > _FLUSH_AT_BYTES:
            self._flush()  # so that the transport says stop before the next reply is made
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._out_bytes = 0
        out, self._out = self._out, []
        if out and not self.closed:
            self._transport.writelines(out)

    def spawn(self, work: Coroutine[Any, Any, None], held_bytes: int = REQUEST_OVERHEAD_BYTES) -> asyncio.Task[None]:
        """Run a request's work, which holds so many bytes, as a task that ends with the connection."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = held_bytes
        self._waiting_bytes += held_bytes
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._waiting_bytes -= self._tasks.pop(task)
        if task.cancelled():
            self.close()  # only the end of the connection cancels; else the client would wait for its reply for ever
        elif task.exception() is not None:
            _log.error("connection %s: a request failed", self._peer, exc_info=task.exception())
            self.close("met a bug of ours")
        if self.paused:
            self.balance()


Factory = Callable[[], StoreConnection]
