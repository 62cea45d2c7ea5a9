"""A node in one process: picks the implementations, starts them in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.controller.assembly import Controller
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import SWITCH_INTERVAL_SECONDS
from sarit.env.passed_sockets import check_passed_sockets, passed_socket
from sarit.process.admin import Admin, admin_port
from sarit.process.backup_source import BackupSource
from sarit.process.listening import naming_port
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.process.observation.health import Health
from sarit.process.observation.metrics import Metrics
from sarit.process.observation.start_line import StartLine, limit_fact, recovery_fact
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage, own_token
from sarit.process.ownership.guarded_storage import GuardedStorage
from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs
from sarit.process.places.indexes import claim_index_storage, open_indexes
from sarit.process.places.volume import fit_to_volume, storage_directory
from sarit.process.security import Security
from sarit.process.service_manager import service_manager
from sarit.process.signals import StopSignals, serve_until_stopped
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from sarit.store.backup_session import Backups
from sarit.store.hosting.health import HealthState
from sarit.store.metering.load_meters import LoadMeters
from sarit.store.server.listener import StoreListener
from sarit.store.store import SegmentStore, StartPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.env.ports import Env
    from sarit.env.tls_server import TlsServer
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.security import SecurityConfig
    from sarit.process.settings import NodeConfig
    from sarit.process.signals import Stoppable
    from sarit.rpc.grpc_server import GrpcListener
    from sarit.security.quotas import Quotas
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.node")

BACKLOG: Final = 4096
EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # nosec B104
_OF_OTHERS: Final = 0o007


class Node:
    """A store, a controller and their servers."""

    def __init__(
        self, config: NodeConfig, env: Env, logs: LogProvider, indexes: IndexProvider, storage: ChunkStorage,
        damaged: Mapping[int, str] | None = None, security: Security | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.security = security or Security(config.security)
        self.env = env
        self.storage = GuardedStorage(storage, env.clock)
        policy = StartPolicy(config.accept_data_loss, config.allow_damaged, damaged or {})
        directories = config.data_dir, policy, storage_directory(config)
        self.store = SegmentStore(env, logs, indexes, self.storage, config.limits, *directories)
        checks = self.security.checks(env)
        self.server = StoreListener(self.store, max_connections=config.max_connections, checks=checks)
        self.meters = LoadMeters(self.store, env.clock, config.times.scaling)
        address = advertised_address(config)
        self.segments = InProcessSegments(self.store, address, self.meters)
        self.controller = Controller(
            InProcessTables(self.store), self.segments, env, (address, config.controller_port), config.times,
            access=self.security.access(env),
        )  # fmt: skip
        self.meters.request_scaling = self.controller.autoscale.request
        self.controller.quotas.apply = self._use_quotas
        self.controller_port = config.controller_port
        self.store_port = config.store_port
        self.recovery_seconds = 0.0  # of the store, at the start
        self._api: asyncio.Server | TlsServer | None = None
        self.api: GrpcListener | None = None
        self._metering: asyncio.Task[None] | None = None
        self.backups: BackupSource | None = None

    def __repr__(self) -> str:
        return f"<Node {self.addresses()}>"

    async def _use_quotas(self, quotas: Quotas) -> None:
        self.store.quotas.use(quotas, 1)

    def addresses(self) -> str:
        """Where the node listens, as text."""
        host = self.config.host
        return f"controller {host}:{self.controller_port}, store {host}:{self.store_port}"

    async def start(self, claim: DirectoryClaim | None = None) -> None:
        """Recover and serve; `claim`: of the data directory, if it has one.

        Raises Corrupt, Invalid, Unavailable, OSError (a port is taken)."""
        from sarit.process.port_mux import PortMux
        from sarit.rpc.grpc_server import GrpcListener, client_is_known

        self.security.start(self.env)
        # In order of use: the controller's tables are segments of the store, and both work before a port is open.
        began = self.env.clock.monotonic()
        await self.store.start()
        self.recovery_seconds = self.env.clock.monotonic() - began
        if claim is not None:
            claim.mark_complete(self.config, self.env)
        await self.controller.start()
        self._metering = asyncio.ensure_future(self.meters.run())
        if not self.config.one_port:
            with naming_port("--store-port", self.config.host, self.config.store_port):
                self.store_port = await self.server.listen(self.config.host, self.config.store_port)
        self.server.start_reaper()
        listener = self.api = GrpcListener(self.controller.services(client_is_known), self.config.max_api_connections)
        factory = listener.connection
        if self.config.one_port:
            factory = PortMux(self.server.connection, listener.connection, self.config.max_api_connections).connection
        with naming_port("--controller-port", self.config.host, self.config.controller_port):
            self._api = await serve_api(factory, self.config, self.security)
        # Port 0: the system has picked one.
        if not self.config.controller_port:
            self.controller_port = self._api.sockets[0].getsockname()[1]
        if self.config.one_port:
            self.store_port = self.controller_port
        config = self.config
        self.segments.port = config.advertised_store(self.store_port)
        self.controller.advertised = (self.controller.advertised[0], config.advertised_port(self.controller_port))

    async def stop(self) -> None:
        """Stop serving, flush to long-term storage, close everything."""
        if self._api is not None:
            # No new connections.  The controller stops before the store, in which its tables are.
            self._api.close()
        if self._metering is not None:
            self._metering.cancel()
            await asyncio.gather(self._metering, return_exceptions=True)
        if self.backups is not None:
            await self.backups.stop()
        await self.controller.stop()
        await self.server.close()
        await self.store.stop()
        await self.security.stop()

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""
        self.store.skip_flush()

    def take_over(self, live: LiveSettings) -> None:
        """Go on with other settings, and with the files of security as they are now."""
        self.security.follow()
        if live.scrub_bytes_per_second is not None:
            self.store.change_scrub(live.scrub_bytes_per_second)
        self.meters.change_times(live.times.scaling)
        self.controller.change_times(live.times)


async def serve_api(
    factory: Callable[[], asyncio.BaseProtocol], config: NodeConfig, security: Security
) -> asyncio.Server | TlsServer:
    """Listen on the controller's port.  Raises OSError, Invalid."""
    host, port = bound_address(config.host), config.controller_port
    passed, loop = passed_socket(host, port), asyncio.get_running_loop()
    if security.server_tls is None:
        if passed is not None:
            return await loop.create_server(factory, sock=passed, backlog=BACKLOG)
        return await loop.create_server(factory, host, port, backlog=BACKLOG)
    from sarit.env.tls_server import Handshakes, TlsServer, serve_tls

    handshakes = Handshakes(security.server_tls)
    if passed is not None:
        return TlsServer(factory, handshakes, [passed], BACKLOG)
    return await serve_tls(factory, handshakes, host, port, BACKLOG)


def advertised_address(config: NodeConfig) -> str:
    """The address that clients get: an address, not a name, except for TLS.

    Certificates are for names, and official clients accept no others."""
    host = config.advertised_host or config.host
    if host in EVERY_ADDRESS:
        host = "127.0.0.1"
    address = bound_address(host)  # it must resolve in either case
    return host if config.security.certificate is not None else address


def internal_address(config: NodeConfig) -> str:
    """The address at which a controller reaches stores of its own machine."""
    return bound_address("127.0.0.1" if config.host in EVERY_ADDRESS else config.host)


def bound_address(host: str) -> str:
    """The one address of a host that the API listens on: the same as the store's, IPv4 where both exist."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Invalid(f"the host name {host!r} cannot be resolved: {error}") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


async def open_node(
    config: NodeConfig, env: Env, claim: DirectoryClaim | None = None, logs: LogProvider | None = None,
    metrics: Metrics | None = None, security: Security | None = None,
) -> Node:  # fmt: skip
    """A node on real disks, not started yet.  The directory is claimed.  `logs`: None are those in the directory."""
    from sarit.log.local import LocalLogProvider
    from sarit.storage.open import open_storage

    directory, metrics = config.data_dir, metrics or Metrics(env.clock)
    return Node(
        config,
        env,
        logs or LocalLogProvider(env, f"{directory}/log", config.limits.log_file_bytes, metrics.log),
        open_indexes(config, env, statistics=metrics.index),
        metrics.metered(await open_storage(config.chunks_url, env)),
        claim.damaged if claim is not None else None,
        security,
    )


async def _serve(config: NodeConfig, env: Env, security: Security, reload: Reload | None) -> None:
    signals = StopSignals(env.clock)
    signals.listen()
    if reload is not None:
        reload.listen()
    config = fit_to_volume(config, env.files)
    # Before anything else reads or writes the directory.
    claim = claim_directory(config, env)
    health = Health("the node", env.clock)
    try:
        async with AsyncExitStack() as closing:
            await closing.enter_async_context(service_manager(health, env.clock))
            admin = await closing.enter_async_context(
                admin_port(health, config.host, config.http_port, security, env, config.advertised_host)
            )
            logs = None  # in the directory
            if config.log_url is not None:
                logs = await closing.enter_async_context(
                    open_bookkeeper_logs(config.log_url, env, claim.node, admin.metrics.log)
                )
            # Its storage has threads from here on, even if it never starts.
            node = await open_node(config, env, claim, logs, admin.metrics, security)
            health.store = admin.metrics.store = node.store
            if reload is not None:
                reload.apply = node.take_over
            admin.metrics.listener, admin.metrics.meters = node.server, node.meters
            await serve_until_stopped(node, _start(config, env, claim, node, admin, signals), signals, health.stopping)
            node.storage.raise_failure()
    finally:
        # Last: another node may start on the directory from here on.
        claim.lock.close()
    say("sarit stopped; everything acknowledged is on disk")


def say(text: str) -> None:
    """Print a line on standard output."""
    try:
        print(text, flush=True)
    except OSError:  # the process that started the node has closed the pipe; clients are still served
        sys.stdout = None  # otherwise flushing it at exit fails the process


async def _start(
    config: NodeConfig, env: Env, claim: DirectoryClaim, node: Node, admin: Admin, signals: StopSignals
) -> None:
    line = StartLine(env.clock, config.options)
    admin.health.starting("it claims its storage")
    await claim_long_term_storage(config, env, node.storage, claim)
    node.storage.guard(own_token(env.files, config.data_dir), partial(end_for_copy, node, signals))
    await claim_index_storage(config, env, claim)
    # After both claims: a store that runs writes chunks, and collects those that it does not know.
    admin.health.starting("it recovers")
    await node.start(claim)
    node.backups = BackupSource(Backups(node.store), config.data_dir, env)
    await node.backups.start()
    # After recovery, so that what it made is frozen.
    metrics = admin.metrics
    metrics.gc = GcScheduler().start()
    if node.api is not None:
        metrics.has_controller(node.controller, node.api)
    from sarit.process.observation.console_view import StandaloneView

    controller = f"{internal_address(config)}:{node.controller_port}"
    await admin.serve(controller, StandaloneView(node, admin.health))
    _log.info("%s", line.text("standalone", _recovery_fact(node), limit_fact(config)))
    say(f"sarit is ready: {node.addresses()}{admin.where()}, data in {config.data_dir}")


def end_for_copy(node: Stoppable, signals: StopSignals) -> None:
    """Have a node stop because a copy of it has started: what it would flush, the copy would delete."""
    node.skip_flush()
    signals.first.set()


def _recovery_fact(node: Node) -> str:
    found = node.store.statistics
    damaged = sum(health.state is HealthState.FAILED for health in node.store.health())
    containers, seconds = node.config.containers, node.recovery_seconds
    return recovery_fact(containers, seconds, found.replayed_frames, found.replayed_bytes, damaged)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host that is listened on."""
    if host in EVERY_ADDRESS:
        return False
    return ipaddress.ip_address(bound_address(host).partition("%")[0]).is_loopback


def refuse_plain_passwords(security: SecurityConfig, host: str) -> None:
    """Refuse a start where passwords and tokens would cross a network in clear text.  Raises Invalid."""
    encrypted = security.certificate is not None or security.plain_passwords
    if security.token_keys is not None and not encrypted and not is_loopback(host):
        raise Invalid(
            f"--host {host or repr(host)} with users and without TLS: passwords and tokens would cross the network in "
            "clear text; give --tls-cert and --tls-key, or --plain-passwords where something in front or below encrypts"
        )


def warn_of_addresses(config: NodeConfig) -> None:
    """Log that clients of other machines will not reach the node, or that all of them may do everything, if so."""
    if config.security.token_keys is None and not is_loopback(config.host):
        _log.warning(
            "--host %s without --users: whoever reaches the ports may read, change and delete everything "
            "(docs/operations/security.md)",
            config.host or "''",
        )
    if config.host in EVERY_ADDRESS and not config.advertised_host:
        _log.warning(
            "--host %s without --advertise: clients get the address 127.0.0.1, so only those on this machine can write "
            "and read; name the address that others use with --advertise, as HOST:PORT where its ports are mapped",
            config.host,
        )


def warn_of_readers(data_dir: str) -> None:
    """Log that others of this machine may read the directory: one made by an earlier version, or by an operator."""
    with suppress(OSError):
        found = os.stat(data_dir)
        if found.st_uid == os.geteuid() and found.st_mode & _OF_OTHERS:
            _log.warning("%s can be read by others of this machine: chmod -R go-rwx %s", data_dir, data_dir)


def run(config: NodeConfig, reload: Reload | None = None) -> None:
    """Run a node until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    import uvloop

    from sarit.env.real import real_env
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    refuse_plain_passwords(config.security, config.host)
    warn_of_addresses(config)
    warn_of_readers(config.data_dir)
    address = bound_address(config.host)
    ports = (config.controller_port,) if config.one_port else (config.controller_port, config.store_port)
    check_passed_sockets([(address, port) for port in ports])
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    allowed = raise_descriptor_limit()
    wanted, config = config, config.validated().on_machine(machine_memory()).within(allowed)
    if config.max_connections < wanted.max_connections:
        _log.warning(
            "only %d files may be open: %d connections to the store and %d to the controller at most (see ulimit -n)",
            allowed, config.max_connections, config.max_api_connections,
        )  # fmt: skip
    security = Security(config.security)
    env = real_env(security.server_tls, security.client_tls(), config.traces, "sarit-standalone")
    uvloop.run(_serve(config, env, security, reload))


__all__ = ["Node", "SaritError", "claim_directory", "open_node", "run"]
