"""A node in one process: a store and a controller on one data directory, on fixed coordination."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.env.passed_sockets import check_passed_sockets
from sarit.process.addresses import (
    advertised_address,
    bound_address,
    internal_address,
    require_free_ports,
    warn_of_addresses,
)
from sarit.process.backup_source import BackupSource
from sarit.process.controller_role import ControllerRole, ControllerSettings
from sarit.process.job_kinds import job_config
from sarit.process.observation.metrics import Metrics
from sarit.process.observation.start_line import StartLine, limit_fact, recovery_fact
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage, own_token
from sarit.process.ownership.guarded_storage import GuardedStorage
from sarit.process.places.indexes import claim_index_storage
from sarit.process.places.store_parts import open_parts
from sarit.process.places.volume import fit_to_volume
from sarit.process.run import run_process, say, say_where
from sarit.process.security import Security
from sarit.process.settings import node_ports
from sarit.process.store_calls.in_process import InProcessStores
from sarit.process.store_role import Ownership, StoreRole, store_settings
from sarit.store.hosting.health import HealthState

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from sarit.controller.assignment import Address
    from sarit.controller.jobs import Runner
    from sarit.core.errors import SaritError
    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.places.store_parts import StoreParts
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.settings import NodeConfig

_log = logging.getLogger("sarit.process")

_OF_OTHERS: Final = 0o007


class Node:
    """A node in one process: a store, the controller that calls it, and a worker for background jobs.

    `secret`, `quotas`: see `Ownership` and `ControllerSettings`.  `jobs`: for each kind of job, the function that runs
    it, in place of those of `config`; without any there is no worker."""

    def __init__(
        self, config: NodeConfig, env: Env, parts: StoreParts, damaged: Mapping[int, str] | None = None,
        security: Security | None = None, *, secret: bytes | None = None, quotas: bool = True,
        jobs: Mapping[str, Runner] | None = None, installation: str = "",
    ) -> None:  # fmt: skip
        self.config = config
        self.env = env
        self.security = security or Security(config.security)
        self.storage = GuardedStorage(parts.storage, env.clock)
        parts, owner = replace(parts, storage=self.storage), Ownership(secret=secret)
        self.store_role = StoreRole(store_settings(config, damaged), env, parts, self.security, owner)
        self.store, self.meters, self.server = self.store_role.store, self.store_role.meters, self.store_role.listener
        self.stores = InProcessStores(self.store, self.meters, self.store_role.scale_requests, self._store_address)
        settings = ControllerSettings(
            config, config.controller_port, config.max_api_connections, config.times, quotas=quotas,
            jobs=job_config(config), installation=installation, directory=config.data_dir,
        )  # fmt: skip
        self.controller_role = ControllerRole(
            settings, env, self.stores, self.security, share=self._share if config.one_port else None, runners=jobs
        )
        self.controller = self.controller_role.controller
        self._host = advertised_address(config)

    def __repr__(self) -> str:
        return f"<Node {self.addresses()}>"

    def _share(self, api: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        from sarit.process.port_mux import PortMux

        return PortMux(self.server.connection, api, self.config.max_api_connections).connection

    def _store_address(self) -> Address:
        return self._host, self.config.advertised_store(self.store_port)

    @property
    def controller_port(self) -> int:
        """The port of the controller, once it listens."""
        return self.controller_role.port

    @property
    def store_port(self) -> int:
        """The port of the store, once it listens."""
        return self.controller_port if self.config.one_port else self.store_role.port

    def addresses(self) -> str:
        """Return the addresses at which the node listens, as text."""
        host = self.config.host
        return f"controller {host}:{self.controller_port}, store {host}:{self.store_port}"

    async def start(self, claim: DirectoryClaim | None = None) -> None:
        """Recover and serve; `claim`: of the data directory, if it has one.

        Raises Corrupt, Invalid, Unavailable, OSError (a port is taken)."""
        self.security.start(self.env)
        # In order of use: the controller's tables are segments of the store, and both work before a port is open.
        await self.store_role.open()
        if claim is not None:
            claim.mark_complete(self.config, self.env)
        await self.controller_role.open()
        await self.store_role.serve()
        await self.controller_role.serve()

    async def stop(self) -> None:
        """Stop serving, flush to long-term storage, close everything."""
        # The controller stops before the store, in which its tables are.
        await self.controller_role.stop()
        await self.store_role.stop()
        await self.security.stop()

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""
        self.store_role.skip_flush()

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings and changed security files without a restart."""
        self.security.follow()
        self.store_role.take_over(live)
        self.controller_role.take_over(live)


async def open_node(
    config: NodeConfig, env: Env, claim: DirectoryClaim | None = None, metrics: Metrics | None = None,
    security: Security | None = None, closing: AsyncExitStack | None = None,
) -> Node:  # fmt: skip
    """Return a node on real disks, not started yet; the directory is claimed.  `closing`: of a log on BookKeeper."""
    node = claim.node if claim is not None else ""
    parts = await open_parts(config, env, node, metrics or Metrics(env.clock), closing or AsyncExitStack())
    damaged = claim.damaged if claim is not None else None
    return Node(config, env, parts, damaged, security, installation=node)


class StandaloneProcess:
    """A node with its claim of the data directory, which is taken before anything is read or written."""

    farewell = "sarit stopped; everything acknowledged is on disk"

    def __init__(self, config: NodeConfig, env: Env, security: Security) -> None:
        self._config = fit_to_volume(config, env.files)
        self._env = env
        self._security = security
        self._claim = claim_directory(self._config, env)
        self._closing = AsyncExitStack()
        self._node: Node | None = None
        self._backups: BackupSource | None = None

    def __repr__(self) -> str:
        return f"<StandaloneProcess {self._node!r}>"

    @property
    def failure(self) -> SaritError | None:
        """The failure that ends the process: a copy of its directory has started."""
        return None if self._node is None else self._node.storage.failure

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Serve when this returns."""
        config, env, claim, health = self._config, self._env, self._claim, admin.health
        line = StartLine(env.clock, config.options)
        node = self._node = await open_node(config, env, claim, admin.metrics, self._security, self._closing)
        node.store_role.show_in(admin)
        node.controller_role.show_in(admin)
        health.starting("it claims its storage")
        await claim_long_term_storage(config, env, node.storage, claim)
        node.storage.guard(own_token(env.files, config.data_dir), partial(end_for_copy, node.skip_flush, end))
        await claim_index_storage(config, env, claim)
        # After both claims: a store that runs writes chunks, and collects those that it does not know.
        health.starting("it recovers")
        await node.start(claim)
        self._backups = BackupSource(node.store_role.backups, config.data_dir, env)
        await self._backups.start()
        from sarit.process.observation.console_view import StandaloneView

        address, calls = f"{internal_address(config)}:{node.controller_port}", node.controller_role.listener.handlers
        tables = node.controller_role.registry_tables(claim.node)
        await admin.serve(address, calls, StandaloneView(node, health), tables)
        _log.info("%s", line.text("standalone", _recovery_fact(node), limit_fact(config)))
        say(f"sarit is ready: {node.addresses()}{admin.where()}, data in {config.data_dir}")
        say_where(config, node.controller_port, admin.console(), admin.registry_port)

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart, if the node has started."""
        if self._node is not None:
            self._node.take_over(live)

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""
        if self._node is not None:
            self._node.skip_flush()

    async def stop(self) -> None:
        """Stop serving, flush to long-term storage, close everything."""
        if self._backups is not None:
            await self._backups.stop()
        if self._node is not None:
            await self._node.stop()
        await self._closing.aclose()

    def release(self) -> None:
        """Let another node start on the directory."""
        self._claim.lock.close()


def end_for_copy(skip_flush: Callable[[], None], end: Callable[[], None]) -> None:
    """Have a node stop because a copy of it has started: what it would flush, the copy would delete."""
    skip_flush()
    end()


def _recovery_fact(node: Node) -> str:
    found = node.store.statistics
    damaged = sum(health.state is HealthState.FAILED for health in node.store.health())
    containers, seconds = node.config.containers, node.store_role.recovery_seconds
    return recovery_fact(containers, seconds, found.replayed_frames, found.replayed_bytes, damaged)


def warn_of_readers(data_dir: str) -> None:
    """Log that others of this machine may read the directory: one made by an earlier version, or by an operator."""
    with suppress(OSError):
        found = os.stat(data_dir)
        if found.st_uid == os.geteuid() and found.st_mode & _OF_OTHERS:
            _log.warning("%s can be read by others of this machine: chmod -R go-rwx %s", data_dir, data_dir)


def run(config: NodeConfig, reload: Reload | None = None) -> None:
    """Run a node until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    warn_of_addresses(config)
    warn_of_readers(config.data_dir)
    address = bound_address(config.host)
    ports = (config.controller_port,) if config.one_port else (config.controller_port, config.store_port)
    check_passed_sockets([(address, port) for port in ports])
    config = config.validated()
    require_free_ports(config, node_ports(config))
    allowed = raise_descriptor_limit()
    wanted, config = config, config.on_machine(machine_memory()).within(allowed)
    if config.max_connections < wanted.max_connections:
        _log.warning(
            "only %d files may be open: %d connections to the store and %d to the controller at most (see ulimit -n)",
            allowed, config.max_connections, config.max_api_connections,
        )  # fmt: skip
    run_process(partial(StandaloneProcess, config), config, "the node", "standalone", reload)
