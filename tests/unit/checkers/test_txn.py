"""Transactions: each way to tear or split one is found."""

from __future__ import annotations

import pytest

from checkers.log import LogHistory
from checkers.txn import check

SCAN = 9
LENGTH = 10


def kinds(*placed: tuple[int, int, int], start: int = 0, sizes: dict[int, int] | None = None) -> set[str]:
    """Of (writer, number, offset) in one segment."""
    history = LogHistory()
    for writer, number, offset in placed:
        history.read(SCAN, (0, offset), (writer, number, LENGTH), fresh=False, begun=1.0, ended=2.0)
    history.scanned(SCAN, 0, start, 100)
    return {violation.kind for violation in check(history, sizes or {1: 3})}


def test_whole_transaction_passes() -> None:
    assert not kinds((5, 1, 0), (1, 1, 10), (1, 2, 20), (1, 3, 30), (5, 2, 40))
    assert not kinds((5, 1, 0)), "not committed"
    assert not kinds()


def test_truncated_transaction_passes() -> None:
    assert not kinds((1, 2, 20), (1, 3, 30), start=20)


def test_partly_missing_transaction_is_torn() -> None:
    assert kinds((1, 1, 0), (1, 2, 10)) == {"torn-transaction"}
    assert kinds((1, 2, 20), (1, 3, 30), start=10) == {"torn-transaction"}


def test_foreign_event_within_transaction_is_split() -> None:
    assert kinds((1, 1, 0), (5, 1, 10), (1, 2, 20), (1, 3, 30)) == {"split-transaction"}


@pytest.mark.parametrize("reader", [SCAN, 1])
def test_only_scans_are_checked(reader) -> None:
    history = LogHistory()
    history.read(reader, (0, 0), (1, 1, LENGTH), fresh=False, begun=1.0, ended=2.0)
    history.scanned(SCAN, 0, 0, 10)
    assert bool(check(history, {1: 3})) == (reader == SCAN)
