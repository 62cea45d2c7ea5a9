"""Stores that come, stop, stand still and lose their place; ZooKeeper and controllers that go: real processes."""

import signal
import time

import pytest

from benchmarks.peers.ports import free_ports
from tests.cluster.failover import drill
from tests.cluster.load import Load
from tests.cluster.processes import LEASE_SECONDS, ClusterProcess, RunningCluster
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = pytest.mark.long


def test_containers_of_a_killed_store_take_writes_again_soon_after_the_lease(tmp_path):
    found = drill(["kills", "--times", "3", "--services"], tmp_path)
    assert found["p50"] <= LEASE_SECONDS + 2
    assert found["max"] <= LEASE_SECONDS + 4


def test_store_that_was_stopped_for_two_leases_answers_nothing_that_has_changed_since(tmp_path):
    drill(["stops", "--services", "--containers", "6"], tmp_path)


def test_moves_end_when_a_controller_is_killed_in_the_middle_of_them(tmp_path):
    drill(["controllers"], tmp_path)


def test_every_container_stays_while_zookeeper_is_away_for_two_leases(tmp_path):
    drill(["zookeeper", "--services", "--containers", "6"], tmp_path)


def test_store_whose_place_was_taken_gives_up_its_containers_and_ends_with_an_error(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4) as cluster:
        load = Load(cluster.controller).start()
        first = cluster.stores["s1"]
        first.signal(signal.SIGSTOP)
        try:
            cluster.until(lambda status: [store["store"] for store in status["stores"]] == ["s2"])
            port = str(free_ports(1)[0])
            command = [SARIT, "store", "--cluster", cluster.url, "--id", "s1", "--port", port, "--memory", "1G"]
            second = ClusterProcess("second-s1", cluster.directory, command, cluster.environ).begin().wait()
        finally:
            first.signal(signal.SIGCONT)
        end = time.monotonic() + HANG_SECONDS
        while first.running:
            assert time.monotonic() < end
            time.sleep(0.05)
        try:
            assert first.exit_code == 1
            last = first.log().splitlines()[-1]
            assert last.startswith(f"sarit: another process, at {second.address}, has joined as store s1 while")
            load.more()
            load.stop()
        finally:
            second.kill()
