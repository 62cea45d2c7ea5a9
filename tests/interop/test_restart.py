"""The official Python client before and after the node is killed with -9: all that was acknowledged is there."""

from __future__ import annotations

import pytest

from tests.interop.running import Batch, finish, start
from tests.nodes import RunningNode

SCOPE = "restarted"
THEMES = ["events", "names", "group", "bytes", "large"]


@pytest.fixture(scope="module")
def after(request, tmp_path_factory):
    """The second halves, running on the node that was killed after the first."""
    if request.config.getoption("--interop-endpoint", default=None):
        pytest.skip("the node of --interop-endpoint is not ours to kill")
    notes = tmp_path_factory.mktemp("notes")
    with RunningNode(notes / "data") as node:
        firsts = [f"restart.{theme}_before" for theme in THEMES]
        before = Batch(firsts, node.controller, SCOPE, notes)
        for name in firsts:
            before.result(name)
        node.kill()
        node.start()
        running = Batch([f"restart.{theme}_after" for theme in THEMES], node.controller, SCOPE, notes)
        yield running
        running.close()


@pytest.mark.parametrize("theme", THEMES)
def test_acknowledged_data_survives_kill(after, theme):
    after.result(f"restart.{theme}_after")


def test_writer_and_reader_continue_after_kill(request, tmp_path):
    if request.config.getoption("--interop-endpoint", default=None):
        pytest.skip("the node of --interop-endpoint is not ours to kill")
    name = "restart.through_the_kill"
    with RunningNode(tmp_path / "data") as node:
        process = start(name, node.controller, SCOPE, tmp_path)
        assert process.stdout is not None
        assert process.stdin is not None
        if process.stdout.readline() == "running\n":
            node.kill()
            node.start()
            process.stdin.write("back\n")
        finish(name, process)
