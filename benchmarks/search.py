"""How fast a node indexes log lines beside their ingest, how large its index is, and how fast it answers.

python -m benchmarks.search [--events N] [--queries N]

A node is a process of its own, which stores, indexes and answers; a second process writes N log lines as fast as it
can to a stream of two segments that is searchable from its first event.  One line of JSON:

    ingest      lines a second until the last one was acknowledged
    indexed     lines a second until the last one could be found, from the first write on
    size        bytes of the index by bytes of the lines
    seconds     median, 95th percentile and most of a search, by the kind of query, warm, without the events
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.edge import SARIT, node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STREAM: Final = "bench/logs"
BLOCK: Final = 1000
WAIT_SECONDS: Final = 1800.0
_LEVELS: Final = ("INFO",) * 80 + ("DEBUG",) * 10 + ("WARNING",) * 8 + ("ERROR",) * 2
_PARTS: Final = ("store", "controller", "client", "worker", "gateway", "billing", "search", "auth")
_VERBS: Final = ("accepted", "refused", "opened", "closed", "retried", "timed out", "committed", "flushed", "deleted")
_HOSTS: Final = 400
_WORDS: Final = 20_000


def lines(count: int) -> Iterator[bytes]:
    """Yield log lines of about 130 bytes: a time, a level, a component, a sentence with words by Zipf, ids."""
    rng = random.Random(1)
    words = [f"{rng.choice('bcdfglmnprst')}{rng.choice('aeiou')}{number:x}" for number in range(_WORDS)]
    weights = [1 / (rank + 10) for rank in range(_WORDS)]
    drawn = rng.choices(words, weights, k=1 << 18)
    for number in range(count):
        at = number * 7 % (len(drawn) - 4)
        yield (
            f"2026-01-01T00:{number // 60000 % 60:02d}:{number // 1000 % 60:02d}.{number % 1000:03d} "
            f"{_LEVELS[rng.randrange(100)]} {_PARTS[number % 8]} host-{rng.randrange(_HOSTS)} request {number:x} "
            f"{_VERBS[number % 9]} {' '.join(drawn[at : at + 4])} after {rng.randrange(2000)} ms"
        ).encode()


async def write(address: str, count: int) -> None:
    """Write lines, and print how many bytes they have, and the seconds."""
    import sarit.aio

    async with await sarit.aio.connect(address) as client:
        writer, began, size = client.writer(STREAM), time.monotonic(), 0
        for number, line in enumerate(lines(count)):
            writer.write(line, str(number % 64))
            size += len(line)
            if number % BLOCK == 0:
                await writer.drain()
        await writer.close()
        print(json.dumps({"bytes": size, "seconds": time.monotonic() - began}))


async def wait_until_indexed(address: str, count: int) -> dict[str, Any]:
    """Wait until so many events are in the index, and return what it says of itself."""
    import sarit.aio

    async with await sarit.aio.connect(address) as client:
        ends = time.monotonic() + WAIT_SECONDS
        while (info := await client.search.info(STREAM)).events < count:
            assert time.monotonic() < ends, info
            await asyncio.sleep(0.1)
        return {"stored_bytes": info.stored_bytes, "shards": info.shards, "problem": info.problem}


async def ask(address: str, times: int) -> dict[str, Any]:
    """Ask queries of several kinds, again and again, and return their times."""
    import sarit.aio

    rng = random.Random(2)
    found: dict[str, Any] = {}
    kinds: dict[str, Callable[[], str]] = {
        "rare word": lambda: f"{rng.randrange(1 << 20):x}",
        "two words": lambda: f"ERROR {rng.choice(_PARTS)}",
        "phrase": lambda: f'"timed out" "host {rng.randrange(_HOSTS)}"',
        "any of two": lambda: f"host-{rng.randrange(_HOSTS)} (ERROR OR WARNING)",
        "beginning": lambda: f"ba{rng.randrange(16):x}* DEBUG",
        "frequent word": lambda: rng.choice(("INFO", "request", "ms")),
    }
    async with await sarit.aio.connect(address) as client:
        for kind, query in kinds.items():
            seconds = []
            for number in range(times + 2):
                began = time.perf_counter()
                await client.search(STREAM, query(), events=False)
                if number >= 2:  # the first ones open files
                    seconds.append(time.perf_counter() - began)
            found[kind] = [round(value, 4) for value in (statistics.median(seconds), _p95(seconds), max(seconds))]
        began = time.perf_counter()
        await client.search(STREAM, "ERROR", events=False, bucket_ms=60_000)
        found["histogram"] = [round(time.perf_counter() - began, 4)]
    return found


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(0.95 * len(seconds)))]


def make_searchable(address: str) -> None:
    """Create the stream, and its index."""
    for command in (
        ["scope", "create", "bench"], ["stream", "create", STREAM, "--segments", "2"],
        ["stream", "update", STREAM, "--searchable"],
    ):  # fmt: skip
        subprocess.run([SARIT, *command, "--controller", address], check=True, stdout=subprocess.DEVNULL)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the node, and return the figures."""
    with tempfile.TemporaryDirectory() as place, node(f"{place}/node", "--http-port", "off") as (_, address):
        make_searchable(address)
        began = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.search", "--write", address, "--events", str(options.events)]
        written = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        index = asyncio.run(wait_until_indexed(address, options.events))
        took = time.monotonic() - began
        return {
            "events": options.events,
            "line_bytes": round(written["bytes"] / options.events, 1),
            "ingest": round(options.events / written["seconds"]),
            "indexed": round(options.events / took),
            "size": round(index["stored_bytes"] / written["bytes"], 3),
            "index": index,
            "seconds": asyncio.run(ask(address, options.queries)),
        }


def main() -> None:
    """Measure, or write."""
    parser = argparse.ArgumentParser(description="Indexing and searching log lines")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--write", metavar="ADDRESS")
    options = parser.parse_args()
    if options.write:
        asyncio.run(write(options.write, options.events))
    else:
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
