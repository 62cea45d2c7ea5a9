"""Logs on simulated bookies, and metadata and chains in registers in memory, all in virtual time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sarit.coordination.memory import CoordinationFaults, MemoryCoordination
from sarit.log.bookkeeper.log import BookKeeperLogs, LedgerSettings
from simulation.bookies import BookieCluster, RegisterLedgerStore
from tests.unit.log.world import FILE_BYTES, Machine

if TYPE_CHECKING:
    from simulation.bookies import SimulatedBookies

# Frames of the contract suite are split, and ledgers roll over.
SMALL = LedgerSettings(entry_bytes=4096, ledger_bytes=FILE_BYTES)


class BookKeeperWorld:
    """Services that outlive processes.  `provider` is what a new process has of them."""

    def __init__(self, bookies: int = 3, seed: int = 0) -> None:
        self.faults = CoordinationFaults(delay=lambda: 0.0005)
        self.coordination = MemoryCoordination(self.faults)
        self.bookies = BookieCluster(bookies, random.Random(seed))
        self.clients: list[SimulatedBookies] = []
        self._machine = Machine(seed)

    def provider(self, settings: LedgerSettings = SMALL) -> BookKeeperLogs:
        """A process."""
        env = self._machine.env()
        bookies = self.bookies.client()
        self.clients.append(bookies)
        registers = self.coordination.client(f"process-{len(self.clients)}", env.clock)
        return BookKeeperLogs(env, bookies, RegisterLedgerStore(registers, self.bookies), registers, settings)
