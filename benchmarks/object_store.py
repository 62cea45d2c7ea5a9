"""`python -m benchmarks.object_store`: the requests of a real node to an object store, beside those of the model.

A node with long-term storage and index on a local S3 server (versitygw), behind a proxy that counts requests.  Each of
1,000 segments takes an event of 100 bytes to 10 kB in every interval of checkpoints.  After the first minutes requests
are counted, and scaled to a day.  The model (`benchmarks.micro.object_requests`) runs for as many checkpoints.

Prices are those of S3 Standard: LIST is paid as PUT, HEAD as GET, and DELETE costs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import ROOT, Load, LoadFailed, SaritNode
from benchmarks.micro import object_requests
from benchmarks.micro.object_requests import LEAST_BYTES, MOST_BYTES
from sarit.cluster.limits import DAY_SECONDS, S3_GET_DOLLARS, S3_PUT_DOLLARS
from sarit.process.limits import OBJECT_STORE_FLUSH_INTERVAL_SECONDS
from tests.contract.s3 import s3_server
from tests.contract.s3_proxy import Proxy, counting

if TYPE_CHECKING:
    from collections import Counter

# What each request is paid as.
PAID_AS_PUT: Final = ("PUT", "POST", "LIST")
PAID_AS_GET: Final = ("GET", "HEAD")
CHUNKS, INDEX = "chunks", "index"
FIGURES: Final = ("checkpoints", "chunk_puts", "index_puts", "puts", "gets", "index_gets", "deletes", "dollars")
REPORT_SECONDS: Final = 120.0  # a busy machine


def measure(given: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Requests of a real node a day."""
    with s3_server(directory) as behind, counting(behind) as (proxy, server):
        os.environ.update(server.environ)
        places = ("--storage", f"s3://{server.bucket}/{CHUNKS}", "--index-storage", f"s3://{server.bucket}/{INDEX}")
        options = ("--containers", str(given.containers), *places)
        with SaritNode(directory / "node", 1, *options).start() as node:
            skipped, counted = given.skipped * 60.0, given.minutes * 60.0
            load = Load("sarit_trickle", {
                "controller": node.endpoint, "segments": given.segments, "least_bytes": LEAST_BYTES,
                "most_bytes": MOST_BYTES, "interval": OBJECT_STORE_FLUSH_INTERVAL_SECONDS,
                "seconds": skipped + counted + 5,
            })  # fmt: skip
            load.wait_ready(300)
            time.sleep(skipped)
            requests, before, seconds = count(proxy, node, counted)
            found = daily(requests, before, seconds)
            try:
                return found | {"load": load.result(120)}
            except LoadFailed as error:  # what was counted is worth something all the same
                return found | {"load": str(error)}


def count(proxy: Proxy, node: SaritNode, seconds: float) -> tuple[Counter[tuple[str, str]], dict[str, int], float]:
    """The requests of so many seconds; the checkpoints and chunks in them; how long it was."""
    first, at, began = proxy.folders.copy(), node.report(REPORT_SECONDS), time.monotonic()
    time.sleep(seconds)
    took, last = time.monotonic() - began, node.report(REPORT_SECONDS)
    return proxy.folders - first, {name: last[name] - at[name] for name in ("checkpoints", "chunks")}, took


def daily(requests: Counter[tuple[str, str]], cycles: dict[str, int], seconds: float) -> dict[str, Any]:
    """As the model's figures."""
    days = seconds / DAY_SECONDS

    def of(methods: tuple[str, ...], *folders: str) -> float:
        return sum(n for (method, folder), n in requests.items() if method in methods and folder in folders) / days

    both = (CHUNKS, INDEX)
    puts, gets = of(PAID_AS_PUT, *both), of(PAID_AS_GET, *both)
    return {
        "chunk_puts": of(PAID_AS_PUT, CHUNKS),
        "index_puts": of(PAID_AS_PUT, INDEX),
        "puts": puts,
        "gets": of(PAID_AS_GET, CHUNKS),
        "index_gets": of(PAID_AS_GET, INDEX),
        "deletes": of(("DELETE",), *both),
        "dollars": puts * S3_PUT_DOLLARS + gets * S3_GET_DOLLARS,
        "checkpoints": cycles["checkpoints"] / days,
        "requests": {f"{method} {folder}": n for (method, folder), n in sorted(requests.items())},
        "seconds": seconds,
    }


def main() -> None:
    """Measure, compute, print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.object_store", description=__doc__)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--containers", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=10.0, help="that are counted")
    parser.add_argument("--skipped", type=float, default=6.0, help="minutes before")
    parser.add_argument("--dir", type=Path, default=ROOT / ".cache" / "bench")
    given = parser.parse_args()
    given.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        found = measure(given, Path(name))
    cycles = 60.0 / OBJECT_STORE_FLUSH_INTERVAL_SECONDS
    asked = argparse.Namespace(
        segments=given.segments, containers=given.containers, busy=1.0, no_packs=False,
        skipped=round(given.skipped * cycles), cycles=round(given.minutes * cycles),
    )  # fmt: skip
    modelled = asyncio.run(object_requests.measure(asked))
    modelled["checkpoints"] = given.containers * DAY_SECONDS / OBJECT_STORE_FLUSH_INTERVAL_SECONDS
    # On a busy machine checkpoints come late: the last column says what each of them costs.
    late = found["checkpoints"] / modelled["checkpoints"]
    print(f"{'a day':12} {'node':>12} {'model':>12} {'node/model':>10} {'for a checkpoint':>17}")
    for figure in FIGURES:
        ratio = found[figure] / modelled[figure] if modelled[figure] else float("nan")
        print(f"{figure:12} {found[figure]:12,.2f} {modelled[figure]:12,.2f} {ratio:10.2f} {ratio / late:17.2f}")
    print(json.dumps({name: found[name] for name in ("requests", "seconds", "load")}))


if __name__ == "__main__":
    main()
