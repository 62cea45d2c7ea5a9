"""Mutants of the log on BookKeeper."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sarit.log.bookkeeper import chain
from sarit.log.bookkeeper.chain_register import ChainRegister
from sarit.log.bookkeeper.ledgers import _Recovery
from sarit.log.bookkeeper.log import BookKeeperClaim
from sarit.log.bookkeeper.open_log import BookKeeperLog
from sarit.log.bookkeeper.recovery_decisions import Close, LedgerRecovering
from sarit.log.bookkeeper.write_decisions import LedgerWriting
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = "tests/unit/log/bookkeeper"
_FAILURES: Final = f"{_FOLDER}/test_failures.py"
_ZOMBIES: Final = f"{_FOLDER}/test_zombies.py"


@mutant("no acknowledged loss", stores=3, on_bookies=True)
@contextmanager
def entry_done_without_quorum() -> Iterator[None]:
    """An entry is acknowledged when one bookie has it."""

    def wrong(self: Any, entry: int, pending: Any) -> bool:
        return len(pending.acked) >= 1

    with patched(LedgerWriting, LedgerWriting._has_quorum, wrong):
        yield


@mutant("one owner", found_by=f"{_FAILURES}::test_late_bookie_is_fenced_by_the_reads_of_a_recovery")
@contextmanager
def recovery_reads_without_fence() -> Iterator[None]:
    """The recovery of a ledger fences two bookies, and reads from the third one without a fence."""
    right = _Recovery._read

    def wrong(self: Any, read: Any) -> None:
        if read.entry == -1:
            right(self, read)
            return

        def done(reply: Any) -> None:
            if not self._outcome.done():
                self._execute(self._machine.read(read.bookie, read.entry, reply))

        self._bookies.read(read.bookie, self._ledger, read.entry, fence=False, done=done)

    with patched(_Recovery, _Recovery._read, wrong):
        yield


@mutant("no acknowledged loss", stores=3, on_bookies=True)
@contextmanager
def ledger_closed_without_search() -> Iterator[None]:
    """A recovery closes the ledger at the last add that bookies know to be confirmed."""
    right = LedgerRecovering._fence_answered

    def wrong(self: Any, bookie: str, reply: Any) -> Any:
        effects = right(self, bookie, reply)
        if self.last_add_confirmed is None or self.outcome is not None:
            return effects
        self.outcome = Close(self.last_add_confirmed, 10 * (self.last_add_confirmed + 1))
        return [self.outcome]

    with patched(LedgerRecovering, LedgerRecovering._fence_answered, wrong):
        yield


@mutant("one owner", found_by=f"{_FAILURES}::test_of_two_openers_one_is_fenced")
@contextmanager
def chain_stored_without_comparing() -> Iterator[None]:
    """An opening stores the chain at whatever version it finds: what is replayed may not be all there is."""
    right = BookKeeperClaim._store

    async def wrong(self: Any, chain: Any) -> Any:
        while (stored := await right(self, chain)) is None:
            self._version = (await self._logs.registers.get(self._register)).version
        return stored

    with patched(BookKeeperClaim, BookKeeperClaim._store, wrong):
        yield


@mutant("one owner", stores=3, on_bookies=True)
@contextmanager
def ledger_deleted_without_pause() -> Iterator[None]:
    """A ledger is deleted as soon as no frame is needed of it, and its fence with it."""

    def wrong(self: Any) -> frozenset[int]:
        return frozenset(self._retired_at)

    with patched(ChainRegister, ChainRegister._due, wrong):
        yield


@mutant("nothing is left behind", found_by=f"{_FOLDER}/test_random_faults.py")
@contextmanager
def ledger_made_before_it_is_noted() -> Iterator[None]:
    """A ledger is made before the chain names it: one whose owner dies in between is never deleted."""

    def wrong(chain: Any, ledger: int, wall_ms: int) -> Any:
        return chain

    with patched(chain, chain.reserve, wrong):
        yield


@mutant("no acknowledged loss", stores=3, on_bookies=True)
@contextmanager
def next_ledger_begun_early() -> Iterator[None]:
    """The next ledger gets frames while those of the one before are under way: a gap between the two."""
    right = BookKeeperLog._dispatch

    def wrong(self: Any) -> None:
        if self._is_full() and self._prepared is not None and self._sent:
            held, self._sent = self._sent, type(self._sent)()
            self._switch()
            self._sent.extend(held)
        right(self)

    with patched(BookKeeperLog, BookKeeperLog._dispatch, wrong):
        yield


@mutant("one owner", found_by=f"{_ZOMBIES}::test_owner_that_stood_still_asks_who_owns_the_log")
@contextmanager
def acknowledged_after_any_pause() -> Iterator[None]:
    """An acknowledgement of bookies counts, however long the owner stood still."""
    right = LedgerWriting._advance

    def wrong(self: Any, now: float) -> Any:
        self._proof = now
        return right(self, now)

    with patched(LedgerWriting, LedgerWriting._advance, wrong):
        yield
