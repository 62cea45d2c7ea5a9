"""A worker of a cluster: a process that runs background jobs of streams, and nothing else.

Jobs call the controller that each worker has for itself: it has no state, no port, and does no background work of
controllers.  Workers and the controllers that run jobs are members of one kind, and share the jobs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from sarit.cluster.connection import ClusterConnection
from sarit.cluster.controller import start_when_joined
from sarit.cluster.controller_members import WORKERS, ControllerMembers
from sarit.cluster.limits import WORKER_NAME_BYTES
from sarit.cluster.map_watch import MapWatch
from sarit.cluster.own_health import map_samples, reasons_of_session
from sarit.core.errors import SaritError, Unavailable
from sarit.env.background import Background
from sarit.env.passed_sockets import check_passed_sockets
from sarit.lake.catalogs import read_catalogs
from sarit.process.addresses import warn_of_addresses
from sarit.process.controller_role import ControllerRole, ControllerSettings
from sarit.process.job_kinds import JobConfig
from sarit.process.observation.start_line import StartLine
from sarit.process.run import run_process, say
from sarit.process.store_calls.remote import RemoteStores
from sarit.process.store_calls.store_connections import StoreConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from sarit.cluster.process_config import ProcessConfig
    from sarit.controller.assignment import Address
    from sarit.coordination.port import Members, Registers
    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.security import Security

_log = logging.getLogger("sarit.cluster")


class ClusterWorker:
    """The worker role of one process of a cluster, on stores that come and go.

    `address`: the name of this worker among all.  The rest is as in `ClusterController`."""

    def __init__(
        self, settings: ControllerSettings, registers: Registers, members: Callable[[str], Members], env: Env,
        secret: bytes, security: Security, address: Address, on_failure: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.watch = MapWatch(registers, env.clock)
        self.members = ControllerMembers(members(WORKERS), env, "worker")
        self.stores = StoreConnections(env, self.watch, secret)
        self.failure: SaritError | None = None  # why the worker cannot go on; None: it runs
        self._on_failure = on_failure
        self._background = Background(self._on_failed)
        self.role = ControllerRole(
            settings, env, RemoteStores(self.stores, env), security, background=self._background,
            workers=self.members.addresses,
        )  # fmt: skip
        self.role.controller.advertised = self._address = address
        assert self.role.worker is not None
        self.worker = self.role.worker

    def __repr__(self) -> str:
        return f"<ClusterWorker {self._address}, {self.worker!r}>"

    async def start(self) -> None:
        """Join the workers of the cluster, and run jobs as soon as others know this one."""
        self._background.spawn(self.watch.run())
        self.members.start(self._address)
        await start_when_joined(self.worker, self.members)

    async def stop(self) -> None:
        """Stop the jobs, leave them to other workers, and close everything."""
        await self.role.stop()
        await self.members.stop()

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        _log.critical("background work of the worker failed: internal error", exc_info=error)
        self.failure = self.failure or Unavailable("background work of the worker failed: internal error")
        self._on_failure()


class WorkerProcess:
    """A process with a worker of a cluster."""

    farewell = "sarit stopped; other workers go on with its jobs"

    def __init__(self, config: ProcessConfig, env: Env, security: Security) -> None:
        self._config = config
        self._env = env
        self._security = security
        self._connection: ClusterConnection | None = None
        self._worker: ClusterWorker | None = None

    def __repr__(self) -> str:
        return f"<WorkerProcess {self._worker!r}>"

    @property
    def failure(self) -> SaritError | None:
        """The error with which the worker's background work has ended; None: it runs."""
        return None if self._worker is None else self._worker.failure

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Start the worker, which runs jobs when this returns."""
        config, env, health = self._config, self._env, admin.health
        line = StartLine(env.clock, config.options)
        health.starting("it connects to ZooKeeper")
        connection = self._connection = await ClusterConnection.open(config, env)
        health.add(partial(reasons_of_session, connection.zookeeper))
        settings = ControllerSettings(
            config, 0, config.max_api_connections, config.times, quotas=False,
            jobs=JobConfig(read_catalogs(config.catalogs)), installation=connection.meta.cluster,
        )  # fmt: skip
        name = name_of(config.machine, admin.port, env)
        worker = self._worker = ClusterWorker(
            settings, connection.registers, connection.members, env, bytes.fromhex(connection.meta.secret),
            self._security, name, end,
        )  # fmt: skip
        self._security.start(env)
        warn_of_addresses(config)
        health.starting("it joins the workers of the cluster")
        await worker.start()
        worker.worker.show_in(admin)
        admin.metrics.runs_jobs_alone = True
        admin.metrics.add(partial(map_samples, worker.watch, env.clock))
        await admin.serve()
        _log.info("%s", line.text("worker", f"its name is {name[0]}:{name[1]}"))
        say(f"sarit is ready: worker at {name[0]}:{name[1]}, cluster {config.cluster}{admin.where()}")

    def take_over(self, live: LiveSettings) -> None:
        """Apply the present security files without a restart."""
        self._security.follow()

    def skip_flush(self) -> None:
        """Flush nothing."""

    async def stop(self) -> None:
        """Stop the jobs and close everything."""
        if self._worker is not None:
            await self._worker.stop()
        if self._connection is not None:
            await self._connection.close()
        await self._security.stop()

    def release(self) -> None:
        """Release nothing: `stop` ended the membership."""


def name_of(machine: str, port: int | None, env: Env) -> Address:
    """Return the name of a worker, which has the form of an address: its machine and its HTTP port.

    `port`: None: it has none, and several such workers may run on one machine, so the name has random digits."""
    if port is not None:
        return machine, port
    return f"{machine}-{env.random.bytes(WORKER_NAME_BYTES).hex()}", 1


def run_worker(config: ProcessConfig, reload: Reload | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import raise_descriptor_limit

    check_passed_sockets(())
    raise_descriptor_limit()
    run_process(partial(WorkerProcess, config), config, "the worker", "worker", reload)
