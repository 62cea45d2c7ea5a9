"""The lines that client, controller and store log of one call can be joined."""

from __future__ import annotations

import re

import pytest

from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


def run(node: RunningNode, *arguments: str) -> str:
    """What a verbose command says of its calls."""
    command = [SARIT, "--verbose", *arguments, "--controller", node.controller]
    done = fork_server.run(command, text=True, timeout=HANG_SECONDS)
    return done.stderr


@pytest.mark.long
@pytest.mark.parametrize("processes", [(), ("--processes", "2", "--containers", "2")])
def test_call_is_found_in_the_logs_of_controller_and_store(tmp_path, processes):
    with RunningNode(tmp_path / "data", "--log-level", "debug", *processes) as node:
        run(node, "scope", "create", "s")
        said = run(node, "stream", "create", "s/t")
        (call,) = re.findall(r"request (\d+), createStream, was answered", said)
    lines = [line for line in node.log().splitlines() if line.endswith(f"(request {call})")]
    assert any("create_stream" in line or "createStream" in line for line in lines), lines
    if processes:
        # The controller's request to a store has an id of its own: one line has both.
        answered = re.compile(r"request (\d+), (?!Introduce)(\w+), was answered with")  # after a connection's begin
        asked = [found for line in lines for found in answered.findall(line)]
        assert asked
        for request, command in asked:
            assert re.search(rf"\[store-\d\] .*{command} of .* is answered with .*\(request {request}\)", node.log())
