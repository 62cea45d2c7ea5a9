"""Version 2 of a job over the whole history, then live, while version 1 still runs; then the results are swapped.

    python examples/pipelines/replay.py [--controller HOST:PORT] [--data DIR]

Version 1 calls a flight late when it departs after its time.  Version 2 does so from 15 minutes on, as the industry
does, for old flights, too.  It is the same query with another function, another checkpoint and another output stream.

Readers ask a key-value table for the name of the stream with the results.  When version 2 has caught up, one
conditional update of that entry swaps the results for all readers, and version 1 is stopped.
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

    import sarit
    from examples.pipelines.inputs import Event
    from examples.pipelines.program import Place

DEPARTURES: Final = "airport/departures"
NAMES: Final = "airport/names"
RESULTS: Final = b"punctual"  # the entry of NAMES
LATE: Final = {1: "dep_delay > 0", 2: "dep_delay >= 15"}
DAYS: Final = 3
EVENTS_PER_BATCH: Final = 2000


def output_of(version: int) -> str:
    """Every version has an output of its own, so that both can run and be compared."""
    return f"airport/punctual-v{version}"


def start(place: Place, version: int) -> StreamingQuery:
    """One version of the job: from the beginning of history, or from its checkpoint."""
    from pyspark.sql import functions as f

    flights = (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", DEPARTURES)
        .option("start", "head")
        .option("maxEventsPerTrigger", EVENTS_PER_BATCH)
        .load()
        .select(f.from_json("event", "n long, carrier string, dep_delay double").alias("flight"))
        .select("flight.*")
        .where("dep_delay is not null")
    )
    result = f.struct("n", "carrier", f.expr(LATE[version]).alias("late"))
    return (
        flights.select(f.to_json(result).alias("event"), f.col("carrier").alias("routing_key"))
        .writeStream.format("sarit")
        .option("controller", place.controller)
        .option("stream", output_of(version))
        .option("checkpointLocation", place.checkpoint(f"v{version}"))
        .start()
    )


def swap(client: sarit.Client, old: int, new: int) -> None:
    """From now on readers take the results of another version.  Raises Conflict when somebody else swapped them."""
    names = client.table(NAMES)
    entry = names.get(RESULTS)
    program.expect("the version in use", entry and entry.value.decode(), output_of(old))
    assert entry is not None
    names.replace(RESULTS, output_of(new), entry.version)


def late_flights(client: sarit.Client) -> tuple[str, Counter[str]]:
    """What a reader sees: the stream in use, and the late flights of each airline in it."""
    entry = client.table(NAMES).get(RESULTS)
    assert entry is not None
    rows = [json.loads(event) for event in client.reader(entry.value.decode(), end="tail")]
    return entry.value.decode(), Counter(row["carrier"] for row in rows if row["late"])


def wanted(events: list[Event], least: float) -> Counter[str]:
    """The same without Spark: flights that depart at least so many minutes late."""
    flights = [json.loads(event.body) for event in events]
    return Counter(flight["carrier"] for flight in flights if (flight["dep_delay"] or 0) >= least)


def run(place: Place) -> None:
    """History with version 1; version 2 over history while flights go on; the swap; more flights."""
    client = place.client
    client.create_scope("airport")
    client.create_stream(DEPARTURES, segments=2)
    client.tables.create(NAMES, primary_key_bytes=len(RESULTS))
    for version in LATE:
        client.create_stream(output_of(version), segments=2)
    client.table(NAMES).put(RESULTS, output_of(1))
    events = inputs.departures(DAYS)
    day = len(events) // 3

    def write(part: list[Event]) -> None:
        with client.writer(DEPARTURES) as writer:
            for event in part:
                writer.write(event.body, key=event.key)

    write(events[:day])
    first = start(place, 1)
    try:
        first.processAllAvailable()
        second = start(place, 2)
        try:
            write(events[day : 2 * day])  # it goes on while version 2 reads history
            for query in (first, second):
                query.processAllAvailable()
            program.expect("results of version 1", late_flights(client), (output_of(1), wanted(events[: 2 * day], 1)))
            swap(client, 1, 2)
            first.stop()
            write(events[2 * day :])
            second.processAllAvailable()
        finally:
            second.stop()
    finally:
        first.stop()
    program.expect("results of version 2", late_flights(client), (output_of(2), wanted(events, 15)))
    name, late = late_flights(client)
    print(f"{name} is in use: {sum(late.values())} of {len(events)} flights were late")


if __name__ == "__main__":
    program.main("replay", __doc__, run)
