"""Logs on simulated bookies, and metadata and chains in registers in memory, all in virtual time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.coordination.memory import CoordinationFaults, MemoryCoordination
from sarit.log.bookkeeper import metadata as codec
from sarit.log.bookkeeper.chain import decode
from sarit.log.bookkeeper.ledgers import recover_ledger
from sarit.log.bookkeeper.log import BookKeeperLogs, register_of
from sarit.log.bookkeeper.port import LedgerSettings
from simulation.bookies import BookieCluster, RegisterLedgerStore
from tests.unit.log.world import FILE_BYTES, Machine

if TYPE_CHECKING:
    from sarit.coordination.memory import MemoryClient
    from sarit.log.bookkeeper.chain import Chain
    from sarit.log.bookkeeper.metadata import LedgerMetadata
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
        self.processes: list[MemoryClient] = []
        self._machine = Machine(seed)

    def provider(self, settings: LedgerSettings = SMALL) -> BookKeeperLogs:
        """A process."""
        env = self._machine.env()
        bookies = self.bookies.client()
        self.clients.append(bookies)
        registers = self.coordination.client(f"process-{len(self.clients)}", env.clock)
        self.processes.append(registers)
        return BookKeeperLogs(env, bookies, RegisterLedgerStore(registers, self.bookies), registers, settings)

    def kill(self, process: int = -1) -> None:
        """The process is gone: nothing that it sent is answered, and it sends nothing."""
        self.clients[process].die()
        self.processes[process].die()

    async def close_by_own_recovery(self, ledger: int) -> None:
        """What a bookie's auto recovery does to a ledger in use: fence it and close it, without a look at the chain."""
        await recover_ledger(self.bookies.client(), self._ledgers(), ledger)

    async def replace_metadata(self, ledger: int) -> None:
        """Change a ledger in use as replication does when its earlier entries lack a copy."""
        store = self._ledgers()
        metadata, version = await store.get(ledger)
        await store.set(ledger, replace(metadata, custom={**metadata.custom, "copied": b"1"}), version)

    def _ledgers(self) -> RegisterLedgerStore:
        registers = self.coordination.client("auto recovery", self._machine.env().clock)
        return RegisterLedgerStore(registers, self.bookies)

    def chain(self, container: int = 1) -> Chain:
        """The chain as it is stored."""
        found = self.coordination.get(register_of(container))
        assert found is not None
        return decode(found.value)

    def metadata(self, ledger: int) -> LedgerMetadata:
        """The metadata of a ledger as it is stored."""
        found = self.coordination.get(f"ledgers/{ledger}")
        assert found is not None, f"ledger {ledger} is deleted"
        return codec.decode(found.value)
