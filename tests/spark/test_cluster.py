"""The connector where driver, executors and clients are separate processes: a standalone cluster, Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.cluster_child import EVENTS
from tests.spark.servers import ConnectServer, StandaloneCluster, environment
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]


@pytest.fixture
def node(tmp_path):
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")
    with RunningNode(tmp_path / "data") as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/in", segments=4)
        client.create_stream("s/out", segments=2)
        yield node


def driver(what, url, node, directory, **env):
    command = [sys.executable, "-m", "tests.spark.cluster_child", what, url, node.controller, str(directory)]
    done = subprocess.run(
        command, env=environment() | env, capture_output=True, text=True, timeout=800, check=False,
        cwd=os.getcwd(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def read(node, stream):
    with sarit.connect(node.controller) as client:
        return sorted(int(event) for event in client.reader(stream, end="tail"))


def test_executors_in_other_processes_read_and_write_each_event_once(node, tmp_path):
    with StandaloneCluster(tmp_path) as cluster:
        # The driver alone knows the address and the Python: executors get both from it.
        found = driver("cluster", cluster.url, node, tmp_path, SARIT_CONTROLLER=node.controller)
    assert found["events"] == list(range(EVENTS)), "a task ran twice, and its rows count once"
    assert 1 in found["attempts"], "no task ran twice; Spark runs a second attempt in another executor alone"
    assert all(str(tmp_path) in place and "/app-" in place for place in found["places"])
    assert read(node, "s/in") == list(range(EVENTS))
    assert read(node, "s/out") == list(range(EVENTS))


def test_connect_reads_writes_streams_and_makes_views(node, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ConnectServer(tmp_path, port) as server:
        found = driver("connect", server.url, node, tmp_path)
    assert found["views"] == ["s_in", "s_out"]
    assert (found["count"], found["total"]) == (EVENTS, sum(range(EVENTS)))
    assert found["columns"][:2] == ["event", "scope"]
    assert read(node, "s/out") == list(range(EVENTS))
