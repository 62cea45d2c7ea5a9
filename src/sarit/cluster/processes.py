"""The processes of a cluster: a store, and a controller.  Both find each other by ZooKeeper.

A store joins as a member and opens what the container map gives it (`member.py`).  When it is stopped it leaves first:
its containers move to the others while it serves, LEAVE_STORE_SECONDS at most.  A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from sarit.cluster.controller import ClusterController
from sarit.cluster.creation import check_log, check_storage, read_meta
from sarit.cluster.member import ConfirmedLogs, Member
from sarit.cluster.object_requests import RequestWindow, counting, keep_reporting, on_object_store
from sarit.cluster.own_health import map_samples, member_samples, reasons_of_member, reasons_of_session
from sarit.cluster.places import log_size, open_cluster_logs, open_indexes
from sarit.cluster.process_config import ProcessConfig
from sarit.cluster.release import check_clock, raise_release
from sarit.cluster.store_report import StoreReporter
from sarit.coordination.container_map import StoreAddress, decode_store
from sarit.coordination.map_register import STORES
from sarit.coordination.polling import poll, woken
from sarit.coordination.zookeeper import ZooKeeper, server_ms
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import (
    COORDINATION_POLL_SECONDS,
    STORE_INCARNATION_BYTES,
    STORE_LEASE_MARGIN_SECONDS,
    STORE_LEASE_SECONDS,
    SWITCH_INTERVAL_SECONDS,
)
from sarit.env.background import Background
from sarit.env.passed_sockets import check_passed_sockets
from sarit.process.admin import Admin
from sarit.process.limits import CONTROLLER_DRAIN_SECONDS, ZOOKEEPER_START_SECONDS
from sarit.process.listening import naming_port
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.process.observation.health import Health
from sarit.process.observation.start_line import StartLine, limit_fact
from sarit.process.places.volume import storage_directory
from sarit.process.security import Security
from sarit.process.service_manager import service_manager
from sarit.process.settings import DEFAULT_CONTROLLER_PORT, NodeConfig
from sarit.process.signals import StopSignals, run_unless, serve_until_stopped
from sarit.process.standalone import (
    advertised_address,
    bound_address,
    internal_address,
    refuse_plain_passwords,
    say,
    serve_api,
    warn_of_addresses,
)
from sarit.process.store_calls.remote import StoreConnections

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cluster.process import Process
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.coordination.port import Watch
    from sarit.env.ports import Env
    from sarit.env.tls_server import TlsServer
    from sarit.process.observation.metrics import Metrics
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.signals import Stoppable
    from sarit.rpc.grpc_server import GrpcListener
    from sarit.store.backup_session import Backups
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.node")

DRAINED: Final = "drained"
_FORWARDED: Final = "forwarded"


class ClusterConnection:
    """The session of a process with ZooKeeper, and the ports of its cluster on it."""

    def __init__(self, zookeeper: ZooKeeper, cluster: ClusterAddress, meta: ClusterMeta) -> None:
        self.zookeeper = zookeeper
        self.cluster = cluster
        self.meta = meta
        self.registers = ZooKeeperRegisters(zookeeper, cluster.root)

    def __repr__(self) -> str:
        return f"<ClusterConnection {self.cluster}>"

    @classmethod
    async def open(cls, config: ProcessConfig, env: Env) -> ClusterConnection:
        """Connect, and read what the cluster was made with.  Raises Unavailable, Invalid."""
        # The length of a session is chosen when it begins: read the description on one of its own.
        meta = await read_cluster(config.cluster, env)
        meta.compare(config.given)
        hosts, wait = config.cluster.hosts, ZOOKEEPER_START_SECONDS
        zookeeper = await ZooKeeper.connect(hosts, meta.lease_seconds, env, wait_seconds=wait)
        if zookeeper.session_seconds != meta.lease_seconds:
            found = zookeeper.session_seconds
            await zookeeper.close()
            raise Invalid(
                f"ZooKeeper at {config.cluster.hosts} gives sessions of {found:g} s, and the lease of this cluster is "
                f"{meta.lease_seconds:g} s: set tickTime, minSessionTimeout and maxSessionTimeout of ZooKeeper so that "
                "it is allowed"
            )
        connection = cls(zookeeper, config.cluster, meta)
        try:
            await raise_release(connection.registers, version("sarit"))
            nonce, before = env.random.bytes(STORE_INCARNATION_BYTES).hex(), env.clock.wall_ms()
            check_clock(before, await server_ms(zookeeper, f"{config.cluster.root}/clock/{nonce}"), env.clock.wall_ms())
        except BaseException:
            await zookeeper.close()
            raise
        return connection

    def members(self, kind: str) -> ZooKeeperMembers:
        """The members of one kind."""
        return ZooKeeperMembers(self.zookeeper, f"{self.cluster.root}/{kind}")

    async def close(self) -> None:
        """End the session."""
        await self.zookeeper.close()


async def read_cluster(cluster: ClusterAddress, env: Env) -> ClusterMeta:
    """What a cluster was made with.  Raises Unavailable, Invalid.

    After a power cut ZooKeeper starts at the same time: it is waited for."""
    zookeeper = await ZooKeeper.connect(cluster.hosts, STORE_LEASE_SECONDS, env, wait_seconds=ZOOKEEPER_START_SECONDS)
    try:
        return await read_meta(ZooKeeperRegisters(zookeeper, cluster.root), cluster)
    finally:
        await zookeeper.close()


class ClusterStore:
    """A store: a member that serves what the container map gives it."""

    def __init__(
        self, config: ProcessConfig, env: Env, machine_bytes: int, descriptors: int, security: Security | None = None
    ) -> None:
        self._metrics: Metrics  # from the start on
        self._security = security or Security(config.security)
        self._config = config
        self._env = env
        self._machine_bytes = machine_bytes
        self._descriptors = descriptors
        self._connection: ClusterConnection | None = None
        self._store: SegmentStore | None = None
        self._member: Member | None = None
        self._server: Any = None
        self._meters: Any = None
        self._owners: StoreConnections | None = None
        self._backups: Backups | None = None
        self._background = Background.critical(_log, "background work of this store")
        self._drained = asyncio.Event()
        self._drain_watch: Watch | None = None
        self._skipped = asyncio.Event()
        self._on_failure: Callable[[], None] = lambda: None
        self._closing = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<ClusterStore {self._member!r}>"

    @property
    def failure(self) -> SaritError | None:
        """See `Process`: its place was taken."""
        return None if self._member is None else self._member.failure

    def notify_failure(self, ended: Callable[[], None]) -> None:
        """See `Process`."""
        self._on_failure = ended

    async def start(self, admin: Admin) -> None:
        """See `Process`."""
        config, env = self._config, self._env
        line = StartLine(env.clock, config.options)
        admin.health.starting("it connects to ZooKeeper")
        connection = self._connection = await ClusterConnection.open(config, env)
        meta = connection.meta
        check_log(env.files, meta, config.machine)
        node = config.node(meta, self._machine_bytes, self._descriptors)
        warn_of_addresses(node)
        host = advertised_address(node)
        name = config.name or f"{config.machine}-{config.port}"
        address = StoreAddress(host, config.port, config.machine, 0, config.weight)
        member = Member(
            name, address, connection.registers, connection.members(STORES), env, connection.zookeeper.session_seconds
        )
        self._metrics = admin.metrics
        admin.metrics.add(partial(member_samples, member, env.clock))
        store = self._store = admin.health.store = admin.metrics.store = await self._make_store(node, meta, member)
        await store.start()
        admin.health.starting("it joins the cluster")
        secret = bytes.fromhex(meta.secret)
        self._owners = StoreConnections(env, member.watch, secret)
        port = await self._listen(store, node, secret)
        advertised = node.advertised_port(port)
        await self._wait_for_place(connection, name, (host, advertised))
        self._member = member
        member.on_failure = self._on_failure
        member.start(store, advertised)
        admin.health.others.append(lambda: reasons_of_member(member, connection.zookeeper))
        self._drain_watch = connection.registers.watch(f"{DRAINED}/{name}", self._drained.set)
        follow = poll(self._follow_drain, self._drained, env.clock, _log, "it is not known whether to drain")
        self._background.spawn(follow)
        self._background.spawn(StoreReporter(connection.registers, member, store, admin).run())
        if on_object_store(meta):
            window = RequestWindow(counting(meta, admin.metrics.storage, admin.metrics.index), env.clock)
            self._background.spawn(keep_reporting(connection.registers, name, window, _log))
        await member.joined.wait()
        await admin.serve()
        _log.info("%s", line.text(f"store {name}", f"{meta.containers} containers in the cluster", limit_fact(node)))
        say(f"sarit is ready: store {name} at {host}:{advertised}, cluster {config.cluster}{admin.where()}")

    async def _wait_for_place(self, connection: ClusterConnection, name: str, address: tuple[str, int]) -> None:
        """Raises Unavailable when a store of this name is a member, at another address, for longer than a lease.

        One at this address has ended, since its port was free: this one takes its place."""
        members = connection.members(STORES)
        changed = asyncio.Event()
        watch = members.watch(changed.set)
        # A store that was killed is a member for a lease.
        end = self._env.clock.monotonic() + connection.meta.lease_seconds + STORE_LEASE_MARGIN_SECONDS
        try:
            while (found := (await members.list()).get(name)) is not None:
                known = decode_store(found)
                if (known.host, known.port) == address:
                    return
                if self._env.clock.monotonic() > end:
                    raise Unavailable(
                        f"the cluster has a store {name} already, at {known.host}:{known.port}: choose another --id, "
                        "or stop that one"
                    )
                changed.clear()
                await woken(changed, COORDINATION_POLL_SECONDS)
        finally:
            watch.close()

    async def _make_store(self, node: NodeConfig, meta: ClusterMeta, member: Member) -> SegmentStore:
        from sarit.storage.open import open_storage
        from sarit.store.store import SegmentStore, StartPolicy

        env, directory = self._env, meta.log_directory
        storage = self._metrics.metered(await open_storage(meta.storage, env))
        try:
            await check_storage(env, storage, meta)
            size = log_size(env, meta)
            logs = ConfirmedLogs(await open_cluster_logs(self._closing, meta, env, size, self._metrics.log), member)
            limits = replace(node.limits, log_file_bytes=size)
            indexes = open_indexes(meta, env, limits.index_cache_bytes, self._metrics.index)
        except BaseException:
            await storage.close()
            raise
        store = SegmentStore(
            env, logs, indexes, storage, limits, directory, StartPolicy(), storage_directory(node), frozenset()
        )
        store.placement = member
        store.on_fenced, store.on_released = member.fenced, member.released
        store.on_opening = member.opening_changed
        return store

    async def _listen(self, store: SegmentStore, node: NodeConfig, secret: bytes) -> int:
        from sarit.store.metering.load_meters import LoadMeters
        from sarit.store.server.internal_handler import InternalHandler
        from sarit.store.server.listener import StoreListener

        meters = self._meters = LoadMeters(store, self._env.clock, node.times.scaling)
        internal = InternalHandler(store, secret, meters)
        self._backups = internal.backups
        meters.request_scaling = internal.request_scaling
        self._server = StoreListener(
            store, max_connections=node.max_connections, internal=internal, ask_owner=self._ask_owner,
            checks=self._security.checks(self._env),
        )  # fmt: skip
        self._security.start(self._env)
        with naming_port("--port", node.host, node.store_port):
            port: int = await self._server.listen(node.host, node.store_port)
        self._server.start_reaper()
        self._metrics.meters, self._metrics.listener = meters, self._server
        self._background.spawn(meters.run())
        return port

    async def _ask_owner(self, command: Any) -> Any:
        """For the Rust client, which does not follow a table that has moved."""
        assert self._owners is not None
        try:
            reply = await self._owners.ask(
                command.segment, lambda request_id: replace(command, request_id=request_id), _FORWARDED
            )
        except SaritError as error:
            _log.info("a request on the table %s cannot be forwarded: %s", command.segment, error)
            return None
        return replace(reply, request_id=command.request_id)

    async def _follow_drain(self) -> None:
        connection, member = self._connection, self._member
        assert connection is not None
        assert member is not None
        found = await connection.registers.get(f"{DRAINED}/{member.name}")
        await member.reweigh(self._config.weight if found is None else 0)

    def take_over(self, live: LiveSettings) -> None:
        """See `Process`."""
        self._security.follow()
        if self._meters is not None:
            self._meters.change_times(live.times.scaling)

    def skip_flush(self) -> None:
        """See `Process`."""
        self._skipped.set()
        if self._store is not None:
            self._store.skip_flush()

    async def stop(self) -> None:
        """See `Process`: leave, then close.  What is not moved by then is recovered from the log by other stores."""
        if self._backups is not None:
            self._backups.stop()
        if self._member is not None:
            await self._leave(self._member)
        await self._background.close()
        if self._drain_watch is not None:
            self._drain_watch.close()
        if self._server is not None:
            await self._server.close()
        if self._owners is not None:
            await self._owners.close()
        if self._store is not None:
            await self._store.stop()
        await self._security.stop()
        await self._closing.aclose()
        if self._connection is not None:
            await self._connection.close()

    async def _leave(self, member: Member) -> None:
        leaving = asyncio.ensure_future(member.leave())
        skipped = asyncio.ensure_future(self._skipped.wait())
        try:
            await asyncio.wait((leaving, skipped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            skipped.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
        if skipped.done() and not skipped.cancelled():
            await member.stop()


class ClusterControllerProcess:
    """A controller: it holds nothing, reaches stores where the container map says, and leads if it is quicker."""

    def __init__(self, config: ProcessConfig, env: Env, security: Security | None = None) -> None:
        self._config = config
        self._env = env
        self._security = security or Security(config.security)
        self._connection: ClusterConnection | None = None
        self._controller: ClusterController | None = None
        self._api: asyncio.Server | TlsServer | None = None
        self._on_failure: Callable[[], None] = lambda: None
        self._listener: GrpcListener | None = None
        self._skipped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ClusterControllerProcess {self._controller!r}>"

    @property
    def failure(self) -> SaritError | None:
        """See `Process`: background work that others rely on has ended."""
        return None if self._controller is None else self._controller.failure

    def notify_failure(self, ended: Callable[[], None]) -> None:
        """See `Process`."""
        self._on_failure = ended

    async def start(self, admin: Admin) -> None:
        """See `Process`."""
        from sarit.rpc.grpc_server import GrpcListener

        config, line = self._config, StartLine(self._env.clock, self._config.options)
        admin.health.starting("it connects to ZooKeeper")
        connection = self._connection = await ClusterConnection.open(config, self._env)
        meta = connection.meta
        admin.health.others.append(lambda: reasons_of_session(connection.zookeeper))
        controller = self._controller = ClusterController(
            connection.registers, connection.members, self._env, bytes.fromhex(meta.secret), meta.containers,
            config.expected, config.times, connection.zookeeper.session_seconds, self._security.access(self._env),
        )  # fmt: skip
        self._security.start(self._env)
        controller.on_failure = self._on_failure
        node = NodeConfig("/", config.host, config.port, advertised=config.advertised, security=config.security)
        warn_of_addresses(node)
        admin.health.starting("it waits for the stores of its tables")
        await controller.open()
        listener = self._listener = GrpcListener(controller.services(), config.max_api_connections)
        with naming_port("--port", config.host, config.port):
            self._api = await serve_api(listener.connection, node, self._security)
        port = int(self._api.sockets[0].getsockname()[1])
        address = advertised_address(node), node.advertised_port(port)
        admin.metrics.has_controller(controller.controller, listener)
        admin.metrics.add(partial(map_samples, controller.watch, self._env.clock))
        controller.reports.show_in(admin.health)
        controller.serves(address)
        view = controller.view(meta, config, admin.health)
        await admin.serve(f"{internal_address(node)}:{port}", view)
        _log.info("%s", line.text("controller", f"limits: {config.max_api_connections} connections"))
        say(f"sarit is ready: controller at {address[0]}:{address[1]}, cluster {config.cluster}{admin.where()}")

    def take_over(self, live: LiveSettings) -> None:
        """See `Process`."""
        self._security.follow()
        if self._controller is not None:
            self._controller.controller.change_times(live.times)

    def skip_flush(self) -> None:
        """See `Process`: calls under way end without an answer."""
        self._skipped.set()

    async def stop(self) -> None:
        """See `Process`: answer the calls under way, and send the clients to other controllers."""
        if self._api is not None:
            self._api.close()
        if self._listener is not None:
            await run_unless(self._skipped, self._listener.drain(CONTROLLER_DRAIN_SECONDS))
        if self._controller is not None:
            await self._controller.stop()
        if self._connection is not None:
            await self._connection.close()
        await self._security.stop()


async def _serve(process: Process, admin: Admin, env: Env, reload: Reload | None) -> None:
    """Until a signal, or until the process cannot go on.  Raises SaritError, OSError."""

    async def start() -> None:
        await admin.open()
        await process.start(admin)
        admin.metrics.gc = GcScheduler().start()

    signals = StopSignals(env.clock)
    signals.listen()
    if reload is not None:
        reload.listen(process.take_over)
    process.notify_failure(signals.first.set)
    stoppable: Stoppable = process
    try:
        async with service_manager(admin.health, env.clock):
            await serve_until_stopped(stoppable, start(), signals, admin.health.stopping)
    finally:
        await admin.close()
    if process.failure is not None:
        raise process.failure
    say("sarit stopped; everything acknowledged is in the log")


def run_store(config: ProcessConfig, reload: Reload | None = None) -> None:
    """Run a store until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    # Its containers move to other stores while it restarts: a client that waits for it would wait for nothing.
    check_passed_sockets(())
    allowed = raise_descriptor_limit()
    _run(
        config,
        "the store",
        lambda env, security: ClusterStore(config, env, machine_memory(), allowed, security),
        reload,
    )


def run_controller(config: ProcessConfig, reload: Reload | None = None) -> None:
    """Run a controller until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import raise_descriptor_limit

    check_passed_sockets([(bound_address(config.host), config.port)])
    raise_descriptor_limit()
    _run(config, "the controller", lambda env, security: ClusterControllerProcess(config, env, security), reload)


def _run(config: ProcessConfig, name: str, make: Any, reload: Reload | None) -> None:
    import uvloop

    from sarit.env.real import real_env

    refuse_plain_passwords(config.security, config.host)
    security = Security(config.security)

    async def main() -> None:
        env = real_env(security.server_tls, security.client_tls(), config.traces, name.replace("the ", "sarit-"))
        admin = Admin(Health(name, env.clock), config.host, config.http_port, security, env, config.advertised_host)
        await _serve(make(env, security), admin, env, reload)

    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    uvloop.run(main())


__all__ = ["DEFAULT_CONTROLLER_PORT", "ClusterStore", "ProcessConfig", "run_controller", "run_store"]
