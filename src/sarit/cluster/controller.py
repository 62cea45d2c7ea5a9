"""A controller of a cluster: a leader, and the controller's services on stores that come and go.

It holds nothing: its tables are segments of the stores, which it reaches over connections, where the container map says
they are.  Any number of them run at the same time; each answers every call, and does the background work of its share
of the streams (`controller/assignment.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sarit.cluster.controller_members import CONTROLLERS, ControllerMembers
from sarit.cluster.map_watch import MapWatch
from sarit.cluster.report_watch import ReportWatch
from sarit.cluster.verdict import FAILED
from sarit.controller.assembly import DEFAULT_TIMES, Controller
from sarit.coordination.leader import Leader
from sarit.coordination.map_register import STORES
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import STORE_LEASE_SECONDS
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background
from sarit.process.limits import STORES_RETRY_SECONDS
from sarit.process.observation.placed_view import ContainerStates, ControllerParts, PlacedView, mapped
from sarit.process.store_calls.remote import RemoteSegments, RemoteTables, ScaleRequestWatch, StoreConnections
from sarit.rpc.grpc_server import client_is_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import ClusterMeta
    from sarit.controller.access import Access
    from sarit.controller.times import Times
    from sarit.coordination.port import Members, Registers
    from sarit.env.ports import Env
    from sarit.process.observation.health import Health

_log = logging.getLogger("sarit.node")


class ClusterController:
    """See the head of the module.

    `members(kind)`: the members of the coordination service of one kind.  `secret`: what the stores of this
    installation know, too.  `containers`, `expected`, `lease_seconds`: see `Leader`."""

    def __init__(
        self, registers: Registers, members: Callable[[str], Members], env: Env, secret: bytes, containers: int,
        expected: int | None = None, times: Times = DEFAULT_TIMES, lease_seconds: float = STORE_LEASE_SECONDS,
        access: Access | None = None,
    ) -> None:  # fmt: skip
        self._env = env
        self.leader = Leader(registers, members(STORES), env.clock, containers, expected, lease_seconds)
        self.watch = MapWatch(registers, env.clock)
        self.reports = ReportWatch(registers, self.watch, env.clock)
        self.members = ControllerMembers(members(CONTROLLERS), env)
        self.stores = StoreConnections(env, self.watch, secret)
        self.controller = Controller(
            RemoteTables(self.stores), RemoteSegments(self.stores), env, ("", 0), times, self.members.addresses,
            access,
        )  # fmt: skip
        self.controller.quotas.apply = self.stores.use_quotas
        self._scaling = ScaleRequestWatch(self.stores, env, self.controller.autoscale.request)
        self._background = Background(self._on_failed)
        # Why it cannot go on; `on_failure` is called then.
        self.failure: SaritError | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<ClusterController {self.controller!r}, {self.watch!r}>"

    async def open(self) -> None:
        """Lead, and start the controller as soon as the stores of its tables serve.  Raises Invalid, Corrupt."""
        self._background.spawn(self.leader.run())
        self._background.spawn(self.watch.run())
        self._background.spawn(self.reports.run())
        repeated = RepeatedLog(_log, self._env.clock.monotonic)
        while True:
            try:
                await self.controller.start()
                break
            except Unavailable as error:
                repeated.warning("", f"the controller waits for the stores: {error}")
                await asyncio.sleep(STORES_RETRY_SECONDS)
        self._background.spawn(self._scaling.run())

    def services(self) -> list[Any]:
        """The services for the listener."""
        return self.controller.services(client_is_known)

    def serves(self, address: tuple[str, int]) -> None:
        """Clients reach it at `address` from now on: become known."""
        self.controller.advertised = address
        self.members.start(address)

    async def stop(self) -> None:
        """Stop the background work, and close everything."""
        await self.members.stop()
        await self._background.close()
        await self.controller.stop()
        await self.stores.close()

    def view(self, meta: ClusterMeta, config: ProcessConfig, health: Health) -> PlacedView:
        """Return what the console shows of this controller."""

        def states() -> ContainerStates:
            verdict = self.reports.verdict()
            return ContainerStates(verdict.containers, verdict.state == FAILED)

        parts = ControllerParts(
            "cluster", self.controller, self.stores, lambda: mapped(self.watch.map),
            lambda: {f"controller {number}": f"{host}:{port}"
                     for number, (host, port) in enumerate(self.members.addresses(), 1)},
            {"log": meta.log, "chunks": meta.storage, "index": meta.index}, config.options, states,
        )  # fmt: skip
        return PlacedView(parts, health)

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        """Its background work runs until it is cancelled: others would rely on a controller that does none."""
        _log.critical("background work of the controller failed: internal error", exc_info=error)
        self.failure = self.failure or Unavailable("background work of the controller failed: internal error")
        self.on_failure()
