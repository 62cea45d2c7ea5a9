"""The exactly-once sink when its driver, its Python workers and its node are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark import forked_python
from tests.spark.sink_child import copy_query
from tests.spark.sink_files import open_registered, read, record_states, registered
from tests.spark.sink_jobs import run
from tests.spark.slow import SPARK_MAY_BE_SLOW
from tests.spark.test_killed import STREAM, filled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800), SPARK_MAY_BE_SLOW]

EVENTS = 1_500
TABLE = "s/spark-sink"


def dies(node: RunningNode, directory: Path) -> None:
    """A driver copies until it dies in a commit."""
    (directory / "dies").write_text("Commit")
    command = [sys.executable, "-m", "tests.spark.sink_child", node.controller, STREAM, "s/out", str(directory)]
    env = os.environ | {"PYSPARK_PYTHON": forked_python.program(), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (directory / "child.log").open("a") as log:
        done = subprocess.run(
            command, stdout=log, stderr=log, env=env, start_new_session=True, timeout=900, check=False
        )
    assert done.returncode == -signal.SIGKILL, (directory / "child.log").read_text()[-4000:]
    assert not (directory / "dies").exists(), "the driver did not die in a commit"


def check(node: RunningNode, events: int) -> None:
    """Every event is there once, and nothing is open."""
    with sarit.connect(node.controller) as client:
        assert Counter(read(client, "s/out")) == Counter(map(str, range(events)))
        assert open_registered(client, TABLE) == []
        assert registered(client, TABLE) == []
        assert set(record_states(client, TABLE)) == {"done"}


def test_query_is_exact_after_its_driver_dies_between_record_and_commits(spark, tmp_path):
    """One winner is committed, the others are not.  `test_sink_on_node.py` has all other requests of a commit."""
    with RunningNode(tmp_path / "data") as node:
        filled(node.controller, range(EVENTS))
        with sarit.connect(node.controller) as client:
            client.create_stream("s/out", segments=2)
        dies(node, tmp_path)
        query = copy_query(spark, "sarit", (node.controller, STREAM, "s/out"), str(tmp_path))
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        check(node, EVENTS)


def test_failed_and_killed_tasks_are_written_once(spark, tmp_path):
    with RunningNode(tmp_path / "data") as node:
        with sarit.connect(node.controller) as client:
            client.create_scope("s")
            client.create_stream("s/out", segments=2)
        run(spark, node.controller, "s/out", str(tmp_path))
        assert len(list(tmp_path.glob("wrong-*"))) == 3
        with sarit.connect(node.controller) as client:
            assert sorted(int(event.rpartition(":")[2]) for event in read(client, "s/out")) == list(range(30_000))
            assert registered(client, TABLE) == []
