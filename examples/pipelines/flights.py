"""Windowed delays with late data: delay of departures per hour and airport, from one stream into another, exactly once.

    python examples/pipelines/flights.py [--controller HOST:PORT] [--data DIR]

A flight is reported when it departs, and counts for the hour for which it was scheduled: up to 22 hours ago.  The
query's watermark waits two days for them.  So every departure is counted, in a window that is written once, when it is
complete.  Reports that come after that are dropped, and the progress of the query says how many.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

from examples.pipelines import inputs, program

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from examples.pipelines.inputs import Event
    from examples.pipelines.program import Place

DEPARTURES: Final = "aviation/departures"
DELAYS: Final = "aviation/delays"
DAYS: Final = 7
LATENESS: Final = "2 days"


def start(place: Place) -> StreamingQuery:
    """The query; it continues from its checkpoint."""
    from pyspark.sql import functions as f

    departures = (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", DEPARTURES)
        .load()
    )
    flights = departures.select(f.from_json("event", "time timestamp, origin string, dep_delay double").alias("flight"))
    delays = (
        flights.select("flight.*")
        .withWatermark("time", LATENESS)
        .groupBy(f.window("time", "1 hour"), "origin")
        .agg(f.count("dep_delay").alias("departures"), f.sum("dep_delay").alias("minutes"))
    )
    result = f.struct(f.col("window.start").alias("hour"), "origin", "departures", "minutes")
    return (
        delays.select(f.to_json(result).alias("event"), f.col("origin").alias("routing_key"))
        .writeStream.format("sarit")
        .option("controller", place.controller)
        .option("stream", DELAYS)
        .option("checkpointLocation", place.checkpoint("delays"))
        .outputMode("append")
        .start()
    )


def run(place: Place) -> None:
    """Departures, a later one that closes all windows, and some that come too late."""
    place.client.create_scope("aviation")
    place.client.create_stream(DEPARTURES, segments=4)
    place.client.create_stream(DELAYS)
    flights = inputs.departures(DAYS)
    write(place, flights)
    write(place, [departure(flights[0], "2013-02-01T00:00:00Z")])
    query = start(place)
    try:
        query.processAllAvailable()
        write(place, flights[:100])
        query.processAllAvailable()
        dropped = sum(
            operator["numRowsDroppedByWatermark"] for one in query.recentProgress for operator in one["stateOperators"]
        )
    finally:
        query.stop()
    check(place, flights, dropped)


def write(place: Place, events: list[Event]) -> None:
    """Write events; they are durable at the end."""
    with place.client.writer(DEPARTURES) as writer:
        for event in events:
            writer.write(event.body, key=event.key)


def departure(like: Event, time: str) -> Event:
    """The same departure at another time."""
    return inputs.Event(json.dumps(json.loads(like.body) | {"time": time}), like.key)


def check(place: Place, flights: list[Event], dropped: int) -> None:
    """Every departure counts once, in one result per hour and airport; what came too late was dropped."""
    from datetime import datetime

    wanted: Counter[tuple[datetime, str]] = Counter()
    for event in flights:
        flight = json.loads(event.body)
        wanted[datetime.fromisoformat(flight["time"]), flight["origin"]] += flight["dep_delay"] is not None
    rows = [json.loads(event) for event in place.client.reader(DELAYS, end="tail")]
    found = {(datetime.fromisoformat(row["hour"]), row["origin"]): row["departures"] for row in rows}
    program.expect("departures per hour and airport", found, dict(wanted))
    program.expect("results", len(rows), len(found))
    program.expect("whether reports that came too late were dropped", dropped > 0, True)
    print(f"{sum(found.values())} departures in {len(rows)} results; reports that came too late were dropped")
    for row in sorted(rows, key=lambda row: row.get("minutes", 0) / max(row["departures"], 1))[-3:]:
        print(f"  {row['hour'][:13]}h {row['origin']}: {row['minutes'] / row['departures']:.0f} minutes late")


if __name__ == "__main__":
    program.main("flights", __doc__, run)
