"""The exactly-once sink when its driver, its Python workers and its node are killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.sink_files import open_registered, read, record_states, registered
from tests.spark.slow import SPARK_MAY_BE_SLOW
from tests.spark.test_killed import STREAM, filled

if TYPE_CHECKING:
    from pathlib import Path

NO_JAVA = shutil.which("java") is None and not os.environ.get("CI")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(NO_JAVA, reason="Spark needs Java: install a JRE of version 17 or newer"),
    SPARK_MAY_BE_SLOW,
]

EVENTS = 1_500
TABLE = "s/spark-sink"
ENVIRONMENT = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def copy(node: RunningNode, directory: Path) -> str:
    """Run the child to its end or to its death; its last line."""
    command = [sys.executable, "-u", "-m", "tests.spark.sink_child", node.controller, STREAM, "s/out", str(directory)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=(directory / "child.log").open("a"), text=True, start_new_session=True,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert child.stdout is not None
    with closing(child.stdout) as lines:
        said = ["nothing", *(line.strip() for line in lines)]
    child.wait(60)
    return said[-1]


def check(node: RunningNode, events: int) -> None:
    """Every event is there once, and nothing is open."""
    with sarit.connect(node.controller) as client:
        assert Counter(read(client, "s/out")) == Counter(map(str, range(events)))
        assert open_registered(client, TABLE) == []
        assert registered(client, TABLE) == []
        assert set(record_states(client, TABLE)) == {"done"}


def test_query_is_exact_after_its_driver_dies_between_record_and_commits(tmp_path):
    """One winner is committed, the others are not.  `test_sink_on_node.py` has all other requests of a commit."""
    with RunningNode(tmp_path / "data") as node:
        filled(node.controller, range(EVENTS))
        with sarit.connect(node.controller) as client:
            client.create_stream("s/out", segments=2)
        (tmp_path / "dies").write_text("Commit")
        assert copy(node, tmp_path) != "done"
        assert not (tmp_path / "dies").exists(), "the driver did not die in a commit"
        assert copy(node, tmp_path) == "done"
        check(node, EVENTS)


def test_failed_and_killed_tasks_are_written_once(tmp_path):
    with RunningNode(tmp_path / "data") as node:
        with sarit.connect(node.controller) as client:
            client.create_scope("s")
            client.create_stream("s/out", segments=2)
        with (tmp_path / "child.log").open("a") as log:
            command = [sys.executable, "-m", "tests.spark.sink_jobs", node.controller, "s/out", str(tmp_path)]
            done = subprocess.run(command, stdout=log, stderr=log, env=ENVIRONMENT, timeout=900, check=False)
        assert done.returncode == 0, (tmp_path / "child.log").read_text()[-4000:]
        assert len(list(tmp_path.glob("wrong-*"))) == 3
        with sarit.connect(node.controller) as client:
            assert sorted(int(event.rpartition(":")[2]) for event in read(client, "s/out")) == list(range(30_000))
            assert registered(client, TABLE) == []
