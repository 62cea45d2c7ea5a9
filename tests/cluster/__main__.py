"""`make cluster`: ZooKeeper, three stores, two controllers; a store is killed and nothing is missing."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers.maven import PeerMissing
from tests.cluster.load import EVENTS_AT_ONCE, Load
from tests.cluster.processes import LEASE_SECONDS, RunningCluster


def main() -> None:
    """Run the demonstration.  A check that fails is an error."""
    with tempfile.TemporaryDirectory(prefix="sarit-cluster-") as directory:
        print(f"starting ZooKeeper, 3 stores and 2 controllers in {directory}", flush=True)
        try:
            cluster = RunningCluster(Path(directory) / "cluster")
            cluster.start()
        except PeerMissing as error:
            sys.exit(f"no cluster here: {error}")
        try:
            run(cluster)
        finally:
            cluster.stop()


def run(cluster: RunningCluster) -> None:
    """The demonstration on a cluster that runs."""
    print(cluster.sarit("cluster", "status"), flush=True)
    load = Load(cluster.controller).start()
    print("killing the store s2 with kill -9 while a program writes", flush=True)
    killed = time.monotonic()
    cluster.stores["s2"].kill()
    cluster.until(lambda status: all(entry["store"] in ("s1", "s3") for entry in status["containers"]))
    load.more()
    print(f"its containers are served by s1 and s3; the program waited {load.pause_since(killed):.1f} s at most")
    print(f"(a lease of {LEASE_SECONDS:g} s ended first)", flush=True)
    cluster.stores["s2"].begin().wait()
    print("s2 is back; stopping s1 with SIGTERM", flush=True)
    stopped = time.monotonic()
    cluster.stores["s1"].stop()
    took = time.monotonic() - stopped
    load.more()
    print(f"s1 stopped after {took:.1f} s; the program waited {load.pause_since(stopped):.1f} s at most", flush=True)
    load.stop()
    print(f"{len(load.acknowledged) * EVENTS_AT_ONCE:,} events were acknowledged, and exactly these are in the stream")


if __name__ == "__main__":
    main()
