"""Servers with TLS that survive clients who never finish a handshake, and report those who fail.

A server knows a client only when its handshake is done: only then the listener behind it is asked for a connection.
Until its first byte a connection is no more than a socket: a TLS object takes 100 KB and a good part of a millisecond.
A host has at most MAX_TLS_HANDSHAKES_OF_HOST handshakes under way; what else it has begun waits for one of them to end.
At a limit of all hosts the oldest connection of the host that has most gives way: a handshake takes milliseconds, so it
is hardly one of a client that means to finish it.  It may come back at once: while connections give way, the server
rests between a few and the next few, so that the loop has time for those who are known.

asyncio's own server would report nothing about a handshake that fails, and use one context for ever.  This one accepts
connections itself, and gives each the newest context.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.env.limits import (
    ACCEPT_RETRY_SECONDS,
    CROWDED_REST_SECONDS,
    MAX_ACCEPTED_AT_ONCE,
    MAX_TLS_HANDSHAKES,
    MAX_TLS_HANDSHAKES_OF_HOST,
    TLS_HANDSHAKE_SECONDS,
    TLS_SHUTDOWN_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.tls import ServerTls

_log = logging.getLogger("sarit.security")

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def serve_tls(
    factory: Callable[[], asyncio.BaseProtocol], handshakes: Handshakes, host: str | None, port: int, backlog: int
) -> TlsServer:
    """Listen as `loop.create_server` does; `host` None: on all addresses.  Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        return TlsServer(factory, handshakes, sockets, backlog)
    except BaseException:
        for listener in sockets:
            listener.close()
        raise


class TlsServer(asyncio.AbstractServer):
    """Accepts connections at bound sockets; `factory` makes the protocol of each when its TLS handshake is done."""

    def __init__(
        self, factory: Callable[[], asyncio.BaseProtocol], handshakes: Handshakes, sockets: Sequence[socket.socket],
        backlog: int,
    ) -> None:  # fmt: skip
        self._factory = factory
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self.sockets = tuple(sockets)
        self._repeated = RepeatedLog(_log, self._loop.time)
        for listener in self.sockets:
            listener.setblocking(False)
            listener.listen(backlog)
            self._resume(listener)

    def __repr__(self) -> str:
        return f"<TlsServer at {', '.join(str(listener.getsockname()) for listener in self.sockets) or 'no address'}>"

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the server."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether the server accepts connections."""
        return bool(self.sockets)

    def close(self) -> None:
        """Accept no more connections, and close those without TLS yet; the others stay open."""
        self._closed.set()
        self._handshakes.drop_waiting()
        sockets, self.sockets = self.sockets, ()
        for listener in sockets:
            self._loop.remove_reader(listener)
            listener.close()

    async def start_serving(self) -> None:
        """Do nothing: the server serves from its creation on."""

    async def serve_forever(self) -> None:
        """Wait until the server is closed."""
        await self._closed.wait()

    async def wait_closed(self) -> None:
        """Wait until the server is closed."""
        await self._closed.wait()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        crowded = False
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._repeated.error("accept", f"no connection can be accepted: {error.strerror}: tried again")
                self._rest(listener, ACCEPT_RETRY_SECONDS)
                return
            connection.setblocking(False)
            crowded |= self._handshakes.accept(connection, str(peer[0]), self._factory)
        if crowded:
            self._rest(listener, CROWDED_REST_SECONDS)

    def _rest(self, listener: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listener)
        self._loop.call_later(seconds, self._resume, listener)


class Handshakes:
    """The connections of a server that have no TLS yet; `seconds`: how long one may stay so.

    A connection waits for its first byte, and for a place of its host; then its handshake is under way.  At most `most`
    wait, and as many are under way."""

    def __init__(
        self, tls: ServerTls, most: int = MAX_TLS_HANDSHAKES, seconds: float = TLS_HANDSHAKE_SECONDS, *,
        of_host: int = MAX_TLS_HANDSHAKES_OF_HOST, http: bool = False,
    ) -> None:  # fmt: skip
        self._tls = tls
        self._most = most
        self._of_host = of_host
        self._seconds = seconds
        self._http = http
        self._waiting: PlacesByHost[_Accepted] = PlacesByHost()
        self._spoken: PlacesByHost[_Accepted] = PlacesByHost()  # waiting clients that have sent their first byte
        self._deadlines: dict[_Accepted, float] = {}  # of the waiting connections, in order of arrival
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: PlacesByHost[asyncio.Task[None]] = PlacesByHost()
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        silent = len(self._waiting) - len(self._spoken)
        return f"<Handshakes, {len(self._under_way)} under way, {len(self._spoken)} wait for a place, {silent} silent>"

    def accept(self, connection: socket.socket, host: str, factory: Callable[[], asyncio.BaseProtocol]) -> bool:
        """Wait for the first byte of a client that has connected from a host; return whether another gave way to it."""
        crowded = self._make_place()
        loop = asyncio.get_running_loop()
        accepted = _Accepted(connection, host, factory)
        self._waiting.enter(host, accepted)
        self._deadlines[accepted] = loop.time() + self._seconds
        loop.add_reader(connection, self._hear, accepted)
        self._watch()
        return crowded

    def drop_waiting(self) -> None:
        """Close the connections whose handshake has not begun."""
        for accepted in list(self._deadlines):
            self._close(accepted)

    def _watch(self) -> None:
        """Set the timer for the connection that has waited longest, unless it is set."""
        if self._deadlines and self._timer is None:
            first = next(iter(self._deadlines.values()))
            self._timer = asyncio.get_running_loop().call_at(first, self._end_late)

    def _end_late(self) -> None:
        """Close the connections that waited too long, a few in one turn of the loop."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        late = [each for each, deadline in islice(self._deadlines.items(), MAX_ACCEPTED_AT_ONCE) if deadline <= now]
        for accepted in late:
            self._close(accepted)
            self._report_refused(accepted.host, f"not begun in {self._seconds:g} s")
        self._watch()

    def _close(self, accepted: _Accepted) -> None:
        self._forget(accepted)
        asyncio.get_running_loop().remove_reader(accepted.connection)
        accepted.connection.close()

    def _forget(self, accepted: _Accepted) -> None:
        del self._deadlines[accepted]
        self._waiting.leave(accepted.host, accepted)
        self._spoken.leave(accepted.host, accepted)

    def _make_place(self) -> bool:
        if len(self._waiting) < self._most or (oldest := self._waiting.pop_oldest()) is None:
            return False
        self._report_full(oldest[0])
        self._close(oldest[1])
        return True

    def _report_full(self, network: str) -> None:
        self._repeated.error("full", f"{self._most} connections wait for TLS, the limit: the oldest of {network}, "
                                     "which has most, give way")  # fmt: skip

    def _hear(self, accepted: _Accepted) -> None:
        """Begin the handshake of a client that has sent its first byte, or let it wait for a place of its host."""
        if accepted.has_ended():
            self._close(accepted)
            return
        asyncio.get_running_loop().remove_reader(accepted.connection)
        self._spoken.enter(accepted.host, accepted)
        self._begin_next(accepted.host)

    def _report_refused(self, host: str, reason: object) -> None:
        self._repeated.warning(host, f"a connection from {host} was refused: TLS handshake: {reason}")

    def _begin_next(self, host: str) -> None:
        """Begin the oldest waiting handshake of a host, if the host has a place."""
        if self._under_way.count(host) >= self._of_host or (accepted := self._spoken.pop_oldest_of(host)) is None:
            return
        self._forget(accepted)
        if len(self._under_way) >= self._most and (oldest := self._under_way.pop_oldest()) is not None:
            self._report_full(oldest[0])
            # Cancelled only after it has begun: a task that is cancelled before leaves its socket open.
            asyncio.get_running_loop().call_soon(oldest[1].cancel)
        task = asyncio.get_running_loop().create_task(self._establish(accepted))
        self._under_way.enter(accepted.host, task)
        task.add_done_callback(partial(self._ended, accepted.host))

    def _ended(self, host: str, task: asyncio.Task[None]) -> None:
        self._under_way.leave(host, task)
        self._begin_next(host)

    async def _establish(self, accepted: _Accepted) -> None:
        reason: Any = None
        with suppress(OSError):  # the client has closed the connection, as a probe of the port does
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: _Handshake(accepted.factory), accepted.connection,
                    ssl=self._tls.http_context if self._http else self._tls.context,
                    ssl_handshake_timeout=self._seconds, ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS,
                )  # fmt: skip
            except ssl.SSLError as error:
                reason = error.reason or error
            except ConnectionAbortedError:
                reason = f"not done in {self._seconds:g} s"
        if reason is not None:
            self._report_refused(accepted.host, reason)


class _Accepted:
    """A connection without TLS."""

    __slots__ = ("connection", "factory", "host")

    def __init__(self, connection: socket.socket, host: str, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.connection = connection
        self.host = host
        self.factory = factory

    def has_ended(self) -> bool:
        """Return whether the client has closed it, as a probe of the port does."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


class _Handshake(asyncio.Protocol):
    """The protocol of a connection until its TLS handshake is done; then `factory` makes another."""

    __slots__ = ("_factory",)

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
