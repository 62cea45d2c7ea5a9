"""The exactly-once writers: tasks write rows in transactions, the driver commits them by `protocol.py`."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sarit.client.limits import LEASE_RENEWALS
from sarit.core.errors import Conflict
from sarit.spark.sink import protocol
from sarit.spark.sink.access import CONNECTIONS, BatchRequests, TaskTransactions
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.core.names import StreamName
    from sarit.spark.sink.access import Connection
    from sarit.spark.sink.columns import RowsToEvents
    from sarit.spark.sink.options import WriteOptions
    from sarit.spark.sink.protocol import Transaction

_log = logging.getLogger(__name__)

JOB_BATCH = 0  # the batch number of a batch job, which is one batch
_JOBS = uuid.UUID("5d3c2f8e-9b1a-5e57-8c44-0d6f0a7b7c11")  # the namespace of job ids


@dataclass
class Prepared(WriterCommitMessage):
    """The message of a task that has written rows in transactions.  `skipped`: the batch was decided already, so the
    task wrote nothing."""

    query: bytes
    transactions: tuple[Transaction, ...]
    rows: int
    event_bytes: int
    skipped: bool


@dataclass(frozen=True)
class Sink:
    """The settings of a write, on the driver and pickled for its tasks.  `once`: the batch can never be repeated."""

    options: WriteOptions
    rows: RowsToEvents
    once: bool = False

    def write(self, batches: Iterator[pa.RecordBatch], query: bytes, batch: int) -> Prepared:
        """Write one task's rows."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        partition, attempt = context.partitionId(), context.attemptNumber()
        with CONNECTIONS.sharing(self.options.target) as connection:
            requests = BatchRequests(connection.client, self.options, query, batch, (partition, attempt))
            mine = TaskTransactions(requests, batch, self.options.lease_seconds / LEASE_RENEWALS)
            try:
                rows, size, skipped = self._write(connection, mine, batches, partition)
            except BaseException:
                connection.run(mine.give_up())
                raise
            if skipped:
                connection.run(mine.give_up())
            freeze_once()
            return Prepared(query, () if skipped else mine.begun, rows, size, skipped)

    def _write(
        self, connection: Connection, mine: TaskTransactions, batches: Iterator[pa.RecordBatch], partition: int
    ) -> tuple[int, int, bool]:
        """Write rows.  Returns their number, the bytes of their events, and whether the batch was decided already."""
        if not connection.run(mine.start()):
            return 0, 0, True
        rows = size = 0
        for batch in batches:
            for part in self.rows.parts(batch, partition, rows):
                if not connection.run(mine.write(*part)):
                    return 0, 0, True
                size += part.events.nbytes
            rows += batch.num_rows
        connection.run(mine.finish())
        return rows, size, False

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int, query: bytes | None = None) -> None:
        """Make the batch visible.  Raises what `protocol.commit_batch` raises."""
        found = [message for message in messages if isinstance(message, Prepared)]
        if len(found) < len(messages):
            raise Conflict(f"{len(messages) - len(found)} of {len(messages)} tasks have no result: run the batch again")
        if not found:
            return  # without tasks there are no rows
        winners = [one for message in found for one in message.transactions]
        skipped = any(message.skipped for message in found)
        with CONNECTIONS.sharing(self.options.target) as connection:
            requests = BatchRequests(connection.client, self.options, query or found[0].query, batch)
            fresh = connection.run(requests.run(protocol.commit_batch(batch, winners, skipped=skipped)))
            if self.once:
                connection.run(requests.forget())
        if not fresh:
            _log.warning("batch %d was written already: its rows are not written again", batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int, query: bytes | None = None) -> None:
        """Abort the tasks' transactions, unless the batch was decided."""
        found = [message for message in messages if isinstance(message, Prepared)]
        if query is None and found:
            query = found[0].query
        if query is None:
            return  # every task has failed and aborted its transactions, or their leases end them
        with CONNECTIONS.sharing(self.options.target) as connection:
            requests = BatchRequests(connection.client, self.options, query, batch)
            connection.run(requests.run(protocol.abort_batch()))
            if self.once:
                connection.run(requests.forget())


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("sarit").mode("append")`."""

    def __init__(self, options: WriteOptions, rows: RowsToEvents) -> None:
        self._sink = Sink(options, rows, once=options.job is None)
        # Choose the id on the driver, so that all tasks have the same.
        self._query = _random_id() if options.job is None else job_query(options.job, options.stream)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        return self._sink.write(iterator, self._query, JOB_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible."""
        self._sink.commit(messages, JOB_BATCH, self._query)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard all rows."""
        self._sink.abort(messages, JOB_BATCH, self._query)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("sarit")`."""

    def __init__(self, options: WriteOptions, rows: RowsToEvents) -> None:
        self._sink = Sink(options, rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows of one micro-batch."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        # The query's id is in its checkpoint, so it is the same after a restart.
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "Spark sets it for every micro-batch"
        assert batch is not None, "Spark sets it for every micro-batch"
        return self._sink.write(iterator, uuid.UUID(query).bytes, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard the micro-batch, unless it was decided."""
        self._sink.abort(messages, batchId)


def job_query(job: str, stream: StreamName | None) -> bytes:
    """Return the id of a batch job in the sink's table, which depends on the job's name and the stream: a job may write
    to several streams."""
    return uuid.uuid5(_JOBS, f"{job}\n{stream or ''}").bytes


def _random_id() -> bytes:
    from sarit.env.real import real_env

    return real_env().random.bytes(16)
