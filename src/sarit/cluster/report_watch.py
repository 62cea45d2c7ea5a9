"""Reads the reports of all stores periodically, for the verdict on the cluster that a controller shows.

The age of a report is the time since its register changed, by the monotonic clock of the controller.  So a wrong wall
clock does not make reports old, except the first one that is read of a store.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.cluster.limits import HEALTH_READ_SECONDS
from sarit.cluster.store_report import read_store_report
from sarit.cluster.verdict import Received, Verdict, judge
from sarit.core.errors import Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import gather

if TYPE_CHECKING:
    from typing import Never

    from sarit.admin.reasons import Reason
    from sarit.cluster.map_watch import MapWatch
    from sarit.cluster.store_report import StoreReport
    from sarit.coordination.port import Registers
    from sarit.env.ports import Clock
    from sarit.process.observation.health import Health

_log = logging.getLogger("sarit.cluster")


class ReportWatch:
    """The newest reports of the stores of a map, for a controller."""

    def __init__(self, registers: Registers, watch: MapWatch, clock: Clock) -> None:
        self._registers = registers
        self._watch = watch
        self._clock = clock
        # By store: its newest report, and when it was written, in monotonic seconds.
        self._known: dict[str, tuple[StoreReport, float]] = {}
        self._answers = True

    def __repr__(self) -> str:
        return f"<ReportWatch of {len(self._known)} stores>"

    async def run(self) -> Never:
        """Read the reports periodically, until cancelled."""
        repeated = RepeatedLog(_log, self._clock.monotonic)
        while True:
            try:
                await self.read()
                self._answers = True
                repeated.ended("")
            except Unavailable as error:
                self._answers = False
                repeated.info("", f"the health of the stores cannot be read now: {error}")
            await asyncio.sleep(HEALTH_READ_SECONDS)

    async def read(self) -> None:
        """Read the report of each store of the map.  Raises Unavailable."""
        record = self._watch.map
        names = [] if record is None else list(record.stores)
        found = await gather(*(read_store_report(self._registers, name) for name in names))
        known: dict[str, tuple[StoreReport, float]] = {}
        for name, report in zip(names, found, strict=True):
            before = self._known.get(name)
            if report is None:
                continue
            now = self._clock.monotonic()
            if before is None:  # the first report that is read may be old
                known[name] = report, now - max(0, self._clock.wall_ms() - report.at_ms) / 1000
            else:
                known[name] = before if before[0] == report else (report, now)
        self._known = known

    def verdict(self) -> Verdict:
        """Return the verdict on the cluster, by the reports read last."""
        now = self._clock.monotonic()
        received = {name: Received(report, max(0.0, now - at)) for name, (report, at) in self._known.items()}
        return judge(self._watch.map, received, zookeeper=self._answers)

    def show_in(self, health: Health) -> None:
        """Add the verdict to the health of the controller's process."""
        health.add(self.reasons, self.details)

    def reasons(self) -> list[Reason]:
        """Return what is wrong with the cluster.  None of it makes the controller not ready: all controllers have the
        same reasons, and serve as far as the stores do."""
        return [replace(reason, ready=True) for reason in self.verdict().reasons if reason.code != "zookeeper-away"]

    def details(self) -> dict[str, Any]:
        """Return the state of the cluster, for `/healthz` and `/readyz`."""
        return {"cluster": self.verdict().document()}
