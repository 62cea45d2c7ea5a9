"""A stream as Parquet files and as an Iceberg table for analysts, and their result back into a stream, exactly once.

    python examples/pipelines/lake.py [--controller HOST:PORT] [--data DIR]

* Parquet: Spark's own file sink keeps a list of the files of each micro-batch.  Read the directory by Spark.
* Iceberg: tasks write the files of a micro-batch, and the driver adds them to the table in one commit, together with
  the number of the micro-batch.  A micro-batch that is repeated finds its number, and changes nothing.  No row passes
  through the driver.  The catalog is one of pyiceberg in an SQLite file; any other is used in the same way.
* Back: a batch write with a job id.  A job that runs again under its id writes nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

from examples.pipelines import inputs, program

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from examples.pipelines.program import Place

DEPARTURES: Final = "lake/departures"
BEST: Final = "lake/punctual-airlines"
DAYS: Final = 2
EVENTS_PER_BATCH: Final = 1000
COLUMNS: Final = "n long, carrier string, origin string, dep_delay double"
LAST_BATCH: Final = "sarit.last-batch"


def departures(place: Place) -> DataFrame:
    """The stream as rows of typed columns."""
    from pyspark.sql import functions as f

    return (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", DEPARTURES)
        .option("maxEventsPerTrigger", EVENTS_PER_BATCH)
        .load()
        .select(f.from_json("event", COLUMNS).alias("flight"))
        .select("flight.*")
    )


def to_parquet(place: Place) -> StreamingQuery:
    """The query into files; it continues from its checkpoint."""
    sink = departures(place).writeStream.format("parquet").option("checkpointLocation", place.checkpoint("parquet"))
    return sink.start(str(place.directory.resolve() / "parquet"))


def iceberg_table(place: Place) -> Table:
    """The table; created when it is missing."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    place_of_files = place.directory.resolve() / "iceberg"
    place_of_files.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{place_of_files}/catalog.db", warehouse=f"file://{place_of_files}/warehouse"
    )
    catalog.create_namespace_if_not_exists("lake")
    columns = {"n": pa.int64(), "carrier": pa.string(), "origin": pa.string(), "dep_delay": pa.float64()}
    return catalog.create_table_if_not_exists("lake.departures", pa.schema(list(columns.items())))


def add_batch(place: Place, rows: DataFrame, batch: int) -> None:
    """Add one micro-batch to the table, unless that was done."""
    table = iceberg_table(place)
    if batch <= int(table.properties.get(LAST_BATCH, -1)):
        return
    files = place.directory.resolve() / "iceberg" / "files" / f"batch={batch}"
    rows.write.mode("overwrite").parquet(str(files))  # what an interrupted run has left is in no table yet
    with table.transaction() as change:
        change.add_files([f"file://{path}" for path in sorted(files.glob("*.parquet"))])
        change.set_properties({LAST_BATCH: str(batch)})


def to_iceberg(place: Place) -> StreamingQuery:
    """The query into the table; it continues from its checkpoint."""
    sink = departures(place).writeStream.foreachBatch(lambda rows, batch: add_batch(place, rows, batch))
    return sink.option("checkpointLocation", place.checkpoint("iceberg")).start()


def back(place: Place, job: str) -> None:
    """What an analyst found, into a stream; once, however often this runs."""
    from pyspark.sql import functions as f

    flights = place.spark.read.parquet(str(place.directory.resolve() / "parquet"))
    airlines = flights.groupBy("carrier").agg(
        f.count("dep_delay").alias("departures"), f.avg("dep_delay").alias("delay")
    )
    (
        airlines.coalesce(1)
        .orderBy("delay")
        .select(f.to_json(f.struct("carrier", "departures", "delay")).alias("event"))
        .write.format("sarit")
        .option("controller", place.controller)
        .option("stream", BEST)
        .option("jobId", job)
        .mode("append")
        .save()
    )


def run(place: Place) -> None:
    """Two days of flights, each query stopped and started once, and the result sent back twice."""
    place.client.create_scope("lake")
    place.client.create_stream(DEPARTURES, segments=2)
    place.client.create_stream(BEST)
    events = inputs.departures(DAYS)
    half = len(events) // 2
    for part in (events[:half], events[half:]):
        with place.client.writer(DEPARTURES) as writer:
            for event in part:
                writer.write(event.body, key=event.key)
        for query in (to_parquet(place), to_iceberg(place)):
            program.finish(query)
    wanted = sorted(json.loads(event.body)["n"] for event in events)
    files = place.spark.read.parquet(str(place.directory.resolve() / "parquet"))
    program.expect("flights in the files", sorted(row.n for row in files.select("n").collect()), wanted)
    table = iceberg_table(place)
    program.expect("flights in the table", sorted(table.scan().to_arrow()["n"].to_pylist()), wanted)
    for _ in range(2):
        back(place, "airlines of the week")
    found: list[dict[str, Any]] = [json.loads(event) for event in place.client.reader(BEST, end="tail")]
    flown = sum(json.loads(event.body)["dep_delay"] is not None for event in events)
    program.expect("departures in the result", sum(row["departures"] for row in found), flown)
    print(f"{len(wanted)} flights in {len(table.snapshots())} commits of the table; {len(found)} airlines sent back")
    print(f"  the most punctual: {found[0]['carrier']}, {found[0]['delay']:.1f} minutes")


if __name__ == "__main__":
    program.main("lake", __doc__, run)
