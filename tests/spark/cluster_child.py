"""Drivers in processes of their own: of a standalone cluster, of a Connect server.

`python -m tests.spark.cluster_child WHAT URL DIRECTORY` prints one JSON object.  No address of a node is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sarit.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

EVENTS = 2_000
BATCHES_BEFORE_HANG = 4
ROW_BYTES = 2_000
# A driver's settings for a cluster whose executors come and go, and whose slow tasks run twice.
CLUSTER = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "300s",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.25",
}


def with_place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add where the task runs and its attempt; the first attempt of the first task hangs, so that it is run twice."""
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            threading.Event().wait(120)
        place = pa.array([os.getcwd()] * batch.num_rows)
        attempt = pa.array([task.attemptNumber()] * batch.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays([*batch.columns, place, attempt], names=["event", "place", "attempt"])


def wait_for_registration(controller: str, table: str) -> None:
    """Until the sink's table says that the first attempt of the first task has begun a transaction."""
    with sarit.connect(controller) as client:
        while True:
            with contextlib.suppress(sarit.NotFound):  # the sink has not created it yet
                if any(b'"partition":0,"attempt":0' in entry.value for entry in client.table(table).scan()):
                    return
            threading.Event().wait(0.05)


def hanging_writer(controller: str, table: str, seen: Path) -> Any:
    """For `mapInArrow` before a sink: add the attempt to each row.

    The first attempt of the first task hangs when the sink has written a part of its rows, and notes that in `seen`."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        hangs = task.partitionId() == 0 and task.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if hangs and number == BATCHES_BEFORE_HANG:
                wait_for_registration(controller, table)
                with seen.open("a") as file:
                    file.write("a transaction was begun\n")
                threading.Event().wait(600)
            # Long rows: Spark hands them on before it waits for more.
            text = [f"{event}:{task.attemptNumber()}:{'x' * ROW_BYTES}" for event in batch.column("event").to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(text)], names=["event"])

    return rows


def write_with_copies(url: str, directory: str) -> dict[str, Any]:
    """A task of a batch write and one of a micro-batch hang, and Spark runs a copy of each."""
    spark = sarit.spark.session("copies", CLUSTER | {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}, master=url)
    controller, found = os.environ["SARIT_CONTROLLER"], {}
    for kind in ("batch", "stream"):
        seen = Path(directory) / kind
        hanging = hanging_writer(controller, f"copies/table-{kind}", seen)
        options = {"stream": f"copies/{kind}", "stateTable": f"copies/table-{kind}"}
        if kind == "batch":
            rows = spark.range(0, EVENTS, 1, 4).selectExpr("cast(id as string) event")
            rows.mapInArrow(hanging, "event string").write.format("sarit").options(**options).mode("append").save()
        else:
            # A task for each small segment: Spark copies a task when others of its stage are done.
            source = spark.readStream.format("sarit").schema("event string").option("stream", "copies/source")
            read = source.option("minPartitions", "4").load()
            sink = read.mapInArrow(hanging, "event string").writeStream.format("sarit").options(**options)
            query = sink.option("checkpointLocation", f"{directory}/copies").start()
            query.processAllAvailable()
            query.stop()
        found[kind] = seen.read_text() if seen.exists() else "no task wrote before it hung"
    spark.stop()
    return found


def write_and_copy(spark: Any, scope: str, directory: str) -> None:
    """Write numbers to a stream, and copy them to another by a streaming query."""
    rows = spark.range(0, EVENTS, 1, 4).selectExpr("cast(id as string) event", "cast(id % 7 as string) routing_key")
    rows.write.format("sarit").option("stream", f"{scope}/source").mode("append").save()
    copy = spark.readStream.format("sarit").option("stream", f"{scope}/source").load().selectExpr("event")
    sink = copy.writeStream.format("sarit").option("stream", f"{scope}/copy")
    query = sink.option("checkpointLocation", f"{directory}/checkpoint").start()
    query.processAllAvailable()
    query.stop()


def on_cluster(url: str, directory: str) -> dict[str, Any]:
    """All work in executors; one task of a read hangs."""
    spark = sarit.spark.session("cluster", CLUSTER, master=url)
    sarit.spark.check(spark)
    write_and_copy(spark, "cluster", directory)
    source = spark.read.format("sarit").option("stream", "cluster/source").schema("event string").load()
    placed = source.mapInArrow(with_place, "event string, place string, attempt int").collect()
    spark.stop()
    return {
        "events": sorted(int(row.event) for row in placed),
        "places": sorted({row.place for row in placed}),
        "attempts": sorted({row.attempt for row in placed}),
    }


def on_connect(url: str, directory: str) -> dict[str, Any]:
    """All work in the processes of a Connect server."""
    spark = sarit.spark.session(remote=url)
    sarit.spark.check(spark)
    write_and_copy(spark, "connect", directory)
    views = sarit.spark.register(spark, "connect")
    totals = spark.sql("SELECT count(*) n, sum(cast(cast(event AS string) AS long)) total FROM connect_copy").collect()
    columns = [row.col_name for row in spark.sql("DESCRIBE connect_source").collect()]
    spark.stop()
    return {"views": views, "count": totals[0].n, "total": totals[0].total, "columns": columns}


def main(what: str, url: str, directory: str) -> None:
    """Run one of them."""
    found = {"cluster": on_cluster, "connect": on_connect, "copies": write_with_copies}[what](url, directory)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
