"""`make cluster-failover`: faults and moves on a cluster under load; how long each container takes no writes.

    python -m tests.cluster.failover kills --times 30 --seed 1    kill -9 of a store, again and again
    python -m tests.cluster.failover moves --services             graceful moves, on BookKeeper and an S3 server
    python -m tests.cluster.failover join | stops | zookeeper | controllers

`--services`: the log on BookKeeper, index and chunks on an S3 server; otherwise all of it is in directories.
Each container has a writer and a reader of its own.  At the end nothing may be missing, doubled or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.maven import PeerMissing
from sarit.cluster.settings import parse_cluster
from sarit.cluster.status import view_cluster
from sarit.env.real import real_env
from simulation.ledger import write_line
from tests.cluster.container_load import ContainerLoad
from tests.cluster.drill import KINDS, Drill
from tests.cluster.processes import RunningCluster
from tests.contract.s3 import s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = {"kills": 30, "moves": 4, "join": 1, "stops": 2, "zookeeper": 1, "controllers": 2}


@contextlib.contextmanager
def cluster_of(directory: Path, given: argparse.Namespace) -> Iterator[RunningCluster]:
    """A running cluster of the variant that was asked for."""
    with contextlib.ExitStack() as stack:
        s3 = stack.enter_context(s3_server(directory / "s3")) if given.services else None
        bookies = 3 if given.services else 0
        yield stack.enter_context(
            RunningCluster(directory / "cluster", given.stores, 2, given.containers, bookies=bookies, s3=s3)
        )


async def run(cluster: RunningCluster, given: argparse.Namespace) -> dict[str, object]:
    """Load the cluster, and do what was asked for; the figures.  Raises AssertionError when an event is wrong."""
    async with view_cluster(parse_cluster(cluster.url), real_env()) as view:
        load = ContainerLoad(
            cluster.controllers[-1].address, given.containers, events=given.events, event_bytes=given.event_bytes,
            pause_seconds=given.pause,
        )  # fmt: skip
        await load.start()
        drill = Drill(cluster, view, load, random.Random(given.seed))
        fields = await KINDS[given.kind](drill, given.times or TIMES[given.kind])
        events = await load.finish()
        print(f"{events:,} events were acknowledged: each is there once and in order, for both readers of each stream")
        return {**fields, "events": events}


def parser() -> argparse.ArgumentParser:
    """What the command understands."""
    made = argparse.ArgumentParser(prog="python -m tests.cluster.failover", description=__doc__)
    made.add_argument("kind", choices=sorted(KINDS), nargs="?", default="kills")
    made.add_argument("--times", type=int, help="how often  [default: 30 kills, 4 moves, 1 or 2 of the others]")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--services", action="store_true", help="BookKeeper and an S3 server, no directory")
    made.add_argument("--stores", type=int, help="[default: 3; 2 for moves and controllers]")
    made.add_argument("--containers", type=int, default=16)
    made.add_argument("--events", type=int, default=20, help="flushed at once by each writer")
    made.add_argument("--event-bytes", type=int, default=100)
    made.add_argument("--pause", type=float, default=0.05, help="seconds between two flushes of a writer")
    made.add_argument("--keep", help="a directory for logs and data, which stays")
    made.add_argument("--ledger", action="store_true", help="append a line to the ledger")
    return made


def drill(arguments: list[str], directory: Path) -> dict[str, object]:
    """Run one kind on a new cluster; its figures.  Raises AssertionError, PeerMissing."""
    given = parser().parse_args(arguments)
    given.stores = given.stores or (2 if given.kind in ("moves", "controllers") else 3)
    with cluster_of(directory, given) as cluster:
        fields = asyncio.run(run(cluster, given))
        assert "Traceback" not in cluster.log(), "a process has logged a traceback"
    return {"kind": given.kind, "on": "services" if given.services else "directories", **fields}


def main(arguments: list[str]) -> int:
    """The command."""
    given, started = parser().parse_args(arguments), time.time()
    with tempfile.TemporaryDirectory(prefix="sarit-failover-") as made:
        try:
            fields = drill(arguments, Path(given.keep or made))
        except PeerMissing as error:
            print(f"no cluster here: {error}", file=sys.stderr)
            return 1
    if given.ledger:
        write_line("cluster-failover", started, fields)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
