"""Mutants of the log on BookKeeper: where ledgers end, what the chain says of them, and unknown outcomes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Conflict, Corrupt, Fenced, NotFound, SaritError, Unavailable
from sarit.log.bookkeeper import chain, ledgers, wire
from sarit.log.bookkeeper.chain_register import ChainRegister
from sarit.log.bookkeeper.entries import parse
from sarit.log.bookkeeper.ledgers import LedgerWriter, read_entry
from sarit.log.bookkeeper.log import BookKeeperClaim, BookKeeperLogs
from sarit.log.bookkeeper.open_log import BookKeeperLog
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.recovery_decisions import LedgerRecovering
from sarit.log.bookkeeper.write_decisions import LedgerWriting, State, write_set
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOSS = "no acknowledged loss"
_OWNER = "one owner"
_FOLDER = "tests/unit/log/bookkeeper"
_CHANGES = f"{_FOLDER}/test_chain_changes.py::test"
_COPIES = f"{_FOLDER}/test_recovered_copies.py::test"
_RANDOM = f"{_FOLDER}/test_random_faults.py::test_acknowledged_frames_survive_random_faults"


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def frame_done_one_entry_early() -> Iterator[None]:
    """A frame counts as durable when the entry before its last one is."""
    right = BookKeeperLog._done

    def wrong(self: Any, entry: int) -> None:
        right(self, entry + 1)

    with patched(BookKeeperLog, BookKeeperLog._done, wrong):
        yield


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def recovery_ends_where_one_bookie_lacks_an_entry() -> Iterator[None]:
    """A recovery takes the word of one bookie that an entry is not there."""
    right = LedgerRecovering._entry_answered

    def wrong(self: Any, bookie: str, entry: int, reply: Any) -> Any:
        search = self._searches.get(entry)
        if search is not None and bookie in search.unknown and reply.code in (Code.NO_ENTRY, Code.NO_LEDGER):
            search.lacking += 1
        return right(self, bookie, entry, reply)

    with patched(LedgerRecovering, LedgerRecovering._entry_answered, wrong):
        yield


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def recovery_goes_on_without_an_entry_that_was_not_found() -> Iterator[None]:
    """A recovery that can neither find an entry nor know that it is missing closes the ledger before it."""
    right = LedgerRecovering._entry_answered

    def wrong(self: Any, bookie: str, entry: int, reply: Any) -> Any:
        search = self._searches.get(entry)
        if search is not None and bookie in search.unknown and reply.code is Code.LOST:
            search.lacking += 1
        return right(self, bookie, entry, reply)

    with patched(LedgerRecovering, LedgerRecovering._entry_answered, wrong):
        yield


@mutant(
    "every ledger can be recovered",
    found_by=f"{_COPIES}_entries_that_one_bookie_had_are_read_from_others_after_a_recovery",
)
@contextmanager
def entries_called_confirmed_when_sent() -> Iterator[None]:
    """A writer tells bookies that an entry is confirmed when it was only sent."""
    right = LedgerWriter.add

    def wrong(self: Any, payload: Any) -> int:
        machine = self._machine
        confirmed, machine.last_add_confirmed = machine.last_add_confirmed, machine.next_entry - 1
        try:
            entry, effects = machine.add(sum(map(len, payload)), self._clock.monotonic())
            self._packets[entry] = wire.add_packet(
                self.ledger, entry, machine.last_add_confirmed, machine.length, payload, recovery=False
            )
        finally:
            machine.last_add_confirmed = confirmed
        self._execute(effects)
        return int(entry)

    with patched(LedgerWriter, right, wrong):
        yield


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def lost_bookie_reads_as_missing_entry() -> Iterator[None]:
    """A read takes the first answer, also that of a bookie that was away when the entry was written."""

    async def wrong(bookies: Any, ledger: int, metadata: Any, entry: int) -> Any:
        codes = []

        class First:
            def read(self, bookie: str, ledger: int, entry: int, *, fence: bool, done: Any) -> None:
                def answered(reply: Any) -> None:
                    codes.append(reply.code)
                    done(reply)

                bookies.read(bookie, ledger, entry, fence=fence, done=answered)

        found = await read_entry(First(), ledger, metadata, entry)  # type: ignore[arg-type]  # all that it calls
        if codes[0] in (Code.NO_ENTRY, Code.NO_LEDGER):
            raise Corrupt(f"entry {entry} of ledger {ledger} is lost")
        return found

    with patched(ledgers, read_entry, wrong):
        yield


@mutant(
    _LOSS,
    found_by=f"{_COPIES}_frame_of_which_only_the_first_part_was_stored_is_not_the_last_one",
)
@contextmanager
def incomplete_frame_called_the_last() -> Iterator[None]:
    """The end of a ledger counts a frame of which only the first parts are there."""
    right = BookKeeperClaim._last_frame

    async def wrong(self: Any, ledger: Any, metadata: Any) -> int:
        if metadata.last_entry < 0:
            return await right(self, ledger, metadata)
        payload = await read_entry(self._logs.bookies, ledger.ledger, metadata, metadata.last_entry)
        return int(parse(payload, self._container).frame)

    with patched(BookKeeperClaim, right, wrong):
        yield


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def tail_of_a_failed_ledger_called_done() -> Iterator[None]:
    """When a ledger gets no quorum, what was sent to it counts as done, and is not sent to the next one."""
    right = BookKeeperLog._ended

    def wrong(self: Any, ledger: int, reason: str) -> None:
        if self._writer.ledger == ledger and self._writer.state is State.FAILED and self._sent:
            self._done(self._sent[-1].last_entry)
        right(self, ledger, reason)

    with patched(BookKeeperLog, BookKeeperLog._ended, wrong):
        yield


@mutant(_LOSS, found_by=f"{_FOLDER}/test_writing.py::test_copy_at_a_bookie_that_is_being_replaced_does_not_count")
@contextmanager
def copies_of_a_replaced_bookie_count() -> Iterator[None]:
    """While an ensemble is changed, a copy at the bookie that is replaced counts for the quorum."""

    def wrong(self: Any, entry: int, pending: Any) -> bool:
        members = set(write_set(self.metadata, self.ensemble, entry))
        return bool(len(pending.acked & members) >= self.metadata.ack_quorum)

    with patched(LedgerWriting, LedgerWriting._has_quorum, wrong):
        yield


@mutant(_LOSS, found_by=f"{_COPIES}_ensemble_change_that_was_refused_is_tried_again")
@contextmanager
def unknown_ensemble_change_called_done() -> Iterator[None]:
    """An ensemble whose change had an unknown outcome is used as if it were stored."""
    right = LedgerWriter._try_store

    async def wrong(self: Any, metadata: Any, before: Any) -> str:
        try:
            return await right(self, metadata, before)
        except Unavailable:
            return ""

    with patched(LedgerWriter, LedgerWriter._try_store, wrong):
        yield


# -- the chain -----------------------------------------------------------------------------------


@mutant(_OWNER, found_by=_RANDOM)
@contextmanager
def chain_changed_whatever_its_version() -> Iterator[None]:
    """An owner changes the chain although somebody else has changed it: the ledger of the next owner is gone."""

    async def wrong(self: Any, data: bytes) -> None:
        while True:
            with suppress(Conflict, Unavailable, NotFound):
                found = await self._registers.get(self._name)
                self._version = await self._registers.set(self._name, data, found.version)
                return
            await asyncio.sleep(0.1)

    with patched(ChainRegister, ChainRegister._store_chain, wrong):
        yield


@mutant(_LOSS, found_by=f"{_CHANGES}_next_ledger_gets_no_frame_before_the_chain_has_it")
@contextmanager
def unknown_chain_change_called_done() -> Iterator[None]:
    """A change of the chain with an unknown outcome counts as stored: the next ledger may be in no chain."""
    right = ChainRegister._store_chain

    async def wrong(self: Any, data: bytes) -> None:
        try:
            self._version = await self._registers.set(self._name, data, self._version)
        except Unavailable:
            return
        except (Conflict, NotFound):
            await right(self, data)

    with patched(ChainRegister, ChainRegister._store_chain, wrong):
        yield


@mutant(
    _LOSS,
    found_by=f"{_FOLDER}/test_failures.py::test_opening_of_which_a_change_was_not_stored_is_not_called_done",
)
@contextmanager
def unknown_opening_called_done() -> Iterator[None]:
    """An opening whose change of the chain had an unknown outcome counts as stored."""
    right = BookKeeperClaim._store

    async def wrong(self: Any, record: Any) -> Any:
        registers, name, data = self._logs.registers, self._register, chain.encode(record)
        if self._chain is None:
            return await right(self, record)
        try:
            return await registers.set(name, data, self._version)
        except Unavailable:
            return self._version + 1
        except (Conflict, NotFound):
            return None

    with patched(BookKeeperClaim, BookKeeperClaim._store, wrong):
        yield


@mutant(
    "no needless fencing",
    found_by=f"{_FOLDER}/test_failures.py::test_lost_replies_of_coordination_change_nothing",
)
@contextmanager
def lost_answer_called_another_owner() -> Iterator[None]:
    """A change of the chain whose answer was lost counts as one of another owner."""

    async def wrong(self: Any, data: bytes) -> bool:
        error = Fenced(f"the log in {self._name} has another owner")
        self._died(error)
        raise error

    with patched(ChainRegister, ChainRegister._holds, wrong):
        yield


@mutant(_LOSS, found_by=f"{_CHANGES}_next_ledger_gets_no_frame_before_the_chain_has_it")
@contextmanager
def next_ledger_used_before_the_chain_has_it() -> Iterator[None]:
    """The change that adds the next ledger to the chain is not waited for."""
    right = ChainRegister.change

    async def wrong(self: Any, transition: Any) -> None:
        async def later() -> None:
            with suppress(SaritError):
                await right(self, transition)

        self._mutant = [*getattr(self, "_mutant", ()), asyncio.ensure_future(later())]

    with patched(ChainRegister, ChainRegister.change, wrong):
        yield


@mutant(_LOSS, found_by=f"{_CHANGES}_ledger_stays_in_the_chain_while_one_of_its_frames_is_needed")
@contextmanager
def ledger_retired_by_its_first_frame() -> Iterator[None]:
    """A ledger leaves the chain when its first frame is not needed any more."""

    def wrong(record: Any, below: int, wall_ms: int) -> Any:
        done = [each for each in record.ledgers if each.closed and each.first < below]
        kept = tuple(each for each in record.ledgers if each not in done)
        retired = (*record.retired, *((each.ledger, wall_ms) for each in done))
        return replace(record, ledgers=kept, retired=retired) if done else record

    with patched(chain, chain.retire, wrong):
        yield


@mutant(_LOSS, stores=3, on_bookies=True)
@contextmanager
def ledger_deleted_before_it_leaves_the_chain() -> Iterator[None]:
    """A ledger that is not needed is deleted first, and leaves the chain afterwards."""
    right = ChainRegister._tidy

    async def wrong(self: Any) -> None:
        for each in self.chain.ledgers:
            if each.closed and each.last < self._below:
                await self._delete(each.ledger)
        await right(self)

    with patched(ChainRegister, ChainRegister._tidy, wrong):
        yield


@mutant(
    _OWNER,
    found_by=f"{_FOLDER}/test_opening.py::test_opening_finds_frames_of_a_ledger_that_the_claim_did_not_know",
)
@contextmanager
def chain_changed_after_the_claim_not_fenced_again() -> Iterator[None]:
    """An opening that finds the chain changed since its claim goes on with what it had read."""
    right = BookKeeperClaim.fence

    async def wrong(self: Any, found: Any) -> None:
        if self._chain is None:
            await right(self, found)
        else:
            self._version = found.version

    with patched(BookKeeperClaim, BookKeeperClaim.fence, wrong):
        yield


@mutant(_OWNER, found_by=f"{_FOLDER}/test_opening.py::test_claim_confirmed_too_long_ago_fences_no_later_owner")
@contextmanager
def map_read_before_the_chain() -> Iterator[None]:
    """A store that opens a container reads the map first, and fences whoever has opened the log since then."""
    right = BookKeeperLogs.claim

    async def wrong(self: Any, container: int, confirm: Any = None) -> Any:
        if confirm is not None:
            await confirm()
        return await right(self, container)

    with patched(BookKeeperLogs, BookKeeperLogs.claim, wrong):
        yield
