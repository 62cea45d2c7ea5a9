"""Several stores and controllers, each a process on a machine of its own, on one set of logs, one index and one
long-term storage.

Who owns which container is decided as in a cluster: stores are members, and each controller leads.  Controllers reach
the stores over connections, and keep their tables in them; clients use any controller.  Logs and coordination are
those of `services.py`.  Faults: deaths, power cuts, machines that stand still and go on, moves by command, leases that
end although their store lives, stores cut off from coordination, watches that are late or lost, calls with an unknown
outcome; and all that bookies and ZooKeeper do.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Final

import detangle

from sarit.cluster.controller import ClusterController
from sarit.cluster.member import ConfirmedLogs, Member
from sarit.coordination.container_map import ContainerMap, StoreAddress, decode_map
from sarit.coordination.map_register import STORES
from sarit.coordination.memory import CoordinationFaults
from sarit.core.errors import Unavailable
from sarit.process.controller_role import ControllerSettings
from sarit.process.limits import MAX_API_CONNECTIONS
from sarit.process.places.store_parts import StoreParts
from sarit.process.security import Security, SecurityConfig
from sarit.process.settings import NodeConfig
from sarit.process.store_role import Ownership, StoreRole, StoreSettings
from sarit.store.hosting.health import HealthState
from sarit.store.limits import MAX_CONNECTIONS
from sarit.store.store import container_of
from simulation.backup_port import offer_backups
from simulation.checked_logs import CheckedLogs, LogHistories
from simulation.cluster import CONTROLLER_PORT, SECRET, STORE_PORT, Cluster
from simulation.earlier_version import forget_newest_commands
from simulation.kill_matrix import KillMatrix
from simulation.objects import ProcessChunks
from simulation.services import BookKeeperServices, Drawn, SharedServices
from simulation.shared_parts import ProcessIndexes

if TYPE_CHECKING:
    from sarit.process.backup_source import BackupSource
    from sarit.store.server.listener import StoreListener
    from sarit.store.store import SegmentStore
    from simulation.options import Options
    from simulation.services import Connected
    from simulation.world import Machine, Process, World

_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_EARLIER: Final = 0.5  # of the starts of stores, in seeds with two versions


class FleetStore:
    """One store: its machine, and what runs there now."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.store: SegmentStore | None = None
        self.member: Member | None = None
        self.listener: StoreListener | None = None
        self.connected: Connected | None = None
        self.backups: BackupSource | None = None

    def __repr__(self) -> str:
        return f"<FleetStore {self.name} {self.store}>"

    def forget(self) -> None:
        """Its process has ended."""
        self.store = self.member = self.listener = self.connected = self.backups = None


class FleetController:
    """One controller: its machine, and what runs there now."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.controller: ClusterController | None = None
        self.connected: Connected | None = None
        self.starting: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<FleetController {self.machine.address} {self.controller}>"

    def forget(self) -> None:
        """Its process has ended."""
        self.controller = self.connected = self.starting = None


class Fleet(Cluster):
    """A `Cluster` for all actors, with several stores."""

    def __init__(self, world: World, options: Options) -> None:
        super().__init__(world, options)
        self._coordination_rng = self.rng("coordination")
        self._log_rng = self.rng("shared log")
        self._messages = self.rng("messages")
        self._versions = self.rng("versions")
        faults = CoordinationFaults(self._call_delay, self._call_fault, self._watch_delay)
        drawn = Drawn(faults, self._log_delay, self._log_fails, self._message_delay)
        # The same, or None.
        self.bookkeeper = BookKeeperServices(world, options, drawn) if options.bookies else None
        self.services = self.bookkeeper or SharedServices(options, drawn)
        self.matrix = KillMatrix(self)
        self.histories = LogHistories(self.failures.append, self.matrix.entered)
        if self.bookkeeper is not None:
            self.histories.watch_bookies()
            for bookie in self.bookkeeper.bookies.bookies.values():
                bookie.call_when_synced(self.histories.synced)
        self.storage = self.chunks
        self.stores = [
            FleetStore(f"s{number}", world.machine(f"10.0.0.{number}")) for number in range(1, options.stores + 1)
        ]
        self.store_hosts = [store.machine.address for store in self.stores]
        self.controllers = [
            FleetController(world.machine(f"10.0.1.{number}")) for number in range(1, options.controllers + 1)
        ]
        self.map_before: ContainerMap | None = None  # the map that clients knew before
        self._decoded: tuple[bytes, ContainerMap | None] = b"", None
        self._context = contextvars.copy_context()

    def __repr__(self) -> str:
        return f"<Fleet {self.stores}>"

    # -- where segments are -------------------------------------------------------------------------

    def map(self) -> ContainerMap | None:
        """The container map now."""
        found = self.services.map_value()
        if found is None:
            return None
        if found != self._decoded[0]:  # it is asked for at each request, and seldom changes
            self._decoded = found, decode_map(found)
        return self._decoded[1]

    def store_address(self, segment: str, *, reading: bool = False) -> tuple[str, int]:
        """Where a client believes that a segment is; it may know an old owner, or ask the owner-to-be already.

        Reads at an old owner and changes at the new one show whether two stores answer for one container."""
        known, options, number = self.map(), self.options, container_of(segment, self.options.containers)
        if known is None:
            return self.stores[0].machine.address, STORE_PORT
        drawn = 1.0 if self.quiet else self._coordination_rng.random()
        old = options.old_reads if reading else options.old_changes
        store = known.address(number)
        if drawn < old:
            store = (self.map_before or known).address(number)
        elif drawn < old + options.early_requests:
            owner = known.owners[number]
            store = None if owner is None else known.stores.get(owner)
        return (self.stores[0].machine.address, STORE_PORT) if store is None else (store.host, store.port)

    def controller_address(self) -> str:
        """Any controller, also one that is dead now."""
        return f"{self._coordination_rng.choice(self.controllers).machine.address}:{CONTROLLER_PORT}"

    # -- processes ----------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Start every process that does not run; False when not all containers serve in time."""
        self._start_controllers()
        for store in self.stores:
            if store.machine.process is None:
                await self.start_store(store)
        end = self.world.now + _START_SECONDS
        while not self.all_serve():
            if self.world.now >= end:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _start_controllers(self) -> None:
        for one in self.controllers:
            if one.machine.process is None:
                process = one.machine.start()
                one.starting = process.spawn(self._run_controller(one, process), f"controller {one.machine.address}")

    async def start_store(self, store: FleetStore) -> None:
        """Start a process of a store."""
        process = store.machine.start()
        store.machine.disk_latency = self._disk_delay
        self.starts += 1
        starting = process.spawn(self._run_store(store, process), f"store {store.name} {process.number}")
        await self.ended_or_dead(process, starting)
        if not process.dead and (error := starting.exception()) is not None:
            if not isinstance(error, Unavailable):  # then ZooKeeper is away
                self.failures.append(f"{type(error).__name__}: the store {store.name} cannot start: {error}")
            self.end_store(store, power=False)

    async def _run_store(self, store: FleetStore, process: Process) -> None:
        store.connected = connected = await self.services.connect(process, store.name, with_logs=True)
        assert connected.logs is not None
        indexes = ProcessIndexes(self.indexes)
        rng = self.rng(f"chunks {store.name} {process.number}")
        chunks = ProcessChunks(self.chunks, rng, self.outside, self.arrived_late)
        for part in (indexes, chunks):
            process.on_death(part.die)
        host = store.machine.address
        address = StoreAddress(host, STORE_PORT, host, 0)
        member = Member(
            store.name, address, connected.registers, connected.members(STORES), process.env, connected.lease_seconds
        )
        logs = ConfirmedLogs(CheckedLogs(connected.logs, self.histories, host), member)
        settings = StoreSettings(self.options.limits(), self.options.times().scaling, MAX_CONNECTIONS, host, STORE_PORT)
        role = StoreRole(
            settings, process.env, StoreParts(logs, indexes, chunks), Security(SecurityConfig()),
            Ownership(frozenset(), member, SECRET),
        )  # fmt: skip
        await role.open()
        if self.options.earlier_versions and self._versions.random() < _EARLIER:
            self.trace.note("fault", f"{store.name} is of an earlier version")
            self.trace.probe("store_of_earlier_version")
            assert role.listener.internal is not None
            forget_newest_commands(role.listener.internal)
        await role.serve()
        if self.options.backups:
            store.backups = await offer_backups(role.backups, host, process.env)
        member.start(role.store)
        store.store, store.member, store.listener = role.store, member, role.listener

    async def _run_controller(self, one: FleetController, process: Process) -> None:
        address, options = one.machine.address, self.options

        def end() -> None:
            if one.machine.process is process:
                self.end_controller(one, power=False)

        try:
            one.connected = connected = await self.services.connect(process, address, with_logs=False)
        except Unavailable:  # ZooKeeper is away
            asyncio.get_running_loop().call_soon(end, context=self._context)
            return
        settings = ControllerSettings(
            NodeConfig("/data", address), CONTROLLER_PORT, MAX_API_CONNECTIONS, options.times(), quotas=options.quotas
        )
        one.controller = made = ClusterController(
            settings, connected.registers, connected.members, process.env, SECRET, options.containers,
            Security(SecurityConfig()), options.stores, connected.lease_seconds, runners=self.job_runners(process),
        )  # fmt: skip
        await made.open()
        await made.serve()

    def all_serve(self) -> bool:
        """Whether every container serves, at the store that the map names."""
        known = self.map()
        return known is not None and all(
            self._serves(number, known.serving(number)) for number in range(self.options.containers)
        )

    def _serves(self, number: int, name: str | None) -> bool:
        store = next((store.store for store in self.stores if store.name == name), None)
        return store is not None and store.health()[number].state is HealthState.SERVING

    def end_store(self, store: FleetStore, *, power: bool) -> None:
        """The process of a store dies."""
        if power and store.connected is not None and store.connected.sent is not None:
            store.connected.sent.lost_from = self.world.now + self._deaths.random() * self.options.disk_latency
        self.matrix.store_struck(store.machine.address, "dead")
        store.forget()
        self.histories.forget(store.machine.address)
        self.matrix.ended(store.machine.address)
        self.end_machine(store.machine, power=power)

    def end_controller(self, controller: FleetController, *, power: bool) -> None:
        """The process of a controller dies."""
        self.matrix.controller_struck(controller.machine.address, "dead")
        controller.forget()
        self.end_machine(controller.machine, power=power)

    def end_machine(self, machine: Machine, *, power: bool) -> None:
        """The process on a machine dies, also while the machine stands still."""
        if machine.process is None:
            return
        self.trace.note("fault", f"{'power cut' if power else 'kill'} of {machine.address}")
        self.trace.probe("power_cut" if power else "kill")
        peers_learn_after = self._deaths.choice((0.0, 0.05, 2.0)) * self._deaths.random()
        if power:
            machine.power_off(peers_learn_after)
        else:
            machine.kill(peers_learn_after)
        self.world.loop.thaw(machine.address)
        for task, info in list(detangle.current_loop().task_info.items()):
            if info.host == machine.address and not task.done():
                task.cancel()

    def end(self, *, power: bool) -> None:
        """Every process dies."""
        for controller in self.controllers:
            self.end_controller(controller, power=power)
        for store in self.stores:
            self.end_store(store, power=power)

    def crash(self, host: str, *, power: bool) -> None:
        """The process on a machine dies at a crash point."""
        for store in self.stores:
            if store.machine.address == host:
                self.end_store(store, power=power)
        for controller in self.controllers:
            if controller.machine.address == host:
                self.end_controller(controller, power=power)

    async def shut_down(self) -> None:
        """Stop all controllers and stores cleanly, then end all processes."""
        await asyncio.gather(*map(self._stop_controller, self.controllers))
        await asyncio.gather(*map(self._stop_store, self.stores))
        self.end(power=False)

    async def _stop_controller(self, one: FleetController) -> None:
        process, controller, connected = one.machine.process, one.controller, one.connected
        if process is None or controller is None or connected is None:
            return

        async def stop() -> None:
            if one.starting is not None:  # it may still wait for the stores
                one.starting.cancel()
                await asyncio.wait([one.starting])
            await controller.stop()
            await connected.close()

        stopping = process.spawn(stop(), f"stop {one.machine.address}")
        await self.ended_or_dead(process, stopping)
        if not process.dead and (error := stopping.exception()) is not None:
            self.failures.append(f"{type(error).__name__}: the controller {one.machine.address} cannot stop: {error}")

    async def _stop_store(self, store: FleetStore) -> None:
        process, segments, member, listener = store.machine.process, store.store, store.member, store.listener
        connected = store.connected
        if process is None or segments is None or member is None or listener is None or connected is None:
            return

        async def stop() -> None:
            await member.stop()
            await listener.close()
            await segments.stop()
            await connected.close()

        stopping = process.spawn(stop(), f"stop {store.name}")
        await self.ended_or_dead(process, stopping)
        if not process.dead and (error := stopping.exception()) is not None:
            self.failures.append(f"{type(error).__name__}: the store {store.name} cannot stop: {error}")

    async def supervise(self) -> None:
        """Restart every process that has died.  Until cancelled."""
        while True:
            self._start_controllers()
            for store in self.stores:
                if store.machine.process is None and (
                    self.quiet or self.starts < len(self.stores) or self._deaths.random() < 0.05
                ):
                    await self.start_store(store)
            await asyncio.sleep(_POLL_SECONDS)

    # -- drawn behaviour ----------------------------------------------------------------------------

    def _call_delay(self) -> float:
        return self._coordination_rng.expovariate(1.0) * 0.003

    def _call_fault(self) -> str:
        if self.quiet or self._coordination_rng.random() >= self.options.coordination_faults:
            return ""
        return self._coordination_rng.choice(("refused", "applied"))

    def _watch_delay(self) -> float | None:
        rng = self._coordination_rng
        if self.quiet:
            return 0.001
        if rng.random() < self.options.lost_watches:
            return None
        return rng.choice((0.001, 0.001, 0.05, 2.0)) * rng.random()

    def _message_delay(self) -> float:
        options = self.options
        return options.least_delay + min(self._messages.expovariate(1.0), 20) * options.mean_delay

    def _log_delay(self) -> float:
        return min(self._log_rng.expovariate(1.0), 20) * self.options.disk_latency

    def _log_fails(self) -> bool:
        return not self.quiet and self.options.write_errors and self._log_rng.random() < 0.002
