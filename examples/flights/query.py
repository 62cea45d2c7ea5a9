"""The PySpark job: departure delay per origin and hour, from one stream into another."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# The year passes in seconds here: a week of it is a moment by the clock, about the time that lies between two looks
# at the tails of two segments.  Flights later than this behind the newest one seen would not be counted.
LATENESS = "7 days"


def session() -> SparkSession:
    """A local Spark with what the job needs."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    return spark


def start(spark: SparkSession, controller: str, checkpoint: Path) -> StreamingQuery:
    """Start the streaming query; it goes on where the checkpoint stands."""
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
