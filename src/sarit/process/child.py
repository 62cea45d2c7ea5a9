"""A process of a node with several: one store with its containers, or the controller.  `supervisor.py` starts it.

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
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import KIB
from sarit.env.process_end import end_process
from sarit.env.standard_files import open_standard_files
from sarit.process.addresses import advertised_address, internal_address
from sarit.process.admin import Admin
from sarit.process.backup_source import BackupSource
from sarit.process.limits import CHILD_HEARTBEAT_SECONDS, HEALTH_POLL_SECONDS, SWITCH_INTERVAL_SECONDS
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.process.observation.health import Health
from sarit.process.observation.logs import LogSettings, set_up_logs
from sarit.process.observation.process_health import StoresReport, encode_reasons
from sarit.process.reload import LiveSettings, decode_live, take_logs
from sarit.process.security import Security
from sarit.process.signals import serve_until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.admin.console.view import NodeView
    from sarit.env.ports import Env
    from sarit.process.settings import NodeConfig
    from sarit.process.store_calls.store_connections import Address
    from sarit.process.store_role import StoreRole

_log = logging.getLogger("sarit.process")

LIVE_COMMAND: Final = b"live "
STORES_COMMAND: Final = b"stores "


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The work and the settings of one process.

    `number`: the store's number; None: it runs the controller.  `damaged`: as in `StartPolicy`.  `version`: the version
    of the parent's program.  `node`: the node's id, for logs on BookKeeper."""

    name: str
    number: int | None
    processes: int
    config: NodeConfig
    secret: bytes
    version: str
    log: LogSettings
    damaged: dict[int, str] = field(default_factory=dict)
    node: str = ""

    @property
    def owned(self) -> frozenset[int]:
        """The containers of this store."""
        return owned_by(self.number, self.processes, self.config.containers) if self.number is not None else frozenset()

    def encode(self) -> bytes:
        """Return the spec as one line."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"


def owned_by(number: int, processes: int, containers: int) -> frozenset[int]:
    """Return the containers of the store with a number, among stores that run in several processes."""
    return frozenset(range(number, containers, processes))


class Part(Protocol):
    """A role of the node, run by a child process."""

    async def open(self) -> None:
        """Recover.  Raises SaritError, OSError."""

    async def serve(self) -> int:
        """Listen, and return the port.  Raises SaritError, OSError."""

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart."""

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""

    async def stop(self) -> None:
        """Stop serving and close everything."""


class StorePart:
    """The store role on some containers, with what it needs of the data directory."""

    def __init__(self, spec: ChildSpec, env: Env, admin: Admin, security: Security) -> None:
        self._spec = spec
        self._env = env
        self._admin = admin
        self._security = security
        self._role: StoreRole | None = None
        self._backups: BackupSource | None = None
        self._closing = AsyncExitStack()

    async def open(self) -> None:
        """Recover the containers."""
        from sarit.process.ownership.claims import own_token
        from sarit.process.ownership.guarded_storage import GuardedStorage
        from sarit.process.places.store_parts import open_parts
        from sarit.process.store_role import Ownership, StoreRole, store_settings

        spec, config, env, metrics = self._spec, self._spec.config, self._env, self._admin.metrics
        parts = await open_parts(config, env, spec.node, metrics, self._closing)
        storage = GuardedStorage(parts.storage, env.clock)
        storage.guard(own_token(env.files, config.data_dir))  # the parent ends the node
        parts = replace(parts, storage=storage)
        ownership = Ownership(spec.owned, secret=spec.secret)
        role = self._role = StoreRole(store_settings(config, spec.damaged), env, parts, self._security, ownership)
        role.show_in(self._admin)
        self._admin.health.starting("it recovers")
        await role.open()
        self._admin.health.starting("it waits for the other stores of the node")

    async def serve(self) -> int:
        """Listen on the store's port."""
        assert self._role is not None
        port = await self._role.serve()
        self._backups = BackupSource(self._role.backups, self._spec.config.data_dir, self._env, self._spec.number)
        await self._backups.start()
        await self._admin.serve()
        return port

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart, if the store is open."""
        if self._role is not None:
            self._role.take_over(live)

    def skip_flush(self) -> None:
        """Let `stop` end its flush."""
        if self._role is not None:
            self._role.skip_flush()

    async def stop(self) -> None:
        """Flush to long-term storage and close everything."""
        if self._backups is not None:
            await self._backups.stop()
        if self._role is not None:
            await self._role.stop()
        await self._closing.aclose()


class ControllerPart:
    """The controller role on the stores of other processes."""

    def __init__(self, spec: ChildSpec, env: Env, admin: Admin, security: Security, node_stores: StoresReport) -> None:
        from sarit.process.controller_role import ControllerRole, ControllerSettings
        from sarit.process.job_kinds import job_config
        from sarit.process.store_calls.remote import RemoteStores
        from sarit.process.store_calls.store_connections import FixedRouter, StoreConnections

        self._admin = admin
        self._config = config = spec.config
        self._node = spec.node
        self._node_stores = node_stores
        admin.health.add(node_stores.reasons)
        self._router = FixedRouter(config.containers, ())
        self._stores = StoreConnections(env, self._router, spec.secret)
        self._host = advertised_address(config)
        settings = ControllerSettings(
            config, config.controller_port, config.max_api_connections, config.times, jobs=job_config(config),
            installation=spec.node, directory=config.data_dir,
        )  # fmt: skip
        stores = RemoteStores(self._stores, env, self._advertised)
        self._role = ControllerRole(settings, env, stores, security)

    async def open(self) -> None:
        """Start the controller, as soon as the stores of its tables serve."""
        self._admin.health.starting("it waits for the stores of the node")
        host = internal_address(self._config)
        self._router.stores = [(host, port) for port in await self._node_stores.ports()]
        await self._role.open()

    async def serve(self) -> int:
        """Listen on the controller's port."""
        self._role.show_in(self._admin)
        port = await self._role.serve()
        await self._admin.serve(
            f"{internal_address(self._config)}:{port}", self._role.listener.handlers, self._view(port),
            self._role.registry_tables(self._node),
        )  # fmt: skip
        return port

    def _advertised(self, store: Address) -> Address:
        return self._host, self._config.advertised_store(store[1], self._router.stores.index(store))

    def _view(self, port: int) -> NodeView:
        from sarit.process.observation.console_view import tiers_of
        from sarit.process.observation.placed_view import ControllerParts, PlacedView, fixed

        config, stores = self._config, self._stores.addresses()
        parts = ControllerParts(
            "processes", self._role.controller, self._stores, lambda: fixed(config.containers, stores),
            lambda: {"controller": f"{config.host}:{port}"}, {tier.name: tier.place for tier in tiers_of(config)},
            config.options,
        )  # fmt: skip
        return PlacedView(parts, self._admin.health)

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart."""
        self._role.take_over(live)

    def skip_flush(self) -> None:
        """Flush nothing."""

    async def stop(self) -> None:
        """Stop the background work and close everything."""
        await self._role.stop()


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
        self._on_live: list[Callable[[LiveSettings], None]] = []
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        """Take commands from now on, on a thread: the end of the parent counts even while the event loop is busy."""
        threading.Thread(target=self._read, name="parent", daemon=True).start()

    def follow(self, take_over: Callable[[LiveSettings], None]) -> None:
        """Have `take_over` called with the settings that the parent sends from now on."""
        self._on_live.append(take_over)

    def noticed(self, *, ready: bool) -> None:
        """Log nothing: the parent does."""

    def _take_over(self, line: bytes) -> None:
        live = decode_live(line)
        take_logs(live.log)
        for take_over in self._on_live:
            take_over(live)

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
    """Return the next line of a pipe without its newline; empty at the end of the pipe.

    Reads byte by byte: it must take nothing of the next line, and hold no locked buffer when the process ends."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line) if byte else b""


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a pipe without their newlines.  No buffer is locked when the process ends."""
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
        parent.report("ready", port=await part.serve(), http=admin.port, registry=admin.registry_port)
        admin.metrics.gc = GcScheduler().start()

    parent.follow(part.take_over)
    admin.health.watch(lambda: parent.beat(admin.health))
    alive = asyncio.ensure_future(parent.keep_alive(admin.health))
    try:
        await serve_until_stopped(part, start(), parent, admin.health.stopping)
        parent.report("stopped")
        await parent.end.wait()
    finally:
        alive.cancel()


async def _run(spec: ChildSpec, reports: int) -> int:
    """Run the part of a spec.  Returns the exit code of the process."""
    from sarit.env.real import real_env

    parent = Parent(sys.stdin.fileno(), reports)
    parent.listen()
    try:
        security = Security(spec.config.security)
        env = real_env(security.server_tls, security.client_tls(), spec.config.traces, f"sarit-{spec.name}")
        registry = spec.config.registry if spec.number is None else None
        admin = Admin(Health(spec.name, env.clock), spec.config, spec.config.http_port, security, env, registry)
        parent.follow(lambda _: security.follow())
        try:
            await admin.open()
            security.start(env)
            part: Part
            if spec.number is None:
                part = ControllerPart(spec, env, admin, security, parent.node_stores)
            else:
                part = StorePart(spec, env, admin, security)
            await run_part(part, parent, admin)
        finally:
            await security.stop()
            await admin.close()
    except (SaritError, OSError) as error:
        parent.report("failed", error=type(error).__name__, text=str(error))
        return 1
    return 0


def _load() -> None:
    """Load what a store and a controller need, before it is known which of them this is."""
    import sarit.index.sqlite
    import sarit.log.local
    import sarit.process.controller_role
    import sarit.process.store_calls.remote
    import sarit.process.store_role
    import sarit.storage.open  # noqa: F401


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
