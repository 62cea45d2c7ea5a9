"""`sarit doctor --log` beside real bookies: all of them, too few of them, and none."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from benchmarks.peers.ports import free_ports
from tests.components.bookkeeper import BookieServer, set_up
from tests.components.zookeeper import ZooKeeperServer
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * HANG_SECONDS)]


def doctor(url, tmp_path, check="BookKeeper"):
    """The finding of a check."""
    command = [
        SARIT,
        "doctor",
        "--format",
        "json",
        "--data-dir",
        tmp_path,
        "--controller-port",
        "0",
        "--store-port",
        "0",
    ]
    command += ["--log", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.stdout, done.stderr
    (found,) = [found for found in json.loads(done.stdout) if found["check"] == check]
    return found


def until(level, url, tmp_path):
    """A dead bookie is registered until its session has ended."""
    end = time.monotonic() + HANG_SECONDS
    while (found := doctor(url, tmp_path))["level"] != level:
        assert time.monotonic() < end, found
        time.sleep(0.5)
    return found


def test_doctor_counts_bookies(bookkeeper, tmp_path):
    url = f"bookkeeper://{bookkeeper.zookeeper.hosts}/ledgers?e=3&w=3&a=2"
    found = until("OK", url, tmp_path)
    assert found["text"].startswith(f"{len(bookkeeper.bookies)} bookies can be written")
    spare = bookkeeper.bookies[2:]
    try:
        for bookie in spare:
            bookie.kill()
        found = until("WARN", url, tmp_path)
        assert "a ledger cannot have its whole ensemble" in found["advice"]
        bookkeeper.bookies[1].kill()
        found = until("FAIL", url, tmp_path)
        assert "an acknowledgement needs 2" in found["text"]
    finally:
        for bookie in bookkeeper.bookies[1:]:
            bookie.start().wait()
    until("OK", url, tmp_path)


@pytest.fixture
def admin_bookies(tmp_path):
    """A bookie that syncs and says so, one that says nothing, one that does not sync; and their ZooKeeper."""
    ports = free_ports(6)
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper").start()
    set_up(zookeeper)
    settings = [{}, {"httpServerEnabled": "false"}, {"journalSyncData": "false"}]
    bookies = [
        BookieServer(tmp_path / f"bookie-{number}", zookeeper, (ports[number], ports[3 + number]), **values)
        for number, values in enumerate(settings)
    ]
    try:
        for bookie in bookies:
            bookie.start()
        for bookie in bookies:
            bookie.wait()
        yield *bookies, zookeeper
    finally:
        for bookie in bookies:
            bookie.kill()
        zookeeper.kill()


def test_doctor_names_bookies_that_do_not_sync(admin_bookies, tmp_path):
    _, silent, lies, zookeeper = admin_bookies
    url = f"bookkeeper://{zookeeper.hosts}/ledgers?e=1&w=1&a=1"
    found = doctor(url, tmp_path, "journals of bookies")
    assert found["level"] == "FAIL"
    assert found["text"] == f"they acknowledge what is in memory alone: {lies.name} (journalSyncData=false)"
    for bookie, level, text in (
        (lies, "WARN", f"these do not say whether they sync: {silent.name}"),
        (silent, "OK", "1 bookies sync before they acknowledge"),
    ):
        bookie.kill()
        end = time.monotonic() + HANG_SECONDS
        # A dead bookie is registered until its session has ended.
        while (found := doctor(url, tmp_path, "journals of bookies"))["text"] != text:
            assert time.monotonic() < end, found
        assert found["level"] == level


def test_doctor_says_that_bookkeeper_is_not_there(bookkeeper, tmp_path):
    found = doctor(f"bookkeeper://{bookkeeper.zookeeper.hosts}/nowhere?e=3&w=3&a=2", tmp_path)
    assert found["level"] == "FAIL"
    assert found["advice"] == "start ZooKeeper and BookKeeper, or correct --log"
