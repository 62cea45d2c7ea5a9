"""`make check`: what costs little runs before each push, and the place of a test says what it costs."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.conftest import COSTS, cost_of

ROOT = Path(__file__).parents[3]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize(
    ("path", "cost"),
    [
        ("tests/unit/wire/test_commands.py", "pure"),
        ("tests/unit/client/test_releases.py", "node"),  # it imports tests.nodes
        ("tests/unit/simulation/test_world.py", "simulation"),
        ("tests/contract/test_index.py", "contract"),
        ("tests/test_stop.py", "node"),
        ("tests/spark/test_killed.py", "spark"),
    ],
)
def test_place_and_imports_of_a_test_say_what_it_costs(path: str, cost: str) -> None:
    assert cost_of(path) == cost


def test_costs_name_places_and_markers_that_exist(request: pytest.FixtureRequest) -> None:
    assert [start for start in COSTS if not any(path.startswith(start) for path in FILES)] == []
    markers = {line.partition(":")[0] for line in request.config.getini("markers")}
    assert {cost_of(path) for path in FILES} <= markers
    assert request.node.get_closest_marker("pure")


def test_a_push_runs_the_check_and_ci_everything() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks if hook["stages"] == ["pre-push"]] == ["make check"]
    assert "exec make test\n" in (ROOT / ".ci" / "run").read_text()
    (test,) = re.findall(r"^test: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert " lint traced tested\n" in test
    (tested,) = re.findall(r"^tested: .*\n\t(.*)\n", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tested.startswith("@$(BIN)/pytest -n ")
    assert not {"-k", "-m", "||", "--cost"} & set(tested.split())


def test_few_verbs_stand_in_front() -> None:
    front, rest = (ROOT / "Makefile").read_text().split("##@ The simulation\n")
    assert len(re.findall(r"^[a-z-]+:.*## ", front, re.MULTILINE)) <= 15
    assert len(re.findall(r"^[a-z-]+:.*## ", rest, re.MULTILINE)) > 15


def test_container_for_development_is_set_up_by_the_verb() -> None:
    described = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert described["postCreateCommand"].startswith("make setup ")
    assert described["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == ".venv/bin/python"
