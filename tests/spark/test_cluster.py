"""The connector where driver, executors and clients are separate processes: a standalone cluster, Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from examples.pipelines.declarative import run
from tests.nodes import RunningNode
from tests.spark.cluster_child import EVENTS
from tests.spark.servers import ConnectServer, StandaloneCluster, environment
from tests.spark.sink_files import open_registered, registered
from tests.spark.sink_files import read as read_text
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def connect(node, tmp_path_factory):
    (port,) = free_ports(1)
    # Sources run where the server runs, so it is the server that knows where the node is.
    with ConnectServer(tmp_path_factory.mktemp("connect"), port, SARIT_CONTROLLER=node.controller) as server:
        yield server


def fresh(node, scope, **segments):
    """Each run of a test, a repeated one too, has streams of its own."""
    with sarit.connect(node.controller) as client:
        client.create_scope(scope)
        client.delete_scope(scope, recursive=True)
        client.create_scope(scope)
        for stream, count in segments.items():
            client.create_stream(f"{scope}/{stream}", segments=count)


def driver(what, url, directory, **env):
    """Run one of `cluster_child`, on streams of the scope of its name."""
    command = [sys.executable, "-m", "tests.spark.cluster_child", what, url, str(directory)]
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
    fresh(node, "cluster", source=4, copy=2)
    with StandaloneCluster(tmp_path) as cluster:
        # The driver alone knows the address and the Python: executors get both from it.
        found = driver("cluster", cluster.url, tmp_path, SARIT_CONTROLLER=node.controller)
    assert found["events"] == list(range(EVENTS)), "a task ran twice, and its rows count once"
    assert 1 in found["attempts"], "no task ran twice; Spark runs a second attempt in another executor alone"
    assert all(str(tmp_path) in place and "/app-" in place for place in found["places"])
    assert read(node, "cluster/source") == list(range(EVENTS))
    assert read(node, "cluster/copy") == list(range(EVENTS))


def test_sink_writes_the_rows_of_one_attempt_when_spark_runs_a_copy(node, tmp_path):
    """The first attempt has written a part of its rows to a transaction, and waits; its copy elsewhere wins."""
    fresh(node, "copies", source=4, batch=2, stream=2)
    with sarit.connect(node.controller) as client, client.writer("copies/source") as writer:
        for number in range(EVENTS):
            writer.write(str(number), key=str(number))
    with StandaloneCluster(tmp_path) as cluster:
        found = driver("copies", cluster.url, tmp_path, SARIT_CONTROLLER=node.controller)
    assert set(found) == {"batch", "stream"}
    for kind, seen in found.items():
        assert set(seen.splitlines()) == {"a transaction was begun"}
        with sarit.connect(node.controller) as client:
            written = [event.split(":") for event in read_text(client, f"copies/{kind}")]
            assert sorted(int(number) for number, _, _ in written) == list(range(EVENTS))
            assert 1 in {int(attempt) for _, attempt, _ in written}, "the copy wrote nothing"
            assert open_registered(client, f"copies/table-{kind}") == []
            assert registered(client, f"copies/table-{kind}") == []


def test_connect_reads_writes_streams_and_makes_views(node, connect, tmp_path):
    fresh(node, "connect", source=4, copy=2)
    found = driver("connect", connect.url, tmp_path)
    assert found["views"] == ["connect_copy", "connect_source"]
    assert (found["count"], found["total"]) == (EVENTS, sum(range(EVENTS)))
    assert found["columns"][:2] == ["event", "scope"]
    assert read(node, "connect/copy") == list(range(EVENTS))


def test_declarative_pipeline_finds_what_plain_python_finds(node, connect, tmp_path):
    with sarit.connect(node.controller) as client:
        client.create_scope("flights")
        client.delete_scope("flights", recursive=True)
    assert run.run(node.controller, tmp_path, ["--remote", connect.url]) > 10
