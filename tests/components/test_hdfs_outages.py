"""A node under load whose long-term storage on a real HDFS hangs, dies in whole or in part, and refuses writes.

Appends go on until the bound of dirty bytes, are throttled then, and go on by themselves; nothing is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

import hdfs_native
import pytest

import sarit
from benchmarks.peers.maven import class_path
from sarit.storage.limits import HDFS_CALL_SECONDS
from tests.cluster.load import Load
from tests.components.hdfs import HdfsParts, HdfsServer
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode

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


def safe_mode(hdfs: HdfsServer | HdfsParts, how: str) -> None:
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


def reasons_of(node: RunningNode) -> tuple[bool, list[dict]]:
    """Whether the node is ready, and what is wrong with it."""
    try:
        with urllib.request.urlopen(f"http://{node.http}/readyz", timeout=HANG_SECONDS):
            ready = True
    except urllib.error.HTTPError:
        ready = False
    with urllib.request.urlopen(f"http://{node.http}/healthz", timeout=HANG_SECONDS) as answer:
        return ready, json.loads(answer.read())["reasons"]


def away(node: RunningNode, load: Load, text: str, count: int) -> None:
    """Long-term storage takes nothing, appends go on all the same, and health names the reason."""
    load.more()
    wait_for(node, TAKES_NONE, count, load)
    load.more()
    ready, (reason,) = reasons_of(node)
    assert ready, "appends do not wait yet"
    assert reason["code"] == "storage-away"
    assert text in reason["text"]


def back(node: RunningNode, load: Load, count: int) -> None:
    """Chunks are written again."""
    wait_for(node, TAKES_AGAIN, count, load)
    load.more()
    assert reasons_of(node) == (True, [])


def test_each_part_of_hdfs_dies_alone_and_a_folder_is_read_only(tmp_path):
    hdfs = HdfsParts(tmp_path / "hdfs").start()
    superuser = hdfs_native.Client(hdfs.url)
    superuser.mkdirs("/node", create_parent=True)
    superuser.set_owner("/node", "sarit", "sarit")
    node = RunningNode(
        tmp_path / "data", "--containers", "1", "--storage", f"{hdfs.url}/node", "--http-port", "0",
        env={**os.environ, "HADOOP_USER_NAME": "sarit"},
    ).start()  # fmt: skip
    assert hdfs.namenode is not None
    assert hdfs.datanode is not None
    try:
        load = Load(node.controller, segments=4, padding_bytes=500).start()
        load.more()
        hdfs.datanode.kill()
        away(node, load, "write chunk", 1)
        hdfs.start_datanode()
        back(node, load, 1)
        hdfs.namenode.kill()
        away(node, load, "write chunk", 2)
        hdfs.start_namenode()
        back(node, load, 2)
        safe_mode(hdfs, "enter")
        away(node, load, "HDFS is in safe mode, which takes no writes", 3)
        safe_mode(hdfs, "leave")
        back(node, load, 3)
        for folder in ("/node", "/node/.incoming"):
            superuser.set_permission(folder, 0o555)
        away(node, load, "HDFS refuses that: may this user (HADOOP_USER_NAME) write to the folder?", 4)
        for folder in ("/node", "/node/.incoming"):
            superuser.set_permission(folder, 0o755)
        back(node, load, 4)
        load.stop()
        assert node.stop() == 0
        node.start()
        load.check(node.controller)
        assert "Traceback" not in node.log()
    finally:
        node.kill()
        hdfs.kill()


def test_start_on_an_hdfs_that_is_read_only_is_one_error_and_leaves_nothing(tmp_path):
    hdfs = HdfsParts(tmp_path / "hdfs").start()
    superuser = hdfs_native.Client(hdfs.url)
    superuser.mkdirs("/others", create_parent=True)
    options = [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), "--controller-port", "0", "--store-port", "0"]

    def start() -> str:
        done = subprocess.run(
            [*options, "--storage", f"{hdfs.url}/others/node"],
            capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
            env={**os.environ, "HADOOP_USER_NAME": "sarit", "SARIT_HTTP_PORT": "off"},
        )  # fmt: skip
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    try:
        assert "HDFS refuses that: may this user (HADOOP_USER_NAME) write to the folder?" in start()
        safe_mode(hdfs, "enter")
        assert "HDFS is in safe mode, which takes no writes: wait until it has left it" in start()
        safe_mode(hdfs, "leave")
        assert not list(superuser.list_status("/others"))
        superuser.set_owner("/others", "sarit", "sarit")
        with RunningNode(
            tmp_path / "data", "--storage", f"{hdfs.url}/others/node", env={**os.environ, "HADOOP_USER_NAME": "sarit"}
        ) as node:
            assert answers(node) < HANG_SECONDS
    finally:
        hdfs.kill()
