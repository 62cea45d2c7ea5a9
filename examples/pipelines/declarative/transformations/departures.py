"""Departures from a stream to a table, their delays per airport, and late ones to another stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

spark = SparkSession.active()

FLIGHT = "flight int, origin string, dest string, carrier string, dep_delay int"


@dp.table
def departures() -> DataFrame:
    """A streaming table: a later run continues where this one ended."""
    events = spark.readStream.format("sarit").option("stream", "flights/departures").load()
    return events.select(f.from_json(f.col("event").cast("string"), FLIGHT).alias("flight")).select("flight.*")


@dp.materialized_view
def delays() -> DataFrame:
    """Computed again in each run."""
    return spark.read.table("departures").groupBy("origin").agg(f.count("*").alias("flights"), f.avg("dep_delay"))


dp.create_sink("late", "sarit", {"stream": "flights/late"})


@dp.append_flow(target="late")
def late_departures() -> DataFrame:
    """Departures two hours late or more, to another stream, with the airport as the routing key."""
    late = spark.readStream.table("departures").where("dep_delay >= 120")
    return late.select(f.to_json(f.struct("*")).alias("event"), f.col("origin").alias("routing_key"))
