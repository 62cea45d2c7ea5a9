"""The chain of an open log in its register: changed by compare-and-set, with deletion of ledgers that nobody needs.

Changes are made one after the other.  If a change is refused because somebody else has changed the chain, the log ends.
Ledgers without a needed frame leave the chain at once (*retired*) and are deleted after a pause: as long as a ledger
exists its fence holds, so an owner that does not know that it was replaced gets no acknowledgement from it.  The pause
is measured on this owner's monotonic clock, from the moment at which it knows that the ledger is retired.
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
    """The register of a log's chain of ledgers.  `died`: called with the error that ends the log."""

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
        # Ledgers that this owner must not delete, since they become part of the chain.
        self._reserved: set[int] = set()
        now = clock.monotonic()
        # Skip the pause for ledgers retired long ago, or owners that live shorter than it would never delete any.
        long_ago = clock.wall_ms() - LEDGER_LONG_RETIRED_SECONDS * 1000
        self._retired_at = {
            ledger: now - LEDGER_DELETION_SECONDS if 0 < at < long_ago else now for ledger, at in chain.retired
        }

    def __repr__(self) -> str:
        return f"<ChainRegister {self._name} {self.chain}>"

    @property
    def full(self) -> bool:
        """Whether the chain has no place for another ledger, which waits for a truncation."""
        return len(self.chain.ledgers) >= MAX_CHAIN_LEDGERS

    async def wait_for_place(self) -> None:
        """Wait until the chain is not full."""
        while self.full:
            self._changed.clear()
            await self._changed.wait()

    async def reserve(self) -> int:
        """Note a ledger to be created in the chain, and return its id.  Raises Fenced, Unavailable.

        If this process ends before the ledger is part of the chain, a later owner deletes it."""
        ledger = await self._store.new_id()
        self._reserved.add(ledger)
        await self.change(lambda chain: chains.reserve(chain, ledger, self._clock.wall_ms()))
        return ledger

    async def close_ledger(self, ledger: int, last: int, size: int) -> None:
        """Note the end of a ledger: its last frame and its bytes.  Raises as `change`."""
        await self.change(lambda chain: chains.close(chain, ledger, last, size, self._clock.wall_ms()))

    async def change(self, transition: Callable[[Chain], Chain]) -> None:
        """Change the chain, in as many attempts as it takes until the outcome is known.

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
                # Check whether an earlier attempt, whose answer was lost, has made the change.
                if await self._holds(data):
                    return
            await asyncio.sleep(METADATA_RETRY_SECONDS)

    async def _holds(self, data: bytes) -> bool:
        """Return whether the register holds `data`; false also when it cannot be read now.  Raises Fenced."""
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
        """Return a moment on the monotonic clock, after which this owner still owned the log; None if another one does.

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
        """Release the frames with a number less than `below`."""
        self._below = max(self._below, below)
        self.tidy()

    def tidy(self) -> None:
        """Retire ledgers without a needed frame, and delete those whose pause is over, in the background.

        To be called after changes, and from time to time."""
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
        """Return the retired ledgers whose pause is over."""
        now = self._clock.monotonic()
        due = (ledger for ledger, at in self._retired_at.items() if now - at >= LEDGER_DELETION_SECONDS)
        return frozenset(due) - self._reserved

    async def _tidy(self) -> None:
        """Retire and delete ledgers, and wait CHAIN_CHANGE_SECONDS, the least time between two such changes."""
        await self.change(lambda chain: chains.retire(chain, self._below, self._clock.wall_ms()))
        deleted = frozenset([ledger for ledger in sorted(self._due()) if await self._delete(ledger)])
        if deleted:
            await self.change(lambda chain: chains.forget(chain, deleted))
        await asyncio.sleep(CHAIN_CHANGE_SECONDS)

    async def _delete(self, ledger: int) -> bool:
        """Delete a ledger.  Returns whether it is gone for sure."""
        try:
            await self._store.delete(ledger)
        except NotFound:
            return True
        except (Conflict, Unavailable):
            return False  # a later `tidy` tries again
        return True

    async def close(self) -> None:
        """End the background deletion, and let a change that is retried raise Unavailable."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
