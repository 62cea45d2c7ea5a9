"""The sink of Spark Declarative Pipelines over several runs of `spark-pipelines`: each run goes on where the last one
ended, and a micro-batch that a run repeats is written once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests.nodes import RunningNode
from tests.spark.servers import ConnectServer, environment
from tests.spark.sink_files import numbers, record_states, registered
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

PROGRAM = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("copy", "sarit", {"stream": "runs/out"})

@dp.append_flow(target="copy")
def copied():
    events = spark.readStream.format("sarit").option("stream", "runs/in").option("maxEventsPerTrigger", "300").load()
    return events.selectExpr("concat('copy:', cast(event as string)) event", "cast(segment_id as string) routing_key")
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def connect(node, tmp_path_factory):
    (port,) = free_ports(1)
    with ConnectServer(tmp_path_factory.mktemp("connect"), port, SARIT_CONTROLLER=node.controller) as server:
        yield server


def project(directory):
    """Write a project down that copies a stream by a flow into a sink."""
    (directory / "transformations").mkdir(parents=True)
    (directory / "transformations" / "copy.py").write_text(PROGRAM)
    storage = (directory / "storage").as_uri()
    (directory / "spark-pipeline.yml").write_text(
        f"name: copy\nstorage: {storage}\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )


def run(directory, connect, *options):
    command = [Path(sys.executable).with_name("spark-pipelines"), "run", "--remote", connect.url, *options]
    done = subprocess.run(
        command, cwd=directory, env=environment() | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def fill(client, events):
    with client.writer("runs/in") as writer:
        for n in events:
            writer.write(str(n), key=str(n % 7))


def test_runs_of_a_pipeline_append_each_event_once(node, connect, tmp_path):
    directory = tmp_path / "project"
    project(directory)
    with sarit.connect(node.controller) as client:
        client.create_scope("runs")
        client.delete_scope("runs", recursive=True)
        client.create_scope("runs")
        client.create_stream("runs/in", segments=2)
        client.create_stream("runs/out")
        fill(client, range(1000))
        run(directory, connect)
        assert numbers(client, "runs/out") == list(range(1000))

        # As a run leaves it that dies after the commit of the sink, and before Spark notes it.
        (commits,) = (directory / "storage").glob("**/commits")
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        assert last >= 2
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        client.update_stream("runs/in", segments=3)
        fill(client, range(1000, 1500))
        run(directory, connect)
        assert numbers(client, "runs/out") == list(range(1500))

        run(directory, connect)
        assert numbers(client, "runs/out") == list(range(1500))
        assert registered(client, "runs/spark-sink") == []
        assert set(record_states(client, "runs/spark-sink")) == {"done"}

        # A full refresh reads the source from its start again: what a sink has is not taken back.
        run(directory, connect, "--full-refresh-all")
        assert numbers(client, "runs/out") == sorted([*range(1500), *range(1500)])
