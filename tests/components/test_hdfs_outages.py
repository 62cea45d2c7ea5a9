"""A node under load whose long-term storage on a real HDFS hangs, dies, and refuses writes.

Appends go on until the bound of dirty bytes, are throttled then, and go on by themselves; nothing is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

import sarit
from benchmarks.peers.maven import class_path
from sarit.core.limits import HDFS_CALL_SECONDS
from tests.cluster.load import Load
from tests.components.hdfs import HdfsServer
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * HANG_SECONDS)]

EVENT_BYTES = 20_000
THROTTLED_SECONDS = 5.0
TAKES_NONE = "long-term storage takes no chunks"
TAKES_AGAIN = "long-term storage takes chunks again"


def wait_for(node: RunningNode, text: str, count: int, load: Load | None = None) -> None:
    """Wait until the node has logged a text so often; `load` is throttled at most meanwhile."""
    end = time.monotonic() + 2 * HDFS_CALL_SECONDS + HANG_SECONDS
    while node.log().count(text) < count:
        assert time.monotonic() < end, f"{text!r} was logged {node.log().count(text)} times\n{node.log()[-3000:]}"
        assert load is None or not load.errors, load.errors
        time.sleep(0.1)


def safe_mode(hdfs: HdfsServer, how: str) -> None:
    """Have the namenode refuse changes, or not."""
    command = ["java", "-Xmx128m", "-cp", class_path("hadoop"), "org.apache.hadoop.hdfs.tools.DFSAdmin"]
    done = subprocess.run(
        [*command, "-fs", hdfs.url, "-safemode", how], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr


def wait_until_throttled(load: Load) -> None:
    """Wait until nothing is acknowledged for a while."""
    count, since, end = -1, 0.0, time.monotonic() + HANG_SECONDS
    while time.monotonic() - since < THROTTLED_SECONDS:
        assert not load.errors, load.errors
        assert time.monotonic() < end, "appends go on without a bound"
        if len(load.acknowledged) != count:
            count, since = len(load.acknowledged), time.monotonic()
        time.sleep(0.1)


def answers(node: RunningNode) -> float:
    """Seconds for a request that needs no chunk, while others wait for long-term storage."""
    began = time.monotonic()
    with sarit.connect(node.controller) as client:
        client.create_scope(f"s{began:.6f}".replace(".", "-"))
    return time.monotonic() - began


def test_hdfs_that_hangs_dies_or_refuses_writes_loses_nothing(tmp_path):
    hdfs = HdfsServer(tmp_path / "hdfs").start()
    node = RunningNode(
        tmp_path / "data", "--containers", "1", "--memory", "320M", "--storage", f"{hdfs.url}/node"
    ).start()
    try:
        load = Load(node.controller, segments=4, padding_bytes=EVENT_BYTES).start()
        load.more()
        # It hangs: nothing fails until the time limit of a call.
        os.kill(hdfs.process.pid, signal.SIGSTOP)
        load.more()
        wait_for(node, TAKES_NONE, 1, load)
        wait_until_throttled(load)
        assert answers(node) < 30
        os.kill(hdfs.process.pid, signal.SIGCONT)
        wait_for(node, TAKES_AGAIN, 1, load)
        load.more()
        # It dies, and is there again with what it had.
        hdfs.kill()
        wait_for(node, TAKES_NONE, 2, load)
        wait_until_throttled(load)
        assert answers(node) < 30
        hdfs.start(fresh=False)
        wait_for(node, TAKES_AGAIN, 2, load)
        load.more()
        # The namenode refuses changes.
        safe_mode(hdfs, "enter")
        wait_for(node, TAKES_NONE, 3, load)
        assert "safe mode" in node.log()
        safe_mode(hdfs, "leave")
        wait_for(node, TAKES_AGAIN, 3, load)
        load.stop()
        assert node.stop() == 0
        # All of it is on HDFS and in the log.
        node.start()
        load.check(node.controller)
    finally:
        node.kill()
        hdfs.kill()
