"""All paths of the console."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from sarit.admin.console.assets import INDEX, Assets, load
from sarit.admin.console.calls import call
from sarit.admin.console.groups import GroupCalls
from sarit.admin.console.guard import Guard
from sarit.admin.console.limits import CONSOLE_OVERVIEW_SECONDS, CONSOLE_TOKEN_BYTES
from sarit.admin.console.names import NameLists
from sarit.admin.console.samplers import Samplers
from sarit.admin.console.sse import Live
from sarit.admin.console.streams import StreamCalls
from sarit.admin.console.tables import TableCalls
from sarit.admin.console.tail import EventCalls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.sse import Event
    from sarit.admin.console.view import NodeView
    from sarit.client.aio import Client


class Console:
    """One console.  `writes` False: it shows everything and changes nothing."""

    def __init__(self, client: Client, node: NodeView, *, writes: bool = True) -> None:
        env = client.session.env
        self.token = base64.urlsafe_b64encode(env.random.bytes(CONSOLE_TOKEN_BYTES)).decode().rstrip("=")
        self._node = node
        self._writes = writes
        self._live = Live()
        lists = NameLists(client, env.clock)
        self._samplers = Samplers(client, env.clock, self._live)
        self._families = (
            StreamCalls(client, node, lists),
            EventCalls(client, env.clock, self._live),
            self._samplers,
            GroupCalls(client, lists),
            TableCalls(client, lists),
        )

    def __repr__(self) -> str:
        return f"<Console, {self._live!r}>"

    def routes(self) -> list[BaseRoute]:
        """The page at `/`, its files and its calls."""
        contents = load()
        api = Router([
            call("/session", self._session),
            call("/overview", self._overview),
            call("/overview/live", self._overview_live),
            call("/settings", self._settings),
            *(route for family in self._families for route in family.routes()),
        ], default=_nothing)  # fmt: skip
        return [
            Route("/", self._guarded(Assets(contents, INDEX), cached=True)),
            Route("/console", self._guarded(Assets(contents, INDEX), cached=True)),
            Route("/console/assets/{path:path}", self._guarded(Assets(contents), cached=True)),
            Mount("/console/api", self._guarded(api)),
        ]

    async def close(self) -> None:
        """End what runs in the background."""
        await self._samplers.close()

    def _guarded(self, app: Any, *, cached: bool = False) -> Guard:
        return Guard(app, self._node.names, self.token, writes=self._writes, cached=cached)

    async def _session(self, request: Request) -> Any:
        return {"token": self.token, "writes": self._writes}

    async def _overview(self, request: Request) -> Any:
        return asdict(await self._node.overview())

    async def _overview_live(self, request: Request) -> Any:
        return self._live.response(self._overviews())

    async def _overviews(self) -> AsyncGenerator[Event, None]:
        while True:
            yield "overview", asdict(await self._node.overview()), ""
            await asyncio.sleep(CONSOLE_OVERVIEW_SECONDS)

    async def _settings(self, request: Request) -> Any:
        return {"settings": [asdict(found) for found in await self._node.settings()]}


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse({"error": "the console has no such call"}, 404)(scope, receive, send)
