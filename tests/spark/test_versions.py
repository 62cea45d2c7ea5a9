"""What a query says when PySpark is a version that lacks something."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sarit
from sarit.spark.versions import MISSING_IN_4_1, has_admission_control, version
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

QUERY = """
import sys
import sarit.spark
controller, checkpoint = sys.argv[1:]
spark = sarit.spark.session("warned", {"spark.ui.enabled": False}, master="local[1]")
frame = spark.readStream.format("sarit").options(controller=controller, stream="s/x", maxEventsPerTrigger="4").load()
query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
query.processAllAvailable()
print([progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]])
query.stop()
"""


@pytest.mark.skipif(has_admission_control(version()), reason="this PySpark lacks nothing")
def test_query_warns_once_of_what_pyspark_lacks(tmp_path) -> None:
    with RunningNode(tmp_path / "data") as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/x")
        with client.writer("s/x") as writer:
            writer.write_many([b"event"] * 10)
        command = [sys.executable, "-c", QUERY, node.controller, str(tmp_path / "checkpoint")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "[4, 4, 2]"
    assert done.stderr.count(MISSING_IN_4_1.format(version=version())) == 1, done.stderr[-4000:]
