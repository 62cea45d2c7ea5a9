"""How fast the SQLite index is: `python -m benchmarks.micro.index [--dir DIR]` prints one JSON object.

Each figure is measured with an idle and with a busy event loop (a task that hardly releases the GIL), since a busy node
pays for the hand-off between threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sarit.env.real import real_env
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.sqlite import SqliteIndexProvider
from sarit.process.limits import SWITCH_INTERVAL_SECONDS

if TYPE_CHECKING:
    from sarit.index.port import Index

SEGMENTS = 100_000
ROWS_PER_COMMIT = 1_000
VALUE = bytes(90)


async def _spin() -> None:
    while True:
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.0005:
            pass
        await asyncio.sleep(0)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ranked = sorted(seconds)
    return {
        name: round(ranked[min(int(len(ranked) * share), len(ranked) - 1)] * 1e3, 2)
        for name, share in (("p50 ms", 0.5), ("p99 ms", 0.99), ("max ms", 1.0))
    }


async def _commits(index: Index, count: int, chance: random.Random) -> dict[str, float]:
    took = []
    for _ in range(count):
        batch = WriteBatch({keys.segment_key(chance.randrange(SEGMENTS)): VALUE for _ in range(ROWS_PER_COMMIT)})
        begun = time.perf_counter()
        await index.commit(batch)
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(0.005)
    return {**_percentiles(took), "rows/s": round(count * ROWS_PER_COMMIT / sum(took))}


async def _gets(index: Index, total: int, at_once: int, per_call: int, chance: random.Random) -> dict[str, float]:
    took = []

    async def one() -> None:
        for _ in range(total // at_once // per_call):
            asked = [keys.segment_key(chance.randrange(SEGMENTS)) for _ in range(per_call)]
            begun = time.perf_counter()
            await index.get(asked)
            took.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(at_once)))
    return {"keys/s": round(total / (time.perf_counter() - begun)), **_percentiles(took)}


async def _scans(index: Index, limit: int, count: int) -> dict[str, float]:
    start, end = keys.kind_range(keys.SEGMENT)
    begun = time.perf_counter()
    rows = 0
    for _ in range(count):
        rows += len(await index.scan(start, end, limit))
    return {"rows/s": round(rows / (time.perf_counter() - begun))}


async def _measure(index: Index, chance: random.Random, scale: int) -> dict[str, Any]:
    return {
        f"commit {ROWS_PER_COMMIT} random rows": await _commits(index, 200 // scale, chance),
        "get 1 key, one call after the other": await _gets(index, 4_000 // scale, 1, 1, chance),
        "get 1 key, 64 calls at once": await _gets(index, 32_000 // scale, 64, 1, chance),
        "get 64 keys, one call after the other": await _gets(index, 64_000 // scale, 1, 64, chance),
        "scan 100 rows": await _scans(index, 100, 100 // scale),
        "scan 10,000 rows": await _scans(index, 10_000, 10 // scale + 1),
    }


async def main() -> dict[str, Any]:
    """Run everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default=".")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    chance = random.Random(1)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.dir) as root:
        index = await SqliteIndexProvider(real_env(), os.path.abspath(root)).open(0)
        for at in range(0, SEGMENTS, 10_000):
            await index.commit(WriteBatch({keys.segment_key(number): VALUE for number in range(at, at + 10_000)}))
        report["loop idle"] = await _measure(index, chance, 1)
        spinner = asyncio.ensure_future(_spin())
        report["loop busy"] = await _measure(index, chance, 4)
        spinner.cancel()
        with suppress(asyncio.CancelledError):
            await spinner
        begun = time.perf_counter()
        await index.commit(WriteBatch(range_deletes=[keys.kind_range(keys.SEGMENT)]))
        report["range delete of 100,000 rows, ms"] = round((time.perf_counter() - begun) * 1e3, 1)
        await index.close()
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), indent=2))
