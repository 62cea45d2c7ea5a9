"""A process of a node with several: one store with its containers, or the controller.  `processes.py` starts it.

*A process may be started before it is needed*: it loads the program, which takes most of the time of a start, and waits
for its description.

*The parent speaks* over standard input: one line with the description (`ChildSpec`), then commands, one a line.
`serve`: all containers of the node are open.  `live` with settings: go on with these (`reload.py`).  `stores` with a
report: what the stores do, for the controller (`process_health.py`).  `stop`: flush and close all but the HTTP port.
`end`: close that, too.  `skip`: end without the flush.  The end of the input means that the parent is gone: the process
ends at once, as by kill -9; acknowledged data is in the log.

*The child speaks* over standard output, one JSON object a line: `opened`, `ready` with its port, `stopped`, `failed`
with the error, and from its start on `alive` with its health every CHILD_HEARTBEAT_SECONDS, while its event loop runs.

Signals that a terminal or a service manager sends to all processes are left to the parent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pickle
import select
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import KIB, SWITCH_INTERVAL_SECONDS
from sarit.core.repeated_log import RepeatedLog
from sarit.env.ending import end_process
from sarit.env.standard_files import open_standard_files
from sarit.process.admin import Admin, admin_port
from sarit.process.backup_source import BackupSource
from sarit.process.limits import CHILD_HEARTBEAT_SECONDS, HEALTH_POLL_SECONDS, STORES_RETRY_SECONDS
from sarit.process.listening import naming_port
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.process.observation.health import Health
from sarit.process.observation.logs import LogSettings, set_up_logs
from sarit.process.observation.process_health import StoresReport, encode_reasons
from sarit.process.places.volume import storage_directory
from sarit.process.reload import LiveSettings, decode_live, take_logs
from sarit.process.security import Security
from sarit.process.signals import serve_until_stopped
from sarit.process.standalone import advertised_address, internal_address, serve_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.admin.console.view import NodeView
    from sarit.env.ports import Env
    from sarit.env.tls_server import TlsServer
    from sarit.process.settings import NodeConfig
    from sarit.process.store_calls.remote import Address
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.node")

LIVE_COMMAND: Final = b"live "
STORES_COMMAND: Final = b"stores "


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What one process does.

    `number`: of the store; None: the controller.  `damaged`: as for `StartPolicy`.  `version`: of the parent's
    program."""

    name: str
    number: int | None
    processes: int
    config: NodeConfig
    secret: bytes
    version: str
    log: LogSettings
    damaged: dict[int, str] = field(default_factory=dict)

    @property
    def owned(self) -> frozenset[int]:
        """The containers of this store."""
        return owned_by(self.number, self.processes, self.config.containers) if self.number is not None else frozenset()

    def encode(self) -> bytes:
        """One line."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"


def owned_by(number: int, processes: int, containers: int) -> frozenset[int]:
    """The containers of one store of several."""
    return frozenset(range(number, containers, processes))


class Part(Protocol):
    """What a child runs."""

    async def open(self) -> None:
        """Recover.  Raises SaritError, OSError."""

    async def serve(self) -> int:
        """Listen; the port.  Raises SaritError, OSError."""

    def take_over(self, live: LiveSettings) -> None:
        """Go on with other settings, and with the files of security as they are now."""

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""

    async def stop(self) -> None:
        """Stop serving and close everything."""


class StorePart:
    """A store that serves some containers."""

    def __init__(self, spec: ChildSpec, env: Env, admin: Admin, security: Security) -> None:
        self._spec = spec
        self._env = env
        self._admin = admin
        self._security = security
        self._store: SegmentStore | None = None
        self._server: Any = None
        self._meters: LoadMeters | None = None
        self._metering: asyncio.Task[None] | None = None
        self._backups: BackupSource | None = None

    async def open(self) -> None:
        """Recover the containers."""
        from sarit.log.local import LocalLogProvider
        from sarit.process.ownership.claims import own_token
        from sarit.process.ownership.guarded_storage import GuardedStorage
        from sarit.process.places.indexes import open_indexes
        from sarit.storage.open import open_storage
        from sarit.store.store import SegmentStore, StartPolicy

        config, env, directory = self._spec.config, self._env, self._spec.config.data_dir
        opened = await open_storage(config.chunks_url, env)
        storage = GuardedStorage(self._admin.metrics.metered(opened), env.clock)
        storage.guard(own_token(env.files, directory))  # the parent ends the node
        self._store = SegmentStore(
            env,
            LocalLogProvider(env, f"{directory}/log", config.limits.log_file_bytes, self._admin.metrics.log),
            open_indexes(config, env, statistics=self._admin.metrics.index),
            storage,
            config.limits,
            directory,
            StartPolicy(config.accept_data_loss, config.allow_damaged, self._spec.damaged),
            storage_directory(config),
            self._spec.owned,
        )
        self._admin.health.store = self._admin.metrics.store = self._store
        self._admin.health.starting("it recovers")
        await self._store.start()
        self._admin.health.starting("it waits for the other stores of the node")

    async def serve(self) -> int:
        """Listen on the store's port."""
        from sarit.store.backup_session import Backups
        from sarit.store.metering.load_meters import LoadMeters
        from sarit.store.server.internal_handler import InternalHandler
        from sarit.store.server.listener import StoreListener

        assert self._store is not None
        config = self._spec.config
        meters = self._meters = LoadMeters(self._store, self._env.clock, config.times.scaling)
        backups = Backups(self._store)
        internal = InternalHandler(self._store, self._spec.secret, meters, backups)
        meters.request_scaling = internal.request_scaling
        self._security.start(self._env)
        self._server = StoreListener(
            self._store,
            max_connections=config.max_connections,
            internal=internal,
            checks=self._security.checks(self._env),
        )
        with naming_port("--store-port", config.host, config.store_port):
            port: int = await self._server.listen(config.host, config.store_port)
        self._metering = asyncio.ensure_future(meters.run())
        self._admin.metrics.listener, self._admin.metrics.meters = self._server, meters
        self._backups = BackupSource(backups, config.data_dir, self._env, self._spec.number)
        await self._backups.start()
        await self._admin.serve()
        return port

    def take_over(self, live: LiveSettings) -> None:
        """See `Part`."""
        self._security.follow()
        if self._store is not None and live.scrub_bytes_per_second is not None:
            self._store.change_scrub(live.scrub_bytes_per_second)
        if self._meters is not None:
            self._meters.change_times(live.times.scaling)

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""
        if self._store is not None:
            self._store.skip_flush()

    async def stop(self) -> None:
        """Flush to long-term storage and close everything."""
        if self._metering is not None:
            self._metering.cancel()
            await asyncio.gather(self._metering, return_exceptions=True)
        if self._backups is not None:
            await self._backups.stop()
        if self._server is not None:
            await self._server.close()
        if self._store is not None:
            await self._store.stop()
        await self._security.stop()


class ControllerPart:
    """The controller, on the stores of other processes."""

    def __init__(self, spec: ChildSpec, env: Env, admin: Admin, security: Security, node_stores: StoresReport) -> None:
        from sarit.controller.assembly import Controller
        from sarit.process.store_calls.remote import (
            FixedRouter,
            RemoteSegments,
            RemoteTables,
            ScaleRequestWatch,
            StoreConnections,
        )

        self._env = env
        self._admin = admin
        self._security = security
        self._config = config = spec.config
        self._node_stores = node_stores
        admin.health.others.append(node_stores.reasons)
        self._router = FixedRouter(config.containers, ())
        self._stores = StoreConnections(env, self._router, spec.secret)
        self._host = host = advertised_address(config)
        self._controller = Controller(
            RemoteTables(self._stores), RemoteSegments(self._stores, self._advertised), env,
            (host, config.controller_port), config.times, access=security.access(env),
        )  # fmt: skip
        self._controller.quotas.apply = self._stores.use_quotas
        self._watch = ScaleRequestWatch(self._stores, env, self._controller.autoscale.request)
        self._watching: asyncio.Task[None] | None = None
        self._api: asyncio.Server | TlsServer | None = None

    async def open(self) -> None:
        """Start the controller, as soon as the stores of its tables serve."""
        repeated = RepeatedLog(_log, self._env.clock.monotonic)
        self._admin.health.starting("it waits for the stores of the node")
        host = internal_address(self._config)
        self._router.stores = [(host, port) for port in await self._node_stores.ports()]
        while True:
            try:
                await self._controller.start()
                break
            except Unavailable as error:
                repeated.warning("", f"the controller waits for the stores: {error}")
                await asyncio.sleep(STORES_RETRY_SECONDS)
        self._watching = asyncio.ensure_future(self._watch.run())

    async def serve(self) -> int:
        """Listen on the controller's port."""
        from sarit.rpc.grpc_server import GrpcListener, client_is_known

        config = self._config
        self._security.start(self._env)
        listener = GrpcListener(self._controller.services(client_is_known), config.max_api_connections)
        self._admin.metrics.has_controller(self._controller, listener)
        with naming_port("--controller-port", config.host, config.controller_port):
            self._api = await serve_api(listener.connection, config, self._security)
        port: int = self._api.sockets[0].getsockname()[1]
        self._controller.advertised = (self._host, config.advertised_port(port))
        await self._admin.serve(f"{internal_address(config)}:{port}", self._view(port))
        return port

    def _advertised(self, store: Address) -> Address:
        return self._host, self._config.advertised_store(store[1], self._router.stores.index(store))

    def take_over(self, live: LiveSettings) -> None:
        """See `Part`."""
        self._security.follow()
        self._controller.change_times(live.times)

    def _view(self, port: int) -> NodeView:
        from sarit.process.observation.console_view import tiers_of
        from sarit.process.observation.placed_view import ControllerParts, PlacedView, fixed

        config, stores = self._config, self._stores.addresses()
        parts = ControllerParts(
            "processes", self._controller, self._stores, lambda: fixed(config.containers, stores),
            lambda: {"controller": f"{config.host}:{port}"}, {tier.name: tier.place for tier in tiers_of(config)},
            config.options,
        )  # fmt: skip
        return PlacedView(parts, self._admin.health)

    def skip_flush(self) -> None:
        """Nothing is flushed."""

    async def stop(self) -> None:
        """Stop the background work and close everything."""
        if self._api is not None:
            self._api.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._controller.stop()
        await self._stores.close()
        await self._security.stop()


class Parent:
    """The commands of the parent, and reports to it.  `first`: to stop; `again`: without the flush (`Stops`); `end`:
    close the HTTP port, too."""

    def __init__(self, commands: int, reports: int) -> None:
        self._commands = commands
        self._reports = reports
        self.serve = asyncio.Event()
        self.first = asyncio.Event()
        self.again = asyncio.Event()
        self.end = asyncio.Event()
        self.node_stores = StoresReport()
        self.on_live: Callable[[LiveSettings], None] = lambda live: None
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        """Take commands from now on, on a thread: the end of the parent counts even while the event loop is busy."""
        threading.Thread(target=self._read, name="parent", daemon=True).start()

    def noticed(self, *, ready: bool) -> None:
        """See `Stops`: the parent says it."""

    def _take_over(self, line: bytes) -> None:
        live = decode_live(line)
        take_logs(live.log)
        self.on_live(live)

    def report(self, kind: str, **values: object) -> None:
        """Report one event."""
        os.write(self._reports, json.dumps({"kind": kind, **values}).encode() + b"\n")

    def beat(self, health: Health) -> None:
        """Report that this event loop runs, and how the process is."""
        # A parent that stands still reads nothing.  Whoever writes to a full pipe stands still with it.
        if select.select((), (self._reports,), (), 0)[1]:
            self.report("alive", reasons=encode_reasons(health.reasons()))

    async def keep_alive(self, health: Health) -> None:
        """Report it again and again, and when its health has changed, until cancelled."""
        clock = self._loop.time
        while True:
            reasons, next_beat = health.reasons(), clock() + CHILD_HEARTBEAT_SECONDS
            self.beat(health)
            while clock() < next_beat and health.reasons() == reasons:  # noqa: ASYNC110 - they are read, not announced
                await asyncio.sleep(HEALTH_POLL_SECONDS)

    def _read(self) -> None:
        try:
            self._take_commands()
        finally:
            # The parent is gone, or not heard any more.  Another node may start on the directory at any moment:
            # nothing may be written any more.
            os._exit(1)

    def _take_commands(self) -> None:
        events = {b"serve": self.serve, b"stop": self.first, b"skip": self.again, b"end": self.end}
        for line in read_lines(self._commands):
            if line.startswith(STORES_COMMAND):
                report = line.removeprefix(STORES_COMMAND)
                self._loop.call_soon_threadsafe(self.node_stores.take, report)
            elif line.startswith(LIVE_COMMAND):
                self._loop.call_soon_threadsafe(self._take_over, line.removeprefix(LIVE_COMMAND))
            else:
                self._loop.call_soon_threadsafe(events[line].set)


def read_line(descriptor: int) -> bytes:
    """The next line of a pipe without its end; empty at the end of the pipe.

    Byte by byte: nothing of the next line may be taken, and no buffer may be locked when the process ends."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line) if byte else b""


def read_lines(descriptor: int) -> Iterator[bytes]:
    """The lines of a pipe without their ends, until its end.  No buffer is locked when the process ends."""
    rest = b""
    while data := os.read(descriptor, 64 * KIB):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


async def run_part(part: Part, parent: Parent, admin: Admin) -> None:
    """Run a part until the parent stops it.  Raises what it raises when it starts."""

    async def start() -> None:
        await part.open()
        parent.report("opened")
        await parent.serve.wait()
        parent.report("ready", port=await part.serve(), http=admin.port)
        admin.metrics.gc = GcScheduler().start()

    parent.on_live = part.take_over
    admin.health.on_change = lambda: parent.beat(admin.health)
    alive = asyncio.ensure_future(parent.keep_alive(admin.health))
    try:
        await serve_until_stopped(part, start(), parent, admin.health.stopping)
        parent.report("stopped")
        await parent.end.wait()
    finally:
        alive.cancel()


async def _run(spec: ChildSpec, reports: int) -> int:
    """Its exit code."""
    from sarit.env.real import real_env

    parent = Parent(sys.stdin.fileno(), reports)
    parent.listen()
    try:
        security = Security(spec.config.security)
        env = real_env(security.server_tls, security.client_tls(), spec.config.traces, f"sarit-{spec.name}")
        health, config = Health(spec.name, env.clock), spec.config
        async with admin_port(health, config.host, config.http_port, security, env, config.advertised_host) as admin:
            part: Part
            if spec.number is None:
                part = ControllerPart(spec, env, admin, security, parent.node_stores)
            else:
                part = StorePart(spec, env, admin, security)
            await run_part(part, parent, admin)
    except (SaritError, OSError) as error:
        parent.report("failed", error=type(error).__name__, text=str(error))
        return 1
    return 0


def _load() -> None:
    """Load what a store and a controller need, before it is known which of them this is."""
    import sarit.controller.assembly
    import sarit.index.sqlite
    import sarit.log.local
    import sarit.process.store_calls.remote
    import sarit.rpc.grpc_server
    import sarit.storage.open
    import sarit.store.server.listener  # noqa: F401


def main() -> None:
    """Run the process that standard input describes."""
    import uvloop

    open_standard_files()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Before anything can print: what is printed goes to the log.
    reports = os.dup(1)
    os.dup2(2, 1)
    _load()
    line = read_line(sys.stdin.fileno())
    if not line:
        return  # a spare whose parent ended
    # Our parent wrote it, into a pipe of ours.
    spec: ChildSpec = pickle.loads(base64.b64decode(line))  # nosec B301
    with suppress(OSError):
        Path("/proc/self/comm").write_text(spec.name)  # for `top` and `ps -o comm`
    set_up_logs(spec.log, spec.name)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    if spec.version != (installed := version("sarit")):
        raise Invalid(f"this node runs version {spec.version}, and {installed} is installed now: restart the node")
    end_process(uvloop.run(_run(spec, reports)))


if __name__ == "__main__":
    main()
