"""What the processes of a fleet share: coordination, and the place of their logs.

Two sets of services.  `SharedServices`: logs and coordination in memory.  `BookKeeperServices`: the production log on
simulated bookies, and the production code of coordination on simulated servers of ZooKeeper.  The metadata of ledgers
is in the same ZooKeeper.  When it is deleted, the bookies collect entries and fences a little later.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from unittest.mock import patch

from sarit.coordination.map_register import MAP
from sarit.coordination.memory import CoordinationFaults, MemoryCoordination
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.log.bookkeeper import chain_register
from sarit.log.bookkeeper import open_log as owned
from sarit.log.bookkeeper import write_decisions as writing
from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
from sarit.log.bookkeeper.log import BookKeeperLogs
from sarit.log.bookkeeper.metadata import path_of
from sarit.log.bookkeeper.port import LedgerSettings
from sarit.process.limits import LOG_SESSION_SECONDS
from simulation.bookies import BookieCluster, SimulatedBookies
from simulation.shared_parts import ProcessLogs, SharedLogs
from simulation.zookeeper import SimulatedKazoo
from simulation.zookeeper_servers import ZOOKEEPER, ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sarit.coordination.port import Members, Registers
    from sarit.log.port import ConfirmableLogs
    from simulation.options import Options
    from simulation.world import Process, World

_ROOT: Final = "/sarit/simulated"
_LIVE: Final = b"\x01"  # before the value of a register, see `zookeeper_ports.py`
_MOST_COLLECT_SECONDS: Final = 5.0
_MOST_DELAY_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Drawn:
    """Drawn behaviour: of calls in memory, of the shared log, and of messages, in seconds."""

    coordination: CoordinationFaults
    log_delay: Callable[[], float]
    log_fails: Callable[[], bool]
    message_delay: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Connected:
    """What one process has of the services.

    `logs`: None for a controller.  `sent`: what its machine sends to the log, and loses with its power.  `close`: ends
    it in good order."""

    registers: Registers
    members: Callable[[str], Members]
    lease_seconds: float
    logs: ConfirmableLogs | None
    sent: SimulatedBookies | ProcessLogs | None
    close: Callable[[], Awaitable[object]]


class Services(Protocol):
    """See the head of the module."""

    async def connect(self, process: Process, name: str, *, with_logs: bool) -> Connected:
        """Connect a process.  Raises Unavailable."""

    def map_value(self) -> bytes | None:
        """The container map as it is stored."""

    def store_map(self, value: bytes) -> None:
        """Change the container map from outside."""

    def cut_off(self, host: str, name: str) -> bool:
        """Cut a process off from coordination; False when it is so already."""

    def reconnect(self, host: str, name: str) -> None:
        """End it."""

    def heal(self) -> None:
        """No more faults."""


class SharedServices:
    """Logs and coordination in memory."""

    def __init__(self, options: Options, drawn: Drawn) -> None:
        self.coordination = MemoryCoordination(drawn.coordination, options.lease_seconds)
        self.logs = SharedLogs(drawn.log_delay, drawn.log_fails)

    def __repr__(self) -> str:
        return f"<SharedServices {self.coordination!r}>"

    async def connect(self, process: Process, name: str, *, with_logs: bool) -> Connected:
        """See `Services`."""
        client = self.coordination.client(name, process.env.clock)
        logs = ProcessLogs(self.logs) if with_logs else None
        process.on_death(client.die)
        if logs is not None:
            process.on_death(logs.die)

        async def close() -> None:
            return

        return Connected(client, client.members, self.coordination.lease_seconds, logs, logs, close)

    def map_value(self) -> bytes | None:
        """See `Services`."""
        found = self.coordination.get(MAP)
        return None if found is None else found.value

    def store_map(self, value: bytes) -> None:
        """See `Services`."""
        found = self.coordination.get(MAP)
        assert found is not None
        self.coordination.set(MAP, value, found.version)

    def cut_off(self, host: str, name: str) -> bool:
        """See `Services`."""
        cut_off = self.coordination.faults.cut_off
        if name in cut_off:
            return False
        cut_off.add(name)
        return True

    def reconnect(self, host: str, name: str) -> None:
        """See `Services`."""
        self.coordination.faults.cut_off.discard(name)

    def heal(self) -> None:
        """See `Services`."""
        self.coordination.faults.cut_off.clear()


class BookKeeperServices:
    """BookKeeper and ZooKeeper."""

    def __init__(self, world: World, options: Options, drawn: Drawn) -> None:
        rng = world.chance("zookeeper")
        delay = drawn.message_delay
        self.zookeeper = ZooKeeperServers(
            rng, lambda: min(delay(), _MOST_DELAY_SECONDS), rng.choice((0.25, 1.0)), self._deleted
        )
        self.bookies = BookieCluster(options.bookies, world.chance("bookies"))
        for bookie in self.bookies.bookies.values():
            bookie.delay = delay
            bookie.sync = self.usual_sync = drawn.log_delay
        self.bookies.register()
        self.settings = LedgerSettings(
            entry_bytes=options.entry_bytes, ledger_bytes=options.ledger_bytes, ledger_seconds=options.ledger_seconds
        )
        self._lease_seconds = options.lease_seconds
        self._rng = rng

    def __repr__(self) -> str:
        return f"<BookKeeperServices {self.zookeeper!r} {self.bookies!r}>"

    async def connect(self, process: Process, name: str, *, with_logs: bool) -> Connected:
        """See `Services`.  As in production, the log has a session of its own."""
        zookeeper = await self._session(process, self._lease_seconds)
        if not with_logs:
            return Connected(*_ports(zookeeper), zookeeper.session_seconds, None, None, zookeeper.close)
        for_logs = await self._session(process, LOG_SESSION_SECONDS)
        bookies = self.bookies.client(process.machine.address)
        process.on_death(bookies.die)
        ledgers, chains = ZooKeeperLedgers(for_logs), ZooKeeperRegisters(for_logs, _ROOT)
        logs = BookKeeperLogs(process.env, bookies, ledgers, chains, self.settings)

        async def close() -> None:
            await asyncio.gather(zookeeper.close(), for_logs.close())

        return Connected(*_ports(zookeeper), zookeeper.session_seconds, logs, bookies, close)

    async def _session(self, process: Process, seconds: float) -> ZooKeeper:
        client = SimulatedKazoo(self.zookeeper, process.machine.address, seconds)
        process.on_death(client.die)
        return await ZooKeeper.connect(ZOOKEEPER, seconds, process.env, client)

    def map_value(self) -> bytes | None:
        """See `Services`."""
        found = self.zookeeper.value(f"{_ROOT}/{MAP}")
        return found.removeprefix(_LIVE) if found else None

    def store_map(self, value: bytes) -> None:
        """See `Services`."""
        self.zookeeper.store(f"{_ROOT}/{MAP}", _LIVE + value)

    def leader(self) -> str:
        """The controller that has changed the map last."""
        return self.zookeeper.changed_by.get(f"{_ROOT}/{MAP}", "")

    def cut_off(self, host: str, name: str) -> bool:
        """See `Services`: both ways, or one."""
        ways = {(host, ZOOKEEPER), (ZOOKEEPER, host)}
        if ways & self.zookeeper.cut:
            return False
        kept = self._rng.choice((None, (host, ZOOKEEPER), (ZOOKEEPER, host)))
        self.zookeeper.cut |= {way for way in ways if way != kept}
        return True

    def reconnect(self, host: str, name: str) -> None:
        """See `Services`."""
        self.zookeeper.cut -= {(host, ZOOKEEPER), (ZOOKEEPER, host)}

    def heal(self) -> None:
        """See `Services`."""
        self.zookeeper.cut.clear()
        self.zookeeper.resume()
        self.zookeeper.come_back()
        for follower in self.zookeeper.followers:
            self.zookeeper.heal(follower)
        self.bookies.cut.clear()
        for bookie in self.bookies.bookies.values():
            if not bookie.up:
                bookie.start()
            bookie.resume()
            bookie.read_only, bookie.busy, bookie.sync = False, 0, self.usual_sync
        self.bookies.register()

    def _deleted(self, path: str) -> None:
        """Metadata of a ledger: the bookies collect it."""
        for bookie in self.bookies.bookies.values():
            for ledger in [each for each in bookie.ledgers if path_of(each) == path]:
                seconds = self._rng.random() * _MOST_COLLECT_SECONDS
                asyncio.get_running_loop().call_later(seconds, bookie.forget, ledger)


def _ports(zookeeper: ZooKeeper) -> tuple[ZooKeeperRegisters, Callable[[str], ZooKeeperMembers]]:
    return ZooKeeperRegisters(zookeeper, _ROOT), lambda kind: ZooKeeperMembers(zookeeper, f"{_ROOT}/{kind}")


@contextmanager
def shorter_pauses(share: float) -> Iterator[None]:
    """The pauses that protect a ledger, shortened: a run is shorter than they are.  Their relation stays."""
    names: list[tuple[Any, str]] = [
        (chain_register, "LEDGER_DELETION_SECONDS"), (writing, "LEDGER_PROOF_SECONDS"),
        (owned, "LEDGER_PROOF_INTERVAL_SECONDS"),
    ]  # fmt: skip
    with ExitStack() as stack:
        for module, name in names:
            stack.enter_context(patch.object(module, name, getattr(module, name) * share))
        yield


__all__ = ["BookKeeperServices", "Connected", "Drawn", "Services", "SharedServices", "shorter_pauses"]
