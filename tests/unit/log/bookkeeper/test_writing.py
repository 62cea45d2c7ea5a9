"""One ledger being written: single decisions of the pure machine."""

from __future__ import annotations

from sarit.log.bookkeeper.limits import BUSY_BOOKIE_SECONDS
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.writing import Done, LedgerWriting, Send, Store


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
