"""The PySpark job: departure delay per origin and hour, from one stream into another."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# The year passes in seconds here: two months of it are a moment by the clock, enough for the time that may lie between
# two reads of the tails of two segments.  Flights later than this against the newest one seen would not be counted.
LATENESS = "60 days"

# A line that names an error of Java or Python: `Caused by: java.io.X: text`, `sarit.core.errors.Unavailable: text`.
_CAUSE = re.compile(r"(?:Caused by: )?((?:[A-Za-z_]\w*\.)*[A-Z][\w$]*(?:Error|Exception)|sarit(?:\.\w+)+): (\S.*)")


def root_cause(error: BaseException) -> str:
    """Return the innermost cause of an error of Spark: the last one that its text names, behind all stacks."""
    found = [matched for line in str(error).splitlines() if (matched := _CAUSE.match(line.strip()))]
    if not found:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    name, text = found[-1].groups()
    return f"{name.rpartition('.')[2]}: {text}"


@contextmanager
def _standard_error_in(log: Path) -> Iterator[None]:
    """Let processes started meanwhile (the JVM) write to `log` what they would write on the terminal."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def session(log: Path) -> SparkSession:
    """A local Spark with what the job needs; its messages go to `log`.  Exits with a message when there is no Java."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
    )
    with _standard_error_in(log):
        try:
            return builder.getOrCreate()
        except (PySparkException, OSError) as error:
            advice = "Java 17 or newer is needed; on Debian: apt-get install openjdk-17-jre-headless"
            raise SystemExit(f"Spark did not start ({error}); {advice}; its messages are in {log}") from None


def start(spark: SparkSession, controller: str, checkpoint: Path) -> StreamingQuery:
    """Start the streaming query; it continues from the checkpoint."""
    from pyspark.sql import functions as f

    departures = (
        spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", controller)
        .option("stream", "aviation/departures")
        .load()
    )
    flights = departures.select(
        f.from_json("event", "time timestamp, origin string, dep_delay double").alias("flight")
    ).select("flight.*")
    delays = (
        flights.withWatermark("time", LATENESS)
        .groupBy(f.window("time", "1 hour"), "origin")
        .agg(f.count("dep_delay").alias("departures"), f.sum("dep_delay").alias("delay_minutes"))
    )
    result = f.struct(f.col("window.start").alias("hour"), "origin", "departures", "delay_minutes")
    return (
        delays.select(f.to_json(result).alias("event"), f.col("origin").alias("routing_key"))
        .writeStream.format("sarit")
        .option("controller", controller)
        .option("stream", "aviation/delays")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .start()
    )
