"""Which faults have struck whom, and what was under way then: the cells of the kill matrix.

A cell is (target, fault, state), for example a store that stood still while it rolled over to the next ledger.  Every
fault of a fleet on BookKeeper counts the cells that it strikes, as probes "cell ...".  `arm` names a cell: the next
time that a store is in its state, the fault strikes.
"""

from __future__ import annotations

import asyncio
import contextvars
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from sarit.coordination.container_map import ContainerMap
    from simulation.checked_logs import LogHistories
    from simulation.services import BookKeeperServices
    from simulation.trace import Trace
    from simulation.world import Machine

TARGETS: Final = ("owner", "idle store", "leader", "other controller", "1 bookie", "2 bookies", "ZooKeeper")
FAULTS: Final = ("dead", "stopped", "cut one way")
STATES: Final = ("appending", "moving", "recovering", "rolling over", "flushing")
PREFIX: Final = "cell "
_BEGINS_FLUSH: Final = "checkpoint_snapshot_taken"
_ENDS_FLUSH: Final = "checkpoint_committed"


class Cell(NamedTuple):
    """One cell."""

    target: str
    fault: str
    state: str

    @property
    def probe(self) -> str:
        """The name under which it is counted."""
        return f"{PREFIX}{self.target}/{self.fault}/{self.state}"


CELLS: Final = tuple(Cell(*each) for each in product(TARGETS, FAULTS, STATES))


def empty_cells(reached: Iterable[str]) -> list[Cell]:
    """The cells that no probe of `reached` names."""
    found = set(reached)
    return [cell for cell in CELLS if cell.probe not in found]


class Store(Protocol):
    """See `FleetStore`."""

    name: str
    machine: Machine


class Struck(Protocol):
    """A fleet, as far as its faults are counted: see `Fleet`."""

    trace: Trace
    histories: LogHistories
    bookkeeper: BookKeeperServices | None

    @property
    def stores(self) -> Sequence[Store]:
        """All stores."""

    def map(self) -> ContainerMap | None:
        """The container map now."""


class KillMatrix:
    """Of one run."""

    def __init__(self, fleet: Struck) -> None:
        self._fleet = fleet
        self._context = contextvars.copy_context()
        self._flushing: set[str] = set()
        self._armed: tuple[str, Callable[[str], None]] | None = None

    def __repr__(self) -> str:
        return f"<KillMatrix armed for {self._armed}>"

    # -- states -----------------------------------------------------------------------------------

    def reached(self, host: str, probe: str) -> None:
        """A process has reached a probe."""
        if probe == _BEGINS_FLUSH:
            self._flushing.add(host)
            self.entered(host, "flushing")
        elif probe == _ENDS_FLUSH:
            self._flushing.discard(host)

    def ended(self, host: str) -> None:
        """The process on a host has ended."""
        self._flushing.discard(host)

    def entered(self, host: str, state: str) -> None:
        """A store has entered a state: strike, if that is what is waited for."""
        if self._armed is not None and self._armed[0] == state:
            (_, strike), self._armed = self._armed, None
            asyncio.get_running_loop().call_soon(strike, host, context=self._context)

    def arm(self, state: str, strike: Callable[[str], None]) -> None:
        """Call `strike` with the host of the next store that enters a state."""
        self._armed = state, strike

    def states(self, host: str) -> set[str]:
        """The states that a store is in."""
        found = self._fleet.histories.busy_with(host)
        if host in self._flushing:
            found.add("flushing")
        known = self._fleet.map()
        if known is not None:
            names = {name for number, source in known.moving.items() for name in (source, known.owners[number])}
            if any(store.name in names for store in self._fleet.stores if store.machine.address == host):
                found.add("moving")
        return found

    # -- faults -----------------------------------------------------------------------------------

    def store_struck(self, host: str, fault: str) -> None:
        """A fault has struck a store."""
        own, others = self.states(host), self._states_of_all(without=host)
        self._count("owner", fault, own)
        self._count("idle store", fault, others - own)

    def controller_struck(self, host: str, fault: str) -> None:
        """A fault has struck a controller."""
        bookkeeper = self._fleet.bookkeeper
        if bookkeeper is not None:
            leads = bookkeeper.leader() == host
            self._count("leader" if leads else "other controller", fault, self._states_of_all())

    def bookies_struck(self, number: int, fault: str) -> None:
        """A fault has struck so many bookies."""
        self._count("1 bookie" if number == 1 else "2 bookies", fault, self._states_of_all())

    def zookeeper_struck(self, fault: str) -> None:
        """A fault has struck ZooKeeper."""
        self._count("ZooKeeper", fault, self._states_of_all())

    def _states_of_all(self, without: str = "") -> set[str]:
        hosts = [store.machine.address for store in self._fleet.stores]
        return set().union(*(self.states(host) for host in hosts if host != without))

    def _count(self, target: str, fault: str, states: set[str]) -> None:
        if self._fleet.bookkeeper is not None:
            for state in sorted(states):
                self._fleet.trace.probe(Cell(target, fault, state).probe)


def draw_cell(rng: random.Random) -> Cell:
    """Any cell."""
    return rng.choice(CELLS)
