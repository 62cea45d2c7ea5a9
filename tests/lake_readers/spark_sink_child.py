"""Spark's own streaming sink for Iceberg, from a stream, as docs/spark/iceberg.md has it: copies what is there, and
prints how many rows the table has, how many different ones, and their sum.

`python -m tests.lake_readers.spark_sink_child CONTROLLER STREAM WAREHOUSE CHECKPOINT JARS`."""

from __future__ import annotations

import sys

import sarit.spark


def main(controller: str, stream: str, warehouse: str, checkpoint: str, jars: str) -> None:
    """Run the query once over everything that is there now."""
    spark = sarit.spark.session(
        "to-iceberg",
        {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.jars": jars,
            "spark.sql.catalog.analytics": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.analytics.type": "hadoop",
            "spark.sql.catalog.analytics.warehouse": warehouse,
        },
    )
    spark.sql("CREATE TABLE IF NOT EXISTS analytics.shop.totals (n bigint, segment_id bigint) USING iceberg")
    events = spark.readStream.format("sarit").option("controller", controller).option("stream", stream)
    rows = events.option("maxEventsPerTrigger", "300").load()
    totals = rows.selectExpr("cast(cast(event as string) as bigint) n", "segment_id")
    query = (
        totals.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", checkpoint)
        .toTable("analytics.shop.totals")
    )  # fmt: skip
    query.processAllAvailable()
    query.stop()
    print(*spark.sql("SELECT count(*), count(DISTINCT n), sum(n) FROM analytics.shop.totals").first(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
