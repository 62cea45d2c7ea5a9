"""A batch job whose tasks go wrong.

It has three partitions.  The first attempt of the first one fails in the middle; the first of the second is killed with
its Python worker; the first of the third fails when all of its rows are written.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from sarit.spark.data_source import SaritSource
from sarit.spark.sink.exactly_once import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 30_000
PARTITIONS = 3
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class WrongWriter(BatchWriter):
    """Fails or dies in first attempts."""

    directory = ""

    def write(self, iterator: Any) -> Any:
        """Write a part, then go wrong."""
        return super().write(self._wrong(iterator))

    def _wrong(self, batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield next(batches)
        partition = context.partitionId()
        # Only the first attempt that comes here makes this directory.
        marker = Path(self.directory) / f"wrong-{partition}"
        if marker.exists():
            yield from batches
            return
        marker.mkdir()
        if partition == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if partition == 2:
            yield from batches
        raise RuntimeError("this attempt fails")


class WrongSource(SaritSource):
    """`format("wrong")`."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "wrong"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """The writer of `format("sarit")`, with its tasks going wrong."""
        made = super().writer(schema, overwrite)
        made.__class__ = WrongWriter
        made.directory = self.options["path"]
        return made


def run(spark: Any, controller: str, stream: str, directory: str) -> None:
    """Run the job; Spark tries a task four times."""
    spark.dataSource.register(WrongSource)
    frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("concat(id % 5, ':', id) event")
    spark.conf.set(BATCH_ROWS, "1000")
    try:
        frame.write.format("wrong").options(controller=controller, stream=stream).mode("append").save(directory)
    finally:
        spark.conf.unset(BATCH_ROWS)
