"""One ledger being written: single decisions of the pure machine."""

from __future__ import annotations

from sarit.log.bookkeeper.limits import (
    BUSY_BOOKIE_SECONDS,
    LOST_BOOKIE_RETRY_SECONDS,
    NEEDED_BOOKIE_RETRY_SECONDS,
    SLOW_BOOKIE_SECONDS,
    SPARE_BOOKIE_RETRY_SECONDS,
)
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.write_decisions import Done, LedgerWriting, Send, Store

BOOKIES = ("a", "b", "c")


def ledger() -> LedgerWriting:
    """One on three bookies, and no other."""
    machine = LedgerWriting(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, BOOKIES),)), 0.0)
    machine.spares(BOOKIES)
    return machine


def gets_entries(machine: LedgerWriting, bookie: str, now: float) -> bool:
    """Whether a bookie gets the next entry, which the others take."""
    entry, effects = machine.add(10, now)
    for other in machine.ensemble:
        if other != bookie:
            machine.answered(other, entry, Code.OK, now)
    return Send(bookie, entry) in effects


def test_bookie_that_was_lost_gets_entries_again_after_a_second():
    machine = ledger()
    machine.bookie_failed("a", 1.0)
    for passed in (0.0, 0.25, LOST_BOOKIE_RETRY_SECONDS - 0.01):
        machine.tick(1.0 + passed)
        assert not gets_entries(machine, "a", 1.0 + passed)
    machine.tick(1.0 + LOST_BOOKIE_RETRY_SECONDS)
    assert gets_entries(machine, "a", 1.0 + LOST_BOOKIE_RETRY_SECONDS)


def test_bookie_that_was_slow_gets_nothing_for_longer():
    machine = ledger()
    gets_entries(machine, "a", 1.0)
    slow = 1.0 + SLOW_BOOKIE_SECONDS
    machine.tick(slow)
    machine.tick(slow + LOST_BOOKIE_RETRY_SECONDS)
    assert not gets_entries(machine, "a", slow + LOST_BOOKIE_RETRY_SECONDS)
    machine.tick(slow + SPARE_BOOKIE_RETRY_SECONDS)
    assert gets_entries(machine, "a", slow + SPARE_BOOKIE_RETRY_SECONDS)


def test_bookie_that_has_registered_again_gets_entries_at_once():
    machine = ledger()
    machine.bookie_failed("a", 1.0)
    machine.spares(("b", "c"))
    machine.tick(1.1)
    assert not gets_entries(machine, "a", 1.1)
    machine.spares(BOOKIES)
    machine.tick(1.2)
    assert gets_entries(machine, "a", 1.2)


def test_bookie_that_is_back_gets_entries_in_the_turn_in_which_another_one_is_lost():
    machine = ledger()
    machine.bookie_failed("a", 1.0)
    entry, _ = machine.add(10, 1.1)
    lost = 1.0 + NEEDED_BOOKIE_RETRY_SECONDS
    assert machine.bookie_failed("b", lost) == [Send("a", entry)]
    # Not the one that was lost now, and not before the pause.
    assert machine.bookie_failed("a", lost) == []


def test_copy_at_a_bookie_that_is_being_replaced_does_not_count():
    machine = LedgerWriting(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, ("a", "b", "c")),)), 0.0)
    machine.spares(("a", "b", "c", "d"))
    machine.add(10, 0.0)
    assert machine.answered("a", 0, Code.OK, 0.1) == []
    assert [type(effect) for effect in machine.bookie_failed("a", 0.2)] == [Store]
    # Of the new ensemble only one has it: were this one lost, nobody would find the entry.
    assert machine.answered("c", 0, Code.OK, 0.3) == []
    assert machine.answered("b", 0, Code.OK, 0.4) == [Done(0)]


def test_entry_that_a_busy_bookie_refused_is_sent_again_after_a_pause():
    writer = LedgerWriting(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, ("a", "b", "c")),)), 0.0)
    writer.add(10, 0.0)
    assert writer.answered("a", 0, Code.TOO_MANY_REQUESTS, 0.1) == [Send("a", 0, BUSY_BOOKIE_SECONDS)]
