"""Transactions of the blocking face: the asyncio ones (`client/transactions/`), behind a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.blocking.streams import EventWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.core.values import TransactionStatus
    from sarit.client.transactions.transaction import Transaction as AioTransaction
    from sarit.client.transactions.transaction import TransactionalWriter as AioTransactionalWriter


class TransactionalWriter:
    """Begins and administers the transactions of one stream; may be shared by threads.

    Make one with `client.transactional_writer(...)`.
    """

    def __init__(self, thread: LoopThread, writer: AioTransactionalWriter) -> None:
        self._thread = thread
        self._writer = writer

    def __repr__(self) -> str:
        return f"blocking {self._writer!r}"

    def begin(self) -> Transaction:
        """A new transaction.  Raises NotFound, Invalid (the lease; the stream is sealed), Unavailable."""
        return self._fronted(self._thread.run(self._writer.begin()))

    def take_up(self, transaction: UUID | str) -> Transaction:
        """An open transaction that was begun elsewhere, to go on with.  Raises NotFound, Conflict (it has ended)."""
        return self._fronted(self._thread.run(self._writer.take_up(transaction)))

    def status(self, transaction: UUID | str) -> TransactionStatus:
        """Where a transaction is; UNKNOWN when it never was, or ended long ago.  Raises NotFound (stream)."""
        return self._thread.run(self._writer.status(transaction))

    def commit(self, transaction: UUID | str, *, time: int | None = None, wait: bool = True) -> None:
        """Let readers see it all.  What its writers have not flushed is not part of it.

        Decided when it returns; `wait`: return only when readers can see it.  `time` is noted for this writer, as by
        `note_time`.  Raises NotFound, Conflict (it was aborted)."""
        self._thread.run(self._writer.commit(transaction, time=time, wait=wait))

    def abort(self, transaction: UUID | str, *, wait: bool = True) -> None:
        """Forget all its events.  Decided when it returns; `wait`: return only when they are gone.

        Raises NotFound, Conflict (it was committed)."""
        self._thread.run(self._writer.abort(transaction, wait=wait))

    def completed(self) -> list[tuple[UUID, TransactionStatus]]:
        """The transactions that ended last (some hundreds), with how they did.  Raises NotFound (stream)."""
        return self._thread.run(self._writer.completed())

    def close(self) -> None:
        """Leave what is open alone: it can be taken up by its id until its lease runs out, then it is aborted."""
        self._thread.run(self._writer.close())

    def __enter__(self) -> TransactionalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fronted(self, transaction: AioTransaction) -> Transaction:
        return Transaction(self._thread, transaction, self._writer.buffer_bytes)


class Transaction:
    """One transaction; write to it, then commit or abort.  As a block: commits, or aborts when an error leaves it.

    May be shared by threads, as long as none writes while another commits."""

    def __init__(self, thread: LoopThread, transaction: AioTransaction, buffer_bytes: int) -> None:
        self.id = transaction.id
        self._thread = thread
        self._transaction = transaction
        events = EventWriter(thread, transaction.events, buffer_bytes)
        self.write: Callable[..., None] = events.write
        self.write_many: Callable[..., None] = events.write_many

    def __repr__(self) -> str:
        return f"blocking {self._transaction!r}"

    def flush(self) -> None:
        """Wait until everything written is durable (and not to be seen yet).  Raises Conflict (it has ended)."""
        self._thread.run(self._transaction.flush())

    def commit(self, *, time: int | None = None, wait: bool = True) -> None:
        """Flush, then let readers see it all; see `TransactionalWriter.commit`.

        After Conflict nothing of it will be seen.  After Unavailable it may be either: ask `status`, or commit by id.
        """
        self._thread.run(self._transaction.commit(time=time, wait=wait))

    def abort(self, *, wait: bool = True) -> None:
        """Forget all its events; succeeds when it was aborted already.  Raises Conflict (it was committed).

        `wait`: return only when they are gone."""
        self._thread.run(self._transaction.abort(wait=wait))

    def status(self) -> TransactionStatus:
        """Where it is."""
        return self._thread.run(self._transaction.status())

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._thread.run(self._transaction.__aexit__(kind, error, trace))
