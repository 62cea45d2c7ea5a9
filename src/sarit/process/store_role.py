"""The store role of a process: a segment store, what measures it, and the listener that clients reach it by.

A node in one process, a store of a node in several, and a store of a cluster are this role.  They differ by where its
log, index and chunks are (`StoreParts`), and by who places containers on it (`Ownership`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.process.addresses import naming_port
from sarit.process.places.volume import storage_directory
from sarit.store.backup_session import Backups
from sarit.store.metering.load_meters import LoadMeters
from sarit.store.metering.scale_requests import ScaleRequests
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.store.store import SegmentStore, StartPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sarit.controller.times import ScalingTimes
    from sarit.env.ports import Env
    from sarit.process.admin import Admin
    from sarit.process.places.store_parts import StoreParts
    from sarit.process.reload import LiveSettings
    from sarit.process.security import Security
    from sarit.process.settings import NodeConfig
    from sarit.store.hosting.hosted_container import Placement
    from sarit.store.store import StoreLimits


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The choices of an operator for a store.  Port 0 picks a free one; None: it listens on no port of its own.

    `data_dir`, `storage_dir`: the directories whose free space is watched.  `port_option`: the option that chose the
    port, for errors."""

    limits: StoreLimits
    scaling: ScalingTimes
    max_connections: int
    host: str
    port: int | None
    data_dir: str | None = None
    storage_dir: str | None = None
    policy: StartPolicy = field(default_factory=StartPolicy)
    port_option: str = "--store-port"


def store_settings(config: NodeConfig, damaged: Mapping[int, str] | None = None) -> StoreSettings:
    """Return the settings of the store of a node, or of one process of it.

    `damaged`: see `StartPolicy`."""
    policy = StartPolicy(config.accept_data_loss, config.allow_damaged, damaged or {})
    port = None if config.one_port else config.store_port
    return StoreSettings(
        config.limits, config.times.scaling, config.max_connections, config.host, port, config.data_dir,
        storage_directory(config), policy,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which containers a store has.

    `owned`: those that it opens at its start; None: all.  `placement`: who places others on it later; None: nobody.
    `secret`: what the controllers of other processes introduce themselves with; None: there are none.  `ask_owner`: see
    `StoreListener`."""

    owned: frozenset[int] | None = None
    placement: Placement | None = None
    secret: bytes | None = None
    ask_owner: Callable[[Any], Awaitable[Any]] | None = None


class StoreRole:
    """A store from its opening to its end."""

    def __init__(
        self, settings: StoreSettings, env: Env, parts: StoreParts, security: Security, owner: Ownership
    ) -> None:
        self.env = env
        self.port = settings.port or 0  # once it listens: of its listener
        self.store = store = SegmentStore(
            env, parts.logs, parts.indexes, parts.storage, settings.limits, settings.data_dir, settings.policy,
            settings.storage_dir, owner.owned, owner.placement,
        )  # fmt: skip
        self.scale_requests = ScaleRequests()
        self.meters = LoadMeters(store, env.clock, settings.scaling, self.scale_requests)
        self.backups = Backups(store)
        internal = None
        if owner.secret is not None:
            internal = InternalHandler(store, owner.secret, self.meters, self.backups, self.scale_requests)
        self.listener = StoreListener(
            store, max_connections=settings.max_connections, internal=internal, ask_owner=owner.ask_owner,
            checks=security.checks(env),
        )  # fmt: skip
        self.recovery_seconds = 0.0  # of its start
        self._settings = settings
        self._metering: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StoreRole {self.store!r}, {self.listener!r}>"

    def show_in(self, admin: Admin) -> None:
        """Have the HTTP port of the process show the store's health and metrics."""
        admin.health.store = self.store
        admin.metrics.has_store(self.store, self.listener, self.meters)

    async def open(self) -> None:
        """Recover the containers that it owns.  Raises Corrupt, Invalid, Unavailable."""
        began = self.env.clock.monotonic()
        await self.store.start()
        self.recovery_seconds = self.env.clock.monotonic() - began

    async def serve(self) -> int:
        """Listen, and measure the load from now on; return the port.  Raises Unavailable, OSError: it is taken."""
        settings = self._settings
        if settings.port is None:  # whoever listens for it does not watch its connections
            self.listener.start_reaper()
        else:
            with naming_port(settings.port_option, settings.host, settings.port):
                self.port = await self.listener.listen(settings.host, settings.port)
        self._metering = asyncio.ensure_future(self.meters.run())
        return self.port

    def take_over(self, live: LiveSettings) -> None:
        """Apply `live` settings without a restart."""
        if live.scrub_bytes_per_second is not None:
            self.store.change_scrub(live.scrub_bytes_per_second)
        self.meters.change_times(live.times.scaling)

    def skip_flush(self) -> None:
        """Let `stop` end its flush: what was acknowledged is in the durable log."""
        self.store.skip_flush()

    async def stop(self) -> None:
        """End the backup that runs, stop serving, flush to long-term storage, close everything."""
        if self._metering is not None:
            self._metering.cancel()
            await asyncio.gather(self._metering, return_exceptions=True)
        self.backups.stop()
        await self.listener.close()
        await self.store.stop()
