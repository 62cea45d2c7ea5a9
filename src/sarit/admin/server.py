"""The HTTP port of a process: the one module that knows the HTTP server (uvicorn).

It runs on the event loop of the node, and opens before anything is recovered, so that probes are answered from then on.
Routes are starlette's.  To add some:

1. Write `routes(...) -> list[BaseRoute]` in a module of this package.
2. Add them in one line of `node/admin.py`: to `open` what works at once, to `serve` what needs the controller.

Paths that are added by `serve` are answered 503 until then.  A handler runs on the loop that serves appends: it may
compute for some milliseconds at most between two awaits.  A streaming response may last for ever
(`text/event-stream`); everything else is bounded by `limits.py`:

- connections: those beyond MAX_HTTP_CONNECTIONS are closed at once; those without a request end;
- a request: the size of its head and of its body (413); the time until its response begins (503);
- a response: the time in which the client takes each part of it.

Whoever breaks these bounds is in the log once a minute, by host and reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, cast

from h11 import ERROR
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from sarit.admin.limits import (
    HTTP_BACKLOG,
    HTTP_CLOSE_SECONDS,
    HTTP_IDLE_SECONDS,
    HTTP_REQUEST_SECONDS,
    HTTP_SEND_SECONDS,
    MAX_HTTP_BODY_BYTES,
    MAX_HTTP_CONNECTIONS,
    MAX_HTTP_HEAD_BYTES,
)
from sarit.core.admission import Admission
from sarit.core.repeated_log import RepeatedLog
from sarit.env.tls_server import Handshakes, serve_tls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sarit.env.tls import ServerTls
    from sarit.env.tls_server import TlsServer

_log = logging.getLogger("sarit.admin")


class AdminServer:
    """Serves routes at one address."""

    def __init__(self, routes: Sequence[BaseRoute], max_connections: int = MAX_HTTP_CONNECTIONS) -> None:
        self.complete = False  # whether all routes are there
        self._app = Starlette(routes=list(routes), exception_handlers={404: self._not_found, 413: _too_large})
        self._bounded = _Bounded(self._app, self._begun)
        self._connections: dict[Any, _Connection] = {}  # by the client's address
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
        loop = asyncio.get_running_loop()
        address = _address(host)
        self._server = (
            await loop.create_server(self._connection, address, port, backlog=HTTP_BACKLOG)
            if tls is None
            else await serve_tls(self._connection, Handshakes(tls, http=True), address, port, HTTP_BACKLOG)
        )
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

    def opened(self, connection: _Connection) -> None:
        """A connection is open."""
        self._connections[connection.client] = connection

    def closed(self, connection: _Connection) -> None:
        """A connection was closed."""
        self._connections.pop(connection.client, None)

    def _connection(self) -> asyncio.Protocol:
        if not self._admission.admits(len(self._connections)):
            if self._admission.should_report():
                _log.error(
                    "%d HTTP connections are open, which is the limit: new ones are closed", self._admission.most
                )
            return _ClosedAtOnce()
        return _Connection(self, self._make())

    def _begun(self, scope: Scope) -> None:
        connection = self._connections.get(scope["client"])
        if connection is not None:
            connection.requests += 1

    async def _not_found(self, request: Request, error: Exception) -> Response:
        if not self.complete:
            return JSONResponse({"error": "the process starts"}, 503, {"Retry-After": "1"})
        return JSONResponse({"error": f"there is nothing at {request.url.path}"}, 404)


class _Connection(asyncio.Protocol):
    """A connection that ends when it begins no request."""

    def __init__(self, server: AdminServer, inner: Any) -> None:
        self._server = server
        self._inner = inner
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self.client: Any = None
        self.requests = 0  # begun
        self._received = False  # something since the last check that saw a request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername")
        self.client = (str(found[0]), int(found[1])) if found else None
        self._server.opened(self)
        self._inner.connection_made(transport)
        self._check_in(self.requests)

    def data_received(self, data: bytes) -> None:
        self._received = True
        self._inner.data_received(data)
        if self._inner.conn.their_state is ERROR:
            self._report(f"sent no HTTP, or a head of more than {MAX_HTTP_HEAD_BYTES} bytes")

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

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _check_in(self, requests: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(HTTP_IDLE_SECONDS, self._check, requests)

    def _check(self, requests: int) -> None:
        cycle = self._inner.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy or self.requests != requests:
            self._received = False
            self._check_in(self.requests)
            return
        if self._received:  # otherwise it was idle, as browsers keep them
            self._report(f"sent a part of a request, and not the rest in {HTTP_IDLE_SECONDS:g} s")
        self._transport.abort()

    def _report(self, reason: str) -> None:
        self._server.report(self.client[0] if self.client else "?", reason)


class _ClosedAtOnce(asyncio.Protocol):
    """Closes a connection over the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _Bounded:
    """Bounds each request of an application in size and time."""

    def __init__(self, app: ASGIApp, begun: Any) -> None:
        self._app = app
        self._begun = begun
        self.closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begun(scope)
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
                message = {**message, "headers": [*message.get("headers", ()), (b"date", _now())]}
            # Nothing bounds the time between two parts: a stream waits for what happens.
            timer.reschedule(None)
            async with asyncio.timeout(HTTP_SEND_SECONDS):
                await send(message)

        try:
            async with asyncio.timeout(HTTP_REQUEST_SECONDS) as timer:
                await self._app(scope, bounded_receive, bounded_send)
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


async def _too_large(_: Request, __: Exception) -> Response:
    error = {"error": f"the body of a request has at most {MAX_HTTP_BODY_BYTES} bytes"}
    return JSONResponse(error, 413, {"Connection": "close"})


def _now() -> bytes:
    return formatdate(usegmt=True).encode()


def _address(host: str) -> str | None:
    """The one address of a host to listen on: IPv4 where both exist; None: all of them."""
    if host in ("", "0.0.0.0", "::"):  # nosec B104
        return host or None
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
