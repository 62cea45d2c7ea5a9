"""The HTTP port of a process, and that of its schema registry: here their routes come together.

To add routes, write `routes(...)` in `sarit.admin` (see `admin/server.py`) and call it in `open` if it works while the
process starts, or in `serve` if it needs the controller.  Import it inside the method: a process without the port, of
which tests start hundreds, does not pay for it."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from sarit.process.addresses import http_url, naming_port
from sarit.process.limits import HTTP_RETRY_SECONDS
from sarit.process.observation.health import reasons_of_bookies
from sarit.process.observation.logs import LEVELS, change_log_level, current_logs
from sarit.process.observation.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.admin.callers import Callers, Gate
    from sarit.admin.console import Console
    from sarit.admin.console.view import NodeView
    from sarit.admin.server import AdminServer
    from sarit.client.aio import Client
    from sarit.env.ports import Env
    from sarit.process.addresses import Addressed
    from sarit.process.observation.health import Health
    from sarit.process.query_runner import QueryRunner
    from sarit.process.registry_role import RegistryRole
    from sarit.process.registry_tables import RegistryTables
    from sarit.process.security import Security
    from sarit.process.settings import RegistryConfig
    from sarit.rpc.handlers import Handler


class Admin:
    """The HTTP servers of one process: health, metrics, REST and console at one port, the schema registry at that port
    and at one of its own.  Without these ports it does nothing."""

    def __init__(
        self, health: Health, addressed: Addressed, port: int | None, security: Security, env: Env,
        registry: RegistryConfig | None = None,
    ) -> None:  # fmt: skip
        """`port`: of HTTP; 0 picks a free one; None: no HTTP.  `registry`: None: the process has no schema registry."""
        self.health = health
        self.metrics = Metrics(health.clock)
        health.add(partial(reasons_of_bookies, self.metrics.log))
        self._addressed = addressed
        self._host = host = addressed.host
        advertised = addressed.advertised.host if addressed.advertised is not None else None
        self._names = host_names(host, advertised, *security.config.http_names)
        self._port = port
        self._security = security
        self._env = env
        self._registry_config = registry
        self._registry: RegistryRole | None = None
        self._server: AdminServer | None = None
        self._gate: Gate | None = None
        self._client: Client | None = None
        self._callers: Callers | None = None
        self._console: Console | None = None
        self._queries: QueryRunner | None = None

    def __repr__(self) -> str:
        return f"<Admin {self._server!r}>"

    def where(self) -> str:
        """Return where it listens, as the end of a text; empty: nowhere."""
        http = "" if self._server is None else f", HTTP {self._host}:{self._server.port}"
        return http if self.registry_port is None else f"{http}, schema registry {self._host}:{self.registry_port}"

    def console(self) -> str:
        """Return the URL of its console; empty: it has none."""
        if self._server is None or self._console is None:
            return ""
        return http_url(self._addressed, self._server.port)

    @property
    def port(self) -> int | None:
        """The port; None: it does not listen."""
        return None if self._server is None else self._server.port

    @property
    def registry_port(self) -> int | None:
        """The port of the schema registry; None: it has none of its own."""
        return None if self._registry is None else self._registry.port

    async def open(self) -> None:
        """Listen, before anything else is open.  Raises Unavailable, OSError (a port is taken)."""
        if self._port is None and self._registry_config is None:
            return
        from sarit.admin.callers import Gate

        security = self._security
        gate = self._gate = Gate(security.logins(self._env), open_metrics=security.config.open_metrics)
        if self._port is not None:
            await self._open_http(gate, self._port)
        if self._registry_config is not None:
            await self._open_registry(gate, self._registry_config)

    async def _open_registry(self, gate: Gate, config: RegistryConfig) -> None:
        from sarit.admin import health
        from sarit.admin.server import AdminServer
        from sarit.process.registry_role import RegistryRole

        self._registry = RegistryRole(self._host, config.port, self._env)
        self.metrics.add(self._registry.samples)
        server = AdminServer(health.routes(self.health, gate), None if gate.has_users else self._names)
        await self._registry.open(server, self._security.server_tls)

    async def _open_http(self, gate: Gate, port: int) -> None:
        from sarit.admin import health, log_level, metrics
        from sarit.admin.exposition import Exposition
        from sarit.admin.rest.routes import health_routes
        from sarit.admin.server import AdminServer

        scrape = Exposition(self.metrics.samples).scrape
        levels = log_level.routes(LEVELS, lambda: current_logs().level, change_log_level, anywhere=gate.has_users)
        self._server = AdminServer([
            *health.routes(self.health, gate),
            *gate.behind(health_routes(self.health), gate.sees_health),
            *gate.behind(levels, gate.is_admin),
            *gate.behind(metrics.routes(scrape), gate.sees_metrics),
        ], None if gate.has_users else self._names)  # fmt: skip
        self.metrics.start()
        with naming_port("--http-port", self._host, port):
            await self._server.start(self._host, port, self._security.server_tls)

    async def serve(
        self, controller: str = "", calls: Mapping[str, Handler] | None = None, view: NodeView | None = None,
        tables: RegistryTables | None = None,
    ) -> None:  # fmt: skip
        """Answer everything: the process serves.

        `calls`: the handlers of its controller, whose answers routes give; None: it has none.  `controller`: HOST:PORT
        of that, for texts.  `view`: for the console.  `tables`: for the schema registry, if the process has one."""
        if self._registry is not None and tables is not None:
            assert self._gate is not None
            self._registry.serve(tables, self._gate, self._server)
        if self._server is not None and calls is not None:
            self._serve_api(self._server, controller, calls, view)
        # Reports readiness last: whoever learns of it may ask for everything.
        self.health.ready()
        if self._server is not None:
            self._server.complete = True

    def _serve_api(
        self, server: AdminServer, controller: str, calls: Mapping[str, Handler], view: NodeView | None
    ) -> None:
        from sarit.admin.callers import Callers, current_peer
        from sarit.admin.rest.routes import routes
        from sarit.process.own_client import client_factory, own_credentials

        assert self._gate is not None
        connect = client_factory(controller, calls, self._security, current_peer.get, HTTP_RETRY_SECONDS)
        self._client = connect(own_credentials(self._security, self._env))
        self.metrics.serve(self._client)
        self._callers = Callers(self._gate, self._client, connect)
        server.add(routes(self._callers))
        if view is not None and self._security.config.console != "off":
            from sarit.admin.console import Console
            from sarit.process.query_runner import QueryRunner

            writes = self._security.config.console != "read-only"
            schemas = None if self._registry is None else self._registry.view
            of_caller = self._registry.schemas_of if self._registry is not None else lambda _: None
            self._queries = QueryRunner(self._env, self._security.audit(self._env), of_caller)
            self.metrics.add(self._queries.samples)
            self._console = Console(
                self._callers, view, self._env, self._names, writes=writes, schemas=schemas, queries=self._queries
            )
            server.add(self._console.routes())

    async def close(self) -> None:
        """Close the ports; last, so that probes are answered while the process stops."""
        if self._registry is not None:
            await self._registry.close()
        if self._queries is not None:
            await self._queries.close()
        if self._server is not None:
            await self._server.stop()
        await self.metrics.stop()
        if self._callers is not None:
            await self._callers.close()
        if self._client is not None:
            await self._client.close()


def host_names(*hosts: str | None) -> frozenset[str]:
    """Return the names under which the HTTP port may be asked: these hosts, and the names of this machine."""
    return frozenset(name.lower().rstrip(".") for name in (*hosts, socket.gethostname(), socket.getfqdn()) if name)
