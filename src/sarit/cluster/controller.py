"""A controller of a cluster: a leader, and the controller role on stores that come and go.

A controller has no state: its tables are segments of the stores, which it finds by the container map.  Any number of
controllers run at the same time; each answers every call, and does the background work of its share of the streams
(`controller/assignment.py`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.admin.console.view import ClusterView, ComponentView, ReportView, RequestsView
from sarit.cluster.connection import ClusterConnection
from sarit.cluster.controller_members import CONTROLLERS, WORKERS, ControllerMembers
from sarit.cluster.limits import CONTROLLER_DRAIN_SECONDS
from sarit.cluster.map_watch import MapWatch
from sarit.cluster.object_requests import on_object_store, read_report
from sarit.cluster.own_health import map_samples, reasons_of_session
from sarit.cluster.report_watch import ReportWatch
from sarit.cluster.verdict import FAILED
from sarit.coordination.leader import Leader
from sarit.coordination.limits import STORE_LEASE_SECONDS
from sarit.coordination.map_register import STORES
from sarit.core.errors import SaritError, Unavailable
from sarit.env.background import Background, gather
from sarit.env.passed_sockets import check_passed_sockets
from sarit.lake.catalogs import read_catalogs
from sarit.process.addresses import bound_address, http_url, internal_address, warn_of_addresses
from sarit.process.controller_role import ControllerRole, ControllerSettings
from sarit.process.job_kinds import JobConfig
from sarit.process.observation.placed_view import ContainerStates, ControllerParts, PlacedView, mapped
from sarit.process.observation.start_line import StartLine
from sarit.process.run import run_process, say
from sarit.process.store_calls.remote import RemoteStores
from sarit.process.store_calls.store_connections import StoreConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from sarit.cluster.object_requests import RequestReport
    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import ClusterMeta
    from sarit.controller.jobs import Runner
    from sarit.coordination.port import Members, Registers
    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.observation.health import Health
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.security import Security
    from sarit.process.worker_role import WorkerRole

_log = logging.getLogger("sarit.cluster")


class ClusterController:
    """The leader and the controller role of one process of a cluster.

    `members(kind)`: returns the members of one kind.  `secret`: the secret that controllers and stores of the cluster
    share.  `containers`, `expected`, `lease_seconds`: as for `Leader`.  `on_failure`: called when the controller cannot
    go on.  `runners`: of jobs, in place of those of `settings`."""

    def __init__(
        self, settings: ControllerSettings, registers: Registers, members: Callable[[str], Members], env: Env,
        secret: bytes, containers: int, security: Security, expected: int | None = None,
        lease_seconds: float = STORE_LEASE_SECONDS, on_failure: Callable[[], None] = lambda: None,
        runners: Mapping[str, Runner] | None = None,
    ) -> None:  # fmt: skip
        self.leader = Leader(registers, members(STORES), env.clock, containers, expected, lease_seconds)
        self.watch = MapWatch(registers, env.clock)
        self.reports = ReportWatch(registers, self.watch, env.clock)
        self.members = ControllerMembers(members(CONTROLLERS), env)
        self.workers = ControllerMembers(members(WORKERS), env, "worker")
        self.stores = StoreConnections(env, self.watch, secret)
        self._env, self._registers = env, registers
        self.failure: SaritError | None = None  # why the controller cannot go on; None: it runs
        self._on_failure = on_failure
        self._background = Background(self._on_failed)
        self.role = ControllerRole(
            settings, env, RemoteStores(self.stores, env), security, self.members.addresses,
            background=self._background, workers=self.workers.addresses, runners=runners,
        )  # fmt: skip
        self.controller = self.role.controller

    def __repr__(self) -> str:
        return f"<ClusterController {self.controller!r}, {self.watch!r}>"

    async def open(self) -> None:
        """Start the leader, and the controller as soon as the stores of its tables serve.  Raises Invalid, Corrupt."""
        for work in (self.leader.run(), self.watch.run(), self.reports.run()):
            self._background.spawn(work)
        await self.role.open()

    async def serve(self) -> int:
        """Listen, and join the controllers of the cluster.  Returns the port.  Raises Unavailable, OSError."""
        port = await self.role.serve()
        self.members.start(self.role.address)
        if self.role.worker is not None:
            self.workers.start(self.role.address)
            self._background.spawn(start_when_joined(self.role.worker, self.workers))
        return port

    async def stop(self) -> None:
        """Answer the calls in progress, send the clients to other controllers, and close everything."""
        await self.role.drain()
        await self.members.stop()
        await self.role.stop()
        if self.role.worker is not None:
            await self.workers.stop()

    def view(self, meta: ClusterMeta, config: ProcessConfig, health: Health) -> PlacedView:
        """Return the view of this controller for the console."""

        def states() -> ContainerStates:
            verdict = self.reports.verdict()
            return ContainerStates(verdict.containers, verdict.state == FAILED)

        parts = ControllerParts(
            "cluster", self.controller, self.stores, lambda: mapped(self.watch.map),
            lambda: {f"controller {number}": f"{host}:{port}"
                     for number, (host, port) in enumerate(self.members.addresses(), 1)},
            {"log": meta.log, "chunks": meta.storage, "index": meta.index}, config.options, states,
            partial(self._shown, meta, str(config.cluster)),
        )  # fmt: skip
        return PlacedView(parts, health)

    async def _shown(self, meta: ClusterMeta, address: str) -> ClusterView:
        """Return the parts of the cluster for the console: the verdict from memory, requests from their registers."""
        verdict = self.reports.verdict()
        return ClusterView(
            address, meta.lease_seconds, meta.containers, verdict.served,
            [ComponentView(one.name, one.state, one.text) for one in verdict.components],
            [ReportView(name, age) for name, age in sorted(verdict.ages.items())],
            await self._requests(sorted(verdict.ages)) if on_object_store(meta) else (),
        )  # fmt: skip

    async def _requests(self, stores: Sequence[str]) -> list[RequestsView]:
        now = self._env.clock.wall_ms()
        found = await gather(*(read_report(self._registers, name, now) for name in stores))
        return [_requests_of(name, report) for name, report in zip(stores, found, strict=True)]

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        """Fail the controller when its background work ends with an error, since clients would still rely on it."""
        _log.critical("background work of the controller failed: internal error", exc_info=error)
        self.failure = self.failure or Unavailable("background work of the controller failed: internal error")
        self._on_failure()


async def start_when_joined(worker: WorkerRole, workers: ControllerMembers) -> None:
    """Start a worker once it is a member: one that knows no other would claim all jobs."""
    await workers.joined()
    worker.start()


def _requests_of(store: str, report: RequestReport | None) -> RequestsView:
    if report is None:
        return RequestsView(store)
    counts = report.counts
    return RequestsView(
        store, report.seconds, counts.chunk_puts, counts.index_puts, counts.chunk_gets, counts.index_gets,
        report.dollars_a_day(),
    )  # fmt: skip


class ControllerProcess:
    """A process with a controller of a cluster."""

    farewell = "sarit stopped; everything acknowledged is in the log"

    def __init__(self, config: ProcessConfig, env: Env, security: Security) -> None:
        self._config = config
        self._env = env
        self._security = security
        self._connection: ClusterConnection | None = None
        self._controller: ClusterController | None = None

    def __repr__(self) -> str:
        return f"<ControllerProcess {self._controller!r}>"

    @property
    def failure(self) -> SaritError | None:
        """The error with which the controller's background work has ended; None: it runs."""
        return None if self._controller is None else self._controller.failure

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Start the controller, which serves when this returns."""
        config, env, health = self._config, self._env, admin.health
        line = StartLine(env.clock, config.options)
        health.starting("it connects to ZooKeeper")
        connection = self._connection = await ClusterConnection.open(config, env)
        meta = connection.meta
        health.add(partial(reasons_of_session, connection.zookeeper))
        settings = ControllerSettings(
            config, config.port, config.max_api_connections, config.times, "--port", CONTROLLER_DRAIN_SECONDS,
            jobs=JobConfig(read_catalogs(config.catalogs)), runs_jobs=config.jobs, installation=meta.cluster,
        )  # fmt: skip
        controller = self._controller = ClusterController(
            settings, connection.registers, connection.members, env, bytes.fromhex(meta.secret), meta.containers,
            self._security, config.expected, connection.zookeeper.session_seconds, end,
        )  # fmt: skip
        self._security.start(env)
        warn_of_addresses(config)
        health.starting("it waits for the stores of its tables")
        await controller.open()
        port = await controller.serve()
        controller.role.show_in(admin)
        admin.metrics.add(partial(map_samples, controller.watch, env.clock))
        controller.reports.show_in(health)
        await admin.serve(
            f"{internal_address(config)}:{port}",
            controller.role.listener.handlers,
            controller.view(meta, config, health),
            controller.role.registry_tables(meta.cluster),
        )
        _log.info("%s", line.text("controller", f"limits: {config.max_api_connections} connections"))
        host, advertised = controller.role.address
        say(f"sarit is ready: controller at {host}:{advertised}, cluster {config.cluster}{admin.where()}")
        if url := admin.console():
            say(f"console: {url}")
        if admin.registry_port is not None:
            say(f"schema registry: {http_url(config, admin.registry_port)}")

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings, and the present security files, without a restart."""
        self._security.follow()
        if self._controller is not None:
            self._controller.role.take_over(live)

    def skip_flush(self) -> None:
        """Make `stop` end calls in progress without an answer."""
        if self._controller is not None:
            self._controller.role.skip_flush()

    async def stop(self) -> None:
        """Stop serving and close everything."""
        if self._controller is not None:
            await self._controller.stop()
        if self._connection is not None:
            await self._connection.close()
        await self._security.stop()

    def release(self) -> None:
        """Release nothing: `stop` ended the membership."""


def run_controller(config: ProcessConfig, reload: Reload | None = None) -> None:
    """Run a controller until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import raise_descriptor_limit

    check_passed_sockets([(bound_address(config.host), config.port)])
    raise_descriptor_limit()
    run_process(partial(ControllerProcess, config), config, "the controller", "controller", reload)
