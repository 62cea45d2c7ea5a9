"""Executes the requests of `protocol.py` with a client, and writes the rows of a task.

The asyncio client runs on a thread of its own, so that leases are renewed while Spark's thread waits for rows, and
requests of many transactions run concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.client import aio
from sarit.client.blocking.loop_thread import LoopThread
from sarit.client.core.values import TransactionStatus
from sarit.client.tables.changes import Remove
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, Unavailable
from sarit.spark.limits import SPARK_FIRST_LEASE_SECONDS, SPARK_REQUESTS_AT_ONCE, SPARK_TABLE_PARTITIONS
from sarit.spark.sink import protocol, records
from sarit.spark.sink.protocol import ABORTED, COMMITTED, OPEN, UNKNOWN, Found, Record, Registration, Transaction
from sarit.spark.worker_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
    from typing import TypeVar

    import pyarrow as pa

    from sarit.client.aio import Client
    from sarit.client.tables.table import Table
    from sarit.client.transactions.transaction import Transaction as OpenTransaction
    from sarit.client.transactions.transaction import TransactionalWriter
    from sarit.spark.options import Target
    from sarit.spark.sink.options import WriteOptions
    from sarit.spark.sink.protocol import Work

    T = TypeVar("T")
    R = TypeVar("R")

log = logging.getLogger(__name__)

_STATUS = {
    TransactionStatus.OPEN: OPEN,
    TransactionStatus.COMMITTING: COMMITTED,  # decided, and will be committed
    TransactionStatus.COMMITTED: COMMITTED,
    TransactionStatus.ABORTING: ABORTED,
    TransactionStatus.ABORTED: ABORTED,
    TransactionStatus.UNKNOWN: UNKNOWN,
}
_REMOVED_AT_ONCE = 256


class BatchRequests:
    """Executes the protocol's requests for one batch of one query.  `writer`: a task's (partition, attempt), which is
    stored in registrations."""

    def __init__(
        self, client: Client, options: WriteOptions, query: bytes, batch: int, writer: tuple[int, int] = (0, 0)
    ) -> None:
        self._client = client
        self._options = options
        self._table: Table = client.table(options.state_table)
        self._query = query
        self._batch = batch
        self._writer = writer
        self._writers: dict[tuple[str, bool], TransactionalWriter] = {}
        self._created: dict[str, str | None] = {}
        self.opened: dict[Transaction, OpenTransaction] = {}

    def __repr__(self) -> str:
        return f"BatchRequests({self._query.hex()}, {self._batch})"

    async def run(self, work: Work[T]) -> T:
        """Run a generator of the protocol to its end."""
        answer: Any = None
        while True:
            try:
                request = work.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = await self.answer(request)

    async def answer(self, request: Any) -> Any:
        """Return the answer to one request."""
        match request:
            case protocol.ReadBatch():
                return await self._read()
            case protocol.Store(record, version):
                record = replace(record, created=await self._creations(one.stream for one in record.winners))
                return await self._store(records.record_key(self._batch), records.encode_record(record), version)
            case protocol.Begin(stream):
                return await self._begin(stream)
            case protocol.Register(transaction):
                key = records.registration_key(self._batch, transaction)
                await self._table.put((self._query, key), records.encode_registration(transaction, *self._writer))
            case protocol.Renew(transactions):
                return await self._renew(transactions)
            case protocol.Status(transaction):
                return _STATUS[await self._of(transaction.stream).status(transaction.id)]
            case protocol.Commit(transactions):
                return await self._commit(transactions)
            case protocol.Abort(transactions):
                await each(transactions, self._abort)
            case protocol.ListRegistered():
                return await self._registered()
            case protocol.Unregister(registrations):
                await self._remove(records.registration_key(one.batch, one.transaction) for one in registrations)
            case protocol.Prune(oldest):
                await self._prune(oldest)
            case _:
                raise AssertionError(request)
        return None

    # -- the table --------------------------------------------------------------------------------

    async def create_table(self) -> None:
        """Create the sink's table if it is missing.  Raises NotFound (its scope)."""
        await self._client.tables.create(
            self._table.name,
            primary_key_bytes=records.PRIMARY_KEY_BYTES,
            secondary_key_bytes=records.SECONDARY_KEY_BYTES,
            partitions=SPARK_TABLE_PARTITIONS,
        )

    async def _read(self) -> Found:
        keys = [(self._query, records.record_key(self._batch)), (self._query, records.OLDEST_KEY)]
        try:
            record, oldest = await self._table.get_many(keys)
        except NotFound:
            await self.create_table()
            record, oldest = await self._table.get_many(keys)
        return Found(
            None if record is None else await self._of_today(records.decode_record(record.value)),
            None if record is None else record.version,
            0 if oldest is None else records.decode_oldest(oldest.value),
        )

    async def _of_today(self, record: Record) -> Record:
        """Return the record; VOID if all its streams were recreated since, so that nothing of the batch is left.

        Raises Invalid if only some of its streams were recreated."""
        if record.state == protocol.VOID or not record.created:
            return record
        now = dict(await self._creations(stream for stream, _ in record.created))
        other = [stream for stream, created in record.created if now.get(stream, created) != created]
        if not other:
            return record
        kept = sorted({one.stream for one in record.winners}.difference(other))
        if kept:
            raise Invalid(
                f"batch {self._batch} was written to {other[0]}, which was deleted and made again since, and to "
                f"{kept[0]}, which was not: it can be neither repeated nor left out. Start with a new checkpoint"
            )
        log.warning("batch %d is written again: %s was deleted and made again since", self._batch, ", ".join(other[:5]))
        return Record(protocol.VOID)

    async def _creations(self, streams: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the creation ids of streams, in hex, as first read for this batch; streams without an id are left
        out."""

        async def read(stream: str) -> None:
            try:
                found = await self._client.stream(stream).creation_id()
            except NotFound:
                found = None
            self._created[stream] = None if found is None else found.hex()

        wanted = sorted(set(streams))
        await each([stream for stream in wanted if stream not in self._created], read)
        found = ((stream, self._created[stream]) for stream in wanted)
        return tuple((stream, created) for stream, created in found if created is not None)

    async def _store(self, key: bytes, value: bytes, version: int | None) -> int | None:
        try:
            if version is None:
                return await self._table.insert((self._query, key), value)
            return await self._table.replace((self._query, key), value, version)
        except Conflict:
            return None
        except Unavailable as error:
            # The change may have been applied.  The caller reads the record, which raises if the node does not reply.
            log.info("%s", error)
            return None

    async def _registered(self) -> tuple[Registration, ...]:
        first, last = records.registrations_until(self._batch)
        found = self._table.scan(self._query, first=first, last=last)
        return tuple([records.decode_registration(entry.secondary, entry.value) async for entry in found])

    async def _remove(self, keys: Iterable[bytes]) -> None:
        changes = [Remove((self._query, key)) for key in keys]
        for start in range(0, len(changes), _REMOVED_AT_ONCE):
            await self._table.update(changes[start : start + _REMOVED_AT_ONCE])

    async def forget(self) -> None:
        """Remove the record of a batch that is never repeated."""
        await self._remove([records.record_key(self._batch)])

    async def _prune(self, oldest: int) -> None:
        await self._table.put((self._query, records.OLDEST_KEY), records.encode_oldest(oldest))
        first, last = records.records_before(oldest)
        await self._remove(
            [entry.secondary async for entry in self._table.scan_keys(self._query, first=first, last=last)]
        )

    # -- transactions -----------------------------------------------------------------------------

    def _of(self, stream: str, *, first: bool = False) -> TransactionalWriter:
        """Return the writer of a stream's transactions.  `first`: with the short lease of a new transaction."""
        found = self._writers.get((stream, first))
        if found is None:
            lease = self._options.lease_seconds
            seconds = min(lease, SPARK_FIRST_LEASE_SECONDS) if first else lease
            found = self._client.transactional_writer(stream, lease_seconds=seconds, keep_alive=False)
            self._writers[stream, first] = found
        return found

    async def _begin(self, stream: str) -> Transaction:
        try:
            begun = await self._of(stream, first=True).begin()
        except NotFound:
            if self._options.create is None:
                raise
            await create_stream(self._client, stream, self._options)
            begun = await self._of(stream, first=True).begin()
        transaction = Transaction(stream, begun.id.hex)
        self.opened[transaction] = begun
        return transaction

    async def _renew(self, transactions: Collection[Transaction]) -> tuple[Transaction, ...]:
        async def ended(transaction: Transaction) -> bool:
            try:
                await self._of(transaction.stream).renew(transaction.id)
            except (Conflict, NotFound):
                return True
            return False

        found = await each(transactions, ended)
        return tuple(one for one, gone in zip(transactions, found, strict=True) if gone)

    async def _commit(self, transactions: Collection[Transaction]) -> dict[Transaction, str]:
        if len(transactions) > SPARK_REQUESTS_AT_ONCE:
            # Decide all transactions before waiting for any: the controller merges decided transactions together.
            await each(transactions, lambda one: self._commit_one(one, wait=False))
        outcomes = await each(transactions, lambda one: self._commit_one(one, wait=True))
        return dict(zip(transactions, outcomes, strict=True))

    async def _commit_one(self, transaction: Transaction, *, wait: bool) -> str:
        try:
            await self._of(transaction.stream).commit(transaction.id, wait=wait)
        except Conflict:
            return ABORTED
        except NotFound:
            return UNKNOWN
        return COMMITTED

    async def _abort(self, transaction: Transaction) -> None:
        begun = self.opened.get(transaction)
        if begun is not None:
            begun.release()
        try:
            await self._of(transaction.stream).abort(transaction.id, wait=False)
        except (Conflict, NotFound) as error:
            log.debug("transaction %s has ended: %s", transaction.id, error)


async def each(items: Collection[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """Act on all items, many at a time.  Returns the results in order.  Raises the first error after all have ended."""
    slots = asyncio.Semaphore(SPARK_REQUESTS_AT_ONCE)

    async def one(item: T) -> R:
        async with slots:
            return await act(item)

    results = await asyncio.gather(*map(one, items), return_exceptions=True)
    failed = next((result for result in results if isinstance(result, BaseException)), None)
    if failed is not None:
        raise failed
    return results  # type: ignore[return-value]  # no exception is among them


async def create_stream(client: Client, stream: str, options: WriteOptions) -> None:
    """Create a stream if it does not exist.  Raises NotFound (its scope), Invalid."""
    create = options.create
    assert create is not None
    if await client.create_stream(stream, scaling=create.scaling, retention=create.retention):
        log.info("created stream %s", stream)


class Connection:
    """A client on a thread of its own, for the tasks or commits of a process, one after the other."""

    def __init__(self, target: Target) -> None:
        """Raises Unavailable when no controller replies in time."""
        self._thread = LoopThread("sarit-sink")
        try:
            # The same time bounds the search for a node at first, and the retries when it goes away.
            self.client = self._thread.run(
                aio.connect(
                    target.controller,
                    wait=target.wait_seconds,
                    retry_timeout=target.wait_seconds,
                    credentials=target.credentials,
                    tls=target.tls,
                )
            )
        except BaseException:
            self._thread.close()
            raise

    def __repr__(self) -> str:
        return f"Connection({self.client!r})"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's thread, and wait for its result."""
        return self._thread.run(work)

    def close(self) -> None:
        """Close the client, and end its thread."""
        try:
            self._thread.run(self.client.close())
        finally:
            self._thread.close()


# The connections of this process for its tasks, by target.  A task that fails closes its connection, so that the next
# task begins with a new one.
CONNECTIONS: Final[PerProcess[Target, Connection]] = PerProcess(Connection, Connection.close)


class TaskTransactions:
    """The transactions of one attempt of a task, one for each stream.  Renews the leases of its batch."""

    def __init__(self, requests: BatchRequests, batch: int, renewal_seconds: float) -> None:
        self._requests = requests
        self._batch = batch
        self._renewal_seconds = renewal_seconds
        self._of_stream: dict[str, Transaction] = {}
        self._renewal: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"TaskTransactions({len(self._of_stream)}, {self._requests!r})"

    @property
    def begun(self) -> tuple[Transaction, ...]:
        """The transactions begun so far."""
        return tuple(self._requests.opened)

    async def start(self) -> bool:
        """Return whether the task has to write its rows: the batch is not decided."""
        return await self._requests.run(protocol.start_task(self._batch))

    async def write(self, stream: str, events: pa.Array, keys: pa.Array | None) -> bool:
        """Write events to a stream.  Returns False if the batch was decided meanwhile.  Raises Conflict, NotFound."""
        transaction = self._of_stream.get(stream)
        if transaction is None:
            transaction = await self._requests.run(protocol.open_transaction(stream))
            if transaction is None:
                return False
            self._of_stream[stream] = transaction
            if self._renewal is None:
                self._renewal = asyncio.create_task(self._renew())
        open_transaction = self._requests.opened[transaction]
        open_transaction.write_many(events, keys)
        await open_transaction.drain()
        return True

    async def finish(self) -> None:
        """Make all events durable, and leave the transactions to the driver, which commits them.  Raises Conflict."""
        mine = [self._requests.opened[one] for one in self._of_stream.values()]
        await each(mine, lambda one: one.flush())
        for one in mine:
            one.release()
        self.stop()

    async def give_up(self) -> None:
        """Abort the transactions, if the node replies; otherwise they end with their leases."""
        self.stop()
        try:
            await self._requests.run(protocol.give_up_task(self._batch, self.begun))
        except SaritError as error:
            log.warning("transactions of a failed task are left to the driver and to their leases: %s", error)

    def stop(self) -> None:
        """Stop renewing leases."""
        if self._renewal is not None:
            self._renewal.cancel()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renewal_seconds)
            try:
                await self._requests.run(protocol.renew_batch(self._batch))
            except SaritError as error:
                log.warning("leases of batch %d are not renewed yet: %s", self._batch, error)
