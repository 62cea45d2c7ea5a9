"""The faults of a fleet on BookKeeper: bookies, ZooKeeper, cuts in one direction or both, jumps of clocks, and strikes
at a cell of the kill matrix.

The disks of bookies are whole: what one has acknowledged it has, also after a crash.  Any number of bookies may be away
at the same time; then nothing is acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from simulation.cluster import CLIENTS
from simulation.kill_matrix import Cell, draw_cell
from simulation.zookeeper_servers import ZOOKEEPER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from simulation.bookies import SimulatedBookie
    from simulation.fleet import Fleet, FleetController, FleetStore
    from simulation.services import BookKeeperServices
    from simulation.world import Machine


def later(seconds: float, call: Callable[..., object], *arguments: object) -> None:
    """Call in so many seconds."""
    asyncio.get_running_loop().call_later(seconds, call, *arguments)


def note(fleet: Fleet, what: str, probe: str) -> None:
    """Trace a fault and count it."""
    fleet.trace.note("fault", what)
    fleet.trace.probe(probe)


class BookieFaults:
    """The faults of bookies."""

    def __init__(self, fleet: Fleet, services: BookKeeperServices, rng: random.Random) -> None:
        self._fleet = fleet
        self._services = services
        self._bookies = services.bookies
        self._rng = rng

    def acts(self) -> list[tuple[bool, Callable[[], None]]]:
        """The faults, and whether the seed enables them."""
        options = self._fleet.options
        one = (self._bookie_dies, self._bookie_dies, self._bookie_stops, self._read_only, self._busy, self._slow)
        two = (self._two_bookies_die, self._two_bookies_stop)
        return [*((options.bookie_faults, act) for act in one), *((options.two_bookies, act) for act in two)]

    def some(self, number: int) -> list[SimulatedBookie]:
        """So many bookies."""
        return self._rng.sample(list(self._bookies.bookies.values()), number)

    def _registrations(self) -> None:
        """Clients learn later who is registered: of one that is gone, when its session has ended."""
        later(self._rng.choice((0.01, 0.2, 4.0)) * self._rng.random(), self._bookies.register)

    def _bookie_dies(self) -> None:
        self.die(self.some(1), self._rng.choice((0.1, 3.0, 14.0)) * self._rng.random())

    def _two_bookies_die(self) -> None:
        self.die(self.some(2), self._rng.choice((0.5, 3.0, 20.0)) * self._rng.random())

    def die(self, bookies: Sequence[SimulatedBookie], seconds: float) -> None:
        """They die, and start again later."""
        for bookie in bookies:
            if bookie.up:
                note(self._fleet, f"{bookie.name} dies for {seconds:.3f}", "bookie_died")
                bookie.crash()
                later(seconds, self._start, bookie)
        self._fleet.matrix.bookies_struck(len(bookies), "dead")
        self._registrations()

    def _start(self, bookie: SimulatedBookie) -> None:
        if not bookie.up:
            self._fleet.trace.note("fault", f"{bookie.name} starts")
            bookie.start()
            self._registrations()

    def _bookie_stops(self) -> None:
        self.stop(self.some(1), self._rng.choice((0.5, 4.0, 20.0)) * self._rng.random())

    def _two_bookies_stop(self) -> None:
        self.stop(self.some(2), self._rng.choice((0.5, 4.0, 20.0)) * self._rng.random())

    def stop(self, bookies: Sequence[SimulatedBookie], seconds: float) -> None:
        """They stand still."""
        for bookie in bookies:
            if bookie.up and not bookie.stopped:
                note(self._fleet, f"{bookie.name} stands still for {seconds:.3f}", "bookie_stopped")
                bookie.stopped = True
                later(seconds, bookie.resume)
        self._fleet.matrix.bookies_struck(len(bookies), "stopped")

    def _read_only(self) -> None:
        (bookie,) = self.some(1)
        note(self._fleet, f"{bookie.name} is full", "bookie_read_only")
        bookie.read_only = True
        self._registrations()
        later(self._rng.choice((0.2, 3.0, 10.0)) * self._rng.random(), self._writable, bookie)

    def _writable(self, bookie: SimulatedBookie) -> None:
        bookie.read_only = False
        self._registrations()

    def _busy(self) -> None:
        (bookie,) = self.some(1)
        note(self._fleet, f"{bookie.name} is busy", "bookie_busy")
        bookie.busy = self._rng.randint(1, 20)

    def _slow(self) -> None:
        (bookie,) = self.some(1)
        seconds = self._rng.choice((0.05, 0.5, 3.0))
        note(self._fleet, f"{bookie.name} syncs in {seconds}", "bookie_slow")
        bookie.sync = lambda: self._rng.random() * seconds
        later(self._rng.choice((0.5, 5.0)) * self._rng.random(), self._usual, bookie)

    def _usual(self, bookie: SimulatedBookie) -> None:
        bookie.sync = self._services.usual_sync


class ZooKeeperFaults:
    """The faults of ZooKeeper."""

    def __init__(self, fleet: Fleet, services: BookKeeperServices, rng: random.Random) -> None:
        self._fleet = fleet
        self._zookeeper = services.zookeeper
        self._rng = rng
        self._lease = fleet.options.lease_seconds

    def acts(self) -> list[tuple[bool, Callable[[], None]]]:
        """The faults, and whether the seed enables them."""
        acts = (
            self._connection_lost, self._connection_lost, self._server_behind, self._server_cut_off,
            self._zookeeper_away, self._session_ends,
        )  # fmt: skip
        return [(self._fleet.options.zookeeper_faults, act) for act in acts]

    def _connection_lost(self) -> None:
        connections = self._zookeeper.connections()
        if connections:
            connection = self._rng.choice(connections)
            note(
                self._fleet, f"{connection.client.host} loses its connection to ZooKeeper", "zookeeper_connection_lost"
            )
            self._zookeeper.break_connection(connection)

    def _server_behind(self) -> None:
        follower = self._rng.choice(self._zookeeper.followers)
        follower.behind = self._rng.choice((0.05, 1.0, 6.0)) * self._rng.random()
        note(self._fleet, f"{follower!r} is behind by {follower.behind:.3f}", "zookeeper_behind")
        later(self._rng.choice((1.0, 10.0)) * self._rng.random(), self._catch_up, follower)

    def _catch_up(self, follower: object) -> None:
        for each in self._zookeeper.followers:
            if each is follower:
                each.behind = 0.0

    def _server_cut_off(self) -> None:
        follower = self._rng.choice(self._zookeeper.followers)
        if not any(each.cut_off for each in self._zookeeper.followers):
            seconds = self._rng.choice((0.5, 2.0, 10.0)) * self._rng.random()
            note(self._fleet, f"{follower!r} is cut off for {seconds:.3f}", "zookeeper_server_cut_off")
            self._zookeeper.cut_off(follower)
            later(seconds, self._zookeeper.heal, follower)

    def _zookeeper_away(self) -> None:
        self.dies(self._rng.choice((0.5, 2.0, 2 * self._lease)) * self._rng.random())

    def dies(self, seconds: float) -> None:
        """All servers are away."""
        if not self._zookeeper.away:
            note(self._fleet, f"ZooKeeper is away for {seconds:.3f}", "zookeeper_away")
            self._fleet.matrix.zookeeper_struck("dead")
            self._zookeeper.leave()
            later(seconds, self._zookeeper.come_back)

    def stops(self, seconds: float) -> None:
        """All servers stand still."""
        if not self._zookeeper.stopped:
            note(self._fleet, f"ZooKeeper stands still for {seconds:.3f}", "zookeeper_stopped")
            self._fleet.matrix.zookeeper_struck("stopped")
            self._zookeeper.stop()
            later(seconds, self._zookeeper.resume)

    def is_mute(self, seconds: float) -> None:
        """What it says reaches nobody."""
        hosts = [machine.address for machine in self._fleet.world.machines()]
        note(self._fleet, f"nothing of ZooKeeper arrives for {seconds:.3f}", "zookeeper_mute")
        self._fleet.matrix.zookeeper_struck("cut one way")
        ways = {(ZOOKEEPER, host) for host in hosts} - self._zookeeper.cut
        self._zookeeper.cut |= ways
        later(seconds, self._zookeeper.cut.difference_update, ways)

    def _session_ends(self) -> None:
        """An operator ends a session before its time, of a client that ZooKeeper reaches (docs/decisions/0712)."""
        cut, connections = self._zookeeper.cut, self._zookeeper.connections()
        connections = [each for each in connections if (ZOOKEEPER, each.session.client.host) not in cut]
        if connections:
            session = self._rng.choice(connections).session
            note(self._fleet, f"a session of {session.client.host} ends", "zookeeper_session_ended")
            self._zookeeper.expire(session)


class MachineFaults(Protocol):
    """The faults of stores and controllers that a strike needs: see `FleetFaults`."""

    def move_one(self) -> None:
        """Move a container gracefully."""

    def freeze(self, machine: Machine, seconds: float, probe: str) -> None:
        """Let a machine stand still, and count it."""


class ServiceFaults:
    """See the head of the module.  `machines`: the faults of stores and controllers."""

    def __init__(self, fleet: Fleet, services: BookKeeperServices, machines: MachineFaults) -> None:
        self._fleet = fleet
        self._services = services
        self._machines = machines
        self._zookeeper = services.zookeeper
        self._bookies = services.bookies
        self._rng = fleet.rng("services")
        self._lease = fleet.options.lease_seconds
        self._bookie_faults = BookieFaults(fleet, services, self._rng)
        self._zookeeper_faults = ZooKeeperFaults(fleet, services, self._rng)

    def acts(self) -> list[tuple[bool, Callable[[], None]]]:
        """The faults, and whether the seed enables them."""
        options = self._fleet.options
        return [
            *self._bookie_faults.acts(), *self._zookeeper_faults.acts(),
            *((options.cuts, act) for act in (self._cut_a_bookie, self._cut_a_bookie, self._cut_network)),
            (options.minutes, self._clock_jumps),
            *[(options.strikes, self._strike)] * 6,
        ]  # fmt: skip

    # -- cuts -------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return float(self._rng.choice((0.5, 5.0, 2 * self._lease)) * self._rng.random())

    def _ways(self, one: str, other: str) -> set[tuple[str, str]]:
        """One way, the other, or both."""
        there, back = (one, other), (other, one)
        return self._rng.choice(({there}, {back}, {there, back}))

    def _cut_a_bookie(self) -> None:
        store, (bookie,) = self._rng.choice(self._fleet.stores), self._bookie_faults.some(1)
        ways, seconds = self._ways(store.machine.address, bookie.name), self._seconds()
        note(self._fleet, f"cut {sorted(ways)} for {seconds:.3f}", "bookie_cut_off")
        self._cut_bookies(ways, seconds)

    def _cut_bookies(self, ways: set[tuple[str, str]], seconds: float) -> None:
        new = ways - self._bookies.cut
        self._bookies.cut |= new
        later(seconds, self._bookies.cut.difference_update, new)

    def _cut_network(self) -> None:
        """A controller and a store, or a client and a store or a controller."""
        stores = [store.machine.address for store in self._fleet.stores]
        controllers = [one.machine.address for one in self._fleet.controllers]
        pairs = ((stores, controllers), (stores, [CLIENTS]), (controllers, [CLIENTS]))
        some, others = self._rng.choice(pairs)
        ways, seconds = self._ways(self._rng.choice(some), self._rng.choice(others)), self._seconds()
        note(self._fleet, f"cut {sorted(ways)} for {seconds:.3f}", "network_cut")
        for source, target in sorted(ways):
            self._fleet.net.cut(source, target)
            later(seconds, self._fleet.net.mend, source, target)

    # -- clocks -----------------------------------------------------------------------------------

    def _clock_jumps(self) -> None:
        machine = self._rng.choice(self._fleet.stores).machine
        machine.clock.jump_ms = self._rng.choice((-60_000, 0, 60_000))
        note(self._fleet, f"wall clock of {machine.address} off by {machine.clock.jump_ms} ms", "wall_clock_jump")

    # -- the kill matrix --------------------------------------------------------------------------

    def _strike(self) -> None:
        """Have a fault strike when a store next is in a state."""
        cell = draw_cell(self._rng)
        if cell.state == "moving":
            # Begun by us, and struck while it lasts.
            self._machines.move_one()
            store = self._rng.choice(self._fleet.stores)
            later(self._rng.random() * 0.03, self._struck, cell, store.machine.address)
        else:
            self._fleet.matrix.arm(cell.state, lambda host: self._struck(cell, host))

    def _struck(self, cell: Cell, host: str) -> None:
        fleet, rng = self._fleet, self._rng
        if fleet.quiet:
            return
        fleet.trace.probe("struck")
        match cell.target:
            case "owner" | "idle store":
                stores = [each for each in fleet.stores if (each.machine.address == host) == (cell.target == "owner")]
                if stores:
                    self._strike_store(rng.choice(stores), cell.fault)
            case "leader" | "other controller":
                leader = self._services.leader()
                leads = cell.target == "leader"
                controllers = [each for each in fleet.controllers if (each.machine.address == leader) == leads]
                if controllers:
                    self._strike_controller(rng.choice(controllers), cell.fault)
            case "1 bookie" | "2 bookies":
                self._strike_bookies(self._bookie_faults.some(1 if cell.target == "1 bookie" else 2), cell.fault)
            case _:
                faults = self._zookeeper_faults
                {"dead": faults.dies, "stopped": faults.stops, "cut one way": faults.is_mute}[cell.fault](
                    2 * self._lease
                )

    def _strike_store(self, store: FleetStore, fault: str) -> None:
        address = store.machine.address
        if fault == "dead":
            self._fleet.end_store(store, power=self._rng.random() < 0.5)
        elif fault == "stopped":
            self._machines.freeze(store.machine, 2 * self._lease, "store_frozen")
        else:
            self._cut_one_way(address)
            self._fleet.matrix.store_struck(address, fault)

    def _strike_controller(self, controller: FleetController, fault: str) -> None:
        if fault == "dead":
            self._fleet.end_controller(controller, power=False)
        elif fault == "stopped":
            self._machines.freeze(controller.machine, 2 * self._lease, "controller_frozen")
        else:
            self._cut_one_way(controller.machine.address)
            self._fleet.matrix.controller_struck(controller.machine.address, fault)

    def _cut_one_way(self, host: str) -> None:
        """From ZooKeeper and all bookies: what it sends to them, or what they send."""
        sends, seconds = self._rng.random() < 0.5, 2 * self._lease
        note(self._fleet, f"{host} is cut off for {seconds:.3f}, {'sends' if sends else 'gets'} nothing", "cut_one_way")
        way = {(host, ZOOKEEPER) if sends else (ZOOKEEPER, host)} - self._zookeeper.cut
        self._zookeeper.cut |= way
        later(seconds, self._zookeeper.cut.difference_update, way)
        self._cut_bookies({(host, name) if sends else (name, host) for name in self._bookies.bookies}, seconds)

    def _strike_bookies(self, bookies: Sequence[SimulatedBookie], fault: str) -> None:
        if fault == "dead":
            self._bookie_faults.die(bookies, 2 * self._lease)
        elif fault == "stopped":
            self._bookie_faults.stop(bookies, 2 * self._lease)
        else:
            note(self._fleet, "bookies are cut off one way", "bookie_cut_off")
            sends = self._rng.random() < 0.5
            hosts = [store.machine.address for store in self._fleet.stores]
            pairs = [(bookie.name, host) for bookie in bookies for host in hosts]
            self._cut_bookies({pair if sends else pair[::-1] for pair in pairs}, 2 * self._lease)
            self._fleet.matrix.bookies_struck(len(bookies), fault)
