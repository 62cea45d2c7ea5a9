"""The writers for `deliveryGuarantee=at-least-once`: each task appends its rows, and ends when all are durable.

A task that Spark repeats, or a micro-batch that is repeated after a failure, appends its rows again.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sarit.spark.client import CLIENTS
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.client.blocking.streams import EventWriter
    from sarit.spark.sink.columns import RowsToEvents
    from sarit.spark.sink.options import WriteOptions

_log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """The message of a task whose rows are durable."""

    rows: int


def _report_abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, Written))
    if rows:
        _log.warning("the write failed after %d rows were appended; they remain in the stream", rows)


def _append(options: WriteOptions, to_events: RowsToEvents, batches: Iterator[pa.RecordBatch]) -> Written:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    rows = 0
    writers: dict[str, EventWriter] = {}
    with CLIENTS.sharing(options.target) as client, ExitStack() as opened:
        for batch in batches:
            for stream, events, keys in to_events.parts(batch, partition, rows):
                if stream not in writers:
                    _create(client, stream, options)
                    writers[stream] = opened.enter_context(client.writer(stream))
                writers[stream].write_many(events, keys)
            rows += batch.num_rows
        for writer in writers.values():
            writer.flush()
    freeze_once()
    return Written(rows)


def _create(client: Client, stream: str, options: WriteOptions) -> None:
    if options.create is not None:
        client.create_stream(stream, scaling=options.create.scaling, retention=options.create.retention)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("sarit").mode("append")`."""

    def __init__(self, options: WriteOptions, rows: RowsToEvents) -> None:
        self._options = options
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append one task's rows."""
        return _append(self._options, self._rows, iterator)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log that appended rows remain."""
        _report_abort(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("sarit")`."""

    def __init__(self, options: WriteOptions, rows: RowsToEvents) -> None:
        self._options = options
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append one task's rows of one micro-batch."""
        return _append(self._options, self._rows, iterator)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log that appended rows remain."""
        _report_abort(messages)
