"""Alerts of a whole cluster under a real Prometheus, each by its fault: of bookies, ZooKeeper, S3 and stores.

ZooKeeper, four bookies, an S3 server, two stores and a controller: all are real processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

import sarit
from sarit.store.limits import RELEASE_DIRTY_BYTES
from tests.cluster.processes import LEASE_SECONDS, RunningCluster
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS
from tests.observability.prometheus import MISSING, PROMETHEUS, Load, Prometheus
from tests.observability.test_prometheus import RARE, see_all

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]

OF_CLUSTER = {
    "SaritBookieReplaced", "SaritBookiesTooFew", "SaritContainersMoveForLong", "SaritControllerErrors", "SaritFenced",
    "SaritLeaseNearlyEnded", "SaritRecoveryFails", "SaritZooKeeperAway",
}  # fmt: skip
# Panels of the dashboard that find nothing, and why.
NOT_IN_A_CLUSTER = {
    "Writes / Sync of the log (local logs)": "its log is on BookKeeper",
    "Memory and bounds / Free space": "nothing of a store is on a disk",
    "Tier 2 / Bytes compacted per second": "no segment has small extents enough yet",
}


@contextmanager
def repeated(work):
    """Do something over and over on a thread of its own, whatever it raises."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            with suppress(sarit.SaritError, OSError):
                work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def writes_everywhere(cluster):
    """Appends to many segments, and so to all containers: each has a ledger that notices a bookie."""

    def write() -> None:
        with sarit.connect(cluster.controller, retry_timeout=3) as client:
            client.create_scope("wide")
            client.create_stream("wide/s", segments=48)
            with client.writer("wide/s") as writer:
                for number in range(2000):
                    writer.write(b"x" * 100, key=str(number))
                    if number % 200 == 0:
                        time.sleep(0.1)

    return repeated(write)


def calls(cluster):
    """Calls that need the containers of the controller's tables, by a client that was connected before.

    The controller answers UNAVAILABLE after 20 s of trying.  The call of a client that gives up before, as that of one
    that connects, is CANCELLED."""
    stack = ExitStack()
    client = stack.enter_context(sarit.connect(cluster.controller, retry_timeout=60))
    for _ in range(8):
        stack.enter_context(repeated(lambda: client.stream_info("load/s")))
    return stack


def test_alerts_fire_by_faults_of_a_cluster(tmp_path):
    with (
        s3_server(tmp_path / "s3") as s3,
        RunningCluster(
            tmp_path / "cluster", stores=2, controllers=1, containers=12, bookies=4, s3=s3, http=True
        ) as cluster,
        Prometheus(
            tmp_path / "prometheus", [each.http for each in (*cluster.stores.values(), *cluster.controllers)]
        ) as prometheus,
        Load(cluster.controller),
        writes_everywhere(cluster),
    ):
        _see_bookies(prometheus)
        see_all(prometheus, 3, NOT_IN_A_CLUSTER | RARE)
        assert not prometheus.firing() & OF_CLUSTER
        _move_slowly(prometheus, cluster, s3.pid)
        _lose_bookies(prometheus, cluster)
        _fence(prometheus, cluster)
        _lose_zookeeper(prometheus, cluster)
        cluster.until(lambda status: all(entry["store"] != "-" for entry in status["containers"]))
    assert "Traceback" not in cluster.log()


def _see_bookies(prometheus):
    for query in (
        "min(sarit_bookkeeper_writable_bookies) == 4",
        "min(sarit_bookkeeper_entries_total) > 100",
        "min(sarit_bookkeeper_entry_bytes_total) > 10000",
        "min(sarit_bookkeeper_ledgers_total) > 0",
        "histogram_quantile(0.5, sum by (le) (rate(sarit_bookkeeper_entry_latency_seconds_bucket[15s]))) < 1",
    ):
        prometheus.until(lambda query=query: prometheus.query(query), query)


def _move_slowly(prometheus, cluster, storage):
    """Long-term storage stands still while a store is drained: each container flushes in vain before it moves.

    Only one that has more than RELEASE_DIRTY_BYTES flushes before it moves.  The command ends when all have moved."""
    os.kill(storage, signal.SIGSTOP)
    try:
        backlog = f'sarit_log_backlog_bytes{{instance="{cluster.stores["s2"].http}"}}'
        _fill(prometheus, cluster, f"count({backlog} > {2 * RELEASE_DIRTY_BYTES}) >= 2")
        draining = cluster.begin("cluster", "drain", "s2")
        prometheus.until_firing("SaritContainersMoveForLong")
    finally:
        os.kill(storage, signal.SIGCONT)
    assert draining.wait(HANG_SECONDS) == 0
    cluster.sarit("cluster", "drain", "--undo", "s2")
    prometheus.until(lambda: "SaritContainersMoveForLong" not in prometheus.firing(), "it ends when they have moved")
    cluster.until(lambda status: all(entry["store"] != "-" for entry in status["containers"]))


def _fill(prometheus, cluster, query):
    """Write until a query finds something."""
    end = time.monotonic() + HANG_SECONDS
    with (
        sarit.connect(cluster.controller, retry_timeout=HANG_SECONDS) as client,
        client.writer("wide/s", buffer_bytes=8 << 20) as writer,
    ):
        while not prometheus.query(query):
            assert time.monotonic() < end, query
            for number in range(200):
                writer.write(b"x" * 50_000, key=str(number))


def _lose_bookies(prometheus, cluster):
    """One, which the fourth replaces; a second; then a third, without which no container can be opened."""
    first, second, third, _ = cluster.bookkeeper.bookies
    asking = calls(cluster)
    first.kill()
    prometheus.until_firing("SaritBookieReplaced")
    assert "SaritBookiesTooFew" not in prometheus.firing()
    second.kill()
    prometheus.until_firing("SaritBookiesTooFew")
    third.kill()
    store = cluster.stores["s1"]
    store.kill()
    with asking:
        wanted = {"SaritRecoveryFails", "SaritControllerErrors"}
        prometheus.until(lambda: wanted.difference_update(prometheus.firing()) or not wanted, f"{wanted} fire")
    for bookie in (first, second, third):
        bookie.start()
    for bookie in (first, second, third):
        bookie.wait()
    store.begin().wait()
    prometheus.until(lambda: "SaritBookiesTooFew" not in prometheus.firing(), "it ends with bookies")


def _fence(prometheus, cluster):
    """A store stands still for longer than its lease: others take its containers, and it finds that when it goes on."""
    for _ in range(8):
        if "SaritFenced" in prometheus.firing():
            return
        cluster.until(lambda status: len({entry["store"] for entry in status["containers"]} - {"-"}) == 2)
        store = cluster.stores["s2"]
        store.signal(signal.SIGSTOP)
        time.sleep(2 * LEASE_SECONDS)
        store.signal(signal.SIGCONT)
        time.sleep(3)  # for a scrape
    prometheus.until_firing("SaritFenced")


def _lose_zookeeper(prometheus, cluster):
    """It stands still, and answers nobody."""
    os.kill(cluster.zookeeper.pid, signal.SIGSTOP)
    try:
        wanted = {"SaritLeaseNearlyEnded", "SaritZooKeeperAway"}
        prometheus.until(lambda: wanted.difference_update(prometheus.firing()) or not wanted, f"{wanted} fire")
    finally:
        os.kill(cluster.zookeeper.pid, signal.SIGCONT)
    prometheus.until(lambda: "SaritZooKeeperAway" not in prometheus.firing(), "it ends with ZooKeeper")
