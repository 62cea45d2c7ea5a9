"""A Spark driver in a process of its own, to be killed: copies a stream into files, exactly once.

`python -m tests.spark.query_child CONTROLLER STREAM DIRECTORY EVENTS`: prints "batch N" for each micro-batch, and
"done" when so many events are copied.
"""

from __future__ import annotations

import sys
from typing import Any


def files_query(spark: Any, controller: str, stream: str, directory: str) -> Any:
    """A streaming query into JSON files: Spark's file sink keeps each micro-batch once, if the source repeats it."""
    source = spark.readStream.format("sarit").option("controller", controller).option("stream", stream)
    events = source.option("maxEventsPerTrigger", "1000").load().selectExpr("cast(event as string) event")
    sink = events.writeStream.format("json").option("checkpointLocation", f"{directory}/checkpoint")
    return sink.start(f"{directory}/out")


def main(controller: str, stream: str, directory: str, events: str) -> None:
    """Run the query until so many events are copied."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    query = files_query(spark, controller, stream, directory)
    reported = -1
    while not query.awaitTermination(0.05):
        last = query.lastProgress
        if last is not None and last["batchId"] > reported and last["numInputRows"]:
            reported = last["batchId"]
            print(f"batch {reported}", flush=True)
        # The query's status is idle between two micro-batches, too.
        if sum(each["numInputRows"] for each in query.recentProgress) >= int(events):
            break
    query.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
