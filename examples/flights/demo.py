"""The demo: flights into a stream, a PySpark query over it as they come, its results into another stream, a table.

    python examples/flights/demo.py [--data DIR]

Run again, it continues: flights that are in the stream are not written again, and the query continues from
its checkpoint.  Ctrl-C (or `kill`, or closing the terminal) at any moment loses nothing that was acknowledged: the next
run checks that.  After `kill -9` stop the node first, which is left running.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import defaultdict
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import feed
import query
from node import Node
from progress import Progress

import sarit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming import StreamingQuery

DEPARTURES = "aviation/departures"
DELAYS = "aviation/delays"
SEGMENTS = 4

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Results = dict[tuple[str, str], tuple[int, float]]


def missing(client: sarit.Client, flights: list[feed.Flight], acknowledged: Path) -> list[feed.Flight]:
    """The flights that are not in the stream yet, found by reading it: an interrupted run leaves a gap in some
    segments only.  Exits when a flight is missing that was durable in an earlier run."""
    present = {json.loads(event)["n"] for event in client.reader(DEPARTURES, end="tail")}
    promised = int(acknowledged.read_text()) if acknowledged.exists() else 0
    lost = set(range(promised)) - present
    if lost:
        raise SystemExit(
            f"{len(lost):,} of {promised:,} acknowledged flights are missing, such as {min(lost)}: LOST DATA"
        )
    if promised:
        print(f"{promised:,} flights were acknowledged before, and all are there")
    return [flight for flight in flights if flight.number not in present]


def replay(client: sarit.Client, flights: list[feed.Flight], acknowledged: Path) -> None:
    """Write the flights by tail number, day by day: a day begins when all flights before it are durable."""
    progress = Progress("replaying flights", len(flights), "events")
    done = 0
    with client.writer(DEPARTURES) as writer:
        for _, day in groupby(flights, key=lambda flight: flight.day):
            for flight in day:
                writer.write(flight.event, key=flight.key)
                done += 1
            writer.flush()
            note(acknowledged, flight.number + 1)
            progress.show(done)
    progress.show(done, last=True)


def note(acknowledged: Path, flights: int) -> None:
    """Remember that all flights below this number are durable."""
    temporary = acknowledged.with_suffix(".new")
    temporary.write_text(str(flights))
    temporary.replace(acknowledged)


def wait_until_ready(running: StreamingQuery) -> None:
    """Wait until the query polls for new events (or has found some), so that it reads the replay as it comes."""
    while running.isActive and not running.lastProgress and not running.status["message"].startswith("Waiting"):
        time.sleep(0.1)


def finish(running: StreamingQuery, client: sarit.Client, beside: Executor) -> None:
    """Show how far the query is until it has read, and written, everything there is."""
    tail = sum(client.stream_cut_tail(DEPARTURES).positions.values())
    progress = Progress("querying with PySpark", tail, "bytes", first=read_bytes(running))
    finished = beside.submit(running.processAllAvailable)
    while not wait([finished], timeout=0.2).done:
        progress.show(read_bytes(running))
    finished.result()
    batches = [batch for batch in running.recentProgress if batch["numInputRows"]]
    rows = sum(int(batch["numInputRows"]) for batch in batches)
    busy = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
    if rows:
        progress.show(tail, last=True)
        print(f"PySpark took {rows:,} events in {len(batches)} micro-batches, {rows / busy:,.0f}/s while at work")
    else:
        print("PySpark had read all events in an earlier run")


def read_bytes(running: StreamingQuery) -> int:
    """The bytes of the stream that the query has read, earlier runs included; 0 until it reports them."""
    last = running.lastProgress
    offset = json.loads(last.json)["sources"][0]["endOffset"] if last else None
    return sum(offset["streams"][DEPARTURES].values()) if offset else 0


def results(client: sarit.Client) -> Results:
    """(hour, origin) -> (departures, minutes of delay), read back from the stream.

    The sink writes exactly once: exits when a result is there twice."""
    found: Results = {}
    begun = time.monotonic()
    events = 0
    for event in client.reader(DELAYS, end="tail"):
        row = json.loads(event)
        found[row["hour"], row["origin"]] = (row["departures"], row.get("delay_minutes") or 0.0)
        events += 1
    if events > len(found):
        raise SystemExit(f"{events - len(found):,} results are in the stream more than once")
    print(f"{events:,} results read back, {events / (time.monotonic() - begun):,.0f}/s")
    return found


def table(found: Results) -> None:
    """Print mean delays by origin and hour of the day."""
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for (hour, origin), (departures, minutes) in found.items():
        cell = sums[int(hour[11:13]), origin]
        cell[0] += departures
        cell[1] += minutes
    origins = sorted({origin for _, origin in sums})
    print("\nmean departure delay in minutes, by scheduled hour (UTC) and origin, over the whole year\n")
    print("  hour  " + "".join(f"{origin:>9}" for origin in origins))
    for hour in sorted({hour for hour, _ in sums}):
        cells = [sums[hour, origin] for origin in origins]
        if any(cell[0] for cell in cells):
            values = "".join(f"{cell[1] / cell[0]:>9.1f}" if cell[0] else f"{'-':>9}" for cell in cells)
            print(f"  {hour:02d}:00 {values}")


def check(found: Results, flights: list[feed.Flight]) -> None:
    """Every flight that departed must be counted once."""
    counted, departed = sum(count for count, _ in found.values()), sum(flight.departed for flight in flights)
    print(f"\n{len(found):,} hours and origins; {counted:,} of {departed:,} departures counted")
    if counted != departed:
        raise SystemExit("the results do not hold every departure once")


def end_in_order() -> None:
    """Handle other signals like Ctrl-C: a node left running would lock its directory for the next run."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # not ignored, as under nohup
            signal.signal(number, signal.default_int_handler)


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C is noticed when this ends: Spark, interrupted while it starts, fails in words of its own.

    It also puts its own handler in place, which is taken back.  Threads started meanwhile never see the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def run(data: Path) -> None:
    """A node, and the pipeline on it."""
    with Node(data) as controller:
        print(f"a node serves at {controller}, data in {data}/; starting Spark")
        found, flights = pipeline(data, controller)
    table(found)
    check(found, flights)


def pipeline(data: Path, controller: str) -> tuple[Results, list[feed.Flight]]:
    """Query, replay, results, in this order; what was found, and what was written.

    `data`: for the query's checkpoint.  `controller`: of a node, or those of a cluster with commas."""
    acknowledged = data / "acknowledged"
    with ThreadPoolExecutor(1) as beside:
        with ctrl_c_waits():
            loading = beside.submit(feed.flights)
            spark = query.session(data / "spark.log")
        try:
            flights = loading.result()
            with sarit.connect(controller) as client:
                client.create_scope("aviation")
                client.create_stream(DEPARTURES, segments=SEGMENTS)
                client.create_stream(DELAYS)
                wanted = missing(client, flights, acknowledged)
                running = query.start(spark, controller, data.resolve() / "checkpoint")
                try:
                    if wanted:
                        wait_until_ready(running)
                        replay(client, wanted, acknowledged)
                    finish(running, client, beside)
                finally:
                    running.stop()
                return results(client), flights
        finally:
            spark.stop()


def main() -> None:
    """Run the demo on a data directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("demo-data"), help="directory of node and checkpoint")
    data: Path = parser.parse_args().data
    begun = time.monotonic()
    end_in_order()
    run(data)
    print(f"done in {time.monotonic() - begun:.0f} s; run it again to see it continue from {data}/")


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: calls into Spark then fail with an error of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:
        if not interrupted(error):
            if type(error).__module__.startswith(("pyspark", "py4j")):
                print(f"\nSpark failed: {query.root_cause(error)}", file=sys.stderr)
            raise
        print("\ninterrupted: acknowledged data is safe; run the demo again to continue")
        sys.exit(130)
