"""Health of a cluster's processes, as probes see it."""

import os
import shutil
import signal
import threading
import time
from contextlib import suppress

import pytest

import sarit
from sarit.cli.cluster import NOT_SERVED
from tests.cluster.processes import LEASE_SECONDS, RunningCluster
from tests.contract.s3 import s3_server
from tests.faults.test_failed_container import holds_tables
from tests.faults.test_full_disk import small_disk  # noqa: F401 - a fixture
from tests.limits import HANG_SECONDS
from tests.test_health import get

pytestmark = pytest.mark.long


def until(address, code, *, ready):
    """Poll until a process has this reason, and is ready or not."""
    end = time.monotonic() + HANG_SECONDS
    found = {"ready": None, "reasons": []}
    while True:
        with suppress(OSError):  # it does not listen yet
            found = get(address, "/healthz")[1]
        if found["ready"] is ready and (code is None or code in {reason["code"] for reason in found["reasons"]}):
            assert get(address, "/readyz")[0] == (200 if ready else 503)
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_zookeeper_that_is_away_and_a_drain_are_reported(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4, http=True) as cluster:
        first, second = cluster.stores["s1"], cluster.stores["s2"]
        controller = cluster.controllers[0]
        for process in (first, second, controller):
            assert get(process.http, "/readyz")[0] == 200
        cluster.zookeeper.kill()
        # First the lease still runs, then it is lost, and the store with it.
        until(first.http, "zookeeper-away", ready=True)
        gone = time.monotonic()
        until(first.http, "zookeeper-away", ready=False)
        assert time.monotonic() - gone < 3 * LEASE_SECONDS
        until(controller.http, "zookeeper-away", ready=True)
        cluster.zookeeper.start()
        for process in (first, second, controller):
            until(process.http, None, ready=True)
        cluster.sarit("cluster", "drain", "s1")
        found = until(first.http, "draining", ready=True)
        assert all(container["state"] == "absent" for container in found["containers"])
        first.signal(signal.SIGTERM)
        assert first.stop() == 0
        assert "Traceback" not in cluster.log()


def seen(address, code, work):
    """Whether /readyz names a reason at some time until `work` has ended; the process may not listen yet."""
    ended, codes = threading.Event(), set()

    def ask():
        while not ended.is_set():
            with suppress(OSError):
                codes.update(reason["code"] for reason in get(address, "/readyz")[1]["reasons"])
            time.sleep(0.01)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        work()
    finally:
        ended.set()
        asking.join(HANG_SECONDS)
    return code in codes


def test_store_says_that_it_starts_that_storage_is_away_and_that_it_stops(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=1, controllers=1, containers=4, http=True) as cluster:
        store, controller = cluster.stores["s1"], cluster.controllers[0]
        chunks = tmp_path / "cluster" / "chunks"
        _write(cluster)
        away = chunks.rename(tmp_path / "away")
        chunks.write_text("in its place")  # the superuser may write to any directory
        _write(cluster)
        # It serves from its log: a short absence is no reason to restart it.
        until(store.http, "storage-away", ready=True)
        chunks.unlink()
        away.rename(chunks)
        until(store.http, None, ready=True)
        store.kill()
        assert seen(store.http, "starting", lambda: store.begin().wait())
        assert seen(controller.http, "starting", lambda: (controller.kill(), controller.begin().wait()))
        until(store.http, None, ready=True)
        assert seen(store.http, "stopping", store.stop)
        assert seen(controller.http, "stopping", controller.stop)
    assert "Traceback" not in cluster.log()


def test_store_names_a_container_whose_log_is_damaged(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=1, controllers=1, containers=12, http=True) as cluster:
        store = cluster.stores["s1"]
        _write(cluster)
        store.kill()
        log = tmp_path / "cluster" / "log"
        lost = next(number for number in range(12) if not holds_tables(tmp_path / "cluster", number))
        (log / str(lost)).rename(tmp_path / "log-of-it")
        store.begin()
        found = until(store.http, "damaged", ready=False)
        assert [reason["part"] for reason in found["reasons"] if reason["code"] == "damaged"] == [f"container {lost}"]
        assert get(store.http, "/livez")[0] == 200
        assert get(store.http, "/readyz?exclude=damaged,recovering")[0] == 200


def test_full_disk_of_the_logs_takes_the_stores_out_of_service_until_there_is_space(small_disk, tmp_path):  # noqa: F811
    # The logs alone are on it: ZooKeeper ends when its disk is full.
    (small_disk / "log").mkdir()
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "log").symlink_to(small_disk / "log")
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4, http=True) as cluster:
        stores, controller = list(cluster.stores.values()), cluster.controllers[0]
        _write(cluster)
        with (small_disk / "other").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - (10 << 20))
        for store in stores:
            found = until(store.http, "disk-full", ready=False)
            (reason,) = (reason for reason in found["reasons"] if reason["code"] == "disk-full")
            assert "the reserve is" in reason["text"]
            assert get(store.http, "/readyz?exclude=disk-full")[0] == 200
            assert get(store.http, "/livez")[0] == 200
        # It serves reads, and its members are there: nobody takes the containers away.
        assert get(controller.http, "/readyz")[0] == 200
        assert set(cluster.owners().values()) == {"s1", "s2"}
        (small_disk / "other").unlink()
        for store in stores:
            assert "disk-full" not in codes(until(store.http, None, ready=True))
        _write(cluster)


def test_store_that_cannot_open_a_container_is_recovering_until_it_can(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4, http=True) as cluster:
        first, second = cluster.stores["s1"], cluster.stores["s2"]
        taken = {container for container, owner in cluster.owners().items() if owner == "s2"}
        # It stands still with the locks on its logs, so that the other store opens them in vain.
        second.signal(signal.SIGSTOP)
        try:
            # One after the other has failed: the first attempt of each is no reason to send no requests.
            until_parts(first.http, "recovering", {f"container {number}" for number in taken})
            assert get(first.http, "/readyz?exclude=recovering")[0] == 200
            assert get(first.http, "/livez")[0] == 200
        finally:
            second.signal(signal.SIGCONT)
        assert "recovering" not in codes(until(first.http, None, ready=True))
        _write(cluster)


def codes(found):
    return {reason["code"] for reason in found["reasons"]}


def until_parts(address, code, parts):
    """Poll until a process is not ready with this reason of each of these parts."""
    end = time.monotonic() + HANG_SECONDS
    while True:
        status, found = get(address, "/readyz")
        named = {reason["part"] for reason in found["reasons"] if reason["code"] == code}
        if status == 503 and named == parts:
            return
        assert time.monotonic() < end, found
        time.sleep(0.1)


def _write(cluster):
    with sarit.connect(cluster.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=8)
        with client.writer("s/t") as writer:
            for number in range(100):
                writer.write(b"x" * 20_000, key=str(number))


def test_every_face_says_that_no_write_is_acknowledged_without_bookies(tmp_path):
    with (
        s3_server(tmp_path / "s3") as s3,
        RunningCluster(tmp_path / "cluster", 2, 1, 4, bookies=3, s3=s3, http=True) as cluster,
    ):
        controller, store = cluster.controllers[0], cluster.stores["s1"]
        _write(cluster)
        cluster.until(lambda status: status["health"] == "ok")
        assert "ok" in cluster.sarit("cluster", "status")  # its code is 0
        for bookie in cluster.bookkeeper.bookies[1:]:
            bookie.kill()
        found = cluster.until(lambda status: status["health"] == "failed" and status["served"] == 0)
        # Nobody writes: the bookies that are registered say it.
        assert {one["reason"] for one in found["reasons"]} >= {"log-away"}
        components = {one["name"]: one for one in found["components"]}
        assert components["bookies"]["state"] == "failed"
        assert components["bookies"]["text"].startswith("1 of 3 can be written")
        assert {row["state"] for row in found["containers"]} == {"log-away"}
        assert all(row["reported"].endswith("s ago") for row in found["stores"])
        cluster.sarit("cluster", "status", codes=(NOT_SERVED,))
        # A controller answers its calls, and is no better for being taken out of service.
        found = until(controller.http, "log-away", ready=True)
        assert found["cluster"]["state"] == "failed"
        assert (found["cluster"]["served"], found["cluster"]["containers"]) == (0, 4)
        assert get(controller.http, "/readyz")[1]["cluster"] == "failed"
        assert get(store.http, "/readyz")[0] == 503
        for process in (store, controller):
            assert get(process.http, "/livez")[0] == 200
        overview = get(controller.http, "/console/api/overview")[1]
        assert overview["health"] == "failed"
        assert {container["state"] for container in overview["containers"]} == {"log-away"}
        for bookie in cluster.bookkeeper.bookies[1:]:
            bookie.start()
        cluster.until(lambda status: status["health"] == "ok")
        cluster.sarit("cluster", "status")
        while get(controller.http, "/readyz")[1] != {"status": "ready", "reasons": [], "cluster": "ok"}:
            time.sleep(0.1)  # it reads the reports again and again
        # Stores that stand still report nothing, and lose their containers.
        for each in cluster.stores.values():
            each.signal(signal.SIGSTOP)
        assert cluster.until(lambda status: status["health"] == "failed")["served"] < 4
        while get(controller.http, "/readyz")[1]["cluster"] != "failed":
            time.sleep(0.1)
        for each in cluster.stores.values():
            each.signal(signal.SIGCONT)
        cluster.until(lambda status: status["health"] == "ok")


def test_bookies_that_stand_still_take_the_stores_out_of_service_until_they_go_on(tmp_path):
    with (
        s3_server(tmp_path / "s3") as s3,
        RunningCluster(tmp_path / "cluster", 1, 1, 4, bookies=3, s3=s3, http=True) as cluster,
    ):
        store = cluster.stores["s1"]
        _write(cluster)
        for bookie in cluster.bookkeeper.bookies:
            bookie.pause()
        writing = threading.Thread(target=_write, args=(cluster,))
        writing.start()
        # While they are registered, and before the containers give up.
        found = until(store.http, "log-away", ready=False)
        assert {reason["code"] for reason in found["reasons"]} == {"log-away"}
        for bookie in cluster.bookkeeper.bookies:
            bookie.resume()
        until(store.http, None, ready=True)
        writing.join(HANG_SECONDS)
        assert not writing.is_alive()
