"""Transactions: events that readers see all, or none.

    async with client.transactional_writer("bank/moves") as writer:
        async with await writer.begin() as transaction:
            transaction.write("-5", key="ann")
            transaction.write("+5", key="bob")
        # committed; an error in the block aborts instead

Theory of operation.  A transaction has a *part* beside each segment that was active when it began.  A writer like any
other writes its events there (`writer/writer.py`, a `TransactionTarget`): what is flushed is durable, and a broken
connection neither loses nor doubles an event.  The controller decides.  A commit is decided when its call returns; the
parts are merged soon after, in the order of the decisions.  Within a segment the events of one transaction stand
together.  A commit whose answer was lost is requested again, which is harmless: a decision stands.

The lease expires when it is not renewed; then the controller aborts.  A transaction renews its lease by itself while
its process lives and it is open.  If the lease was lost, the next write, flush or commit raises Conflict.  Many
transactions may be open at once, on one writer or several; a stream may scale while they are.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic
from uuid import UUID

from sarit.client.core.iteration import Items, Pulled
from sarit.client.core.typed import W
from sarit.client.core.values import TransactionStatus
from sarit.client.limits import (
    DEFAULT_TRANSACTION_LEASE_SECONDS,
    DEFAULT_WRITER_BUFFER_BYTES,
    LEASE_RENEWALS,
    LEASE_RETRY_SECONDS,
)
from sarit.client.session.guard import guarded
from sarit.client.transactions.calls import TransactionCalls
from sarit.client.transactions.outcomes import TransactionOutcomes
from sarit.client.writer.encoding import encoding_of
from sarit.client.writer.targets import TransactionTarget
from sarit.client.writer.writer import EventWriter
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, Unavailable
from sarit.core.names import is_user_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.client.core.values import SegmentRange
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName
    from sarit.serializers.protocols import Serializer

log = logging.getLogger(__name__)


OPEN: Final = "open"
COMMITTING: Final = "committing"  # its events are being flushed; nothing is decided
COMMITTED: Final = "committed"  # the decision was requested: from here on only the controller knows
ABORTED: Final = "aborted"
RELEASED: Final = "released"

# (state, event) -> state; whatever is not here is refused with Conflict, and changes nothing.
STEPS: Final = {
    (OPEN, "commit"): COMMITTING,
    (COMMITTING, "commit"): COMMITTING,
    (COMMITTED, "commit"): COMMITTED,
    (COMMITTING, "flushed"): COMMITTED,
    (COMMITTED, "flushed"): COMMITTED,
    (COMMITTING, "not flushed"): OPEN,
    (OPEN, "not flushed"): OPEN,
    (COMMITTED, "refused"): ABORTED,
    (ABORTED, "refused"): ABORTED,
    (OPEN, "abort"): ABORTED,
    (COMMITTING, "abort"): ABORTED,
    (ABORTED, "abort"): ABORTED,
    (RELEASED, "abort"): ABORTED,
    (OPEN, "release"): RELEASED,
    (COMMITTING, "release"): RELEASED,
    (COMMITTED, "release"): COMMITTED,
    (ABORTED, "release"): ABORTED,
    (RELEASED, "release"): RELEASED,
}


def transaction_number(transaction: UUID | str) -> int:
    """Return the 128-bit number of an id.  Raises Invalid."""
    try:
        return (transaction if isinstance(transaction, UUID) else UUID(transaction)).int
    except (ValueError, AttributeError, TypeError):
        raise Invalid(f"{transaction!r} is no id of a transaction: 32 hex digits, as its `id` shows them") from None


@guarded("_session", local=("close",), unguarded=("closed",))
class TransactionalWriter(Generic[W]):
    """Begins and administers the transactions of one stream.  Make one with `client.transactional_writer(...)`.

    `lease_seconds` (10 to 600): how long a transaction outlives its writer.  `name` is the writer's for notes of time.
    """

    def __init__(
        self,
        session: Session,
        stream: StreamName,
        *,
        name: str | None = None,
        lease_seconds: float = DEFAULT_TRANSACTION_LEASE_SECONDS,
        keep_alive: bool = True,
        buffer_bytes: int = DEFAULT_WRITER_BUFFER_BYTES,
        serializer: Serializer[W] | None = None,
    ) -> None:
        if name is not None and not is_user_name(name):
            raise Invalid(f"{name!r} is no name for a writer: letters, digits, '.' and '-', at most 250")
        self.stream = stream
        self.name = name or session.env.random.bytes(16).hex()
        self.buffer_bytes = buffer_bytes
        self._session = session
        self._calls = TransactionCalls(session.controller, stream)
        self._outcomes = TransactionOutcomes(session, self._calls)
        self._lease_ms = round(lease_seconds * 1000)
        self._keep_alive = keep_alive
        self._open: dict[Transaction[W], None] = {}
        self._encoding = encoding_of(session, stream, serializer)

    def __repr__(self) -> str:
        return f"TransactionalWriter({self.stream}, {self._session.state()}, {len(self._open)} transactions)"

    async def begin(self) -> Transaction[W]:
        """Return a new transaction.  Raises NotFound, Invalid (the lease; the stream is sealed), Unavailable.

        The first one registers or looks up the schema of the serializer, and raises what `EventWriter.open` does."""
        calls = self._calls
        if self._encoding is not None:
            await self._encoding.encoder()  # before there is a transaction that an error would leave open
        # A lost answer leaves an empty transaction behind, which its lease aborts.
        number, parts = await self._session.with_retry(lambda: calls.create(self._lease_ms))
        return await self._opened(number, parts)

    async def take_up(self, transaction: UUID | str) -> Transaction[W]:
        """Resume an open transaction that was begun elsewhere.  Raises NotFound, Conflict (it has ended)."""
        number = transaction_number(transaction)
        # Ask the status before `parts`, which answers from the epoch alone, also for a transaction that has ended.
        status = await self.status(transaction)
        if status is TransactionStatus.UNKNOWN:
            raise NotFound(f"stream {self.stream} has no transaction {number:032x}")
        if status is not TransactionStatus.OPEN:
            raise Conflict(f"transaction {number:032x} is not open: it is {status.name.lower()}", actual=status)
        parts = await self._session.with_retry(lambda: self._calls.parts(number))
        return await self._opened(number, parts)

    async def _opened(self, number: int, parts: Sequence[SegmentRange]) -> Transaction[W]:
        target = TransactionTarget(self.stream, number, parts)
        events = EventWriter(self._session, self.stream, self.buffer_bytes, target, encoding=self._encoding)
        await events.open()
        transaction = Transaction(self, number, events)
        self._open[transaction] = None
        if self._keep_alive:
            transaction.pinger = self._session.background.spawn(
                self._renew(transaction), f"keep transaction {number:032x}"
            )
        return transaction

    def closed(self, transaction: Transaction[W]) -> None:
        """Forget a transaction that has ended or was released."""
        self._open.pop(transaction, None)

    # -- by id ----------------------------------------------------------------------------------

    async def status(self, transaction: UUID | str) -> TransactionStatus:
        """Return the status of a transaction; UNKNOWN when there was none or it ended long ago.  Raises NotFound
        (stream)."""
        number = transaction_number(transaction)
        return await self._session.with_retry(lambda: self._calls.status(number))

    async def commit(self, transaction: UUID | str, *, time: int | None = None, wait: bool = True) -> None:
        """Make all its events visible.  What its writers have not flushed is not part of it.

        The commit is decided when this returns; `wait`: return only when readers can see the events.  `time` is noted
        for this writer, as by `note_time`.  Raises NotFound, Conflict (it was aborted)."""
        number = transaction_number(transaction)
        status = await self._session.with_retry(lambda: self._calls.commit(number, self.name, time, wait=wait))
        if wait:
            await self._ended(number, status, TransactionStatus.COMMITTED)

    async def abort(self, transaction: UUID | str, *, wait: bool = True) -> None:
        """Discard all events of the transaction.  Decided when this returns; `wait`: return only when they are deleted.

        Raises NotFound, Conflict (it was committed)."""
        number = transaction_number(transaction)
        status = await self._session.with_retry(lambda: self._calls.abort(number, wait=wait))
        if wait:
            await self._ended(number, status, TransactionStatus.ABORTED)

    async def renew(self, transaction: UUID | str) -> None:
        """Renew the lease of an open transaction, as its own writer does while it lives: it ends `lease_seconds` from
        now.

        Raises NotFound, Conflict (it has ended), Invalid (it was open for too long)."""
        number = transaction_number(transaction)
        status = await self._session.with_retry(lambda: self._calls.ping(number, self._lease_ms))
        if status is TransactionStatus.UNKNOWN:
            raise NotFound(f"stream {self.stream} has no transaction {number:032x}")
        if status is not TransactionStatus.OPEN:
            raise Conflict(f"transaction {number:032x} is {status.name.lower()}", actual=status)

    def completed(self) -> AsyncIterator[tuple[UUID, TransactionStatus]]:
        """Return the transactions that ended last (some hundreds), each with its outcome.  Raises NotFound (stream)."""
        asked = False

        async def once() -> list[tuple[UUID, TransactionStatus]] | None:
            nonlocal asked
            if asked:
                return None
            found = await self._session.with_retry(self._calls.completed)
            asked = True
            return [(UUID(int=number), status) for number, status in found]

        return Items(Pulled(once))

    async def _ended(self, number: int, reported: TransactionStatus, wanted: TransactionStatus) -> None:
        # Not reported: another controller, or a decision that takes longer than the call.  Then it is polled.
        status = reported if reported is wanted else await self._outcomes.of(number)
        if status is not wanted:
            raise Conflict(f"transaction {number:032x} is {status.name.lower()}", actual=status)

    async def _renew(self, transaction: Transaction[W]) -> None:
        """Renew the lease of a transaction until it ends."""
        # Several pings per lease: one that fails leaves time for more.
        pause = self._lease_ms / 1000 / LEASE_RENEWALS
        while True:
            await asyncio.sleep(pause)
            try:
                status = await self._calls.ping(transaction.id.int, self._lease_ms)
            except Unavailable as error:
                log.info("transaction %s is not renewed yet: %s", transaction.id, error)
                pause = LEASE_RETRY_SECONDS
                continue
            except SaritError as error:  # the stream is gone, or it was open for too long: it ends with its lease
                transaction.lost(Conflict(f"transaction {transaction.id} cannot be kept open: {error}"))
                return
            pause = self._lease_ms / 1000 / LEASE_RENEWALS
            if status is not TransactionStatus.OPEN:
                transaction.lost(Conflict(f"transaction {transaction.id} has ended: {status.name.lower()}"))
                return

    async def close(self) -> None:
        """Release open transactions: each can be resumed by its id until its lease expires, then it is aborted."""
        for transaction in list(self._open):
            transaction.release()

    async def __aenter__(self) -> TransactionalWriter[W]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@guarded("_writer._session", unguarded=("drain", "lost", "release"))
class Transaction(Generic[W]):
    """One transaction; write to it, then commit or abort.  As a block: commits, or aborts when an error leaves it.

    A block that is cancelled while it commits leaves the transaction to its lease, unless the commit was decided.
    Events of one key stay in order among themselves; `id` names it to others."""

    def __init__(self, writer: TransactionalWriter[W], number: int, events: EventWriter[W]) -> None:
        self.id = UUID(int=number)
        self.events = events
        self.pinger: asyncio.Task[None] | None = None
        self._writer = writer
        self._state = OPEN
        # The same bound methods: another call per event would cost as much as the writing.
        self.write: Any = events.write
        self.write_many: Any = events.write_many

    def __repr__(self) -> str:
        closed = self._state == OPEN and self._writer._session.ended
        return f"Transaction({self.id}, {self._writer.stream}, {'closed' if closed else self._state})"

    async def drain(self) -> None:
        """Wait while more than the writer's `buffer_bytes` are not acknowledged.  Raises Conflict (it has ended)."""
        await self.events.drain()

    async def flush(self) -> None:
        """Wait until everything written is durable (but not visible yet).  Raises Conflict (it has ended)."""
        self._check_open()
        await self.events.flush()

    async def commit(self, *, time: int | None = None, wait: bool = True) -> None:
        """Flush, then make all its events visible; see `TransactionalWriter.commit`.

        After Conflict none of them will be visible.  After Unavailable the outcome is unknown: ask `status`, or commit
        again by id.
        """
        self._step("commit")
        if self._state != COMMITTED:
            await self._flush_to_commit()
            # Flushed: only the decision is missing.  A second `commit` after Unavailable requests it again, no more.
            # Conflict when it was aborted or released meanwhile.
            self._step("flushed")
            # Later writes raise: they would not be part of it.
            self.events.abandon(quiet=True)
        try:
            await self._writer.commit(self.id, time=time, wait=wait)
        except (Conflict, NotFound):
            # Final.  After Unavailable it stays COMMITTED: the outcome is unknown.
            self._step("refused")
            raise
        finally:
            self.release()

    async def _flush_to_commit(self) -> None:
        try:
            await self.events.flush()
        except Exception:
            self._step("not flushed")  # Conflict when it was aborted or released meanwhile: that is the reason
            raise
        except BaseException:  # cancelled
            self._state = STEPS.get((self._state, "not flushed"), self._state)
            raise

    async def abort(self, *, wait: bool = True) -> None:
        """Discard all events of the transaction; succeeds when it was aborted already.  Raises Conflict (it was
        committed).

        `wait`: return only when they are deleted."""
        self._step("abort")
        # Before the request: if that fails, the lease runs out, and the controller aborts.
        self.release()
        try:
            await self._writer.abort(self.id, wait=wait)
        except NotFound:
            log.info("transaction %s ended long ago", self.id)

    async def status(self) -> TransactionStatus:
        """Return the status of the transaction."""
        return await self._writer.status(self.id)

    def lost(self, error: Conflict) -> None:
        """Record that the transaction ended elsewhere: every further call raises `error`."""
        if self._state in (OPEN, COMMITTING):
            # The pinger itself calls this, and ends.
            self.pinger = None
            self.events.fail(error)

    def release(self) -> None:
        """Release the transaction: its lease is renewed no more, its writer is closed."""
        self._step("release")
        if self.pinger is not None:
            self.pinger.cancel()
            self.pinger = None
        self.events.abandon(quiet=True)
        self._writer.closed(self)

    def _step(self, event: str) -> None:
        """Raises Conflict when the state does not allow it."""
        after = STEPS.get((self._state, event))
        if after is None:
            raise Conflict(f"transaction {self.id} was {self._state}")
        self._state = after

    def _check_open(self) -> None:
        if self._state not in (OPEN, COMMITTING):
            raise Conflict(f"transaction {self.id} was {self._state}")

    async def __aenter__(self) -> Transaction[W]:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and self._state == RELEASED:
            raise Conflict(
                f"transaction {self.id} was released in its block and is not committed: its writer was closed before"
            )
        if self._state != OPEN:
            return
        if kind is not None:
            await self._give_up()
            return
        try:
            await self.commit()
        except Exception:
            if self._state == OPEN:  # the flush failed
                await self._give_up()
            raise
        except BaseException:  # cancelled: no request is made any more, and the lease is not renewed
            self.release()
            raise

    async def _give_up(self) -> None:
        """Abort on the way out of an error, which is not to be hidden by another."""
        try:
            await self.abort()
        except SaritError as error:
            log.warning("transaction %s is left to its lease: %s", self.id, error)
