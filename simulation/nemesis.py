"""Injects drawn faults until it is cancelled; then heals everything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.fleet import Fleet
from simulation.fleet_faults import FleetFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.cluster import Cluster


class Nemesis:
    """Injects one fault after the other, of the classes that the seed enables."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.rng("nemesis")
        options = cluster.options
        self._acts: list[Callable[[], None]] = []
        for on, act in (
            (options.kills, lambda: cluster.end(power=False)),
            (options.power_cuts, lambda: cluster.end(power=True)),
            (options.breaks, self._break),
            (options.stalls, self._stall),
            (options.storage_outages, self._storage_outage),
            (options.index_failures, self._index_failure),
            (options.sync_errors, self._sync_error),
            (options.write_errors, self._write_error),
            (options.full_disk, self._full_disk),
            (options.clock_jumps, self._clock_jump),
        ):
            if on:
                self._acts.append(act)
        if isinstance(cluster, Fleet):
            shared = (self._break, self._stall, self._storage_outage, self._index_failure)
            self._acts = [act for act in shared if act in self._acts]
            self._fleet_faults = FleetFaults(cluster)
            self._acts += [act for on, act in self._fleet_faults.acts() if on]

    async def run(self) -> None:
        """Until cancelled."""
        while self._acts:
            await asyncio.sleep(self._rng.expovariate(1.0) * self._cluster.options.fault_interval)
            act = self._rng.choice(self._acts)
            act()

    async def supervise(self) -> None:
        """Restart the process whenever it has died, as a supervisor does.  Until cancelled."""
        cluster = self._cluster
        if isinstance(cluster, Fleet):
            await cluster.supervise()
        while True:
            if cluster.process is None:
                if not cluster.quiet:
                    await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0)) * self._rng.random())
                if not await cluster.start():
                    await asyncio.sleep(0.2)
            await cluster.ended()

    def heal(self) -> None:
        """No more faults from now on."""
        cluster = self._cluster
        cluster.quiet = True
        if isinstance(cluster, Fleet):
            self._fleet_faults.heal()
        cluster.net.faults.lost_at_connect = 0.0
        cluster.storage_faults.unavailable = False
        cluster.index_faults.fail_before = cluster.index_faults.fail_after = 0
        cluster.disk.faults.sync_error_in = cluster.disk.faults.write_error_in = 0
        cluster.disk.capacity_bytes = 1 << 40
        cluster.trace.note("fault", "no more")

    def _strike(self, what: str, probe: str) -> None:
        self._cluster.trace.note("fault", what)
        self._cluster.trace.probe(probe)

    def _break(self) -> None:
        if self._cluster.net.break_one():
            self._cluster.trace.probe("connection_broken")

    def _stall(self) -> None:
        if self._cluster.net.stall_one(self._rng.choice((0.1, 1.0, 5.0)) * self._rng.random()):
            self._cluster.trace.probe("connection_stalled")

    def _storage_outage(self) -> None:
        faults = self._cluster.storage_faults
        if not faults.unavailable:
            faults.unavailable = True
            seconds = self._rng.choice((0.2, 2.0, 10.0)) * self._rng.random()
            self._strike(f"storage away for {seconds:.3f}", "storage_outage")
            asyncio.get_running_loop().call_later(seconds, self._storage_back)

    def _storage_back(self) -> None:
        self._cluster.storage_faults.unavailable = False

    def _index_failure(self) -> None:
        faults = self._cluster.index_faults
        self._strike("index", "index_failure")
        if self._rng.random() < 0.5:
            faults.fail_before += 1
        else:
            faults.fail_after += 1

    def _sync_error(self) -> None:
        self._strike("sync error", "sync_error")
        self._cluster.disk.faults.sync_error_in = self._rng.randint(1, 4)

    def _write_error(self) -> None:
        self._strike("write error", "write_error")
        self._cluster.disk.faults.write_error_in = self._rng.randint(1, 4)

    def _clock_jump(self) -> None:
        clock = self._cluster.machine.clock
        clock.jump_ms = self._rng.choice((-3_600_000, -1_000, 0, 1_000, 3_600_000))
        self._strike(f"wall clock off by {clock.jump_ms} ms", "wall_clock_jump")

    def _full_disk(self) -> None:
        disk = self._cluster.disk
        self._strike("disk full", "disk_full")
        disk.capacity_bytes = disk.used_bytes() + self._rng.choice((0, 5000, 50_000))
        asyncio.get_running_loop().call_later(self._rng.choice((0.5, 5.0, 15.0)) * self._rng.random(), self._more_disk)

    def _more_disk(self) -> None:
        self._cluster.disk.capacity_bytes = 1 << 40
