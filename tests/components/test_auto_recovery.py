"""BookKeeper's own recovery beside a node: what the documented bk_server.conf says of it, on real servers."""

from __future__ import annotations

import re
import time
import urllib.request
from contextlib import ExitStack

import pytest

from tests.cluster.load import Load
from tests.components.bookkeeper import AutoRecovery, BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * HANG_SECONDS)]

CLOSED = re.compile(r"ledger \d+ was closed by BookKeeper's own recovery, and by no other store")


@pytest.fixture
def place(tmp_path):
    """ZooKeeper, three bookies, and a node whose log is on them."""
    with ExitStack() as stack:
        zookeeper = ZooKeeperServer(tmp_path / "zookeeper").start()
        stack.callback(zookeeper.kill)
        cluster = BookKeeperCluster(tmp_path, zookeeper, 3)
        stack.callback(cluster.kill)
        cluster.start()
        log = f"bookkeeper://{zookeeper.hosts}/ledgers"
        node = RunningNode(tmp_path / "data", "--log", log, "--containers", "2", "--http-port", "0").start()
        stack.callback(node.kill)
        yield cluster, node, stack


def until(wanted, what):
    end = time.monotonic() + HANG_SECONDS
    while not wanted():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def test_node_goes_on_after_a_fence_by_auto_recovery_and_says_who_it_was(place, tmp_path):
    cluster, node, stack = place
    recovery = AutoRecovery(tmp_path, cluster, lostBookieRecoveryDelay=0, openLedgerRereplicationGracePeriod=1000)
    stack.callback(recovery.process.kill)
    load = Load(node.controller, segments=4, padding_bytes=100).start()
    load.more(100)
    cluster.bookies[0].kill()
    until(lambda: CLOSED.search(node.log()), lambda: node.log()[-3000:])
    load.more(100)
    load.stop()
    load.check(node.controller)
    said = node.log()
    assert "another owner" not in said
    with urllib.request.urlopen(f"http://{node.http}/metrics") as answer:
        metrics = answer.read().decode()
    assert float(re.search(r"^sarit_bookkeeper_ledgers_recovered_total (\S+)", metrics, re.MULTILINE)[1]) >= 1
    assert "Traceback" not in said


def test_bookies_of_the_documented_file_outlive_zookeeper(place):
    cluster, node, _ = place
    load = Load(node.controller, segments=4, padding_bytes=100).start()
    load.more(100)
    cluster.zookeeper.kill()
    time.sleep(25)  # with auto recovery inside, they end after 15 s
    assert not any(bookie.process.ended for bookie in cluster.bookies)
    load.more(100)
    cluster.zookeeper.start()
    cluster.wait_registered()
    load.more(100)
    load.stop()
    load.check(node.controller)
