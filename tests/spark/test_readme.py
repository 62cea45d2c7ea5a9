"""The PySpark examples of README and getting-started.md, as pasted by somebody who has activated no environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from tests.guides.pages import blocks
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("java"), SPARK_MAY_BE_SLOW]


@pytest.fixture
def java():
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")


def spark_example(page: str) -> str:
    (example,) = [
        block.text for block in blocks((ROOT / page).read_text()) if block.kind == "python" and "spark" in block.text
    ]
    return example


def test_spark_examples_run_outside_an_activated_environment(tmp_path):
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/orders")
        with client.writer("shop/orders") as writer:
            writer.write_many([b"one", b"two"])
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")
        }
        folders = [f for f in os.environ["PATH"].split(os.pathsep) if Path(f).resolve() != Path(sys.executable).parent]
        environment |= {"PATH": os.pathsep.join(folders), "SARIT_CONTROLLER": node.controller}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", spark_example("README.md") + spark_example("docs/getting-started.md")],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        assert "event: binary" in done.stdout
        assert {"|  one|         0|     0|", "|  two|         0|    11|"} <= set(done.stdout.splitlines()), done.stdout
        assert list(client.reader("shop/copies", end="tail")) == [b"one", b"two"]
