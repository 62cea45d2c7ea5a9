"""Connections to segment stores: the asyncio side of `machine.py`, and the pool.

One connection per store and purpose: appends go over one, everything else over another, so that a store that slows
its writers (it may stop reading from their socket) does not stop their readers.

A connection is dead when nothing moves on it for a while, though we ask for an echo.  What counts are bytes, not whole
commands: over a slow link one command may take longer than that, either way, and whoever began it anew each time would
never have it.  Bytes sent count when the socket took some of what had to wait: it has room again when some arrived.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.machine import Machine, Sink
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import MIB
from sarit.wire.commands import KeepAlive, encode
from sarit.wire.frames import FrameReader, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Buffer, Network

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 10.0
DEAD_AFTER_TICKS: Final = 3
CONNECT_SECONDS: Final = 10.0
WRITE_BUFFER_BYTES: Final = 4 * MIB

APPENDS: Final = "appends"
REQUESTS: Final = "requests"


class PendingReply:
    """A sink for one reply, awaited through `answer`."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply(self, command: Any) -> bool:
        """Take the reply."""
        if not self.answer.done():
            self.answer.set_result(command)
        return True

    def lost(self, error: Unavailable) -> None:
        """No reply will come."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection to a segment store.  Ends for ever with its first error."""

    def __init__(self, name: str, window: Window | None = None) -> None:
        self.name = name
        self.machine = Machine()
        self.closed = False
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = FrameReader(window)
        self._transport: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._received = 0  # bytes since the last tick
        self._unsent = 0  # bytes that waited for the socket at the last tick
        self._handed = 0  # bytes handed over to be sent, since the beginning
        self._sent = 0  # those of them that the socket had taken at the last tick
        self._ticks_without_bytes = 0
        self._reason: str | None = None

    def __repr__(self) -> str:
        return f"Connection({self.name}, {'closed' if self.closed else 'open'}, {self.machine!r})"

    # -- asyncio calls these --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: greet."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        set_limits = getattr(transport, "set_write_buffer_limits", None)
        if set_limits is not None:
            set_limits(high=WRITE_BUFFER_BYTES)
        transport.write(self.machine.hello())  # type: ignore[attr-defined]
        self._tick = asyncio.get_running_loop().call_later(KEEP_ALIVE_SECONDS, self._keep_alive)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._received += nbytes
        try:
            self.machine.received(self._reader.received(nbytes))
        except SaritError as error:
            self.abort(f"{self.name}: {error}")
        except Exception:
            log.exception("%s: a reply could not be handled", self.name)
            self.abort(f"{self.name}: a reply could not be handled (see the log)")
        else:
            if self.machine.greeted and not self.greeted.done():
                self.greeted.set_result(None)

    def eof_received(self) -> bool:
        """The store closed its side: close ours, at once.  What we have not sent yet it may never take, and until then
        those who wait would not be told."""
        self.abort(f"{self.name}: the connection was lost (closed by the store)")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end: everybody who waits is told."""
        self.closed = True
        if self._tick is not None:
            self._tick.cancel()
        error = Unavailable(self._reason or f"{self.name}: the connection was lost ({exc or 'closed by the store'})")
        if not self.greeted.done():
            self.greeted.set_exception(error)
            self.greeted.exception()
        self.machine.lost(error)

    # -- sending --------------------------------------------------------------------------------

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send whole frames, given in parts; silently dropped when the connection is closed."""
        # One that broke says so by `is_closing` first, and complains of what is written to it until we are told.
        if self._transport is not None and not self.closed and not self._transport.is_closing():
            self._handed += sum(map(len, parts))
            self._transport.writelines(parts)

    def expect(self, sink: Sink) -> int:
        """A request id whose replies go to `sink`.  Raises Unavailable when the connection has ended."""
        if self.closed:
            raise Unavailable(self._reason or f"{self.name}: the connection is closed")
        return self.machine.expect(sink)

    async def ask(self, command: Callable[[int], Any]) -> Any:
        """Send the request `command(request_id)` and await its reply.  Raises Unavailable."""
        question = PendingReply()
        request_id = self.expect(question)
        self.send([encode(command(request_id))])
        try:
            return await question.answer
        finally:
            self.machine.forget(request_id)

    def abort(self, reason: str) -> None:
        """End the connection at once for `reason`."""
        if self._reason is None:
            self._reason = reason
            log.info("closing a connection: %s", reason)
        if self._transport is not None:
            self._transport.abort()
        self.closed = True

    def _keep_alive(self) -> None:
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        sent = self._handed - unsent
        # When bytes waited, the socket takes more only when the store has taken some: it lives, however long the queue.
        if self._received or (self._unsent and sent > self._sent):
            self._ticks_without_bytes = 0
        elif self._ticks_without_bytes >= DEAD_AFTER_TICKS:
            self.abort(f"{self.name}: no sign of life for {DEAD_AFTER_TICKS * KEEP_ALIVE_SECONDS:.0f} s")
            return
        self._ticks_without_bytes += 1
        # Before the echo is asked for, which may wait in there for a moment.
        self._received, self._unsent, self._sent = 0, unsent, sent
        self.send([encode(KeepAlive())])
        self._tick = asyncio.get_running_loop().call_later(KEEP_ALIVE_SECONDS, self._keep_alive)


class ConnectionPool:
    """The pool: at most one open connection per (store, purpose)."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._window = Window()
        self._open: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}
        self._closed = False

    async def to(self, endpoint: tuple[str, int], purpose: str) -> Connection:
        """The connection to a store, opened if there is none.  Raises Unavailable."""
        if self._closed:
            raise Invalid("the client is closed")
        key = (*endpoint, purpose)
        task = self._open.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().closed)):
            task = asyncio.get_running_loop().create_task(self._connect(*key), name=f"connect {key}")
            task.add_done_callback(_noted)
            self._open[key] = task
        if not task.done():
            # By `wait`: several may wait for this one task, and one that is cancelled must not take it along.
            await asyncio.wait((task,))
        if task.cancelled():  # by `close`: whoever waits here was not cancelled
            raise Invalid("the client was closed")
        return task.result()

    async def _connect(self, host: str, port: int, purpose: str) -> Connection:
        name = f"segment store {host}:{port} ({purpose})"
        connection: Connection | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await self._network.connect(lambda: Connection(name, self._window), host, port)
                assert connection is not None
                await connection.greeted
        except TimeoutError:
            if connection is not None:
                connection.abort(f"{name}: no greeting")
            raise Unavailable(f"{name} does not answer: is the node running and the port right?") from None
        except OSError as error:
            raise Unavailable(f"{name} cannot be reached ({error}): is the node running?") from None
        return connection

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        tasks = list(self._open.values())
        self._open.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.abort("the client was closed")


def _noted(task: asyncio.Task[Connection]) -> None:
    """Nobody may wait any more for a connection that fails: that is no reason to complain."""
    if not task.cancelled():
        task.exception()
