"""How fast one process reads a stream for training: events a second of 100 bytes, of one node beside it.

python -m benchmarks.training [--events N] [--rounds N]

A node of its own runs beside it.  The ways take turns in each round, so that all see the machine as it is.  Prints one
JSON object: by way, the median, least and greatest of the rounds of the events a second.  At the end it stops an epoch
at several batches, goes on from the positions, and compares with an epoch that nobody stopped: `resume_exact`.

- `arrays`: batches of 4,096 events as arrays of numpy (dtype uint8, shape 100), as they are stored.
- `arrays_shuffled`: the same, with 65,536 events shuffled at once.
- `small_batches`: batches of 256 events, as they are stored.
- `bytes`: lists of 4,096 events as Python's bytes.
- `arrow`: the client's own batch reader, without a loader, as the measure of what there is to reach.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import sarit
from benchmarks.noisy_tenant import _node
from sarit.training import StreamLoader

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM: Final = "bench/training"
EVENT_BYTES: Final = 100
WRITE_EVENTS: Final = 10_000
ARRAYS: Final[dict[str, Any]] = {"dtype": "uint8", "shape": (EVENT_BYTES,), "batch_rows": 4096}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "arrays": ARRAYS,
    "arrays_shuffled": {**ARRAYS, "shuffle_rows": 65_536},
    "small_batches": {**ARRAYS, "batch_rows": 256},
    "bytes": {"batch_rows": 4096},
}


def fill(client: sarit.Client, count: int) -> None:
    """Write events that are all different."""
    client.create_scope("bench")
    client.create_stream(STREAM, segments=2)
    with client.writer(STREAM) as writer:
        for first in range(0, count, WRITE_EVENTS):
            numbers = np.arange(first, min(first + WRITE_EVENTS, count), dtype=np.int64)
            rows = np.zeros((len(numbers), EVENT_BYTES), np.uint8)
            rows[:, :8] = numbers.view(np.uint8).reshape(-1, 8)
            writer.write_many([row.tobytes() for row in rows])


def load(address: str, settings: dict[str, Any]) -> int:
    """Read an epoch; returns how many events there were."""
    return sum(len(batch["value"]) for batch in StreamLoader(STREAM, address=address, **settings))


def arrow(client: sarit.Client) -> int:
    """Read everything by the client; returns how many events there were."""
    return sum(batch.num_rows for batch in client.stream(STREAM).batch().arrow_batches())


def numbers(batches: Any) -> Any:
    """Return the numbers that events begin with, as one array."""
    return np.concatenate([batch["value"][:, :8].copy().view(np.int64)[:, 0] for batch in batches])


def resumes_exactly(address: str, stops: int = 5) -> bool:
    """Stop an epoch several times, go on in a new loader each time, and compare the order of all events."""
    settings = WAYS["arrays_shuffled"]
    expected = numbers(StreamLoader(STREAM, address=address, **settings))
    found, state = [], None
    for stop in range(stops + 1):
        loader = StreamLoader(STREAM, address=address, **settings)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for number, batch in enumerate(loader):
            found.append(batch)
            if stop < stops and number == 17 * (stop + 1):
                break
        state = json.dumps(loader.state_dict())
        loader.close()
    return bool((numbers(found) == expected).all() and (np.sort(expected) == np.arange(len(expected))).all())


def measure(address: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Return events a second by way, of each round."""
    found: dict[str, list[float]] = {}

    def timed(way: str, work: Callable[..., int], *given: Any) -> None:
        begun = time.perf_counter()
        read = work(*given)
        found.setdefault(way, []).append(read / (time.perf_counter() - begun))
        assert read == count, f"{way} read {read} of {count} events"

    with sarit.connect(address) as client:
        fill(client, count)
        for _ in range(rounds):
            timed("arrow", arrow, client)
            for way, settings in WAYS.items():
                timed(way, load, address, settings)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sarit-training-") as directory, _node(Path(directory)) as (_, address):
        found = measure(address, options.events, options.rounds)
        exact = resumes_exactly(address)
    figures: dict[str, Any] = {
        way: {"median": round(statistics.median(rates)), "least": round(min(rates)), "greatest": round(max(rates))}
        for way, rates in found.items()
    }
    print(json.dumps({"events_per_second": figures, "resume_exact": exact}, indent=2))


if __name__ == "__main__":
    main()
