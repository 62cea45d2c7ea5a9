"""One Spark job over a source or a sink, local[2]: `python -m benchmarks.loads.spark_job '{"mode": "count", ...}'`.

`format` and `options` go to the source or the sink; `column` holds the event, `key` the routing key; `jars` is a class
path for the driver.  Modes:

* "count": a batch count and sum of lengths, `runs` times; the last one counts, the first pays for JVM and workers;
* "stream": a query from the head with `trigger(availableNow=True)` and `limits`; events/s of all micro-batches but the
  first;
* "tail": a query at the tail for `seconds`, while somebody else writes; the duration of its micro-batches;
* "sink": a batch write of `rows` rows of 100 bytes, twice; the second counts;
* "stream sink": `batches` micro-batches of `rows` rows each; rows/s of all but the first;
* "compare": batch reads of typed columns, each of `reads` (name -> options) in turn, `turns` times; the medians;
* "growth": reads of streams, micro-batches and exactly-once writes of growing sizes: the median of some runs of each;
* "sink cost": batch writes of each of `sizes` rows, exactly once and at least once in turn, `turns` times; the medians.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.harness import own_ticks
from benchmarks.loads.open_loop import now

if TYPE_CHECKING:
    from collections.abc import Callable

SINK_PARTITIONS = 4
KEYS = 1000
GROWTH_BATCHES = 9
SEGMENT_BATCH_EVENTS = 10_000


def _session(options: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR").config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    if options.get("jars"):
        builder = builder.config("spark.jars", ",".join(sorted(glob.glob(options["jars"] + ".jar"))))
    return builder.getOrCreate()


def _count(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    took: list[float] = []
    for _ in range(options.get("runs", 2)):
        start = now()
        frame = spark.read.format(options["format"]).options(**options["options"]).load()
        count, length = frame.agg(f.count("*"), f.sum(f.length(options["column"]))).collect()[0]
        took.append(now() - start)
    result = {"events": count, "bytes": length, "seconds": round(took[-1], 2), "first_seconds": round(took[0], 2)}
    return result | {"events_per_s": round(count / took[-1])}


def _compare(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in options["reads"]}
    for turn in range(options["turns"] + 1):
        for name, own in options["reads"].items():
            frame = spark.read.format(options["format"]).options(**options["options"], **own).load()
            sums = [f.sum(f.hash(column)) for column in options["columns"]]
            start, used = now(), own_ticks()
            frame.agg(*sums).collect()
            if turn:  # the first one starts the workers
                found[name].append((now() - start, (own_ticks() - used) / os.sysconf("SC_CLK_TCK")))
    return {
        name: {"seconds": [round(one, 3) for one, _ in took], "cpu_s": [round(one, 2) for _, one in took]}
        for name, took in found.items()
    }


def _frame(spark: SparkSession, options: dict[str, Any], more: dict[str, str]) -> Any:
    frame = spark.readStream.format(options["format"]).options(**options["options"], **more).load()
    # The bytes are touched, as every real query does.
    return frame.select(f.length(options["column"]).alias("length"))


def _stream(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    query = _frame(spark, options, options["limits"]).writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", options["directory"]).start()
    query.awaitTermination()
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    rows = sum(one["numInputRows"] for one in batches[1:])
    seconds = sum(one["batchDuration"] for one in batches[1:]) / 1000
    return {
        "batches": len(batches), "events": rows + batches[0]["numInputRows"], "seconds": round(seconds, 2),
        "events_per_s": round(rows / seconds) if seconds else 0,
        "largest_batch": max(one["numInputRows"] for one in batches),
    }  # fmt: skip


def _tail(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    query = _frame(spark, options, {}).writeStream.format("noop")
    query = query.option("checkpointLocation", options["directory"]).start()
    # The first trigger, without rows, starts the driver's side.
    while not query.recentProgress and not query.awaitTermination(0.1):
        pass
    print("ready", flush=True)
    query.awaitTermination(options["seconds"])
    found = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    # The first ones start the workers.
    steady = sorted(one["batchDuration"] for one in found[len(found) // 4 :])
    parts = {
        name: sorted(one["durationMs"].get(name, 0) for one in found)[len(found) // 2]
        for name in found[-1]["durationMs"]
    }
    rows = sum(one["numInputRows"] for one in found)
    return {
        "batches": len(found), "events": rows, "p50_ms": steady[len(steady) // 2],
        "p95_ms": steady[len(steady) * 95 // 100], "parts_p50_ms": parts,
    }  # fmt: skip


def _rows(frame: Any, options: dict[str, Any]) -> Any:
    value = f.lpad(f.col("value").cast("string"), 100, "x").alias(options["column"])
    return frame.select(value, (f.col("value") % KEYS).cast("string").alias(options["key"]))


def _sink(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    rows, took = options["rows"], []
    for _ in range(2):
        start = now()
        numbers = spark.range(0, rows, 1, SINK_PARTITIONS).select(f.col("id").alias("value"))
        write = _rows(numbers, options).write.format(options["format"]).options(**options["options"])
        write.mode("append").save()
        took.append(now() - start)
    return {"rows": rows, "seconds": round(took[-1], 2), "rows_per_s": round(rows / took[-1])}


def _stream_sink(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    rows, batches = options["rows"], options["batches"]
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = source.option("numPartitions", SINK_PARTITIONS).load()
    write = _rows(numbers, options).writeStream.format(options["format"]).options(**options["options"])
    query = write.option("checkpointLocation", options["directory"]).start()
    while len(query.recentProgress) < batches + 1 and not query.awaitTermination(0.05):
        pass
    found = query.recentProgress[1 : batches + 1]
    query.stop()
    seconds = sum(one["batchDuration"] for one in found) / 1000
    return {
        "batches": len(found), "batch_p50_ms": sorted(one["batchDuration"] for one in found)[len(found) // 2],
        "rows_per_s": round(sum(one["numInputRows"] for one in found) / seconds),
    }  # fmt: skip


def _sink_cost(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for rows in options["sizes"]:
        took: dict[str, list[float]] = {"at-least-once": [], "exactly-once": []}
        numbers = spark.range(0, rows, 1, SINK_PARTITIONS).select(f.col("id").alias("value"))
        for turn in range(options["turns"] + 1):
            for guarantee, seconds in took.items():
                write = _rows(numbers, options).write.format(options["format"]).options(**options["options"])
                start = now()
                write.option("deliveryGuarantee", guarantee).mode("append").save()
                if turn:  # the first one starts the workers
                    seconds.append(now() - start)
        medians = {name: sorted(seconds)[len(seconds) // 2] for name, seconds in took.items()}
        result[str(rows)] = {name: round(median, 3) for name, median in medians.items()} | {
            "throughput_ratio": round(medians["at-least-once"] / medians["exactly-once"], 2),
            "seconds": {name: [round(one, 3) for one in seconds] for name, seconds in took.items()},
        }
        print(rows, result[str(rows)], file=sys.stderr, flush=True)
    return result


def _timed(runs: int, work: Callable[[], Any]) -> dict[str, float]:
    """The medians of some runs after a first one: seconds, and processor seconds of Spark's processes."""
    work()
    found = []
    for _ in range(runs):
        start, used = now(), own_ticks()
        work()
        found.append((now() - start, (own_ticks() - used) / os.sysconf("SC_CLK_TCK")))
    seconds, cpu = (sorted(values)[runs // 2] for values in zip(*found, strict=True))
    return {"seconds": round(seconds, 3), "cpu_s": round(cpu, 2)}


def _growth(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"read": {}, "micro_batch": {}, "write": {}}

    def read(stream: str) -> None:
        frame = spark.read.format("sarit").options(**options["options"], stream=stream).load()
        frame.agg(f.count("*"), f.sum(f.length("event"))).collect()

    def write(rows: int) -> None:
        numbers = spark.range(0, rows, 1, SINK_PARTITIONS).select(f.col("id").alias("value"))
        frame = _rows(numbers, options).write.format("sarit").options(**options["options"])
        frame.option("stream", options["writes"]["stream"]).mode("append").save()

    for stream in options["reads"]:
        result["read"][stream] = _timed(3, partial(read, stream))
    for size in options["batches"]["sizes"]:
        result["micro_batch"][size] = _micro_batches(spark, options, options["batches"]["stream"], size)
    for stream in options["follow"]:
        result["micro_batch"][stream] = _micro_batches(spark, options, stream, SEGMENT_BATCH_EVENTS)
    for size in options["writes"]["sizes"]:
        result["write"][size] = _timed(3, partial(write, size))
    return result


def _micro_batches(spark: SparkSession, options: dict[str, Any], stream: str, events: int) -> dict[str, Any]:
    """Micro-batches of so many events from the head of a stream: the medians of the first ones but one."""
    limits = {"stream": stream, "start": "earliest", "maxEventsPerTrigger": str(events)}
    with tempfile.TemporaryDirectory(prefix="sarit-spark-bench") as directory:
        query = _frame(spark, options, limits).writeStream.format("noop")
        query = query.option("checkpointLocation", directory).start()
        # A stream of one such batch has no more.
        wanted = 1 if events == options["batches"]["sizes"][-1] else GROWTH_BATCHES
        while len(found := [one for one in query.recentProgress if one["numInputRows"]]) < wanted:
            query.awaitTermination(0.2)
        query.stop()
    found = found[1:wanted] or found
    middle = len(found) // 2
    planning = sorted(
        sum(one["durationMs"].get(name, 0) for name in ("latestOffset", "queryPlanning", "getBatch")) for one in found
    )
    return {
        "events": sorted(one["numInputRows"] for one in found)[middle],
        "ms": sorted(one["batchDuration"] for one in found)[middle],
        "planning_ms": planning[middle],
    }


MODES = {
    "compare": _compare,
    "growth": _growth,
    "sink cost": _sink_cost,
    "count": _count,
    "stream": _stream,
    "tail": _tail,
    "sink": _sink,
    "stream sink": _stream_sink,
}


def main(options: dict[str, Any]) -> None:
    """One run."""
    spark = _session(options)
    options = options | {"directory": tempfile.mkdtemp(prefix="sarit-spark-bench")}
    try:
        print(json.dumps(MODES[options["mode"]](spark, options)), flush=True)
    finally:
        spark.stop()
        shutil.rmtree(options["directory"], ignore_errors=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
