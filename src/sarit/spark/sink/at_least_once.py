"""Writers: each task appends its rows and ends when all of them are durable.

At least once: a task that Spark repeats, or a micro-batch that is repeated after a failure, appends its rows again.  (A
sink that commits each micro-batch exactly once, in transactions, is planned.)
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sarit.spark.client import append

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.spark.sink.options import WriteOptions

_log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """A task's rows are durable."""

    rows: int


def _report_abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, Written))
    if rows:
        _log.warning("the write failed after %d rows were appended; they remain in the stream", rows)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("sarit").mode("append")`."""

    def __init__(self, options: WriteOptions, *, keyed: bool) -> None:
        self._options = options
        self._keyed = keyed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append one task's rows."""
        return Written(append(self._options, iterator, keyed=self._keyed))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log that appended rows remain."""
        _report_abort(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("sarit")`."""

    def __init__(self, options: WriteOptions, *, keyed: bool) -> None:
        self._options = options
        self._keyed = keyed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append one task's rows of one micro-batch."""
        return Written(append(self._options, iterator, keyed=self._keyed))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log that appended rows remain."""
        _report_abort(messages)
