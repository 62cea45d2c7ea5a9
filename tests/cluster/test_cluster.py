"""A cluster of real processes, ZooKeeper included: stores and controllers that are killed, stopped, added."""

import signal
import subprocess
import sys
import time

import pytest

from sarit.coordination.limits import ZOOKEEPER_CONNECT_SECONDS
from tests.cluster.load import Load
from tests.cluster.processes import LEASE_SECONDS, RunningCluster
from tests.contract.s3 import s3_server
from tests.nodes import SARIT

pytestmark = pytest.mark.long


def test_nothing_is_missing_and_service_is_back_after_kills_of_a_store_and_a_controller(tmp_path):
    with RunningCluster(tmp_path / "cluster") as cluster:
        load = Load(cluster.controllers[1].address).start()
        killed = time.monotonic()
        cluster.stores["s1"].kill()
        cluster.until(lambda status: all(entry["store"] in ("s2", "s3") for entry in status["containers"]))
        load.more()
        assert load.pause_since(killed) < LEASE_SECONDS + 4
        print(f"pause after kill -9 of a store: {load.pause_since(killed):.2f} s")
        killed = time.monotonic()
        cluster.controllers[0].kill()
        load.more()
        assert load.pause_since(killed) < 1
        # The controller that is left leads.
        cluster.stores["s1"].begin().wait()
        cluster.stores["s2"].kill()
        cluster.until(lambda status: all(entry["store"] in ("s1", "s3") for entry in status["containers"]))
        load.more()
        cluster.until(lambda status: len(status["controllers"]) == 1)
        load.stop()
        assert "Traceback" not in cluster.log()


def test_store_that_is_stopped_moves_its_containers_and_clients_see_no_error(tmp_path):
    with RunningCluster(tmp_path / "cluster") as cluster:
        load = Load(cluster.controller).start()
        for name, store in cluster.stores.items():
            stopped = time.monotonic()
            assert store.stop() == 0
            took = time.monotonic() - stopped
            load.more()
            pause = load.pause_since(stopped)
            print(f"{name} stopped in {took:.1f} s, longest pause of the writer {pause:.2f} s")
            others = set(cluster.stores) - {name}
            assert set(cluster.owners().values()) == others
            assert pause < LEASE_SECONDS  # containers moved: no lease had to end
            store.begin().wait()
        load.stop()
        assert "Traceback" not in cluster.log()
        assert "although it still has containers" not in cluster.log()


def test_official_python_client_writes_on_while_stores_stop_and_are_killed(tmp_path):
    wanted = 600
    with RunningCluster(tmp_path / "cluster") as cluster:
        command = [sys.executable, "-m", "tests.cluster.official", cluster.controllers[0].address, str(wanted)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            for line in client.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "read":
                    break
                if rest == "100":
                    assert cluster.stores["s1"].stop() == 0
                    cluster.stores["s1"].begin().wait()
                if rest == "300":
                    cluster.stores["s2"].kill()
            else:
                raise AssertionError(client.stderr.read() if client.stderr else "")
        by_key = {}
        for event in rest.split():
            key, number = event.split(":")
            by_key.setdefault(key, []).append(int(number))
        assert by_key == {str(key): list(range(key, wanted, 7)) for key in range(7)}


def test_writer_sees_no_error_while_zookeeper_is_away_for_longer_than_a_lease(tmp_path):
    with RunningCluster(tmp_path / "cluster") as cluster:
        load = Load(cluster.controller).start()
        before = cluster.owners()
        away = time.monotonic()
        cluster.zookeeper.kill()
        while time.monotonic() < away + LEASE_SECONDS + 2:
            load.more()
        cluster.zookeeper.start()
        load.more()
        assert load.pause_since(away) < 2
        status = cluster.until(lambda status: len(status["stores"]) == 3 and len(status["controllers"]) == 2)
        assert {entry["container"]: entry["store"] for entry in status["containers"]} == before
        load.stop()
        assert "is lost" not in cluster.log()


def test_processes_that_start_before_zookeeper_wait_for_it(tmp_path):
    """After a power cut all of them start at once."""
    with RunningCluster(tmp_path / "cluster", stores=1, controllers=1, containers=2) as cluster:
        processes = (cluster.controllers[0], cluster.stores["s1"])
        for process in processes:
            assert process.stop() == 0
        cluster.zookeeper.kill()
        for process in processes:
            process.begin()
        time.sleep(ZOOKEEPER_CONNECT_SECONDS + 2)  # what a command waits, and what a start of Python takes
        assert all(process.running for process in processes)
        cluster.zookeeper.start()
        for process in processes:
            process.wait()
        Load(cluster.controller).start().stop()


def test_store_that_joins_gets_its_part_and_no_other_container_moves(tmp_path):
    with RunningCluster(tmp_path / "cluster", containers=14) as cluster:
        load = Load(cluster.controller).start()
        before = cluster.owners()
        joined = time.monotonic()
        cluster.add_store()
        cluster.until(lambda status: sum(entry["store"] == "s4" for entry in status["containers"]) == 14 // 4)
        load.more()
        after = cluster.owners()
        moved = [number for number in before if before[number] != after[number]]
        assert len(moved) == 14 // 4
        assert all(after[number] == "s4" for number in moved)
        print(f"3 containers moved to a new store: longest pause of the writer {load.pause_since(joined):.2f} s")
        # Drained again, and it may come back.
        cluster.sarit("cluster", "drain", "s4")
        assert "s4" not in cluster.owners().values()
        assert [store["state"] for store in cluster.status()["stores"]] == ["up", "up", "up", "drained"]
        cluster.sarit("cluster", "drain", "s4", "--undo")
        cluster.until(lambda status: all(store["state"] == "up" for store in status["stores"]))
        load.stop()


def test_second_store_of_a_name_is_refused_and_the_first_serves_on(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=1, controllers=1, containers=2) as cluster:
        load = Load(cluster.controller).start()
        command = [SARIT, "store", "--cluster", cluster.url, "--id", "s1", "--port", "0", "--memory", "1G"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 1
        assert f"the cluster has a store s1 already, at {cluster.stores['s1'].address}: choose another" in done.stderr
        load.more()
        # One that was killed is back at once: its port was free.
        cluster.stores["s1"].kill()
        cluster.stores["s1"].begin().wait()
        load.more()
        load.stop()


def test_second_signal_ends_a_store_that_is_leaving_at_once(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=2) as cluster:
        # Nobody moves anything: without a controller, a store that leaves waits.
        cluster.controllers[0].kill()
        store = cluster.stores["s1"]
        store.signal(signal.SIGTERM)
        cluster.until(lambda status: status["stores"][0]["state"] == "leaving")
        time.sleep(1.2)  # signals within a second count as one
        again = time.monotonic()
        assert store.stop() == 0
        assert time.monotonic() - again < 10


def test_stores_of_several_machines_share_nothing_but_services(tmp_path):
    """The log on BookKeeper, index and long-term storage on S3; a store and a bookie are killed."""
    with (
        s3_server(tmp_path / "s3") as s3,
        RunningCluster(tmp_path / "cluster", containers=6, bookies=3, s3=s3) as cluster,
    ):
        assert {store["machine"] for store in cluster.status()["stores"]} == {f"machine-s{n}" for n in (1, 2, 3)}
        load = Load(cluster.controllers[1].address).start()
        killed = time.monotonic()
        cluster.stores["s1"].kill()
        cluster.until(lambda status: all(entry["store"] in ("s2", "s3") for entry in status["containers"]))
        load.more()
        print(f"pause after kill -9 of a store: {load.pause_since(killed):.2f} s")
        cluster.stores["s1"].begin().wait()
        stopped = time.monotonic()
        assert cluster.stores["s2"].stop() == 0
        load.more()
        print(f"pause after SIGTERM of a store: {load.pause_since(stopped):.2f} s")
        assert cluster.bookkeeper is not None
        killed = time.monotonic()
        cluster.bookkeeper.bookies[0].kill()
        load.more()
        print(f"pause after kill -9 of a bookie: {load.pause_since(killed):.2f} s")
        load.stop()
        assert "Traceback" not in cluster.log()
        assert not list((tmp_path / "cluster").glob("log*/"))
