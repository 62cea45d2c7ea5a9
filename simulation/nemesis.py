"""Draws faults until it is told to stop; then heals everything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.world import World


class Nemesis:
    """One fault after the other, of the classes that the seed has switched on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("nemesis")
        options = world.options
        self._acts: list[Callable[[], None]] = []
        for on, act in (
            (options.kills, lambda: world.end(power=False)),
            (options.power_cuts, lambda: world.end(power=True)),
            (options.breaks, world.network.break_one),
            (options.stalls, lambda: world.network.stall_one(self._rng.choice((0.1, 1.0, 5.0)) * self._rng.random())),
            (options.storage_outages, self._storage_outage),
            (options.index_failures, self._index_failure),
            (options.sync_errors, self._sync_error),
            (options.write_errors, self._write_error),
            (options.full_disk, self._full_disk),
        ):
            if on:
                self._acts.append(act)

    async def run(self) -> None:
        """Until cancelled."""
        while self._acts:
            await asyncio.sleep(self._rng.expovariate(1.0) * self._world.options.fault_gap)
            act = self._rng.choice(self._acts)
            act()

    async def supervise(self) -> None:
        """Keep a process running, as an operator's supervisor does.  Until cancelled."""
        world = self._world
        while True:
            if world.process is None:
                if not world.quiet:
                    await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0)) * self._rng.random())
                if not await world.start():
                    await asyncio.sleep(0.2)
            await asyncio.sleep(0.01)

    def heal(self) -> None:
        """No more faults from now on."""
        world = self._world
        world.quiet = True
        world.storage_faults.away = False
        world.index_faults.fail_before = world.index_faults.fail_after = 0
        world.disk.faults.sync_error_in = world.disk.faults.write_error_in = 0
        world.disk.capacity_bytes = 1 << 40
        world.trace.add("fault", "no more")

    def _storage_outage(self) -> None:
        faults = self._world.storage_faults
        if not faults.away:
            faults.away = True
            seconds = self._rng.choice((0.2, 2.0, 10.0)) * self._rng.random()
            self._world.trace.add("fault", f"storage away for {seconds:.3f}")
            asyncio.get_running_loop().call_later(seconds, self._storage_back)

    def _storage_back(self) -> None:
        self._world.storage_faults.away = False

    def _index_failure(self) -> None:
        faults = self._world.index_faults
        self._world.trace.add("fault", "index")
        if self._rng.random() < 0.5:
            faults.fail_before += 1
        else:
            faults.fail_after += 1

    def _sync_error(self) -> None:
        self._world.trace.add("fault", "sync error")
        self._world.disk.faults.sync_error_in = self._rng.randint(1, 4)

    def _write_error(self) -> None:
        self._world.trace.add("fault", "write error")
        self._world.disk.faults.write_error_in = self._rng.randint(1, 4)

    def _full_disk(self) -> None:
        disk = self._world.disk
        self._world.trace.add("fault", "disk full")
        disk.capacity_bytes = disk.used_bytes() + self._rng.choice((0, 5000, 50_000))
        asyncio.get_running_loop().call_later(self._rng.choice((0.5, 5.0, 15.0)) * self._rng.random(), self._more_disk)

    def _more_disk(self) -> None:
        self._world.disk.capacity_bytes = 1 << 40
