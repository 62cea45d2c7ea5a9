"""A Spark query continues after a kill of the node, or of its driver: every event once in the files it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark import forked_python
from tests.spark.query_child import files_query
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

EVENTS = 6_000
STREAM = "s/killed"


def copied(directory: Path) -> Counter[str]:
    """The rows that Spark's metadata of the files (`_spark_metadata`) lists, with their counts."""
    found: Counter[str] = Counter()
    names: set[str] = set()
    for log in (directory / "out" / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {json.loads(line)["path"].partition("://")[2] for line in log.read_text().splitlines()[1:]}
    for name in names:
        found.update(json.loads(line)["event"] for line in Path(name).read_text().splitlines())
    return found


def filled(controller: str, events: range) -> None:
    with sarit.connect(controller) as client:
        client.create_scope("s")
        client.create_stream(STREAM, segments=3)
        with client.writer(STREAM) as writer:
            for number in events:
                writer.write(str(number), key=str(number % 11))


def test_query_survives_kill_of_node(spark: Any, tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data").start()
    try:
        filled(node.controller, range(EVENTS))
        query = files_query(spark, node.controller, STREAM, str(tmp_path))
        for batches in (1, 2):
            while len(query.recentProgress) < batches and query.isActive:
                query.awaitTermination(0.02)
            node.kill()
            node.start()
        query.processAllAvailable()
        assert len(query.recentProgress) > 3, "the kills came after all was read"
        query.stop()
        assert copied(tmp_path) == Counter(map(str, range(EVENTS)))
    finally:
        node.stop()


def test_query_continues_after_kill_of_driver(spark: Any, tmp_path: Path) -> None:
    with RunningNode(tmp_path / "data") as node:
        filled(node.controller, range(EVENTS))
        program = [sys.executable, "-u", "-m", "tests.spark.query_child"]
        command = [*program, node.controller, STREAM, str(tmp_path), str(EVENTS)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env=os.environ | {"PYSPARK_PYTHON": forked_python.program(), "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        assert child.stdout is not None
        with closing(child.stdout) as lines:
            said = next((line.strip() for line in lines if line.strip() >= "batch 1"), "nothing")
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
        assert said.startswith("batch"), f"the driver ended with {said}"
        query = files_query(spark, node.controller, STREAM, str(tmp_path))
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert copied(tmp_path) == Counter(map(str, range(EVENTS)))
