"""A Spark batch count and sum of lengths: `python -m benchmarks.loads.spark_count '{"format": "sarit", ...}'`.

`options` go to the source, `column` holds the event, `jars` is a class path for the driver.  local[2].  The count is
made twice and the second one counts: the first pays for JVM and workers getting warm.
"""

from __future__ import annotations

import glob
import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.loads.open_loop import now


def main(options: dict[str, Any]) -> None:
    """One run."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR")
    if options.get("jars"):
        builder = builder.config("spark.jars", ",".join(sorted(glob.glob(options["jars"] + ".jar"))))
    spark = builder.getOrCreate()
    took: list[float] = []
    for _ in range(2):
        start = now()
        frame = spark.read.format(options["format"]).options(**options["options"]).load()
        column = options["column"]
        count, length = frame.agg(f.count("*"), f.sum(f.length(column))).collect()[0]
        took.append(now() - start)
    result = {"events": count, "bytes": length, "seconds": round(took[-1], 2), "first_seconds": round(took[0], 2)}
    print(json.dumps(result | {"events_per_s": round(count / took[-1])}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
