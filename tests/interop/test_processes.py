"""The official client while processes of a node of several are killed."""

from __future__ import annotations

import os
import signal

import pytest

from tests.interop.running import finish, start
from tests.nodes import RunningNode
from tests.test_processes import children, wait_until

KILLED = ("store-0", "store-1", "store-2", "controller")


@pytest.mark.long
def test_writer_and_reader_continue_while_each_process_is_killed(tmp_path):
    name = "restart.through_the_kill"
    with RunningNode(tmp_path / "data", "--processes", "3") as node:
        process = start(name, node.controller, "killed", tmp_path)
        assert process.stdout is not None
        assert process.stdin is not None
        if process.stdout.readline() == "running\n":
            for number, victim in enumerate(KILLED):
                os.kill(children(node)[victim], signal.SIGKILL)
                wait_until(lambda count=number + 1: node.log().count(" serves again after ") == count)
            process.stdin.write("back\n")
        finish(name, process)
        print([line.partition("node: ")[2] for line in node.log().splitlines() if "serves again" in line])
