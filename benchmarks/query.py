"""How fast SQL over a stream is: events a second of a query by `client.sql`, of plain events of 100 bytes.

python -m benchmarks.query [--events N] [--rounds N] [--segments N]

A node of its own runs beside it, and is written to before.  The queries take turns in each round.  Prints one JSON
object: by query, the median of the rounds of the events a second, and of those a second of this process's processor
time.

- `count`: `SELECT count(*)`.  `filter`: the events that contain a text, counted; `cast`: the same, with values cast to
  VARCHAR, which escapes what is no text.  `position`: the greatest offset of each segment.  `segment`: the events of
  one segment, of which the others are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import sarit
from benchmarks.noisy_tenant import _node

STREAM: Final = "bench/events"
BATCH: Final = 100_000
QUERIES: Final = {
    "count": "SELECT count(*) AS n FROM bench.events",
    "filter": "SELECT count(*) AS n FROM bench.events WHERE contains(decode(value), '77 ')",
    "cast": "SELECT count(*) AS n FROM bench.events WHERE contains(value::VARCHAR, '77 ')",
    "position": "SELECT sarit.segment, max(sarit.offset) FROM bench.events GROUP BY ALL",
    "segment": "SELECT count(*) AS n FROM bench.events WHERE sarit.segment = 0",
}


def fill(client: sarit.Client, events: int, segments: int) -> None:
    """Write the stream, and wait until it is durable."""
    client.create_scope("bench")
    client.create_stream(STREAM, segments=segments)
    with client.writer(STREAM) as writer:
        for start in range(0, events, BATCH):
            numbers = range(start, min(start + BATCH, events))
            keys = [f"k{number % 997}" for number in numbers]
            writer.write_many([b"%-95dof   " % number for number in numbers], keys)


def measure(client: sarit.Client, events: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of events a second, and a second of processor time, by query."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, sql in QUERIES.items():
            begun, processor = time.perf_counter(), time.process_time()
            rows = client.sql(sql, limit_bytes=None).to_pylist()
            found.setdefault(name, []).append(
                (events / (time.perf_counter() - begun), events / (time.process_time() - processor))
            )
            assert rows
            assert name != "count" or rows == [{"n": events}]
    return {
        name: {
            "events_per_second": round(statistics.median(rate for rate, _ in rates)),
            "events_per_processor_second": round(statistics.median(rate for _, rate in rates)),
        }
        for name, rates in found.items()
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segments", type=int, default=4)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        _node(Path(directory)) as (_, address),
        sarit.connect(address) as client,
    ):
        fill(client, given.events, given.segments)
        rates = measure(client, given.events, given.rounds)
    report = {"events": given.events, "segments": given.segments, "rounds": given.rounds, "rates": rates}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
