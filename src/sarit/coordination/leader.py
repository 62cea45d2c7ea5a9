"""The leader assigns containers whenever members or the map change, and writes the next map.

Any number of leaders may run at the same time, one in each controller.  Every write is a compare-and-set on the version
that it was computed from, so one of two wins, and the other decides again.  No leader is elected.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.coordination.assign import Recent, assign
from sarit.coordination.container_map import ContainerMap, StoreAddress, decode_store
from sarit.coordination.limits import FIRST_MAP_SECONDS, STORE_LEASE_SECONDS
from sarit.coordination.map_register import MAP, read_map, write_map
from sarit.coordination.polls import poll
from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Conflict, Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.coordination.port import Members, Registers
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.coordination")


class Leader:
    """Keeps the map of one cluster up to date with `assign`.

    `expected`: the first map waits for so many stores, for up to FIRST_MAP_SECONDS."""

    def __init__(
        self, registers: Registers, members: Members, clock: Clock, containers: int, expected: int | None = None,
        lease_seconds: float = STORE_LEASE_SECONDS,
    ) -> None:  # fmt: skip
        self._registers = registers
        self._members = members
        self._clock = clock
        self._containers = containers
        self._expected = expected
        self._lease_seconds = lease_seconds
        self._first_member_at: float | None = None
        self._recent = Recent(clock.monotonic())
        self._known: ContainerMap | None = None
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Leader of {self._containers} containers, {self._known}>"

    async def run(self) -> None:
        """Write a new map when one is needed, until cancelled."""
        watches = [self._members.watch(self._wake.set), self._registers.watch(MAP, self._wake.set)]
        try:
            await poll(self._decide, self._wake, self._clock, _log, "containers cannot be assigned")
        finally:
            for watch in watches:
                watch.close()

    async def _decide(self) -> None:
        while True:
            try:
                return await self.evaluate()
            except Conflict:  # somebody else changed the map: decide again
                coverage_probe("map_conflict")

    async def evaluate(self) -> None:
        """Write the next map if there is one.  Raises Conflict, Unavailable, Invalid."""
        found = await read_map(self._registers)
        # Read the members after the map: a map that was changed meanwhile conflicts, so the newest members count.
        members = {store: decode_store(value) for store, value in (await self._members.list()).items()}
        now = self._clock.monotonic()
        current, version = found if found is not None else (ContainerMap.empty(self._containers), None)
        if len(current.owners) != self._containers:
            raise Invalid(f"the map is of {len(current.owners)} containers, not of {self._containers}")
        self._note(current, now)
        if found is None and self._waits(members, now):
            return
        changed = assign(current, members, self._recent, now, self._lease_seconds)
        if changed is current:
            return
        await write_map(self._registers, changed, version)
        _log_changes(current, changed)
        self._note(changed, now)

    def _note(self, current: ContainerMap, now: float) -> None:
        self._recent = self._recent.after(self._known or current, current, now)
        self._known = current

    def _waits(self, members: Mapping[str, StoreAddress], now: float) -> bool:
        usable = sum(store.usable for store in members.values())
        if not usable:
            return True
        if self._first_member_at is None:
            self._first_member_at = now
        enough = self._expected is not None and usable >= self._expected
        return not enough and now < self._first_member_at + FIRST_MAP_SECONDS


def _log_changes(before: ContainerMap, after: ContainerMap) -> None:
    gone = sorted(set(before.stores) - set(after.stores))
    come = sorted(set(after.stores) - set(before.stores))
    if gone or come:
        _log.info("map %d: stores come: %s, gone: %s", after.version, come, gone)
    for container, (old, new) in enumerate(zip(before.owners, after.owners, strict=True)):
        if old != new:
            graceful = " after it is released" if container in after.moving else ""
            coverage_probe("container_moved" if graceful else "container_assigned")
            _log.info("map %d: container %d goes from %s to %s%s", after.version, container, old, new, graceful)
