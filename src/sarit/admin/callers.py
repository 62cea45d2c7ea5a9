"""Who asks over HTTP, and with which rights: each caller has a client of their own.

The controller decides what a caller may do, by its one table (`controller/access.py`): a request is made by a client
that logs in as its caller, and calls the controller in the same process.  Such a client is kept for the next request of
the same caller, at most MAX_HTTP_CALLERS of them, and closed after HTTP_CALLER_IDLE_SECONDS without a request.  Who has
logged in is asked of the same `Logins` as for gRPC at every request: one limit on guesses for both, and a password that
was changed counts at once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from sarit.admin.limits import HTTP_CALLER_IDLE_SECONDS, MAX_HTTP_CALLERS, MAX_HTTP_CALLERS_OF_USER
from sarit.client.core.login import BearerToken, UserPassword
from sarit.core.errors import Forbidden, SaritError, Unauthenticated, Unavailable
from sarit.security.login import CHALLENGE
from sarit.security.permissions import ADMIN_ROLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sarit.client.aio import Client
    from sarit.client.core.login import Credentials
    from sarit.security.login import Logins
    from sarit.security.permissions import Caller

METRICS_ROLE: Final = "metrics"
current_peer: ContextVar[str] = ContextVar("peer", default="this process")  # who asks, for the audit log


@dataclass(eq=False, slots=True)
class Asker:
    """A caller of HTTP requests, and the client that has its rights.  `caller`: None where nobody logs in.

    `on_close`: called before the client ends, to end what was made for it."""

    caller: Caller | None
    client: Client
    requests: int = 0  # under way
    used_at: float = 0.0
    on_close: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def close(self) -> None:
        """End the client."""
        for each in self.on_close:
            await each()
        await self.client.close()


class Gate:
    """Who may ask: nobody is asked where there are no users (`logins` None).

    `open_metrics`: metrics and health are for everybody."""

    def __init__(self, logins: Logins | None = None, *, open_metrics: bool = False) -> None:
        self.logins = logins
        self._open_metrics = open_metrics

    def __repr__(self) -> str:
        return f"<Gate {'with' if self.logins else 'without'} users>"

    @property
    def has_users(self) -> bool:
        """Whether callers have to log in."""
        return self.logins is not None

    async def sees_health(self, request: Request) -> None:
        """Raises Unauthenticated: only who has logged in sees details of the health."""
        if not self._open_metrics:
            await self.caller(request)

    async def sees_metrics(self, request: Request) -> None:
        """Raises Unauthenticated, Forbidden: metrics name streams and groups."""
        if not self._open_metrics:
            await self._needs(request, METRICS_ROLE, "read the metrics")

    async def is_admin(self, request: Request) -> None:
        """Raises Unauthenticated, Forbidden."""
        await self._needs(request, ADMIN_ROLE, "see or change the level of the log")

    async def _needs(self, request: Request, role: str, what: str) -> None:
        caller = await self.caller(request)
        if caller is not None and not caller.roles & {role, ADMIN_ROLE}:
            roles = role if role == ADMIN_ROLE else f"{role} or {ADMIN_ROLE}"
            raise Forbidden(f"{caller.name} may not {what}: that needs the role {roles} (sarit user add --role)")

    async def caller(self, request: Request) -> Caller | None:
        """Return who makes a request; None where nobody logs in.  Raises Unauthenticated, Unavailable."""
        if self.logins is None:
            return None
        return await self.logins.caller(request.headers.get("authorization"), peer_of(request))

    def behind(self, routes: Iterable[BaseRoute], check: Callable[[Request], Awaitable[None]]) -> list[BaseRoute]:
        """Return the routes changed so that requests are answered only after `check`, if there are users."""
        found = list(routes)
        for route in found if self.has_users else ():
            route.app = _Checked(route.app, check)  # type: ignore[attr-defined]
        return found


class _Checked:
    """An application behind a check."""

    def __init__(self, app: ASGIApp, check: Callable[[Request], Awaitable[None]]) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._check(Request(scope))
        except (Unauthenticated, Forbidden, Unavailable) as error:
            await refused(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def refused(error: SaritError, *, challenge: bool = True) -> JSONResponse:
    """Return the answer to a caller that is refused.  With `challenge` a browser asks for user and password."""
    status = 401 if isinstance(error, Unauthenticated) else 403 if isinstance(error, Forbidden) else 503
    return JSONResponse({"error": str(error)}, status, CHALLENGE if challenge and status == 401 else None)


def peer_of(request: Request) -> str:
    """Return address and port of the client, for the log."""
    return "?" if request.client is None else f"{request.client.host}:{request.client.port}"


class Callers:
    """The clients of all callers of one process.

    `everybody`: a client for all, where nobody logs in.  `connect`: makes one for a caller."""

    def __init__(
        self, gate: Gate, everybody: Client, connect: Callable[[Credentials], Client] | None = None,
        most: int = MAX_HTTP_CALLERS,
    ) -> None:  # fmt: skip
        self._gate = gate
        self._everybody = Asker(None, everybody)
        self._connect = connect
        self._most = most
        self._askers: dict[bytes, Asker] = {}  # by the hash of their credentials, in the order of their last request
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Callers, {len(self._askers)} clients>"

    @property
    def has_users(self) -> bool:
        """Whether callers have to log in."""
        return self._gate.has_users

    async def check(self, authorization: str, peer: str) -> None:
        """Raises Unauthenticated, Unavailable: the log-in is not known, or not any more."""
        if self._gate.logins is not None:
            await self._gate.logins.caller(authorization, peer)

    @asynccontextmanager
    async def asking(self, authorization: str | None, peer: str) -> AsyncIterator[Asker]:
        """Provide the caller for the length of a request.  Raises Unauthenticated, Unavailable."""
        current_peer.set(peer)
        if self._gate.logins is None:
            yield self._everybody
            return
        caller = await self._gate.logins.caller(authorization, peer)
        assert authorization is not None
        asker = self._asker(caller, authorization)
        asker.requests += 1
        try:
            yield asker
        finally:
            asker.requests -= 1
            asker.used_at = asyncio.get_running_loop().time()

    def _asker(self, caller: Caller, authorization: str) -> Asker:
        credentials = credentials_of(authorization)
        key = _key_of(credentials)
        found = self._askers.pop(key, None)
        if found is not None and found.caller != caller:  # the roles of the user have changed
            self._end(found)
            found = None
        if found is None:
            self._evict_if_full(caller)
            assert self._connect is not None
            found = Asker(caller, self._connect(credentials))
        found.used_at = asyncio.get_running_loop().time()
        self._askers[key] = found
        self._check_later()
        return found

    def _evict_if_full(self, caller: Caller) -> None:
        """Make room for one more client of a caller.  Raises Unavailable."""
        own = [
            key for key, asker in self._askers.items() if asker.caller is not None and asker.caller.name == caller.name
        ]
        if len(own) >= MAX_HTTP_CALLERS_OF_USER:
            self._evict(own, f"requests with {len(own)} log-ins of {caller.name} are under way, which is the limit")
        elif len(self._askers) >= self._most:
            self._evict(list(self._askers), f"requests of {self._most} users are under way, which is the limit")

    def _evict(self, keys: Sequence[bytes], why_not: str) -> None:
        """End the one that was used least of those without a request.  Raises Unavailable."""
        for key in keys:
            if not self._askers[key].requests:
                self._end(self._askers.pop(key))
                return
        raise Unavailable(f"{why_not}: try again")

    def _end(self, asker: Asker) -> None:
        task = asyncio.ensure_future(asker.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HTTP_CALLER_IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        before = asyncio.get_running_loop().time() - HTTP_CALLER_IDLE_SECONDS
        for key in [k for k, asker in self._askers.items() if not asker.requests and asker.used_at <= before]:
            self._end(self._askers.pop(key))
        if self._askers:
            self._check_later()

    async def close(self) -> None:
        """End the clients of all callers."""
        if self._timer is not None:
            self._timer.cancel()
        for asker in self._askers.values():
            self._end(asker)
        self._askers.clear()
        for each in self._everybody.on_close:
            await each()
        await asyncio.gather(*self._ending, return_exceptions=True)


def credentials_of(authorization: str) -> Credentials:
    """Return the credentials of a client who logs in by this header, which was found to be right."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return BearerToken(value.strip())
    user, _, password = base64.b64decode(value.strip()).decode().partition(":")
    return UserPassword(user, password)


def _key_of(credentials: Credentials) -> bytes:
    """Return the hash of credentials: one user with one password has one client, however the header is written."""
    return hashlib.sha256(credentials.authorization().encode(errors="replace")).digest()
