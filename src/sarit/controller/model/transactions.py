"""Decides on transactions: the state machine of one transaction, and the order of commits.

    OPEN → COMMITTING → COMMITTED        OPEN → ABORTING → ABORTED

`NEXT_STATE` is the table of the machine; `commit_worker.py` completes decided transactions.

A transaction that has not ended has a record under its stream.  The *version* of that record when it became COMMITTING
is its place in the order of commits, since the versions of a table rise across keys.  A commit merges the transaction's
segments into the segments of its epoch while all of these are active; otherwise it is rolled in (`streams.roll`).  The
outcome of an ended transaction is stored for a while, so that a repeated call gets the same answer.

A ping raises the `renewal` of the record and stores the end of the new lease.  While a controller runs, leases do not
depend on the wall clock: times come from its `SteadyClock`, and a transaction has expired when the controller saw the
same renewal for a whole lease by its monotonic clock.  That clock restarts with the controller, so transactions that
were open at its start expire by their stored deadlines (`left_over`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sarit.controller.limits import MAX_TRANSACTION_MS, RESTART_LEASE_GRACE_MS
from sarit.controller.model.records import TransactionRecord, TxnState
from sarit.core.errors import Conflict, Invalid
from sarit.core.limits import MAX_TRANSACTION_LEASE_MS, MIN_TRANSACTION_LEASE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_EXECUTION_LEASES: Final = 1000
NO_TIMESTAMP: Final = -(1 << 63)


class Event(Enum):
    """An event in the life of a transaction."""

    PING = "ping"
    COMMIT = "commit"
    ABORT = "abort"
    COMPLETE = "complete"  # merged or deleted: remove the record, store the outcome


# The state after an event; an event that is not listed for a state is refused.
NEXT_STATE: Final[Mapping[tuple[TxnState, Event], TxnState]] = MappingProxyType(
    {
        (TxnState.OPEN, Event.PING): TxnState.OPEN,
        (TxnState.OPEN, Event.COMMIT): TxnState.COMMITTING,
        (TxnState.OPEN, Event.ABORT): TxnState.ABORTING,
        (TxnState.COMMITTING, Event.COMMIT): TxnState.COMMITTING,  # a repeated call
        (TxnState.COMMITTING, Event.COMPLETE): TxnState.COMMITTED,
        (TxnState.ABORTING, Event.ABORT): TxnState.ABORTING,  # a repeated call
        (TxnState.ABORTING, Event.COMPLETE): TxnState.ABORTED,
    }
)


def next_state(state: TxnState, event: Event) -> TxnState:
    """Return the state after an event.  Raises Conflict when the event is not possible in `state`."""
    after = NEXT_STATE.get((state, event))
    if after is None:
        raise Conflict(f"{event.value}: the transaction is {state.name.lower()}", actual=state)
    return after


def transaction_id(epoch: int, random: bytes) -> int:
    """Return a 128-bit id: the epoch in its upper 32 bits, then 96 random bits, of which the top bit of the lower half
    is 0: the Rust client would extend it as a sign over the upper half.  `random`: 12 bytes."""
    upper, lower = random[:4], bytes((random[4] & 0x7F,)) + random[5:]
    return epoch << 96 | int.from_bytes(upper + lower, "big")


def begin(epoch: int, lease_ms: int, now_ms: int) -> TransactionRecord:
    """Return the record of a new transaction.  Raises Invalid (lease)."""
    if not MIN_TRANSACTION_LEASE_MS <= lease_ms <= MAX_TRANSACTION_LEASE_MS:
        raise Invalid(
            f"a transaction's lease is {MIN_TRANSACTION_LEASE_MS} to {MAX_TRANSACTION_LEASE_MS} ms, not {lease_ms}"
        )
    return TransactionRecord(TxnState.OPEN, epoch, lease_ms, 0, now_ms, now_ms + lease_ms)


class LeaseTooLarge(Invalid):
    """A ping asked for more than the longest lease."""


class TooOld(Invalid):
    """A transaction may not stay open any longer."""


def ping(record: TransactionRecord, lease_ms: int, now_ms: int) -> TransactionRecord:
    """Renew the lease.  Raises LeaseTooLarge, TooOld, Conflict (not open any more)."""
    state = next_state(record.state, Event.PING)
    if not 0 < lease_ms <= MAX_TRANSACTION_LEASE_MS:
        raise LeaseTooLarge(f"a lease of {lease_ms} ms; the longest is {MAX_TRANSACTION_LEASE_MS}")
    if now_ms + lease_ms - record.created_ms > min(MAX_EXECUTION_LEASES * lease_ms, MAX_TRANSACTION_MS):
        raise TooOld("the transaction has been open too long")
    return replace(
        record, state=state, lease_ms=lease_ms, renewal=record.renewal + 1, deadline_ms=now_ms + lease_ms, graced=False
    )


def left_over(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Return the record of an open transaction, with the deadline that holds for a controller that has just started.

    The writer may have been unable to renew while no controller ran.  So, once per renewal, the lease ends no sooner
    than RESTART_LEASE_GRACE_MS after the start, and the time since its old end does not count as time that the
    transaction was open: the wall clock may just have been set ahead.  A deadline further away than a lease, as when
    the wall clock was set back, is shortened to a lease."""
    left = record.deadline_ms - now_ms
    if left < RESTART_LEASE_GRACE_MS and not record.graced:
        away = max(0, -left)
        deadline = now_ms + RESTART_LEASE_GRACE_MS
        return replace(record, created_ms=record.created_ms + away, deadline_ms=deadline, graced=True)
    longest = max(record.lease_ms, RESTART_LEASE_GRACE_MS)
    if left <= longest:
        return record
    return replace(record, created_ms=min(record.created_ms, now_ms), deadline_ms=now_ms + longest)


def commit(record: TransactionRecord, writer: str, timestamp: int) -> TransactionRecord:
    """Decide to commit.  A repeated commit changes nothing.  Raises Conflict when the abort was decided."""
    state = next_state(record.state, Event.COMMIT)
    # A repeated commit keeps the writer and the time of the first.
    if state is record.state:
        return record
    noted = None if timestamp == NO_TIMESTAMP else timestamp
    return replace(record, state=state, writer=writer, timestamp=noted)


def abort(record: TransactionRecord) -> TransactionRecord:
    """Decide to abort.  A repeated abort changes nothing.  Raises Conflict when the commit was decided."""
    state = next_state(record.state, Event.ABORT)
    return record if state is record.state else replace(record, state=state)


Committing = tuple[int, TransactionRecord, int]  # id, record, version: the order of commits


def next_batch(live: Iterable[Committing], at_most: int) -> list[Committing]:
    """Return the transactions to commit next, in order: the first, and directly following ones of the same epoch."""
    order = sorted((entry for entry in live if entry[1].state is TxnState.COMMITTING), key=lambda entry: entry[2])
    batch: list[Committing] = []
    for entry in order[:at_most]:
        # A batch has one epoch, since its merges share their targets, and no commit overtakes an earlier one.
        if batch and entry[1].epoch != batch[0][1].epoch:
            break
        batch.append(entry)
    return batch
