"""Servers with TLS that survive clients who never finish a handshake, and report those who fail.

A server knows a client only when its handshake is done: until then the connection is a `_Handshake`, of which there are
at most MAX_TLS_HANDSHAKES, each for TLS_HANDSHAKE_SECONDS.  Only then the listener behind it is asked for a connection.
At that limit the oldest handshake of the host that has most gives way: one takes milliseconds, so it is hardly one of
a client that means to finish it.

asyncio's own server would report nothing about a handshake that fails, and use one context for ever.  This one accepts
by itself, and each connection gets the context of now.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.env.limits import (
    ACCEPT_RETRY_SECONDS,
    MAX_ACCEPTED_AT_ONCE,
    MAX_TLS_HANDSHAKES,
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
    """Accepts at bound sockets; `factory` makes the protocol of each connection that has got TLS."""

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
        """Whose it is."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return bool(self.sockets)

    def close(self) -> None:
        """Accept no more; connections that are open stay."""
        self._closed.set()
        sockets, self.sockets = self.sockets, ()
        for listener in sockets:
            self._loop.remove_reader(listener)
            listener.close()

    async def start_serving(self) -> None:
        """It serves from its creation on."""

    async def serve_forever(self) -> None:
        """Wait until it is closed."""
        await self._closed.wait()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await self._closed.wait()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._repeated.error("accept", f"no connection can be accepted: {error.strerror}: tried again")
                self._loop.remove_reader(listener)
                self._loop.call_later(ACCEPT_RETRY_SECONDS, self._resume, listener)
                return
            connection.setblocking(False)
            self._handshakes.begin(connection, str(peer[0]), self._factory)


class Handshakes:
    """The handshakes of one or more servers that are under way; `seconds`: how long one may take."""

    def __init__(
        self, tls: ServerTls, most: int = MAX_TLS_HANDSHAKES, seconds: float = TLS_HANDSHAKE_SECONDS, *,
        http: bool = False,
    ) -> None:  # fmt: skip
        self._tls = tls
        self._most = most
        self._seconds = seconds
        self._http = http
        self._under_way: PlacesByHost[asyncio.Task[None]] = PlacesByHost()
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        return f"<Handshakes, {len(self._under_way)} under way>"

    def begin(self, connection: socket.socket, host: str, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """A client has connected from a host."""
        if len(self._under_way) >= self._most and (oldest := self._under_way.pop_oldest()) is not None:
            self._repeated.error("full", f"{self._most} TLS handshakes are under way, the limit: the oldest of "
                                         f"{oldest[0]}, which has most, give way")  # fmt: skip
            # Later, when it has begun: a task that is cancelled before leaves its socket open.
            asyncio.get_running_loop().call_soon(oldest[1].cancel)
        task = asyncio.get_running_loop().create_task(self._establish(connection, host, factory))
        self._under_way.enter(host, task)
        task.add_done_callback(partial(self._under_way.leave, host))

    async def _establish(
        self, connection: socket.socket, host: str, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        reason: Any = None
        with suppress(OSError):  # it has closed: a probe of the port
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: _Handshake(factory), connection,
                    ssl=self._tls.http_context if self._http else self._tls.context,
                    ssl_handshake_timeout=self._seconds, ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS,
                )  # fmt: skip
            except ssl.SSLError as error:
                reason = error.reason or error
            except ConnectionAbortedError:
                reason = f"not done in {self._seconds:g} s"
        if reason is not None:
            self._repeated.warning(host, f"a connection from {host} was refused: TLS handshake: {reason}")


class _Handshake(asyncio.Protocol):
    """A connection whose client has not proved that it speaks TLS."""

    __slots__ = ("_factory",)

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
