"""How a server process runs, from its options to its end: `sarit standalone`, `sarit store`, `sarit controller`,
`sarit worker`.

sockets, signals ─▶ HTTP port ─▶ start ─▶ serve ─── first signal ──▶ stop ─▶ HTTP port closed ─▶ release
                                                 └─ second signal ─▶ skip the flush
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from sarit.client.core.addresses import CONTROLLER_VARIABLE
from sarit.process.addresses import Addressed, advertised_port, http_url, refuse_plain_passwords, shown_host
from sarit.process.admin import Admin
from sarit.process.limits import SWITCH_INTERVAL_SECONDS
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.process.observation.health import Health
from sarit.process.security import Security
from sarit.process.service_manager import service_manager
from sarit.process.signals import StopSignals, serve_until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.core.errors import SaritError
    from sarit.env.ports import Env
    from sarit.env.traces import TraceSettings
    from sarit.process.reload import LiveSettings, Reload
    from sarit.process.settings import NodeConfig, RegistryConfig


class Process(Protocol):
    """A server process: its start, its stop and its failure."""

    @property
    def farewell(self) -> str:
        """Return the line to print at the end."""

    @property
    def failure(self) -> SaritError | None:
        """Return why it cannot go on; None while it can."""

    async def start(self, admin: Admin, end: Callable[[], None]) -> None:
        """Serve when this returns; call `end` later when there is a failure.  Raises SaritError, OSError."""

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings and changed security files without a restart."""

    def skip_flush(self) -> None:
        """Let `stop` wait for nothing."""

    async def stop(self) -> None:
        """Stop serving and close everything."""

    def release(self) -> None:
        """Let another process start in this one's place.  Called last."""


class Configured(Protocol):
    """The settings of any server process."""

    @property
    def http_port(self) -> int | None:
        """Return the port of HTTP; None: none."""

    @property
    def registry(self) -> RegistryConfig | None:
        """Return where the schema registry is; None: there is none."""

    @property
    def traces(self) -> TraceSettings | None:
        """Return where traces go; None: nowhere."""


class ServerConfig(Addressed, Configured, Protocol):
    """The settings of a process that clients reach."""


def run_process(
    make: Callable[[Env, Security], Process], config: ServerConfig, name: str, service: str,
    reload: Reload | None, *, http: bool = True,
) -> None:  # fmt: skip
    """Run a process until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start, or cannot go on.

    `make`: of it, before anything is open.  `name`: for people, as "the node"; `service`: of
    its traces.  `http`: it has an HTTP port, if the
    settings say so."""
    import uvloop

    from sarit.env.real import real_env

    refuse_plain_passwords(config)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    security = Security(config.security)

    async def main() -> None:
        env = real_env(security.server_tls, security.client_tls(), config.traces, f"sarit-{service}")
        signals = StopSignals(env.clock)
        signals.listen()
        if reload is not None:
            reload.listen()
        process = make(env, security)
        try:
            port = config.http_port if http else None
            registry = config.registry if http else None
            admin = Admin(Health(name, env.clock), config, port, security, env, registry)
            await _serve(process, admin, env, signals, reload)
        finally:
            process.release()
        say(process.farewell)

    uvloop.run(main())


async def _serve(process: Process, admin: Admin, env: Env, signals: StopSignals, reload: Reload | None) -> None:
    async def start() -> None:
        await admin.open()
        await process.start(admin, signals.first.set)
        admin.metrics.gc = GcScheduler().start()

    if reload is not None:
        reload.use(process.take_over)
    try:
        async with service_manager(admin.health, env.clock):
            await serve_until_stopped(process, start(), signals, admin.health.stopping)
    finally:
        await admin.close()
    if process.failure is not None:
        raise process.failure


def say_where(config: NodeConfig, controller_port: int, console: str, registry: int | None) -> None:
    """Print where people find the node: its console and its registry, and for one to try things what tells clients.

    `registry`: the port of the schema registry; None: it has none."""
    if console:
        say(f"console: {console}")
    if registry is not None:
        say(f"schema registry: {http_url(config, registry)}")
    if config.dev:
        say(f"export {CONTROLLER_VARIABLE}={shown_host(config)}:{advertised_port(config, controller_port)}")


def say(text: str) -> None:
    """Print a line on standard output."""
    try:
        print(text, flush=True)
    except OSError:  # the process that started the node has closed the pipe; clients are still served
        sys.stdout = None  # otherwise flushing it at exit fails the process
