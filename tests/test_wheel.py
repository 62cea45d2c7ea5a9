"""The wheel, in an empty environment without Java and PySpark: the node, the command and the README's example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).with_name("uv"))


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=HANG_SECONDS, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Path:
    """An environment with the wheel and its locked dependencies, nothing else."""
    directory = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", directory, ROOT)
    (wheel,) = directory.glob("sarit-*.whl")
    locked = directory / "locked.txt"
    export = ["export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--no-hashes"]
    run(UV, *export, "--output-file", locked, cwd=ROOT)
    run(UV, "venv", "--quiet", "--python", sys.executable, directory / "env")
    python = directory / "env" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", locked, wheel)
    return directory / "env" / "bin"


@pytest.fixture
def env(empty) -> dict[str, str]:
    """No Java to be found, nothing of the project on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYTHONPATH", "SPARK_HOME"}}
    return {**kept, "PATH": str(empty)}


def readme_example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "sarit.connect" in block]
    return example


def test_the_wheel_works_alone(empty, env, tmp_path) -> None:
    with RunningNode(tmp_path / "data", sarit=[str(empty / "sarit")], env=env) as node:
        example = readme_example()
        env["SARIT_CONTROLLER"] = node.controller
        assert "hello" in run(empty / "python", "-c", example, env=env, cwd=tmp_path)
        listed = run(empty / "sarit", "scope", "list", "--format", "json", env=env, cwd=tmp_path)
        assert listed.startswith("[")
        assert node.stop() == 0


def test_nothing_of_spark_came_along(empty, env) -> None:
    missing = "import importlib.util as u; print([m for m in ('pyspark', 'pandas', 'py4j') if u.find_spec(m)])"
    assert run(empty / "python", "-c", missing, env=env).strip() == "[]"
