"""The HTTP port of a process: the one module that knows the HTTP server (uvicorn).

It runs on the event loop of the node, and opens before anything is recovered, so that probes are answered from then on.
Routes are starlette's.  To add some:

1. Write `routes(...) -> list[BaseRoute]` in a module of this package.
2. Add them in one line of `process/admin.py`: to `open` what works at once, to `serve` what needs the controller.

Paths that are added by `serve` are answered 503 until then.  A handler runs on the loop that serves appends: it may
compute for some milliseconds at most between two awaits.  A streaming response may last for ever
(`text/event-stream`); everything else is bounded by `limits.py`:

- connections: one that begins no request ends; at MAX_HTTP_CONNECTIONS each new one takes the place of one without a
  request under way, of the host that has most of these; where all have one, HTTP_RESERVED_CONNECTIONS more are
  answered to probes;
- a request: its head (`request_heads.py`), the size of its body (413), the time until its response begins (503), and,
  where nobody logs in, the name in `Host` (`hosts.py`);
- a response: the time in which the client takes each part of it.

Whoever breaks these bounds is in the log once a minute, by host and reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from sarit.admin.hosts import host_refusal
from sarit.admin.limits import (
    HTTP_BACKLOG,
    HTTP_CLOSE_SECONDS,
    HTTP_FIRST_REQUEST_SECONDS,
    HTTP_IDLE_SECONDS,
    HTTP_REQUEST_SECONDS,
    HTTP_RESERVED_CONNECTIONS,
    HTTP_SEND_SECONDS,
    MAX_HTTP_BODY_BYTES,
    MAX_HTTP_CONNECTIONS,
    MAX_HTTP_HEAD_BYTES,
)
from sarit.admin.request_heads import RequestHeads
from sarit.core.admission import Admission
from sarit.core.errors import Invalid
from sarit.core.places_by_host import PlacesByHost
from sarit.core.repeated_log import RepeatedLog
from sarit.env.passed_sockets import listen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sarit.env.tls import ServerTls
    from sarit.env.tls_server import TlsServer

_log = logging.getLogger("sarit.admin")

_PROBES: Final = frozenset(("/livez", "/readyz"))
_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)


class AdminServer:
    """Serves routes at one address."""

    def __init__(
        self, routes: Sequence[BaseRoute], names: frozenset[str] | None = None, *,
        max_connections: int = MAX_HTTP_CONNECTIONS,
    ) -> None:  # fmt: skip
        """`names`: under which a request may ask, besides localhost and addresses; None: under every name."""
        self.complete = False  # whether all routes are there
        self._app = Starlette(routes=list(routes), exception_handlers={404: self._not_found, 413: _too_large})
        self._bounded = _Bounded(self._app, names, self._begin)
        self._connections: dict[Any, _Connection] = {}  # by the client's address
        self._waiting: PlacesByHost[_Connection] = PlacesByHost()  # connections without a request under way
        self._admission = Admission(max_connections)
        self._repeated = RepeatedLog(_log, lambda: asyncio.get_running_loop().time())
        self._server: asyncio.Server | TlsServer | None = None
        self._make: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __repr__(self) -> str:
        return f"<AdminServer on port {self.port}, {len(self._connections)} connections>"

    def add(self, routes: Sequence[BaseRoute]) -> None:
        """Serve these, too, from now on."""
        self._app.router.routes.extend(routes)

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Listen; the port (the one found, when `port` is 0).  Raises OSError."""
        # Here and not above: most processes of this program serve no HTTP.
        from uvicorn.config import Config
        from uvicorn.protocols.http.h11_impl import H11Protocol
        from uvicorn.server import ServerState

        # The server's own log is ours: it reports what a request raised, and not what a port scan sends.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        state = ServerState()
        self._tasks = state.tasks
        config = Config(
            self._bounded, http=H11Protocol, ws="none", lifespan="off", interface="asgi3", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, date_header=False,
            timeout_keep_alive=int(2 * HTTP_IDLE_SECONDS), h11_max_incomplete_event_size=MAX_HTTP_HEAD_BYTES,
        )  # fmt: skip
        config.load()
        self._make = lambda: H11Protocol(config, state, {})
        self._server = await listen(self._made, _address(host), port, tls, HTTP_BACKLOG, http=True)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def stop(self) -> None:
        """Close the port; requests under way may end within HTTP_CLOSE_SECONDS."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections.values()):
            connection.end()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=HTTP_CLOSE_SECONDS)
        # Before the tasks: the server logs one that ends without a response, unless its client is gone.
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.sleep(0)
        self._bounded.closing = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def report(self, host: str, reason: str) -> None:
        """Log that a connection from a host was ended, once a minute for each reason."""
        self._repeated.warning((host, reason), f"an HTTP connection from {host} was closed: it {reason}")

    def open(self, connection: _Connection) -> bool:
        """Give a new connection a place, if need be that of another one.  False: there is none, and it must end."""
        if not self._admission.admits(len(self._connections)):
            if self._admission.should_report():
                _log.error(
                    "%d HTTP connections are open, which is the limit: those without a request give way to new ones",
                    self._admission.most,
                )
            if (longest := self._waiting.pop_oldest()) is not None:
                longest[1].abort()
            elif len(self._connections) < self._admission.most + HTTP_RESERVED_CONNECTIONS:
                connection.probes_only = True
            else:
                return False
        self._connections[connection.client] = connection
        self.waits(connection)
        return True

    def waits(self, connection: _Connection) -> None:
        """Record that a connection has no request under way."""
        self._waiting.enter(connection.host, connection)

    def closed(self, connection: _Connection) -> None:
        """Forget a connection that was closed."""
        if self._connections.get(connection.client) is connection:
            del self._connections[connection.client]
        self._waiting.leave(connection.host, connection)

    def _begin(self, scope: Scope) -> _Connection | None:
        """Record that a request begins; its connection."""
        connection = self._connections.get(scope["client"])
        if connection is not None:
            connection.requests += 1
            self._waiting.leave(connection.host, connection)
        return connection

    def _made(self) -> asyncio.Protocol:
        return _Connection(self, self._make())

    async def _not_found(self, request: Request, error: Exception) -> Response:
        if not self.complete:
            return JSONResponse({"error": "the process starts"}, 503, {"Retry-After": "1"})
        return JSONResponse({"error": f"there is nothing at {request.url.path}"}, 404)


class _Connection(asyncio.Protocol):
    """A connection that ends when it begins no request, or one whose head is not certain."""

    def __init__(self, server: AdminServer, inner: Any) -> None:
        self._server = server
        self._inner = inner
        self._heads = RequestHeads()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self.client: Any = None
        self.host = "?"
        self.requests = 0  # begun
        self.probes_only = False
        self._received = False  # something since the last check that saw a request
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername")
        if found:
            self.client, self.host = (str(found[0]), int(found[1])), str(found[0])
        self._inner.connection_made(transport)
        if not self._server.open(self):
            self.abort()
            return
        self._check_in(HTTP_FIRST_REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._received = True
        try:
            pieces = self._heads.feed(data)
        except Invalid as error:
            self._refuse(str(error))
            return
        for piece in pieces:
            if not self._transport.is_closing():
                self._inner.data_received(piece)

    @property
    def closes(self) -> bool:
        """Whether the response under way is the last one of this connection."""
        return self._heads.chunked or self.probes_only

    def eof_received(self) -> bool | None:
        return cast("bool | None", self._inner.eof_received())

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.closed(self)
        self._inner.connection_lost(exc)

    def end(self) -> None:
        """Close it after the response under way, if there is one."""
        self._inner.shutdown()

    def wait_for_request(self) -> None:
        """Record that the response under way has ended."""
        if not self._ended and not self._transport.is_closing():
            self._server.waits(self)

    def abort(self) -> None:
        """Close the connection at once."""
        self._ended = True
        self._server.closed(self)
        self._transport.abort()

    def _refuse(self, reason: str) -> None:
        self._server.report(self.host, reason)
        self._ended = True
        if self._busy:  # the answer would be taken for that of the request before
            self.abort()
            return
        body = f"400 Bad Request: the client {reason}\n".encode()
        self._transport.write(_BAD_REQUEST % (len(body), body))
        self._transport.close()

    @property
    def _busy(self) -> bool:
        cycle = self._inner.cycle
        return cycle is not None and not cycle.response_complete

    def _check_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check, self.requests, seconds)

    def _check(self, requests: int, seconds: float) -> None:
        if self._busy or self.requests != requests:
            self._received = False
            self._check_in(HTTP_IDLE_SECONDS)
            return
        if self._received:  # otherwise it was idle, as browsers keep them
            self._server.report(self.host, f"sent a part of a request, and not the rest in {seconds:g} s")
        self.abort()


class _Bounded:
    """Bounds each request of an application in size and time."""

    def __init__(
        self, app: ASGIApp, names: frozenset[str] | None, begin: Callable[[Scope], _Connection | None]
    ) -> None:
        self._app = app
        self._names = names
        self._begin = begin
        self.closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._begin(scope)
        refused = self._refusal(scope, connection)
        app = self._app if refused is None else refused
        started = False
        size = 0

        async def bounded_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_HTTP_BODY_BYTES:
                raise HTTPException(413)
            return message

        async def bounded_send(message: Message) -> None:
            nonlocal started
            if not started:
                started = True
                closes = [(b"connection", b"close")] if connection is not None and connection.closes else []
                message = {**message, "headers": [*message.get("headers", ()), (b"date", _now()), *closes]}
            # Nothing bounds the time between two parts: a stream waits for what happens.
            timer.reschedule(None)
            async with asyncio.timeout(HTTP_SEND_SECONDS):
                await send(message)

        try:
            async with asyncio.timeout(HTTP_REQUEST_SECONDS) as timer:
                await app(scope, bounded_receive, bounded_send)
        except asyncio.CancelledError:
            if not self.closing:
                raise
        except TimeoutError:
            # A client that takes nothing; the server ends its connection, since the response is not whole.
            if not started:
                # The rest of the request is not read: the connection ends.
                headers = [(b"content-type", b"application/json"), (b"connection", b"close"), (b"date", _now())]
                error = {"error": f"no answer within {HTTP_REQUEST_SECONDS:g} s"}
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": json.dumps(error).encode()})
        finally:
            if connection is not None:
                connection.wait_for_request()

    def _refusal(self, scope: Scope, connection: _Connection | None) -> Response | None:
        """Return the answer to a request that is not served, or None to serve it."""
        if scope["path"] in _PROBES:
            return None
        if connection is not None and connection.probes_only:
            error = {"error": f"{MAX_HTTP_CONNECTIONS} connections have a request under way, which is the limit"}
            return JSONResponse(error, 503, {"Retry-After": "1"})
        host = Headers(scope=scope).get("host")
        # Serve requests without `Host` (HTTP/1.0): only browsers can be misled (DNS rebinding), and they send it.
        if self._names is None or host is None or (wrong := host_refusal(host, self._names)) is None:
            return None
        return JSONResponse({"error": wrong}, 421)


async def _too_large(_: Request, __: Exception) -> Response:
    error = {"error": f"the body of a request has at most {MAX_HTTP_BODY_BYTES} bytes"}
    return JSONResponse(error, 413, {"Connection": "close"})


def _now() -> bytes:
    return formatdate(usegmt=True).encode()


def _address(host: str) -> str | None:
    """Return the one address of a host to listen on (IPv4 if it has both kinds), or None for all addresses."""
    if host in ("", "0.0.0.0", "::"):  # nosec B104
        return host or None
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
