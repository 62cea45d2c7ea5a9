"""A node in several processes: `sarit standalone --processes N`.

The parent serves nothing.  It claims the data directory, starts N stores and the controller (`child.py`).  Store k has
the containers c with c mod N == k and listens on the store's port + k.  It restarts a child that ended, after a pause
that grows while the child does not stay; the others serve on.  A child whose event loop stands still for
CHILD_SILENT_SECONDS is killed, and starts again, too.  Clients ride through: they ask the controller where a segment
is, and the controller's requests are repeated until the store is back.

The controller's HTTP port is the node's: its process starts with the stores, is sent their health, and closes the port
last (`process_health.py`).  When the node stops, it stops serving first, since its tables are in the stores.  When the
parent is killed, its children end with it: each reads a pipe from the parent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Invalid, SaritError, Unavailable
from sarit.env.background import gather
from sarit.env.passed_sockets import check_passed_sockets
from sarit.process.addresses import http_url, require_free_ports, warn_of_addresses
from sarit.process.child import LIVE_COMMAND, STORES_COMMAND, ChildSpec
from sarit.process.limits import (
    CHILD_HEARTBEAT_SECONDS,
    CHILD_RESTART_SECONDS,
    CHILD_SECRET_BYTES,
    CHILD_SILENT_SECONDS,
    CHILD_STEADY_SECONDS,
    CHILD_STOP_SECONDS,
    MAX_CHILD_RESTART_SECONDS,
)
from sarit.process.observation.logs import current_logs
from sarit.process.observation.process_health import ProcessHealth, StoresReport, describe_exit
from sarit.process.observation.start_line import StartLine, limit_fact
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage, own_token
from sarit.process.ownership.guarded_storage import GuardedStorage
from sarit.process.places.indexes import claim_index_storage
from sarit.process.places.volume import fit_to_volume
from sarit.process.run import run_process, say, say_where
from sarit.process.settings import RegistryConfig, node_ports
from sarit.process.standalone import end_for_copy, warn_of_readers
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.security import Security
    from sarit.process.settings import NodeConfig

_log = logging.getLogger("sarit.process")

_CONTROLLER: Final = "controller"
# What a child cannot start because of, by name; anything else is Unavailable here.
_ERRORS: Final[dict[str, type[SaritError]]] = {"Invalid": Invalid, "Corrupt": Corrupt}


class Spare:
    """A process that has loaded the program and waits, so that a child that ended is back sooner."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._starting = False

    async def prepare(self) -> None:
        """Start it, unless there is one."""
        if self._starting or (self._process is not None and self._process.returncode is None):
            return
        self._starting = True
        try:
            self._process = await _spawn()
        except OSError as error:
            _log.warning("no spare process can be started: %s", error)
        finally:
            self._starting = False

    async def take(self) -> asyncio.subprocess.Process:
        """Return the spare process, or a new one if there is none."""
        process, self._process = self._process, None
        return await _spawn() if process is None or process.returncode is not None else process

    async def stop(self) -> None:
        """End the spare process by closing its input."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()


async def _spawn() -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    # A session of its own: Ctrl-C of the terminal reaches it not even before it can ignore signals.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sarit.process.child", stdin=pipe, stdout=pipe, start_new_session=True
    )


class Child:
    """One process, restarted as long as the node runs.

    `make`: its description for the next start, since ports and permissions change after the first one.  `on_health` is
    called when its health may have changed, `on_start` when a process has got its description."""

    def __init__(
        self, name: str, what: str, env: Env, spare: Spare, make: Callable[[], ChildSpec],
        on_health: Callable[[], None] = lambda: None, on_start: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.name = name
        self._spare = spare
        self.port = 0
        self.http_port: int | None = None
        self.registry_port: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._what = what
        self._env = env
        self._make = make
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()
        self._stopped = asyncio.Event()
        self.health = ProcessHealth(name)
        self._on_health = on_health
        self._on_start = on_start
        self._may_serve = asyncio.Event()
        self.opened = asyncio.Event()
        self.ready = asyncio.Event()
        self.failure: SaritError | None = None
        self._ended = asyncio.Event()
        self._reported = self._beats = False  # since the last turn of `_watch`; whether it has a heartbeat yet
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name}>"

    def start(self) -> None:
        """Start it, and again whenever it ends after it was ready once."""
        self._running = asyncio.ensure_future(self._run())

    def serve(self) -> None:
        """Let it serve when it is open."""
        self._may_serve.set()
        if self.opened.is_set():
            self.tell(b"serve")

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for `opened` or `ready`.  Raises the error of a child that could not start."""
        waiting = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._ended.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # Not the event: the process may have ended since, which clears it.
            happened = waiting[0].done()
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if not happened:
            raise self.failure or Unavailable(f"{self.name} ended before it was ready (see the log)")

    def skip(self) -> None:
        """Do not wait for its flush."""
        self.tell(b"skip")

    async def stop_serving(self) -> None:
        """Have it close all but its HTTP port, and wait for that."""
        self._stopping.set()
        self.tell(b"stop")
        if self._running is None:
            return
        with suppress(SaritError, TimeoutError):  # the process has ended or stands still: `stop` deals with it next
            await asyncio.wait_for(self.wait(self._stopped), CHILD_STOP_SECONDS)

    async def stop(self) -> None:
        """End it and wait for its end."""
        self._stopping.set()
        self._ending.set()
        self.tell(b"stop\nend")
        if self._running is None:
            return
        done, _ = await asyncio.wait((self._running,), timeout=CHILD_STOP_SECONDS)
        if not done:
            _log.error("%s did not stop within %g s and is killed; acknowledged data is in the log", self.name,
                       CHILD_STOP_SECONDS)  # fmt: skip
            self.kill()
            await asyncio.wait((self._running,))
        self._running.result()

    def take_over(self, live: LiveSettings) -> None:
        """Send `live` settings to the process; when it is started again, `make` gives it the newest ones."""
        self.tell(LIVE_COMMAND + live.encode())

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()

    def tell(self, command: bytes) -> None:
        """Send a command, if the process runs."""
        process = self.process
        if process is None or process.returncode is not None or process.stdin is None:
            return
        if not process.stdin.is_closing():
            process.stdin.write(command + b"\n")

    async def _run(self) -> None:
        pause = CHILD_RESTART_SECONDS
        served = False
        try:
            while not self._stopping.is_set():
                began = self._env.clock.monotonic()
                try:
                    code = await self._run_once(again=served)
                except OSError as error:  # no memory or no process number for it
                    code, self.failure = 1, Unavailable(f"it cannot be started: {error}")
                served = served or self.ready.is_set()
                if self._stopping.is_set() or not served:
                    return
                if self._env.clock.monotonic() - began > CHILD_STEADY_SECONDS:
                    pause = CHILD_RESTART_SECONDS
                how = f"{describe_exit(code, self.failure)}; it starts again in {pause:g} s"
                _log.error("%s %s", self._what, how)
                self.health.away(f"it {how}")
                self._on_health()
                self.ready.clear()
                self.opened.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)
                pause = min(2 * pause, MAX_CHILD_RESTART_SECONDS)
        finally:
            self._ended.set()

    async def _run_once(self, *, again: bool) -> int:
        """Start the process and follow it to its end; its exit code."""
        began = self._env.clock.monotonic()
        self.failure = None
        process = self.process = await self._spare.take()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(self._make().encode())
            self._on_start()
            if self._stopping.is_set():
                self.tell(b"stop")
            if self._ending.is_set():
                self.tell(b"end")
            self._reported = self._beats = False
            watching = asyncio.ensure_future(self._watch())
            try:
                while line := await process.stdout.readline():
                    self._report(json.loads(line))
                    if again and self.ready.is_set():
                        again = False
                        _log.info("%s serves again after %.1f s", self.name, self._env.clock.monotonic() - began)
                        await self._spare.prepare()
            finally:
                watching.cancel()
            return await process.wait()
        except BaseException:
            self.kill()
            raise

    async def _watch(self) -> None:
        """Kill the process once it has a heartbeat and is then silent for CHILD_SILENT_SECONDS."""
        silent = 0.0
        while True:
            # Turns of this loop are counted, not the clock: when this process stood still, it has not listened.
            await asyncio.sleep(CHILD_HEARTBEAT_SECONDS)
            silent = 0.0 if self._reported or not self._beats else silent + CHILD_HEARTBEAT_SECONDS
            self._reported = False
            if silent:
                self.health.silent(silent)
                self._on_health()
            # How long a stop may take is bounded by `stop`.
            if silent >= CHILD_SILENT_SECONDS and not self._stopping.is_set():
                _log.error("%s stands still: no heartbeat for %g s; it is killed", self._what, silent)
                self.kill()
                return

    def _report(self, report: dict[str, Any]) -> None:
        self._reported = True
        if report["kind"] == "alive":
            self._beats = True
            self.health.said(report.get("reasons", ()))
            self._on_health()
        elif report["kind"] == "opened":
            self.opened.set()
            if self._may_serve.is_set():
                self.tell(b"serve")
        elif report["kind"] == "ready":
            self.port = int(report["port"])
            self.http_port, self.registry_port = report.get("http"), report.get("registry")
            self.ready.set()
        elif report["kind"] == "stopped":
            self._stopped.set()
        else:
            self.failure = _ERRORS.get(report["error"], Unavailable)(report["text"])


class ProcessNode:
    """The children of a node, started and stopped in order."""

    def __init__(self, config: NodeConfig, parts: Sequence[NodeConfig], env: Env, claim: DirectoryClaim) -> None:
        """`parts`: the configuration of each store process."""
        self._config = config
        self._env = env
        self._claim = claim
        self._secret = env.random.bytes(CHILD_SECRET_BYTES)
        self._first_start = True
        self._live: LiveSettings | None = None
        self._spare = Spare()
        self.stores = [self._store(number, part) for number, part in enumerate(parts)]
        self.controller = Child(
            _CONTROLLER, "the controller", env, self._spare, self._controller_spec, on_start=self._controller_started
        )
        self._sent = b""  # to the controller that runs, of the stores

    def __repr__(self) -> str:
        return f"<ProcessNode {self.addresses()}>"

    def _store(self, number: int, part: NodeConfig) -> Child:
        def make() -> ChildSpec:
            # A restart keeps the port, which clients know, and is allowed no loss of data.
            store = self.stores[number]
            config = replace(
                part,
                store_port=store.port or part.store_port,
                http_port=store.http_port or http_port_of(part.http_port, number),
                accept_data_loss=part.accept_data_loss and self._first_start,
            )
            return self._spec(f"store-{number}", number, config)

        owned = ", ".join(map(str, range(number, self._config.containers, self._config.processes)))
        what = f"store-{number} (containers {owned})"
        return Child(f"store-{number}", what, self._env, self._spare, make, self._send_health)

    def _controller_spec(self) -> ChildSpec:
        port = self.controller.port or self._config.controller_port
        http_port = self.controller.http_port or self._config.http_port
        registry = self._config.registry
        if self.controller.registry_port is not None:
            registry = RegistryConfig(self.controller.registry_port)
        config = replace(self._config, controller_port=port, http_port=http_port, registry=registry)
        return self._spec(_CONTROLLER, None, config)

    def _spec(self, name: str, number: int | None, config: NodeConfig) -> ChildSpec:
        if self._live is not None:
            config = replace(config, times=self._live.times)
            if number is not None and self._live.scrub_bytes_per_second is not None:
                rate = self._live.scrub_bytes_per_second // config.processes
                config = replace(config, limits=replace(config.limits, scrub_bytes_per_second=rate))
        return ChildSpec(
            name, number, config.processes, config, self._secret, version("sarit"), current_logs(),
            self._claim.damaged, self._claim.node,
        )  # fmt: skip

    def _controller_started(self) -> None:
        self._sent = b""
        self._send_health()

    def _send_health(self) -> None:
        """Send the controller what it does not know yet of the stores."""
        ports = [store.port for store in self.stores]
        reasons = [reason for store in self.stores for reason in store.health.reasons()]
        report = StoresReport.encode(ports if all(ports) else (), reasons)
        if report != self._sent:
            self._sent = report
            self.controller.tell(STORES_COMMAND + report)

    def addresses(self) -> str:
        """Return the addresses at which the node listens, as text."""
        host = self._config.host
        stores = ", ".join(f"{host}:{store.port}" for store in self.stores)
        http = "" if self.controller.http_port is None else f", HTTP {host}:{self.controller.http_port}"
        port = self.controller.registry_port
        registry = "" if port is None else f", schema registry {host}:{port}"
        return f"controller {host}:{self.controller.port}, store {stores}{http}{registry}"

    async def start(self) -> None:
        """Start all processes; all serve when this returns.  Raises what keeps one from starting."""
        for child in (*self.stores, self.controller):
            child.start()
        await self._unless_controller_ends(store.wait(store.opened) for store in self.stores)
        # All containers are open, and nothing is served yet.
        self._claim.mark_complete(self._config, self._env)
        for store in self.stores:
            store.serve()
        await self._unless_controller_ends(store.wait(store.ready) for store in self.stores)
        self._send_health()  # with their ports
        self.controller.serve()
        await self.controller.wait(self.controller.ready)
        self._first_start = False
        await self._spare.prepare()

    async def stop(self) -> None:
        """Stop the controller, then the stores, which flush."""
        await self._spare.stop()
        await self.controller.stop_serving()
        await gather(*(store.stop() for store in self.stores))
        await self.controller.stop()  # its HTTP port has answered for the stores that stopped

    async def _unless_controller_ends(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Wait for all.  Raises what the first of them raises, or why the controller ended."""
        never = asyncio.Event()
        ended = asyncio.ensure_future(self.controller.wait(never))
        all_done = asyncio.ensure_future(gather_first_error(work))
        try:
            await asyncio.wait((all_done, ended), return_when=asyncio.FIRST_COMPLETED)
            (all_done if all_done.done() else ended).result()
        finally:
            for task in (all_done, ended):
                task.cancel()
            await asyncio.gather(all_done, ended, return_exceptions=True)

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart in all processes, also those that start later."""
        self._live = live
        each = (
            live
            if live.scrub_bytes_per_second is None
            else replace(live, scrub_bytes_per_second=live.scrub_bytes_per_second // self._config.processes)
        )
        for child in (*self.stores, self.controller):
            child.take_over(each)

    def skip_flush(self) -> None:
        """Let the stores end their flushes."""
        for store in self.stores:
            store.skip()


def http_port_of(port: int | None, number: int) -> int | None:
    """Return the HTTP port of the store with a number; `port`: the node's; None or 0: unchanged."""
    return port + 1 + number if port else port


async def gather_first_error(work: Any) -> None:
    """Wait for all; the first error cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SupervisorProcess:
    """The parent of a node's processes, with its claim of the data directory."""

    farewell = "sarit stopped; everything acknowledged is on disk"

    def __init__(self, config: NodeConfig, machine_bytes: int, descriptors: int, env: Env, _: Security) -> None:
        self._config = config = fit_to_volume(config, env.files)
        self._env = env
        parts = config.divided(machine_bytes, descriptors)
        self._claim = claim_directory(config, env)
        self._node = ProcessNode(config, parts, env, self._claim)
        self._storage: GuardedStorage | None = None

    def __repr__(self) -> str:
        return f"<SupervisorProcess {self._node!r}>"

    @property
    def failure(self) -> SaritError | None:
        """The failure that ends the process: a copy of the directory has started."""
        return None if self._storage is None else self._storage.failure

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Start all processes; all serve when this returns."""
        config, env, node = self._config, self._env, self._node
        line = StartLine(env.clock, config.options)
        storage = self._storage = GuardedStorage(await open_storage(config.chunks_url, env), env.clock)
        await claim_long_term_storage(config, env, storage, self._claim)
        storage.guard(own_token(env.files, config.data_dir), partial(end_for_copy, node.skip_flush, end))
        await claim_index_storage(config, env, self._claim)
        admin.health.starting("its processes start")
        await node.start()
        divided = f"{config.containers} containers in {config.processes} store processes"
        _log.info("%s", line.text("standalone", divided, limit_fact(config)))
        await admin.serve()
        say(f"sarit is ready: {node.addresses()}, data in {config.data_dir}")
        http = None if config.security.console == "off" else node.controller.http_port
        console = "" if http is None else http_url(config, http)
        say_where(config, node.controller.port, console, node.controller.registry_port)

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart in all processes."""
        self._node.take_over(live)

    def skip_flush(self) -> None:
        """Let the stores end their flushes."""
        self._node.skip_flush()

    async def stop(self) -> None:
        """Stop all processes; the stores flush."""
        await self._node.stop()
        if self._storage is not None:
            await self._storage.close()

    def release(self) -> None:
        """Let another node start on the directory."""
        self._claim.lock.close()


def run(config: NodeConfig, reload: Reload | None = None) -> None:
    """Run a node of several processes until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    warn_of_addresses(config)
    warn_of_readers(config.data_dir)
    check_passed_sockets(())
    config = config.validated()
    require_free_ports(config, node_ports(config))
    make = partial(SupervisorProcess, config, machine_memory(), raise_descriptor_limit())
    # The children have its HTTP port, and inherit the limit of descriptors.
    run_process(make, config, "the node", "standalone", reload, http=False)
