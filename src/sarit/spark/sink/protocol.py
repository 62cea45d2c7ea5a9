"""The protocol of the exactly-once sink: which requests a task and the driver make, and in which order.

A *batch* is a micro-batch of a streaming query, or a whole batch job.  It is written by *attempts* of tasks, each in
transactions of its own.  A key-value table holds one *record* per batch and one *registration* per transaction.  The
rules, each with what it prevents:

1. A transaction is registered before its rows are written, so that a later commit finds transactions of failed
   attempts, and aborts them.  A transaction begins with a short lease, which is extended once it is registered: the
   transaction of an attempt that dies in between ends soon.
2. The driver records the winners (DECIDED) by compare-and-set, before it commits any of them.  The first record holds:
   whoever repeats the batch commits these transactions and no others.
3. Leases are renewed right before the decision, so that a lease that ended while the batch ran is found while the
   batch can still be repeated.
4. DONE is stored when every winner is visible.  Then all other registered transactions of this batch and of earlier
   ones are aborted: those of repeated and speculative attempts, and of drivers that died.
5. An attempt registers its transaction, then reads the record again; the driver decides, then lists the registrations.
   So one of them sees the other, and no transaction of a late attempt stays open.
6. A driver that gives a batch up stores VOID first, so that its own delayed decision is refused.
7. If every winner of a DECIDED batch was aborted (their leases ended while there was no driver), nothing is visible:
   the decision is withdrawn, and the batch is written again.  If only some are known to be aborted, rows may be
   missing, which is an error.

Each function is a generator: it yields requests, and is sent their answers.  `access.py` executes them.  To drop a
generator at a request is like the death of its process there; the tests do that at every request.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.spark.limits import SPARK_BATCHES_KEPT, SPARK_BATCHES_PER_PRUNE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

T = TypeVar("T")
Work = Generator[Any, Any, T]

VOID: Final = "void"  # given up or withdrawn: like no record, but with a version
DECIDED: Final = "decided"  # the winners are recorded; some may be visible
DONE: Final = "done"  # all winners are visible

# (state, event) -> the next state.  State None: there is no record.  Nothing else can happen.
STEPS: Final[Mapping[tuple[str | None, str], str]] = {
    (None, "decide"): DECIDED,
    (VOID, "decide"): DECIDED,
    (None, "decide nothing"): DONE,
    (VOID, "decide nothing"): DONE,
    (None, "give up"): VOID,
    (VOID, "give up"): VOID,
    (DECIDED, "withdraw"): VOID,
    (DECIDED, "all visible"): DONE,
}

OPEN: Final = "open"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"  # the transaction never existed, or ended long ago


class Transaction(NamedTuple):
    """A transaction: its stream as `SCOPE/STREAM`, and its id as 32 hex digits."""

    stream: str
    id: str


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a batch.

    `created`: the creation ids of the winners' streams, in hex; records of earlier releases have none."""

    state: str
    winners: tuple[Transaction, ...] = ()
    created: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The record of a batch with its version, and the oldest batch whose record is retained."""

    record: Record | None
    version: int | None
    oldest: int = 0

    @property
    def state(self) -> str | None:
        """The state of the batch; None: it has no record."""
        return self.record.state if self.record else None


class Registration(NamedTuple):
    """A registered transaction and its batch."""

    batch: int
    transaction: Transaction


# -- requests, with their answers -----------------------------------------------------------------


class ReadBatch(NamedTuple):
    """Read the batch's record.  -> Found."""


class Store(NamedTuple):
    """Store the record if its version is `version` (None: if there is no record).  -> the new version; None: refused,
    or the outcome is unknown."""

    record: Record
    version: int | None


class Begin(NamedTuple):
    """Begin a transaction with a short lease.  -> Transaction."""

    stream: str


class Register(NamedTuple):
    """Register a transaction.  -> None."""

    transaction: Transaction


class Renew(NamedTuple):
    """Renew the leases of transactions, for the long time.  -> the transactions that are not open."""

    transactions: tuple[Transaction, ...]


class Status(NamedTuple):
    """Ask for the state of a transaction.  -> OPEN, COMMITTED, ABORTED or UNKNOWN."""

    transaction: Transaction


class Commit(NamedTuple):
    """Commit all, and wait until readers see them.  -> by transaction: COMMITTED, ABORTED or UNKNOWN."""

    transactions: tuple[Transaction, ...]


class Abort(NamedTuple):
    """Abort all that can be aborted.  -> None."""

    transactions: tuple[Transaction, ...]


class ListRegistered(NamedTuple):
    """List the registrations of this batch and of all before it.  -> a tuple."""


class Unregister(NamedTuple):
    """Remove registrations.  -> None."""

    registrations: tuple[Registration, ...]


class Prune(NamedTuple):
    """Store `oldest`, then remove the records of the batches before it.  -> None."""

    oldest: int


# -- decisions ------------------------------------------------------------------------------------


def after(state: str | None, event: str) -> str:
    """Return the state after an event.  Raises AssertionError if the event is not possible in `state`."""
    assert (state, event) in STEPS, f"a batch that is {state}: {event}"
    return STEPS[state, event]


def writable(found: Found) -> bool:
    """Return whether the rows of the batch are still to be written."""
    return found.state in (None, VOID)


def check_retained(found: Found, batch: int) -> None:
    """Check that it is known whether a batch was written.  Raises Invalid: it is too old."""
    if found.record is None and batch < found.oldest:
        raise Invalid(
            f"batch {batch} is older than the batches whose outcome the sink retains (from {found.oldest} on), so it "
            "may have been written. Was the checkpoint restored from a copy? Continue from a newer one, or start with "
            "a new checkpoint"
        )


def lost_winners(batch: int, outcomes: Mapping[Transaction, str]) -> Corrupt:
    """Return the error when a part of a recorded batch cannot be committed any more."""
    visible = sum(outcome == COMMITTED for outcome in outcomes.values())
    missing = [(one, outcome) for one, outcome in outcomes.items() if outcome != COMMITTED]
    named = ", ".join(f"{one.stream} transaction {one.id} is {outcome}" for one, outcome in missing[:5])
    return Corrupt(
        f"batch {batch} was decided, but not all of its transactions can be committed ({visible} of {len(outcomes)} "
        f"are): {named}. An earlier driver died while it committed them, and none came back before their leases "
        "ended (option transactionTimeout). Rows of this batch may be missing: compare the streams with its input"
    )


# -- a task ---------------------------------------------------------------------------------------


def start_task(batch: int) -> Work[bool]:
    """Find out whether a task has to write its rows.  Returns False if the batch was decided before.

    Raises Invalid (a batch too old)."""
    while True:
        found: Found = yield ReadBatch()
        check_retained(found, batch)
        if writable(found):
            return True
        if found.state == DONE or not (yield from _all_aborted(found)):
            return False
        yield Store(Record(after(found.state, "withdraw")), found.version)


def _all_aborted(found: Found) -> Work[bool]:
    assert found.record is not None
    for winner in found.record.winners:
        if (yield Status(winner)) != ABORTED:
            return False
    return True


def open_transaction(stream: str) -> Work[Transaction | None]:
    """Begin and register a transaction.  Returns None if the batch was decided meanwhile.  Raises Conflict."""
    transaction: Transaction = yield Begin(stream)
    yield Register(transaction)
    ended = yield Renew((transaction,))
    found: Found = yield ReadBatch()
    if not writable(found):
        yield Abort((transaction,))
        return None
    if ended:
        raise Conflict(f"transaction {transaction.id} of {stream} ended before it was written to: run the task again")
    return transaction


def give_up_task(batch: int, mine: Collection[Transaction]) -> Work[None]:
    """Abort the transactions of a failed or needless attempt."""
    if mine:
        yield Abort(tuple(mine))
        yield Unregister(tuple(Registration(batch, one) for one in mine))


def renew_batch(batch: int) -> Work[None]:
    """Renew every registered transaction of the batch: those of finished tasks wait for slower tasks."""
    registered: tuple[Registration, ...] = yield ListRegistered()
    mine = tuple(one.transaction for one in registered if one.batch == batch)
    if mine:
        yield Renew(mine)


# -- the driver -----------------------------------------------------------------------------------


def commit_batch(batch: int, prepared: Collection[Transaction], *, skipped: bool) -> Work[bool]:
    """Make the batch visible, once.  Returns whether `prepared` were committed: False if it was decided before.

    `prepared`: the transactions that the tasks have written.  `skipped`: some task found the batch decided, and wrote
    nothing.  Raises Conflict (nothing is visible: run the batch again), Corrupt (rows may be missing), Invalid (the
    batch is too old)."""
    mine = tuple(sorted(prepared))
    found: Found = yield ReadBatch()
    check_retained(found, batch)
    while found.state != DONE:
        if found.state == DECIDED:
            found = yield from _complete(batch, found)
        else:
            found = yield from _decide(batch, mine, found, skipped=skipped)
    assert found.record is not None
    winners = found.record.winners
    yield from _abort_others(winners)
    if batch % SPARK_BATCHES_PER_PRUNE == 0 and batch > SPARK_BATCHES_KEPT:
        yield Prune(batch - SPARK_BATCHES_KEPT)
    return not skipped and set(winners) == set(mine)


def _decide(batch: int, mine: tuple[Transaction, ...], found: Found, *, skipped: bool) -> Work[Found]:
    if skipped:
        raise Conflict(f"batch {batch}: its decision was withdrawn while the tasks ran: run the batch again")
    ended = (yield Renew(mine)) if mine else ()
    if ended:
        raise Conflict(
            f"batch {batch}: {len(ended)} of its {len(mine)} transactions ended before the commit (a lease ended, or "
            "another driver runs the same query): nothing is visible, run the batch again"
        )
    event = "decide" if mine else "decide nothing"
    return (yield from _stored(found, Record(after(found.state, event), mine)))


def _stored(found: Found, record: Record) -> Work[Found]:
    """Try to replace the record.  Returns the stored one: `record`, or that of another driver."""
    version: int | None = yield Store(record, found.version)
    if version is not None:
        return Found(record, version, found.oldest)
    now: Found = yield ReadBatch()
    return now


def _complete(batch: int, found: Found) -> Work[Found]:
    """Commit the recorded winners.  Returns the record then."""
    assert found.record is not None
    winners = found.record.winners
    outcomes: Mapping[Transaction, str] = yield Commit(winners)
    if all(outcome == COMMITTED for outcome in outcomes.values()):
        return (yield from _stored(found, Record(after(found.state, "all visible"), winners)))
    now: Found = yield ReadBatch()
    if now.version != found.version:
        return now  # another driver has completed or withdrawn the batch meanwhile
    if any(outcome != ABORTED for outcome in outcomes.values()):
        raise lost_winners(batch, outcomes)
    yield Store(Record(after(found.state, "withdraw")), found.version)
    raise Conflict(f"batch {batch}: all its transactions ended before the commit: nothing is visible, run it again")


def _abort_others(winners: Collection[Transaction]) -> Work[None]:
    registered: tuple[Registration, ...] = yield ListRegistered()
    losers = tuple(one.transaction for one in registered if one.transaction not in winners)
    if losers:
        yield Abort(losers)
    if registered:
        yield Unregister(registered)


def abort_batch() -> Work[None]:
    """Give a batch up: abort its transactions, unless it was decided, and then the next run completes it."""
    while True:
        found: Found = yield ReadBatch()
        if not writable(found):
            break
        if (yield Store(Record(after(found.state, "give up")), found.version)) is not None:
            found = Found(None, None)
            break
    winners = found.record.winners if found.record else ()
    registered: tuple[Registration, ...] = yield ListRegistered()
    losers = tuple(one for one in registered if one.transaction not in winners)
    if losers:
        yield Abort(tuple(one.transaction for one in losers))
        yield Unregister(losers)
