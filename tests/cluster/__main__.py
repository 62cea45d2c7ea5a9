"""`make cluster`: a whole cluster on this machine runs the flights pipeline with Spark, and loses a store meanwhile.

ZooKeeper, three bookies, an S3 server, three stores, two controllers.  `--log file`: without bookies, S3 server and
Spark; a program writes, a store is killed, another is stopped."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.maven import PeerMissing
from tests.cluster.load import EVENTS_AT_ONCE, Load
from tests.cluster.processes import LEASE_SECONDS, RunningCluster
from tests.contract.s3 import s3_server

ROOT = Path(__file__).resolve().parents[2]
KILLED = "s2"
POLL_SECONDS = 0.05
KILLED_AFTER_FLIGHTS = 100_000


def main() -> None:
    """Run the demonstration.  A check that fails is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", choices=["bookkeeper", "file"], default="bookkeeper")
    shared = parser.parse_args().log == "bookkeeper"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sarit-cluster-") as place, ExitStack() as stack:
        directory = Path(place)
        services = "ZooKeeper, 3 bookies, an S3 server" if shared else "ZooKeeper"
        print(f"starting {services}, 3 stores and 2 controllers in {directory}", flush=True)
        try:
            cluster = whole(directory, stack) if shared else RunningCluster(directory / "cluster")
            stack.callback(cluster.stop)
            cluster.start()
        except PeerMissing as error:
            sys.exit(f"no cluster here: {error}")
        print(cluster.sarit("cluster", "status"), flush=True)
        if shared:
            run_flights(cluster, directory)
        else:
            run_load(cluster)
    print(f"done in {time.monotonic() - began:.0f} s")


def whole(directory: Path, stack: ExitStack) -> RunningCluster:
    """A cluster whose stores share nothing but services."""
    (directory / "s3").mkdir()
    s3 = stack.enter_context(s3_server(directory / "s3"))
    return RunningCluster(directory / "cluster", bookies=3, s3=s3)


def run_flights(cluster: RunningCluster, directory: Path) -> None:
    """The pipeline of examples/flights, with a kill in its middle."""
    sys.path.insert(0, str(ROOT / "examples" / "flights"))
    import demo

    data = directory / "flights"
    data.mkdir()
    killer = Killer(cluster, data / "acknowledged")
    killer.start()
    print("starting Spark", flush=True)
    results, flights = demo.pipeline(data, cluster.controller)
    killer.join()
    demo.table(results)
    demo.check(results, flights)
    print(
        f"{KILLED} was killed when {killer.flights:,} of {len(flights):,} flights were acknowledged; none is missing,"
    )
    print("none is counted twice")


class Killer(threading.Thread):
    """Kills a store when a part of the flights is acknowledged, and starts it again when the others have taken over."""

    def __init__(self, cluster: RunningCluster, acknowledged: Path) -> None:
        super().__init__(daemon=True)
        self.flights = 0
        self._cluster = cluster
        self._acknowledged = acknowledged

    def run(self) -> None:
        """See the class."""
        cluster = self._cluster
        while self.flights < KILLED_AFTER_FLIGHTS:
            time.sleep(POLL_SECONDS)
            if self._acknowledged.exists():
                self.flights = int(self._acknowledged.read_text() or 0)
        print(f"\nkilling the store {KILLED} with kill -9 after {self.flights:,} flights", flush=True)
        killed = time.monotonic()
        cluster.stores[KILLED].kill()
        others = set(cluster.stores) - {KILLED}
        cluster.until(lambda status: all(entry["store"] in others for entry in status["containers"]))
        took = time.monotonic() - killed
        print(
            f"\nits containers are with {' and '.join(sorted(others))} after {took:.1f} s; starting it again",
            flush=True,
        )
        print(f"(a lease of {LEASE_SECONDS:g} s ended first)", flush=True)
        cluster.stores[KILLED].begin().wait()


def run_load(cluster: RunningCluster) -> None:
    """A program writes; a store is killed, another one stopped."""
    load = Load(cluster.controller).start()
    print(f"killing the store {KILLED} with kill -9 while a program writes", flush=True)
    killed = time.monotonic()
    cluster.stores[KILLED].kill()
    cluster.until(lambda status: all(entry["store"] in ("s1", "s3") for entry in status["containers"]))
    load.more()
    print(f"its containers are served by s1 and s3; the program waited {load.pause_since(killed):.1f} s at most")
    print(f"(a lease of {LEASE_SECONDS:g} s ended first)", flush=True)
    cluster.stores[KILLED].begin().wait()
    print(f"{KILLED} is back; stopping s1 with SIGTERM", flush=True)
    stopped = time.monotonic()
    cluster.stores["s1"].stop()
    took = time.monotonic() - stopped
    load.more()
    print(f"s1 stopped after {took:.1f} s; the program waited {load.pause_since(stopped):.1f} s at most", flush=True)
    load.stop()
    print(f"{len(load.acknowledged) * EVENTS_AT_ONCE:,} events were acknowledged, and exactly these are in the stream")


if __name__ == "__main__":
    main()
