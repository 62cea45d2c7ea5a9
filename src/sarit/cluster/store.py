"""A store of a cluster: the store role, and a member that opens the containers that the map gives it (`member.py`).

A store that is stopped leaves first: its containers move to other stores while it serves, for up to
LEAVE_STORE_SECONDS.  A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.cluster.connection import ClusterConnection
from sarit.cluster.creation import check_log, check_storage
from sarit.cluster.member import ConfirmedLogs, Member
from sarit.cluster.object_requests import RequestWindow, counting, keep_reporting, on_object_store
from sarit.cluster.own_health import member_samples, reasons_of_member
from sarit.cluster.places import log_size, open_cluster_logs, open_indexes
from sarit.cluster.store_report import StoreReporter
from sarit.coordination.container_map import StoreAddress, decode_store
from sarit.coordination.limits import COORDINATION_POLL_SECONDS, STORE_LEASE_MARGIN_SECONDS
from sarit.coordination.map_register import STORES
from sarit.coordination.polls import poll, woken
from sarit.core.errors import SaritError, Unavailable
from sarit.env.background import Background
from sarit.env.passed_sockets import check_passed_sockets
from sarit.process.addresses import advertised_address, advertised_port, warn_of_addresses
from sarit.process.observation.start_line import StartLine, limit_fact
from sarit.process.places.store_parts import StoreParts
from sarit.process.places.volume import storage_directory
from sarit.process.run import run_process, say
from sarit.process.store_calls.store_connections import StoreConnections
from sarit.process.store_role import Ownership, StoreRole, StoreSettings
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import ClusterMeta
    from sarit.coordination.port import Watch
    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.observation.metrics import Metrics
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.security import Security
    from sarit.process.settings import NodeConfig

_log = logging.getLogger("sarit.cluster")

DRAINED: Final = "drained"
_FORWARDED: Final = "forwarded"


class ClusterStore:
    """A process with a store of a cluster."""

    farewell = "sarit stopped; everything acknowledged is in the log"

    def __init__(
        self, config: ProcessConfig, machine_bytes: int, descriptors: int, env: Env, security: Security
    ) -> None:
        self._config = config
        self._machine_bytes = machine_bytes
        self._descriptors = descriptors
        self._env = env
        self._security = security
        self._connection: ClusterConnection | None = None
        self._role: StoreRole | None = None
        self._member: Member | None = None  # None until the store may join
        self._owners: StoreConnections | None = None
        self._background = Background.critical(_log, "background work of this store")
        self._drained = asyncio.Event()
        self._drain_watch: Watch | None = None
        self._skipped = asyncio.Event()
        self._closing = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<ClusterStore {self._member!r}>"

    @property
    def failure(self) -> SaritError | None:
        """The failure that ends the process, as that another process has joined under its name; None: it runs."""
        return None if self._member is None else self._member.failure

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Start the store, which has joined and serves when this returns."""
        config, env = self._config, self._env
        line = StartLine(env.clock, config.options)
        admin.health.starting("it connects to ZooKeeper")
        connection = self._connection = await ClusterConnection.open(config, env)
        meta = connection.meta
        check_log(env.files, meta, config.machine)
        node = config.node(meta, self._machine_bytes, self._descriptors)
        warn_of_addresses(config)
        host = advertised_address(config)
        name = config.name or f"{config.machine}-{config.port}"
        address = StoreAddress(host, config.port, config.machine, 0, config.weight)
        member = Member(
            name, address, connection.registers, connection.members(STORES), env, connection.zookeeper.session_seconds,
            end,
        )  # fmt: skip
        admin.metrics.add(partial(member_samples, member, env.clock))
        role = self._role = await self._make_role(node, meta, member, admin.metrics)
        role.show_in(admin)
        await role.open()
        admin.health.starting("it joins the cluster")
        self._security.start(env)
        advertised = advertised_port(config, await role.serve())
        await self._wait_for_place(connection, name, (host, advertised))
        self._member = member
        member.start(role.store, advertised)
        admin.health.add(partial(reasons_of_member, member, connection.zookeeper))
        self._follow(connection, member, role, admin)
        await member.joined.wait()
        await admin.serve()
        _log.info("%s", line.text(f"store {name}", f"{meta.containers} containers in the cluster", limit_fact(node)))
        say(f"sarit is ready: store {name} at {host}:{advertised}, cluster {config.cluster}{admin.where()}")

    def _follow(self, connection: ClusterConnection, member: Member, role: StoreRole, admin: Admin) -> None:
        """Follow in the background whether to drain this store, and report its health and its requests to object
        storage."""
        registers, clock = connection.registers, self._env.clock
        self._drain_watch = registers.watch(f"{DRAINED}/{member.name}", self._drained.set)
        follow = poll(self._follow_drain, self._drained, clock, _log, "it is not known whether to drain")
        self._background.spawn(follow)
        self._background.spawn(StoreReporter(registers, member, role.store, admin).run())
        if on_object_store(connection.meta):
            requests = counting(connection.meta, admin.metrics.storage, admin.metrics.index)
            self._background.spawn(keep_reporting(registers, member.name, RequestWindow(requests, clock), _log))

    async def _wait_for_place(self, connection: ClusterConnection, name: str, address: tuple[str, int]) -> None:
        """Wait while a member has this store's name at another address.  Raises Unavailable: longer than a lease.

        A member at this store's own address is replaced: it has ended, since its port was free."""
        members = connection.members(STORES)
        changed = asyncio.Event()
        watch = members.watch(changed.set)
        # A store that was killed stays a member until its lease ends.
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

    async def _make_role(self, node: NodeConfig, meta: ClusterMeta, member: Member, metrics: Metrics) -> StoreRole:
        env, secret = self._env, bytes.fromhex(meta.secret)
        storage = metrics.metered(await open_storage(meta.storage, env))
        try:
            await check_storage(env, storage, meta)
            size = log_size(env, meta)
            logs = ConfirmedLogs(await open_cluster_logs(self._closing, meta, env, size, metrics.log), member)
            limits = replace(node.limits, log_file_bytes=size)
            indexes = open_indexes(meta, env, limits.index_cache_bytes, metrics.index)
        except BaseException:
            await storage.close()
            raise
        self._owners = StoreConnections(env, member.watch, secret)
        settings = StoreSettings(
            limits, node.times.scaling, node.max_connections, node.host, node.store_port, meta.log_directory,
            storage_directory(node), port_option="--port",
        )  # fmt: skip
        ownership = Ownership(frozenset(), member, secret, self._ask_owner)
        return StoreRole(settings, env, StoreParts(logs, indexes, storage), self._security, ownership)

    async def _ask_owner(self, command: Any) -> Any:
        """Forward a request on a table to its owner, for the Rust client, which does not follow a table that moved."""
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
        """Apply `live` settings, and the present security files, without a restart."""
        self._security.follow()
        if self._role is not None:
            self._role.take_over(live)

    def skip_flush(self) -> None:
        """Make `stop` wait for nothing."""
        self._skipped.set()
        if self._role is not None:
            self._role.skip_flush()

    async def stop(self) -> None:
        """Leave the cluster, then close.  Other stores recover containers that did not move from their logs."""
        if self._role is not None:
            self._role.backups.stop()
        if self._member is not None:
            await self._leave(self._member)
        await self._background.close()
        if self._drain_watch is not None:
            self._drain_watch.close()
        if self._owners is not None:
            await self._owners.close()
        if self._role is not None:
            await self._role.stop()
        await self._security.stop()
        await self._closing.aclose()
        if self._connection is not None:
            await self._connection.close()

    def release(self) -> None:
        """Release nothing: `stop` ended the membership."""

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


def run_store(config: ProcessConfig, reload: Reload | None = None) -> None:
    """Run a store until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    # Refuse passed sockets: containers move to other stores during a restart, so clients must not wait for this one.
    check_passed_sockets(())
    make = partial(ClusterStore, config, machine_memory(), raise_descriptor_limit())
    run_process(make, config, "the store", "store", reload)
