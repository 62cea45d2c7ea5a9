"""All paths of the console."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from sarit.admin.callers import peer_of, refused
from sarit.admin.console.assets import INDEX, Assets, load
from sarit.admin.console.calls import body_of, call
from sarit.admin.console.cluster import ClusterCalls
from sarit.admin.console.documents import text_of
from sarit.admin.console.find import FindCalls
from sarit.admin.console.groups import GroupCalls
from sarit.admin.console.guard import Guard
from sarit.admin.console.limits import CONSOLE_KEEP_ALIVE_SECONDS, CONSOLE_OVERVIEW_SECONDS
from sarit.admin.console.links import LinkCalls
from sarit.admin.console.names import NameLists
from sarit.admin.console.permissions import Rights
from sarit.admin.console.query import QUERY_PATH, QueryCalls
from sarit.admin.console.samplers import Samplers
from sarit.admin.console.schemas import SchemaCalls
from sarit.admin.console.search import SearchCalls, SearchPlaces
from sarit.admin.console.sessions import Sessions, cookie_of, random_text, set_cookie
from sarit.admin.console.sse import Live, Places
from sarit.admin.console.streams import StreamCalls
from sarit.admin.console.tables import TableCalls
from sarit.admin.console.tail import EventCalls
from sarit.core.errors import Forbidden, Invalid, Unauthenticated, Unavailable
from sarit.security.login import basic
from sarit.security.permissions import ADMIN_ROLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sarit.admin.callers import Asker, Callers
    from sarit.admin.console.query_view import Queries
    from sarit.admin.console.schema_view import SchemasView
    from sarit.admin.console.sessions import Session
    from sarit.admin.console.sse import Event
    from sarit.admin.console.view import NodeView
    from sarit.env.ports import Env

_SESSION: Final = "/console/api/session"
_LOG_IN: Final = "/console/api/log-in"
_LOG_OUT: Final = "/console/api/log-out"


class Console:
    """One console.  `names`: under which browsers may reach it, besides localhost and addresses.  `writes` False: it
    shows everything and changes nothing.

    Where callers log in, each has calls of their own (`_Calls`), made by their client: the controller decides."""

    def __init__(
        self, callers: Callers, node: NodeView, env: Env, names: frozenset[str], *, writes: bool = True,
        schemas: SchemasView | None = None, queries: Queries | None = None,
    ) -> None:  # fmt: skip
        """`schemas`: the schema registry of the process; None: it has none.  `queries`: runs those of its page."""
        self.token = random_text(env)  # where nobody logs in; else each session has its own
        self.sessions = Sessions(env)
        self._callers = callers
        self._node = node
        self._env = env
        self._names = names
        self._writes = writes
        self._schemas = schemas
        self._queries = queries
        self._places = Places()
        self._searches = SearchPlaces()
        self._calls: dict[Asker, _Calls] = {}

    def __repr__(self) -> str:
        return f"<Console, {self._places!r}>"

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the page at `/`, its files and its calls."""
        contents = load()
        return [
            Route("/", self._guarded(Assets(contents, INDEX), cached=True)),
            Route("/console", self._guarded(Assets(contents, INDEX), cached=True)),
            Route("/console/assets/{path:path}", self._guarded(Assets(contents), cached=True)),
            Mount("/console/api", self._guarded(self._api)),
        ]

    def _guarded(self, app: Any, *, cached: bool = False) -> Guard:
        return Guard(app, self._names, self._rules, cached=cached)

    def _rules(self, scope: Scope) -> tuple[str, bool]:
        if scope["path"] == _LOG_IN:
            return "", True  # a log-in has no token yet
        # A query is sent by POST, as it may be long, and changes nothing.
        return self._token(scope), self._writes or scope["path"] in (_LOG_OUT, QUERY_PATH)

    def _token(self, scope: Scope) -> str:
        if not self._callers.has_users:
            return self.token
        session = self.sessions.find(_cookie(scope))
        return "" if session is None else session.token  # without a session `_api` refuses

    async def _api(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if not self._callers.has_users:
            async with self._callers.asking(None, "") as asker:
                await self._calls_of(asker).api(scope, receive, send)
            return
        if scope["path"] == _LOG_IN:
            await (await self._log_in(request))(scope, receive, send)
            return
        session = self.sessions.find(_cookie(scope))
        if session is None:
            # The page asks whether somebody has logged in: to answer no is not an error.
            first = scope["path"] == _SESSION and request.method == "GET"
            answer = JSONResponse({"log_in": True}) if first else JSONResponse({"error": "log in"}, 401)
            await answer(scope, receive, send)
            return
        if scope["path"] == _LOG_OUT and request.method == "POST":
            self.sessions.end(_cookie(scope))
            await self._with_cookie(request, {"user": None}, "")(scope, receive, send)
            return
        try:
            async with self._callers.asking(session.authorization, peer_of(request)) as asker:
                api = self._calls_of(asker).api
                lasts = scope["path"].endswith("/live") or scope["path"] == QUERY_PATH
                await (self._while_logged_in(session, api) if lasts else api)(scope, receive, send)
        except (Unauthenticated, Unavailable) as error:
            if isinstance(error, Unauthenticated):
                self.sessions.end(_cookie(scope))
            await refused(error, challenge=False)(scope, receive, send)

    async def _log_in(self, request: Request) -> Response:
        """Begin a session for the body {"user", "password"}."""
        if request.method != "POST":
            return JSONResponse({"error": "send user and password by POST"}, 405)
        try:
            body = await body_of(request)
            user = text_of(body, "user")
            authorization = basic(user, text_of(body, "password"))
            await self._callers.check(authorization, peer_of(request))
        except Invalid as error:
            return JSONResponse({"error": str(error)}, 400)
        except (Unauthenticated, Unavailable) as error:
            # Send no challenge, or the browser would ask by itself, and keep the password.
            return refused(error, challenge=False)
        self.sessions.end(_cookie(request.scope))
        return self._with_cookie(request, {"user": user}, self.sessions.begin(authorization, user))

    def _with_cookie(self, request: Request, document: Any, value: str) -> Response:
        scope = request.scope
        header = set_cookie(scope["server"][1], value, secure=scope["scheme"] == "https")
        return JSONResponse(document, headers={"Set-Cookie": header})

    def _while_logged_in(self, session: Session, app: ASGIApp) -> ASGIApp:
        """Return an application whose long answers end with the session."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            running = asyncio.ensure_future(app(scope, receive, send))
            try:
                while not (await asyncio.wait((running,), timeout=CONSOLE_KEEP_ALIVE_SECONDS))[0]:
                    if not self.sessions.lives(session):
                        break
                    session.used = self._env.clock.monotonic()
                    try:
                        await self._callers.check(session.authorization, peer_of(Request(scope)))
                    except Unauthenticated:
                        break
            finally:
                ended = running.done()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            if not ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        return answer

    def _calls_of(self, asker: Asker) -> _Calls:
        found = self._calls.get(asker)
        if found is None:
            found = self._calls[asker] = _Calls(
                asker, self._node, self._places, self._searches, self._session, self._schemas, self._queries
            )

            async def close() -> None:
                await self._calls.pop(asker).close()

            asker.on_close.append(close)
        return found

    def _session(self, request: Request, asker: Asker) -> Any:
        user = None if asker.caller is None else asker.caller.name
        return {
            "token": self._token(request.scope), "writes": self._writes, "user": user,
            "schemas": self._schemas is not None, "queries": self._queries is not None,
            "links": Rights(self._node, asker.caller).changes_everything(),
        }  # fmt: skip


class _Calls:
    """The calls of one caller; `session`: what `/session` answers."""

    def __init__(
        self, asker: Asker, node: NodeView, places: Places, searches: SearchPlaces,
        session: Callable[[Request, Asker], Any], schemas: SchemasView | None, queries: Queries | None,
    ) -> None:  # fmt: skip
        client, clock = asker.client, asker.client.session.env.clock
        self._asker = asker
        self._node = node
        live = self._live = Live(places, None if asker.caller is None else asker.caller.name)
        self._session_of = session
        lists = self.lists = NameLists(client, clock)
        self.events = EventCalls(client, clock, live, schemas, asker.caller)
        self._samplers = Samplers(client, clock, live)
        rights = Rights(node, asker.caller)
        families: list[Any] = [
            StreamCalls(client, node, lists, rights),
            self.events,
            SearchCalls(client, clock, live, searches),
            FindCalls(client, clock),
            self._samplers,
            GroupCalls(client, lists, rights),
            TableCalls(client, lists, rights),
            ClusterCalls(client, node, rights),
            LinkCalls(client),
        ]
        if schemas is not None:
            families.append(SchemaCalls(schemas, asker.caller))
        if queries is not None:
            families.append(QueryCalls(queries, client, asker.caller))
        self.api = Router([
            call("/session", self._session),
            call("/overview", self._overview),
            call("/overview/live", self._overview_live),
            call("/settings", self._settings),
            *(route for family in families for route in family.routes()),
        ], default=_nothing)  # fmt: skip

    def __repr__(self) -> str:
        return f"<_Calls of {self._asker.caller}>"

    async def close(self) -> None:
        """End what runs in the background."""
        await self._samplers.close()

    async def _session(self, request: Request) -> Any:
        return self._session_of(request, self._asker)

    async def _overview(self, request: Request) -> Any:
        return asdict(await self._node.overview())

    async def _overview_live(self, request: Request) -> Any:
        return self._live.response(self._overviews())

    async def _overviews(self) -> AsyncGenerator[Event, None]:
        while True:
            yield "overview", asdict(await self._node.overview()), ""
            await asyncio.sleep(CONSOLE_OVERVIEW_SECONDS)

    async def _settings(self, request: Request) -> Any:
        caller = self._asker.caller
        if caller is not None and ADMIN_ROLE not in caller.roles:
            raise Forbidden(f"{caller.name} may not see the settings of the node: that needs the role {ADMIN_ROLE}")
        return {"settings": [asdict(found) for found in await self._node.settings()]}


def _cookie(scope: Scope) -> str:
    return cookie_of(Headers(scope=scope).get("cookie", ""), scope["server"][1])


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse({"error": "the console has no such call"}, 404)(scope, receive, send)
