"""The demo: flights into a stream, a PySpark query over it, its results into another stream, and a table of them.

    python examples/flights/demo.py [--data DIR]

Run again, it goes on where it was: flights that are in the stream are not written again, and the query continues from
its checkpoint.  Ctrl-C at any moment loses nothing that was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import feed
import query
from node import Node
from progress import Progress

import sarit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEPARTURES = "aviation/departures"
DELAYS = "aviation/delays"
SEGMENTS = 4
EVENTS_PER_FLUSH = 20_000


def replay(client: sarit.Client) -> None:
    """Write the flights that are not in the stream yet, by tail number.

    What is in the stream is counted by reading it: an interrupted run leaves a gap for some keys only, so
    each flight is looked for by its number."""
    flights = feed.flights()
    present = {json.loads(event)["n"] for event in client.reader(DEPARTURES, end="tail")}
    missing = [flight for flight in flights if flight.number not in present]
    if present:
        print(f"{len(present):,} flights are in {DEPARTURES} already")
    progress = Progress("replaying flights", len(missing), "events")
    with client.writer(DEPARTURES) as writer:
        for done, flight in enumerate(missing, 1):
            writer.write(flight.event, key=flight.key)
            if done % EVENTS_PER_FLUSH == 0:
                writer.flush()
                progress.show(done)
        writer.flush()
    progress.show(len(missing), last=True)


def run_query(spark: SparkSession, controller: str, checkpoint: Path, total: int) -> None:
    """Let the query read all that is there, and end it."""
    started = query.start(spark, controller, checkpoint)
    progress = Progress("querying with PySpark", total, "events")
    seen = 0
    last = -1
    try:
        while True:
            started.awaitTermination(0.5)
            if started.exception() is not None:
                raise SystemExit(f"the query failed: {started.exception()}")
            for batch in started.recentProgress:
                if batch["batchId"] > last:
                    last = batch["batchId"]
                    seen += int(batch["numInputRows"] or 0)
            progress.show(min(seen, total))
            status = started.status
            if not status["isDataAvailable"] and not status["isTriggerActive"] and last >= 0:
                break
        started.processAllAvailable()
    finally:
        started.stop()
    progress.show(total, last=True)


def results(client: sarit.Client) -> dict[tuple[str, str], tuple[int, float]]:
    """(hour, origin) → (departures, minutes of delay), read back from the stream.

    The sink appends at least once, so a micro-batch that was repeated left its rows twice; they are equal,
    and one of each is kept."""
    found = {}
    for event in client.reader(DELAYS, end="tail"):
        row = json.loads(event)
        found[row["hour"], row["origin"]] = (row["departures"], row.get("delay_minutes") or 0.0)
    return found


def table(found: dict[tuple[str, str], tuple[int, float]]) -> None:
    """Print mean delays by origin and hour of the day."""
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for (hour, origin), (departures, minutes) in found.items():
        cell = sums[int(hour[11:13]), origin]
        cell[0] += departures
        cell[1] += minutes
    origins = sorted({origin for _, origin in sums if origin})
    print("\nmean departure delay in minutes, by scheduled hour (UTC) and origin, over the whole year")
    print("  hour  " + "".join(f"{origin:>9}" for origin in origins))
    for hour in sorted({hour for hour, _ in sums}):
        cells = [sums[hour, origin] for origin in origins]
        if any(cell[0] for cell in cells):
            values = "".join(f"{cell[1] / cell[0]:>9.1f}" if cell[0] else f"{'-':>9}" for cell in cells)
            print(f"  {hour:02d}:00 {values}")
    departures = sum(count for count, _ in found.values())
    print(f"\n{len(found):,} hours and origins, {departures:,} departures")


def main() -> None:
    """Run the demo on a data directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("demo-data"), help="where node and checkpoint are kept")
    data: Path = parser.parse_args().data
    begun = time.monotonic()
    with Node(data) as controller:
        print(f"a node serves at {controller}, data in {data}/")
        with sarit.connect(controller) as client:
            client.create_scope("aviation")
            client.create_stream(DEPARTURES, segments=SEGMENTS)
            client.create_stream(DELAYS)
            replay(client)
            spark = query.session()
            try:
                run_query(spark, controller, data.resolve() / "checkpoint", feed.TOTAL)
            finally:
                spark.stop()
            table(results(client))
    print(f"done in {time.monotonic() - begun:.0f} s; run it again to see it go on from {data}/")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\ninterrupted: what was acknowledged is kept; run the demo again to go on")
        sys.exit(130)
