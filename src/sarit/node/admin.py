"""The HTTP port of a process: here its routes come together.

To add routes, write `routes(...)` in `sarit.admin` (see `admin/server.py`) and call it in `open` if it works while the
process starts, or in `serve` if it needs the controller.  Import it inside the method: a process without the port, of
which tests start hundreds, does not pay for it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sarit.node.limits import HTTP_RETRY_SECONDS
from sarit.node.listening import naming_port
from sarit.node.logs import LEVELS, change_log_level, current_logs
from sarit.node.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.admin.console import Console
    from sarit.admin.console.view import NodeView
    from sarit.admin.server import AdminServer
    from sarit.client.aio import Client
    from sarit.node.health import Health


class Admin:
    """The HTTP port of one process; without a port it does nothing."""

    def __init__(self, health: Health, host: str, port: int | None) -> None:
        """`port`: 0 picks a free one; None: no HTTP."""
        self.health = health
        self.metrics = Metrics(health.clock)
        self._host = host
        self._port = port
        self._server: AdminServer | None = None
        self._client: Client | None = None
        self._console: Console | None = None

    def __repr__(self) -> str:
        return f"<Admin {self._server!r}>"

    def where(self) -> str:
        """Where it listens, as the end of a text; empty: nowhere."""
        return "" if self._server is None else f", HTTP {self._host}:{self._server.port}"

    @property
    def port(self) -> int | None:
        """The port; None: it does not listen."""
        return None if self._server is None else self._server.port

    async def open(self) -> None:
        """Listen, before anything else is open.  Raises Unavailable, OSError (the port is taken)."""
        if self._port is None:
            return
        from sarit.admin import health, log_level, metrics
        from sarit.admin.exposition import Exposition
        from sarit.admin.rest.routes import health_routes
        from sarit.admin.server import AdminServer

        scrape = Exposition(self.metrics.samples).scrape
        levels = log_level.routes(LEVELS, lambda: current_logs().level, change_log_level)
        probes = [*health.routes(self.health), *health_routes(self.health)]
        self._server = AdminServer([*probes, *levels, *metrics.routes(scrape)])
        self.metrics.start()
        with naming_port("--http-port", self._host, self._port):
            await self._server.start(self._host, self._port)

    async def serve(self, controller: str | None = None, view: NodeView | None = None) -> None:
        """The process serves: answer everything.

        `controller`: HOST:PORT of this process's, whose answers routes give; None: it has none.  `view`: for the
        console."""
        self.health.ready()
        if self._server is None:
            return
        if controller is not None:
            self.metrics.serve(controller)
        if controller is not None:
            from sarit.client import aio

            self._client = await aio.connect(controller, retry_timeout=HTTP_RETRY_SECONDS, wait=HTTP_RETRY_SECONDS)
            from sarit.admin.rest.routes import routes

            self._server.add(routes(self._client))
        if self._client is not None and view is not None:
            from sarit.admin.console import Console

            self._console = Console(self._client, view)
            self._server.add(self._console.routes())
        self._server.complete = True

    async def close(self) -> None:
        """Close the port; last, so that probes are answered while the process stops."""
        if self._server is not None:
            await self._server.stop()
        await self.metrics.stop()
        if self._console is not None:
            await self._console.close()
        if self._client is not None:
            await self._client.close()


@asynccontextmanager
async def admin_port(health: Health, host: str, port: int | None) -> AsyncIterator[Admin]:
    """The HTTP port of a process, as long as the block lasts.  Raises as `Admin.open`."""
    admin = Admin(health, host, port)
    try:
        await admin.open()
        yield admin
    finally:
        await admin.close()
