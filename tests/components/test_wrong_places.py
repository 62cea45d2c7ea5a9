"""Processes of a cluster that are started against the wrong servers: one error, and no file is written anywhere."""

from __future__ import annotations

import subprocess

import pytest
from kazoo.client import KazooClient

from benchmarks.peers.ports import free_ports
from tests.cluster.load import Load
from tests.cluster.processes import RunningCluster
from tests.components.bookkeeper import set_up
from tests.components.zookeeper import ZooKeeperServer
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * HANG_SECONDS)]


def refused(cluster: RunningCluster, *arguments: str) -> str:
    """The one error with which a command ends."""
    done = subprocess.run(
        [SARIT, *arguments], env=cluster.environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("sarit: ")]
    return error


def everything(hosts: str) -> dict[str, bytes]:
    """All nodes of a ZooKeeper but its own, with their values."""
    client = KazooClient(hosts)
    client.start()
    try:
        found, left = {}, ["/"]
        while left:
            path = left.pop()
            found[path] = client.get(path)[0]
            left += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path) if path + name != "/zookeeper"]
        return found
    finally:
        client.stop()
        client.close()


def test_processes_beside_the_wrong_servers_end_with_one_error_and_write_nothing(tmp_path):
    other = ZooKeeperServer(tmp_path / "other").start()
    port = str(free_ports(1)[0])
    with RunningCluster(tmp_path / "cluster", stores=1, controllers=1, containers=2) as cluster:
        try:
            load = Load(cluster.controller, segments=2).start()
            before = everything(other.hosts)
            elsewhere = f"zookeeper://{other.hosts}/test"
            for command in ("store", "controller"):
                error = refused(cluster, command, "--cluster", elsewhere, "--port", port)
                assert f"there is no cluster {elsewhere}: make it with `sarit cluster init" in error
            new = ("cluster", "init", "--cluster", elsewhere, "--containers", "2")
            storage = ("--storage", f"file://{tmp_path}/new")
            # The log of another cluster.
            error = refused(cluster, *new, *storage, "--log", f"file://{cluster.directory}/log")
            assert "is the log of the cluster" in error
            # Its long-term storage.
            error = refused(
                cluster, *new, "--storage", f"file://{cluster.directory}/chunks", "--log", f"file://{tmp_path}/log"
            )
            assert "another cluster or node: they would delete each other's chunks" in error
            # A ZooKeeper without BookKeeper, and a BookKeeper without bookies.
            log = ("--log", f"bookkeeper://{other.hosts}/ledgers", "--index", f"file://{tmp_path}/index")
            assert "no BookKeeper is set up there; is the path right?" in refused(cluster, *new, *storage, *log)
            assert everything(other.hosts) == before
            set_up(other)
            before = everything(other.hosts)
            error = refused(cluster, *new, *storage, *log)
            assert "0 bookies are registered as writable" in error
            assert "an entry needs 2: start more of them, or check the path" in error
            assert everything(other.hosts) == before
            places = [tmp_path / name for name in ("new", "log", "index")]
            assert not [path for place in places for path in place.rglob("*") if path.is_file()]
            # Another release has served the cluster.
            client = KazooClient(cluster.zookeeper.hosts)
            client.start()
            own, _ = client.get("/sarit/test/release")
            client.set("/sarit/test/release", own.replace(b"0.1", b"9.4"))
            assert "release 9.4 has served this cluster" in refused(cluster, "store", "--id", "new", "--port", port)
            client.set("/sarit/test/release", own)
            client.stop()
            client.close()
            assert set(cluster.status()["stores"][0].values()) >= {"s1"}
            load.more()
            load.stop()
        finally:
            other.kill()
