"""The schema registry of a process: its port, and its routes there and on the HTTP port.

The port opens with the HTTP port, before the process serves, and answers 503 until then.  The registry keeps its rows
in a table of the controller, so only a process with a controller has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.process.addresses import naming_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.callers import Gate
    from sarit.admin.exposition import Sample
    from sarit.admin.server import AdminServer
    from sarit.env.ports import Env
    from sarit.env.tls import ServerTls
    from sarit.process.observation.registry_view import RegistryView
    from sarit.process.registry_schemas import RegistrySchemas
    from sarit.process.registry_tables import RegistryTables
    from sarit.registry.registry import Registry
    from sarit.registry.statistics import Statistics
    from sarit.security.permissions import Caller, Permission

CONFLUENT_PREFIX: Final = "/registry/confluent"


class RegistryRole:
    """The schema registry of one process, from the opening of its port to its end."""

    def __init__(self, host: str, port: int | None, env: Env) -> None:
        """`port`: of its own; 0 picks a free one; None: it is on the HTTP port alone."""
        self._host = host
        self._port = port
        self._env = env
        self._server: AdminServer | None = None
        self._registry: Registry | None = None
        self.view: RegistryView | None = None  # for the console, once the role serves
        self._statistics: Statistics | None = None

    def __repr__(self) -> str:
        return f"<RegistryRole {self._registry!r} at {self._server!r}>"

    @property
    def port(self) -> int | None:
        """The port of its own, once it listens; None: it has none."""
        return None if self._server is None else self._server.port

    async def open(self, server: AdminServer, tls: ServerTls | None) -> None:
        """Listen on the port of its own, if there is one.  `server`: answers probes already.

        Raises Unavailable, OSError: the port is taken."""
        if self._port is None:
            return
        self._server = server
        with naming_port("--registry-port", self._host, self._port):
            await server.start(self._host, self._port, tls)

    def serve(self, kept: RegistryTables, gate: Gate, http: AdminServer | None) -> None:
        """Answer requests, also on the HTTP port if there is one.

        Call it before the routes of REST are added: the last of them answers everything below /v1."""
        from sarit.process.observation.registry_view import RegistryView
        from sarit.registry.access import Guard
        from sarit.registry.confluent import routes as confluent
        from sarit.registry.pravega import routes as pravega
        from sarit.registry.registry import Registry
        from sarit.registry.statistics import Statistics

        access = kept.access

        def permission(caller: Caller, resource: str) -> Permission:
            assert access is not None
            return access.rules.of(caller, resource)

        async def identify(request: Request) -> Caller | None:
            return await gate.caller(request)

        registry = self._registry = Registry(kept.tables, self._env, kept.installation)
        statistics = self._statistics = Statistics(self._env.clock.monotonic)
        guard = self._guard = Guard(None if access is None else permission, kept.audit)
        self.view = RegistryView(registry, guard)

        def routes(prefix: str) -> list[BaseRoute]:
            of_pravega = pravega.routes(registry, guard, identify, statistics)
            return [*of_pravega, *confluent.routes(registry, guard, identify, statistics, prefix)]

        if http is not None:
            http.add(routes(CONFLUENT_PREFIX))
        if self._server is not None:
            self._server.add(routes(""))

    def schemas_of(self, caller: Caller | None) -> RegistrySchemas | None:
        """Return the schemas that a caller may read; None: the registry does not serve yet.  Call it on the loop."""
        from sarit.process.registry_schemas import RegistrySchemas

        if self._registry is None:
            return None
        return RegistrySchemas(self._registry, self._guard, caller)

    def samples(self) -> Iterator[Sample]:
        """Return samples of what the registry has counted."""
        if self._statistics is None or self._registry is None:
            return
        for labels, count in self._statistics.requests.items():
            yield "sarit_registry_requests_total", tuple(map(str, labels)), count
        for names, seconds in self._statistics.seconds.items():
            yield "sarit_registry_request_seconds", names, seconds
        for outcome, count in self._statistics.registrations.items():
            yield "sarit_registry_registrations_total", (outcome,), count
        if (counts := self._registry.counts) is not None:
            yield "sarit_registry_schemas", (), counts.schemas
            yield "sarit_registry_groups", (), counts.groups

    async def close(self) -> None:
        """Close the port, and end the work under way."""
        if self._server is not None:
            await self._server.stop()
        if self._registry is not None:
            await self._registry.close()
