"""`python -m benchmarks.bookkeeper`: nodes whose durable log is on BookKeeper, on the same three bookies, in turns.

Bookies sync their journals; an entry has three copies, and two for an acknowledgement.  Rows: bulk (`write_many` of
events of 100 bytes to 4 segments at full speed, by Sarit's client) and latency (10,000 events/s on one segment).
Pravega's own Java client is measured, too.  The processor time is that of the node, of all bookies, and of the load.

`--frames 2 4 8 16` measures Sarit with so many frames in flight, one after the other, instead of beside Pravega.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import ROOT, SaritNode, load
from benchmarks.peers.java_load import java_load
from benchmarks.peers.pravega import Pravega
from benchmarks.sarit_rows import EVENT_STORED_BYTES, LOW_RATE
from tests.components.bookkeeper import COLLECTION_MS, FAST_OPTIONS, BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable

JAVA_SECONDS: Final = 8.0  # half of it to warm up
MB: Final = 1e6


class Site:
    """The bookies, and a directory for the nodes."""

    def __init__(self, cluster: BookKeeperCluster, place: Path, given: argparse.Namespace) -> None:
        self.cluster = cluster
        self.given = given
        self._place = place
        self._nodes = 0

    def directory(self) -> Path:
        """A new one."""
        self._nodes += 1
        return self._place / f"node-{self._nodes}"

    def bookie_seconds(self) -> float:
        """Processor time of all bookies so far."""
        return sum(bookie.process.cpu_seconds() for bookie in self.cluster.bookies)


def sarit(site: Site, frames: int = 0) -> dict[str, Any]:
    """One turn of Sarit."""
    os.environ["SARIT_BENCH_LEDGER_FRAMES"] = str(frames)
    url = f"bookkeeper://{site.cluster.zookeeper.hosts}/ledgers"
    with SaritNode(site.directory(), 1, "--log", url).start() as node:
        return rows(site, node.endpoint, node.cpu_seconds)


def pravega(site: Site) -> dict[str, Any]:
    """One turn of Pravega."""
    node = Pravega(site.directory(), durable=True, zookeeper=site.cluster.zookeeper.hosts).start()
    try:
        found = rows(site, node.endpoint, node.cpu_seconds)
        options = {"mode": "write", "endpoint": node.endpoint, "topic": "java", "rate": 0, "seconds": JAVA_SECONDS}
        java = java_load("PravegaLoad", node.classes, node.logging, options | {"warm": JAVA_SECONDS / 2})
        return found | {"java_mb_s": round(java["events_per_s"] * EVENT_STORED_BYTES / MB, 1)}
    finally:
        node.stop()


def rows(site: Site, endpoint: str, node_seconds: Callable[[], float]) -> dict[str, Any]:
    """Bulk, then latency."""
    segments = site.given.segments
    names = {"bench/warm": segments, "bench/bulk": segments, "bench/ack": 1, "bench/java": segments}
    load("sarit_admin", {"controller": endpoint, "streams": names}, 120)
    write = {"controller": endpoint, "stream": "bench/warm", "many": True, "seconds": 60}
    load("sarit_write", write | {"events": site.given.events // 4}, 300)
    before = node_seconds(), site.bookie_seconds()
    bulk = load("sarit_write", write | {"stream": "bench/bulk", "events": site.given.events}, 300)
    after = node_seconds(), site.bookie_seconds()
    gigabytes = bulk["events"] * EVENT_STORED_BYTES / 1e9
    ack = {}
    if not site.given.bulk_only:
        ack = load("sarit_write", {"controller": endpoint, "stream": "bench/ack", "rate": LOW_RATE, "seconds": 8}, 300)
    return {
        "mb_s": round(gigabytes * 1000 / bulk["seconds"], 1),
        "node_s_per_gb": round((after[0] - before[0]) / gigabytes, 2),
        "bookies_s_per_gb": round((after[1] - before[1]) / gigabytes, 2),
        **{f"ack_{name}": ack[name] for name in ack if name.startswith("p")},
    }


def medians(turns: list[dict[str, Any]]) -> dict[str, float]:
    """Of each figure."""
    return {name: round(statistics.median(turn[name] for turn in turns), 2) for name in turns[0]}


def measure(site: Site) -> dict[str, Any]:
    """All systems in turns."""
    systems: dict[str, Callable[[Site], dict[str, Any]]] = {"sarit": sarit}
    if site.given.frames:
        systems = {f"sarit-{frames}": partial(sarit, frames=frames) for frames in site.given.frames}
    elif not site.given.no_peers:
        systems["pravega"] = pravega
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    print(f"warm-up of the bookies: {json.dumps(sarit(site))}", flush=True)
    site.cluster.delete_ledgers()
    for _ in range(site.given.rounds):
        for name, turn in systems.items():
            turns[name].append(turn(site))
            print(f"{name}: {json.dumps(turns[name][-1])}", flush=True)
            site.cluster.delete_ledgers()
    found: dict[str, Any] = {name: medians(each) for name, each in turns.items()}
    if "pravega" in found:
        peer = max(found["pravega"]["mb_s"], found["pravega"]["java_mb_s"])
        found["ratio_to_pravega"] = round(found["sarit"]["mb_s"] / peer, 2)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bookkeeper", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=4_000_000, help="of a bulk row")
    parser.add_argument("--segments", type=int, default=4, help="of the bulk row")
    parser.add_argument("--bulk-only", action="store_true")
    parser.add_argument("--frames", type=int, nargs="+", default=[])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--dir", type=Path, default=ROOT / ".cache" / "bench", help="the disk to be measured")
    given = parser.parse_args()
    given.dir.mkdir(parents=True, exist_ok=True)
    begun = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        zookeeper = ZooKeeperServer(Path(name) / "zookeeper").start()
        cluster = BookKeeperCluster(Path(name), zookeeper, options=FAST_OPTIONS, gcWaitTime=COLLECTION_MS)
        try:
            cluster.start()
            found = measure(Site(cluster, Path(name), given))
        finally:
            cluster.kill()
            zookeeper.kill()
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    found |= {"begun": begun.isoformat(timespec="seconds"), "commit": git, "load": os.getloadavg()[2]}
    path = ROOT / "benchmarks" / "results" / f"{begun:%Y%m%dT%H%M%SZ}-bookkeeper.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
