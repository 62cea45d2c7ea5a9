"""The controller role of a process: a controller on some stores, and the port that clients reach it by.

The stores are in the same process, in other processes of a node, or in a cluster (`Stores`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sarit.controller.assembly import Controller
from sarit.controller.assignment import Assignment
from sarit.core.errors import Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background
from sarit.env.limits import LISTEN_BACKLOG
from sarit.env.passed_sockets import listen
from sarit.process.addresses import advertised_address, advertised_port, bound_address, naming_port
from sarit.process.job_kinds import GivenKinds, JobKinds, JobRunners
from sarit.process.late_calls import late_calls
from sarit.process.limits import STORES_RETRY_SECONDS
from sarit.process.mirror_site import LateSite
from sarit.process.registry_tables import RegistryTables
from sarit.process.search.calls import SearchFamilies, SearchWorld
from sarit.process.search.site import SearchSite
from sarit.process.signals import run_unless
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.search_methods import SEARCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.controller.assignment import Address
    from sarit.controller.jobs import Kinds, Runner
    from sarit.controller.ports import Segments, Tables
    from sarit.controller.times import Times
    from sarit.core.metering import ScaleAdvice
    from sarit.env.ports import Env
    from sarit.env.tls_server import TlsServer
    from sarit.process.addresses import Addressed
    from sarit.process.admin import Admin
    from sarit.process.job_kinds import JobConfig
    from sarit.process.registry_schemas import RegistrySchemas
    from sarit.process.reload import LiveSettings
    from sarit.process.security import Security
    from sarit.process.worker_role import WorkerRole
    from sarit.security.quotas import Quotas

    Factory = Callable[[], asyncio.Protocol]

_log = logging.getLogger("sarit.process")


class Stores(Protocol):
    """The stores that a controller keeps its tables in, and sends clients to."""

    @property
    def tables(self) -> Tables:
        """Return the tables of the controller."""

    @property
    def segments(self) -> Segments:
        """Return the segments of streams."""

    async def use_quotas(self, quotas: Quotas) -> None:
        """Have all stores charge by these quotas.  Raises Unavailable."""

    async def follow_scaling(self, report: Callable[[str, ScaleAdvice], None]) -> None:
        """Pass the requests of stores to scale a segment on, until cancelled."""

    async def close(self) -> None:
        """Close the connections to them."""


def _kinds(config: JobConfig | None, runners: Mapping[str, Runner] | None) -> Kinds | None:
    if runners:
        return GivenKinds(runners)
    return None if config is None else JobKinds(config)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The choices of an operator for a controller.  Port 0 picks a free one.

    `port_option`: the option that chose the port, for errors.  `drain_seconds`: how long calls under way may take when
    it stops.  `quotas`: follow the table of quotas.  `jobs`: for jobs that clients create; None: they cannot.
    `runs_jobs`: run them in this process, too.  `installation`: the id of the node or the cluster, for links to others;
    empty: it has no links.  `directory`: in which it keeps files that it can download again; empty: a temporary one."""

    addressed: Addressed
    port: int
    max_api_connections: int
    times: Times
    port_option: str = "--controller-port"
    drain_seconds: float = 0.0
    quotas: bool = True
    jobs: JobConfig | None = None
    runs_jobs: bool = True
    installation: str = ""
    directory: str = ""


class ControllerRole:
    """A controller from its opening to its end."""

    def __init__(
        self, settings: ControllerSettings, env: Env, stores: Stores, security: Security,
        members: Callable[[], Sequence[Address]] | None = None, share: Callable[[Factory], Factory] | None = None,
        background: Background | None = None, workers: Callable[[], Sequence[Address]] | None = None,
        runners: Mapping[str, Runner] | None = None,
    ) -> None:  # fmt: skip
        """`members`: see `Controller`.  `share`: makes the connections of a port that something else shares.

        `background`: for tasks whose failure somebody handles; None: it is logged.

        `workers`: returns the known addresses of all that run jobs, and then `worker` is started by the owner of the
        role; None: this process alone.  `runners`: of jobs, in place of those of `settings`."""
        self.port = settings.port  # once it listens: of its listener
        address = advertised_address(settings.addressed), settings.port
        self._access = security.access(env)
        self.controller = Controller(
            stores.tables, stores.segments, env, address, settings.times, members, access=self._access,
            use_quotas=stores.use_quotas if settings.quotas else None,
            kinds=_kinds(settings.jobs, runners), finish_round=lambda name: self.mirror.finish_round(name),
        )  # fmt: skip
        # The parts of links to other installations.
        runs_jobs = bool(runners) or settings.jobs is not None
        self.mirror = LateSite(self.controller, stores.tables, env, settings.installation, runs_jobs=runs_jobs)
        # Where indexes are.
        self.site = SearchSite(self.controller, stores.tables, env, settings.directory)
        self.search = SearchFamilies(
            SearchWorld(
                self.controller,
                stores.tables,
                stores.segments,
                env,
                security,
                self.controller.assignment.members,
                self.site,
            )
        )
        served = self.controller.services(
            late_calls(MIRROR, self.mirror.family), self.mirror.links, late_calls(SEARCH, self.search.family)
        )
        self.listener = GrpcListener(served, settings.max_api_connections)
        self._settings = settings
        self._alone = workers is None
        self._env = env
        self._stores = stores
        self._security = security
        self._share = share
        self._server: asyncio.Server | TlsServer | None = None
        self._background = background or Background.critical(_log, "background work of the controller")
        self._skipped = asyncio.Event()
        self.worker = self._worker(runners, workers)

    def __repr__(self) -> str:
        return f"<ControllerRole {self.controller!r}>"

    def show_in(self, admin: Admin) -> None:
        """Have the HTTP port of the process show the controller's metrics, and the jobs that it runs."""
        admin.metrics.has_controller(self.controller, self.listener)
        admin.metrics.add(self.search.samples)
        if self.worker is not None:
            self.worker.show_in(admin)

    def registry_tables(self, installation: str) -> RegistryTables:
        """Return what a schema registry of this process needs.  `installation`: the id of the node or the cluster."""
        return RegistryTables(self._stores.tables, installation, self._access, self._security.audit(self._env))

    def _worker(
        self, runners: Mapping[str, Runner] | None, workers: Callable[[], Sequence[Address]] | None
    ) -> WorkerRole | None:
        """Return what runs the jobs of this process; None: it runs none."""
        settings, catalog = self._settings, self.controller.catalog
        if not settings.runs_jobs or (settings.jobs is None and not runners):
            return None
        from sarit.process.worker_role import WorkerRole as Worker

        among = Assignment(lambda: self.controller.advertised, workers)
        if runners or settings.jobs is None:
            return Worker(catalog, runners or {}, self._env, among)
        calls = self.listener.handlers
        made = JobRunners(
            settings.jobs, self._env, self._security, self._advertised, calls, self._schemas, self.mirror, self.site
        )
        return Worker(catalog, made.by_kind(), self._env, among, made.statistics, made.close)

    def _advertised(self) -> str:
        host, port = self.controller.advertised
        return f"{host}:{port}"

    def _schemas(self) -> RegistrySchemas:
        from sarit.process.registry_schemas import read_registry

        return read_registry(self._stores.tables, self._env)

    async def open(self) -> None:
        """Start the controller, as soon as the stores of its tables serve.  Raises Invalid, Corrupt."""
        repeated = RepeatedLog(_log, self._env.clock.monotonic)
        while True:
            try:
                await self.controller.start()
                break
            except Unavailable as error:
                repeated.warning("", f"the controller waits for the stores: {error}")
                await asyncio.sleep(STORES_RETRY_SECONDS)
        self._background.spawn(self._stores.follow_scaling(self.controller.autoscale.request))
        self._background.spawn(self.site.sweep())

    async def serve(self) -> int:
        """Listen, and tell clients this address; return the port.  Raises Unavailable, OSError: it is taken."""
        settings, factory = self._settings, self.listener.connection
        if self._share is not None:
            factory = self._share(factory)
        host, port = settings.addressed.host, settings.port
        with naming_port(settings.port_option, host, port):
            self._server = await listen(factory, bound_address(host), port, self._security.server_tls, LISTEN_BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.controller.advertised = self.address
        if self.worker is not None and self._alone:
            self.worker.start()
        return self.port

    @property
    def address(self) -> Address:
        """The address that clients get."""
        return advertised_address(self._settings.addressed), advertised_port(self._settings.addressed, self.port)

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart."""
        self.controller.change_times(live.times)

    def skip_flush(self) -> None:
        """Let `stop` end calls under way without an answer."""
        self._skipped.set()

    async def drain(self) -> None:
        """Accept no connection any more, and answer the calls under way, within `drain_seconds`."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self._settings.drain_seconds:
            await run_unless(self._skipped, self.listener.drain(self._settings.drain_seconds))

    async def stop(self) -> None:
        """Drain, stop the jobs and the background work, and close the connections to the stores."""
        await self.drain()
        if self.worker is not None:
            await self.worker.stop()
        await self.search.close()
        await self.site.close()
        await self._background.close()
        await self.controller.stop()
        await self._stores.close()
