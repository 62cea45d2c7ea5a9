"""The chain of an open log in its register: changed by compare-and-set, freed of ledgers that nobody needs.

Changes are made one after the other.  One that was refused because somebody else has changed the chain ends the log.
Ledgers that no frame is needed of leave the chain at once (*retired*) and are deleted after a pause: as long as a
ledger exists its fence holds, so an owner that does not know that it was replaced gets no acknowledgement from it.  The
pause is measured on this owner's monotonic clock, from the moment at which it knows that the ledger is retired.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Fenced, NotFound, SaritError, Unavailable
from sarit.log.bookkeeper import chain as chains
from sarit.log.bookkeeper.limits import (
    CHAIN_CHANGE_SECONDS,
    LEDGER_DELETION_SECONDS,
    LEDGER_LONG_RETIRED_SECONDS,
    LEDGER_PROOF_TIMEOUT_SECONDS,
    MAX_CHAIN_LEDGERS,
    METADATA_RETRY_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.port import Registers
    from sarit.env.ports import Clock
    from sarit.log.bookkeeper.chain import Chain
    from sarit.log.bookkeeper.port import LedgerStore


class ChainRegister:
    """The register of a log's chain of ledgers.  `died` is called with what ends the log."""

    def __init__(
        self, name: str, registers: Registers, store: LedgerStore, clock: Clock, chain: Chain, version: int,
        died: Callable[[SaritError], None],
    ) -> None:  # fmt: skip
        self.chain = chain
        self._name = name
        self._registers = registers
        self._store = store
        self._clock = clock
        self._version = version
        self._died = died
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._below = 0
        self._tidying: asyncio.Task[None] | None = None
        self._closed = False
        # Not to be deleted by this owner: they become part of the chain.
        self._reserved: set[int] = set()
        now = clock.monotonic()
        # An owner that never lives as long as the pause would delete nothing.
        long_ago = clock.wall_ms() - LEDGER_LONG_RETIRED_SECONDS * 1000
        self._retired_at = {
            ledger: now - LEDGER_DELETION_SECONDS if 0 < at < long_ago else now for ledger, at in chain.retired
        }

    def __repr__(self) -> str:
        return f"<ChainRegister {self._name} {self.chain}>"

    @property
    def full(self) -> bool:
        """Whether there is no place for another ledger: it waits for a truncation."""
        return len(self.chain.ledgers) >= MAX_CHAIN_LEDGERS

    async def wait_for_place(self) -> None:
        """Until the chain is not full."""
        while self.full:
            self._changed.clear()
            await self._changed.wait()

    async def reserve(self) -> int:
        """Return the id of a ledger to be made, which the chain knows already.  Raises Fenced, Unavailable.

        If this process ends before the ledger is part of the chain, a later owner deletes it."""
        ledger = await self._store.new_id()
        self._reserved.add(ledger)
        await self.change(lambda chain: chains.reserve(chain, ledger, self._clock.wall_ms()))
        return ledger

    async def close_ledger(self, ledger: int, last: int, size: int) -> None:
        """Note the end of a ledger: its last frame and its bytes.  Raises as `change`."""
        await self.change(lambda chain: chains.close(chain, ledger, last, size, self._clock.wall_ms()))

    async def change(self, transition: Callable[[Chain], Chain]) -> None:
        """Change the chain; it is tried until the outcome is known.

        Raises Fenced, and Unavailable once the log has ended."""
        async with self._lock:
            chain = transition(self.chain)
            if chain == self.chain:
                return
            await self._store_chain(chains.encode(chain))
            now = self._clock.monotonic()
            self.chain = chain
            self._reserved.difference_update(each.ledger for each in chain.ledgers)
            self._retired_at = {ledger: self._retired_at.get(ledger, now) for ledger, _ in chain.retired}
            self._changed.set()

    async def _store_chain(self, data: bytes) -> None:
        while True:
            try:
                self._version = await self._registers.set(self._name, data, self._version)
                return
            except Unavailable:
                if self._closed:
                    raise
            except (Conflict, NotFound):
                # It may be ours all the same: the answer to an earlier attempt was lost.
                if await self._holds(data):
                    return
            await asyncio.sleep(METADATA_RETRY_SECONDS)

    async def _holds(self, data: bytes) -> bool:
        """Return whether the register holds `data`; False also when that is not known now.  Raises Fenced."""
        try:
            found = await self._registers.get(self._name)
        except Unavailable:
            return False
        if found is not None and found.value == data:
            self._version = found.version
            return True
        error = Fenced(f"the log in {self._name} has another owner: its chain was changed")
        self._died(error)
        raise error

    async def find_owner(self) -> float | None:
        """Return a moment, on the monotonic clock, at or after which the log was ours; None when it has another owner.

        Raises Unavailable after LEDGER_PROOF_TIMEOUT_SECONDS."""
        deadline = self._clock.monotonic() + LEDGER_PROOF_TIMEOUT_SECONDS
        while True:
            asked_at = self._clock.monotonic()
            try:
                found = await self._registers.get(self._name)
                break
            except Unavailable:
                if asked_at >= deadline:
                    raise
                await asyncio.sleep(METADATA_RETRY_SECONDS)
        chain = None if found is None else chains.decode(found.value)
        ours = chain is not None and (chain.identity, chain.epoch) == (self.chain.identity, self.chain.epoch)
        return asked_at if ours else None

    # -- truncation ------------------------------------------------------------------------------

    def truncate(self, below: int) -> None:
        """Frames with a number less than `below` are not needed any more."""
        self._below = max(self._below, below)
        self.tidy()

    def tidy(self) -> None:
        """Retire and delete what is due.  To be called after changes, and from time to time."""
        if self._tidying is not None or self._closed:
            return
        if any(each.closed and each.last < self._below for each in self.chain.ledgers) or self._due():
            self._tidying = asyncio.ensure_future(self._tidy())
            self._tidying.add_done_callback(self._tidied)

    def _tidied(self, task: asyncio.Task[None]) -> None:
        self._tidying = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._closed:
            self._died(
                error
                if isinstance(error, SaritError)
                else Unavailable(f"{self._name} failed: {type(error).__name__}: {error}")
            )
        self.tidy()

    def _due(self) -> frozenset[int]:
        """Retired ledgers whose pause is over."""
        now = self._clock.monotonic()
        due = (ledger for ledger, at in self._retired_at.items() if now - at >= LEDGER_DELETION_SECONDS)
        return frozenset(due) - self._reserved

    async def _tidy(self) -> None:
        """At most one change of each kind in CHAIN_CHANGE_SECONDS."""
        await self.change(lambda chain: chains.retire(chain, self._below, self._clock.wall_ms()))
        deleted = frozenset([ledger for ledger in sorted(self._due()) if await self._delete(ledger)])
        if deleted:
            await self.change(lambda chain: chains.forget(chain, deleted))
        await asyncio.sleep(CHAIN_CHANGE_SECONDS)

    async def _delete(self, ledger: int) -> bool:
        """Return whether a ledger is gone for sure."""
        try:
            await self._store.delete(ledger)
        except NotFound:
            return True
        except (Conflict, Unavailable):
            return False  # tried again in time
        return True

    async def close(self) -> None:
        """Close: no more changes are made."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
