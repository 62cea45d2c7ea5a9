"""Transactions: all or nothing, unseen until committed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pravega_client as pravega

from tests.interop.scenarios.tools import nothing_more, read, take

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place


def _closed(transaction: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not transaction.is_open():
            return True
        time.sleep(0.05)
    return False


def committed(place: Place) -> None:
    """Nothing is seen before the commit, everything after it, in order per key."""
    m = place.manager()
    place.stream(m, "committed", 2)
    writer = m.create_transaction_writer(place.scope, "committed", 1)
    transaction = writer.begin_txn()
    assert transaction.is_open()
    for n in range(200):
        transaction.write_event(f"{n % 5}:{n}", str(n % 5))
    early = m.create_reader_group("early-group", place.scope, "committed").create_reader("one")
    assert nothing_more(early), "an event of an open transaction was seen"
    transaction.commit()
    reader = m.create_reader_group("committed-group", place.scope, "committed").create_reader("one")
    got = asyncio.run(take(reader, 200))
    assert sorted(int(event.partition(b":")[2]) for event in got) == list(range(200)), len(got)
    for key in range(5):
        mine = [int(event.partition(b":")[2]) for event in got if event.startswith(b"%d:" % key)]
        assert mine == sorted(mine)
    assert _closed(transaction)
    assert nothing_more(reader)


def aborted(place: Place) -> None:
    m = place.manager()
    place.stream(m, "aborted", 2)
    writer = m.create_transaction_writer(place.scope, "aborted", 2)
    transaction = writer.begin_txn()
    for n in range(50):
        transaction.write_event(f"gone {n}", str(n))
    transaction.abort()
    assert _closed(transaction)
    other = writer.begin_txn()
    other.write_event("kept", "k")
    other.commit()
    assert read(place, m, "aborted", 1, "aborted-group") == [b"kept"]
    try:
        transaction.write_event("too late", "k")
        transaction.commit()
    except pravega.TxnFailedException:
        return
    raise AssertionError("an aborted transaction was committed")


def taken_up_by_id(place: Place) -> None:
    """Another writer finds the open transaction by its id and commits it."""
    m = place.manager()
    place.stream(m, "by-id", 1)
    writer = m.create_transaction_writer(place.scope, "by-id", 3)
    transaction = writer.begin_txn()
    for n in range(10):
        transaction.write_event(f"{n}", "k")
    found = writer.get_txn(transaction.get_txn_id())
    assert found.is_open()
    transaction.commit()
    assert read(place, m, "by-id", 10, "by-id-group") == [b"%d" % n for n in range(10)]


def side_by_side(place: Place) -> None:
    """Transactions and plain writes on one stream: the events of one transaction stay together."""
    m = place.manager()
    place.stream(m, "mixed", 1)
    plain = m.create_writer(place.scope, "mixed")
    writer = m.create_transaction_writer(place.scope, "mixed", 4)
    transactions = [writer.begin_txn() for _ in range(3)]
    for n in range(20):
        plain.write_event(f"plain:{n}", "k")
        for number, transaction in enumerate(transactions):
            transaction.write_event(f"t{number}:{n}", "k")
    plain.flush()
    for transaction in transactions:
        transaction.commit()
        assert _closed(transaction)
    got = read(place, m, "mixed", 80, "mixed-group")
    assert len(set(got)) == len(got) == 80, len(got)
    for number in range(3):
        where = [at for at, event in enumerate(got) if event.startswith(b"t%d:" % number)]
        assert where == list(range(where[0], where[0] + 20)), "a transaction was torn apart"
