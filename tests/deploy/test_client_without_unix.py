"""The client where there is no uvloop, and nothing that only Unix has."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

# asyncio and subprocess choose their own modules by the system: they come first.
BLOCKED = """
import asyncio, logging.handlers, multiprocessing, os, subprocess, sys
for name in ("uvloop", "fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("O_DIRECT", "pwritev", "preadv", "posix_fadvise", "posix_fallocate", "fork", "sched_getaffinity"):
    delattr(os, name)
"""
CLIENT = """
import sarit, sarit.client.aio
with sarit.connect(sys.argv[1]) as client:
    client.create_scope("shop")
    client.create_stream("shop/orders", segments=2)
    with client.writer("shop/orders") as writer:
        writer.write_many([b"%d" % number for number in range(1000)])
    assert sum(1 for _ in client.reader("shop/orders", end="tail")) == 1000
print("done")
"""
COMMAND = """
import sarit.cli.main
sarit.cli.main.cli(["scope", "create", "warehouse", "--controller", sys.argv[1]])
"""


def run(code: str, *arguments: str) -> str:
    """What a program prints on a system without these modules."""
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


def test_client_writes_and_reads_on_asyncio_s_own_loop(node) -> None:
    assert run(CLIENT, node.controller) == "done\n"


def test_commands_of_clients_run(node) -> None:
    assert run(COMMAND, node.controller) == "scope warehouse created\n"
