"""The official Python client, unmodified, against a node; and again after the node was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import RunningNode

SCENARIOS = ["events", "two_readers", "byte_stream", "large_events", "head_and_tail"]
SCENARIO_SECONDS = 90


def run(scenario: str, node: RunningNode) -> None:
    script = Path(__file__).with_name("scenario.py")
    port = node.controller.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, script, scenario, port], capture_output=True, text=True, timeout=SCENARIO_SECONDS, check=False
    )
    assert f"passed {scenario}" in done.stdout, f"{scenario} failed:\n{done.stdout}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("node") / "data").start()
    run("management", node)
    yield node
    assert node.stop() == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(node, scenario):
    run(scenario, node)


def test_everything_acknowledged_survives_a_kill(node):
    run("continue_before", node)
    node.kill()
    node.start()
    run("continue_after", node)
