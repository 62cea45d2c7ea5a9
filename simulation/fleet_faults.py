"""The faults of a fleet: deaths of stores and controllers, machines that stand still, moves, revocations, stores cut
off from coordination."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.coordination.container_map import encode_map
from simulation.service_faults import ServiceFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.container_map import ContainerMap
    from simulation.fleet import Fleet
    from simulation.world import Machine, Process


class FleetFaults:
    """See the head of the module."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rng = fleet.rng("moves")
        services = fleet.bookkeeper
        self._services = None if services is None else ServiceFaults(fleet, services, self)

    def acts(self) -> list[tuple[bool, Callable[[], None]]]:
        """The faults, and whether the seed enables them."""
        options = self._fleet.options
        return [
            (options.kills, self.kill_one), (options.kills, self.kill_a_controller),
            (options.power_cuts, self.cut_power_of_one),
            (options.moves, self.move_one), (options.moves, self.move_one), (options.revocations, self.revoke_one),
            (options.cut_offs, self.cut_one_off),
            (options.moves and options.cut_offs, self.move_from_one_cut_off),
            (options.revocations and options.cut_offs, self.revoke_from_one_cut_off),
            (options.freezes, self.freeze_a_store), (options.slow_controllers, self.freeze_a_controller),
            *(self._services.acts() if self._services is not None else ()),
        ]  # fmt: skip

    def kill_one(self) -> None:
        """Kill a store."""
        self._fleet.end_store(self._rng.choice(self._fleet.stores), power=False)

    def kill_a_controller(self) -> None:
        """Kill a controller."""
        self._fleet.end_controller(self._rng.choice(self._fleet.controllers), power=False)

    def cut_power_of_one(self) -> None:
        """Cut the power of a store's machine."""
        self._fleet.end_store(self._rng.choice(self._fleet.stores), power=True)

    def freeze_a_store(self) -> None:
        """Let a store stand still, as SIGSTOP does, often for longer than its lease; then it goes on as it was."""
        lease = self._fleet.options.lease_seconds
        seconds = self._rng.choice((0.5 * lease, 2 * lease, 2 * lease, 4 * lease)) * self._rng.random()
        self.freeze(self._rng.choice(self._fleet.stores).machine, seconds, "store_frozen")

    def freeze_a_controller(self) -> None:
        """Let a controller stand still: what it has read is old when it goes on."""
        seconds = self._rng.choice((0.5, 5.0, 20.0)) * self._rng.random()
        self.freeze(self._rng.choice(self._fleet.controllers).machine, seconds, "controller_frozen")

    def freeze(self, machine: Machine, seconds: float, probe: str) -> None:
        """Let a machine stand still, and count it."""
        loop, address = self._fleet.world.loop, machine.address
        if machine.process is None or loop.is_frozen(address):
            return
        self._fleet.trace.note("fault", f"{address} stands still for {seconds:.3f}")
        self._fleet.trace.probe(probe)
        struck = self._fleet.matrix.store_struck if probe == "store_frozen" else self._fleet.matrix.controller_struck
        struck(address, "stopped")
        loop.freeze(address)
        loop.call_later(seconds, self._thaw, address, machine.process)

    def _thaw(self, address: str, process: Process) -> None:
        if not process.dead:  # another one may stand still here now
            self._fleet.trace.note("fault", f"{address} goes on")
            self._fleet.world.loop.thaw(address)

    def move_one(self) -> None:
        """Move a container gracefully, as an operator's command does."""
        self._give_one(graceful=True)

    def move_from_one_cut_off(self) -> None:
        """Move a container away from a store that does not learn it."""
        self._cut_off(self._give_one(graceful=True))

    def revoke_one(self) -> None:
        """Revoke a container, as a leader does after a move that takes too long."""
        self._give_one(graceful=False)

    def revoke_from_one_cut_off(self) -> None:
        """Revoke a container from a store that does not learn it."""
        self._cut_off(self._give_one(graceful=False))

    def _give_one(self, *, graceful: bool) -> str | None:
        """Change the owner of a container; the old one."""
        known, rng = self._fleet.map(), self._rng
        if known is None or len(known.stores) < 2:
            return None
        number = rng.randrange(self._fleet.options.containers)
        owner = known.owners[number]
        target = rng.choice(sorted(set(known.stores) - {owner}))
        if owner is None or number in known.moving:
            return None
        given = target if graceful else None
        owners = tuple(given if place == number else held for place, held in enumerate(known.owners))
        moving = {**known.moving, number: owner}
        self._write(replace(known, version=known.version + 1, owners=owners, moving=moving))
        self._fleet.trace.note("fault", f"container {number} goes from {owner} to {given}")
        self._fleet.trace.probe("move_commanded" if graceful else "container_revoked")
        return owner

    def _write(self, changed: ContainerMap) -> None:
        self._fleet.map_before = self._fleet.map()
        self._fleet.services.store_map(encode_map(changed))

    def cut_one_off(self) -> None:
        """Cut a store off from coordination; clients still reach it."""
        self._cut_off(self._rng.choice(self._fleet.stores).name)

    def _cut_off(self, name: str | None) -> None:
        store = next((store for store in self._fleet.stores if store.name == name), None)
        if store is None or not self._fleet.services.cut_off(store.machine.address, store.name):
            return
        seconds = self._rng.choice((0.5, 5.0, 20.0)) * self._rng.random()
        self._fleet.trace.note("fault", f"{name} is cut off from coordination for {seconds:.3f}")
        self._fleet.trace.probe("store_cut_off")
        asyncio.get_running_loop().call_later(
            seconds, self._fleet.services.reconnect, store.machine.address, store.name
        )

    def heal(self) -> None:
        """No more faults."""
        for machine in self._fleet.world.machines():
            self._fleet.world.loop.thaw(machine.address)
        self._fleet.services.heal()
        self._fleet.net.mend_all()
