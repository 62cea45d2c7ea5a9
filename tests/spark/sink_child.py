"""A Spark driver in a process of its own, to be killed: copies a stream into another one, exactly once.

`python -m tests.spark.sink_child CONTROLLER SOURCE SINK DIRECTORY`: copies what is there now, and prints "done".  The
file DIRECTORY/dies, if there is one, says where the driver kills itself: before the named request of the protocol's
commit.  The commit runs in a process of its own, which kills the driver and itself.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sarit.spark.data_source import SaritSource
from sarit.spark.sink import exactly_once
from sarit.spark.sink.access import BatchRequests

DIRECTORY = "SARIT_TEST_DIRECTORY"


class DyingRequests(BatchRequests):
    """Kills the driver at a request."""

    async def answer(self, request: Any) -> Any:
        """Kills, or answers."""
        marker = Path(os.environ[DIRECTORY]) / "dies"
        if marker.exists() and marker.read_text() == type(request).__name__ and self._batch > 0:
            marker.unlink()
            if type(request).__name__ == "Commit":
                await self._commit_one(request.transactions[0], wait=True)  # and no other
            os.killpg(int((marker.parent / "pid").read_text()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().answer(request)


class DyingSource(SaritSource):
    """`format("dying")`: the driver dies in its commit."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """The writer of `format("sarit")`."""
        exactly_once.BatchRequests = DyingRequests  # type: ignore[misc]
        return super().streamWriter(schema, overwrite)


def copy_query(spark: Any, name: str, streams: tuple[str, str, str], directory: str) -> Any:
    """A query that copies a stream into another one; `name`: of the sink's format, `streams`: controller, from, to."""
    controller, source, sink = streams
    settings = {"controller": controller, "stream": source, "maxEventsPerTrigger": "500"}
    rows = spark.readStream.format("sarit").options(**settings).load()
    rows = rows.selectExpr("event", "cast(segment_id as string) routing_key")
    writing = rows.writeStream.format(name).options(controller=controller, stream=sink)
    return writing.option("checkpointLocation", f"{directory}/checkpoint").start()


def main(controller: str, source: str, sink: str, directory: str) -> None:
    """Copy until everything that is there now is copied."""
    from pyspark.sql import SparkSession

    os.environ[DIRECTORY] = directory
    (Path(directory) / "pid").write_text(str(os.getpid()))
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.dataSource.register(DyingSource)
    copy_query(spark, "dying", (controller, source, sink), directory).processAllAvailable()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
