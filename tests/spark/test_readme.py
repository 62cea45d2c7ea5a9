"""README's PySpark example, as pasted by somebody who has activated no environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("java"), SPARK_MAY_BE_SLOW]


@pytest.fixture
def java():
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")


def spark_example() -> str:
    (example,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "spark" in block
    ]
    return example


def test_readme_spark_example_runs_outside_an_activated_environment(tmp_path):
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/orders")
        client.create_stream("shop/copies")
        with client.writer("shop/orders") as writer:
            writer.write_many([b"one", b"two"])
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")
        }
        folders = [f for f in os.environ["PATH"].split(os.pathsep) if Path(f).resolve() != Path(sys.executable).parent]
        environment |= {"PATH": os.pathsep.join(folders), "SARIT_CONTROLLER": node.controller}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", spark_example()],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        assert "event: binary" in done.stdout
        assert list(client.reader("shop/copies", end="tail")) == [b"one", b"two"]
