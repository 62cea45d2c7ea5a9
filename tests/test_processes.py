"""A node in several processes: it serves, and a process that dies takes its share down for a moment only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


def children(node: RunningNode) -> dict[str, int]:
    """The processes of a node: their names and ids."""
    found = {}
    for pid in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"sarit.node.child" in command:
            found[command[3].decode()] = int(pid)
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_store_and_controller_start_again_and_nothing_is_lost(tmp_path):
    node = RunningNode(tmp_path / "data", "--processes", "2", "--containers", "2").start()
    expected = []
    try:
        killed = children(node)
        assert sorted(killed) == ["controller", "store-0", "store-1"]
        with sarit.connect(node.controller) as client:
            client.create_scope("s")
            client.create_stream("s/t", segments=4)
            with client.writer("s/t") as writer:
                for name in sorted(killed):
                    for number in range(50):
                        expected.append(f"{name} {number}")
                        writer.write(expected[-1], key=str(number))
                    os.kill(killed[name], signal.SIGKILL)
                    writer.flush()
            read = [event.decode() for event in client.reader("s/t", end="tail")]
        assert sorted(read) == sorted(expected)
        wait_until(lambda: len(set(children(node)) & set(killed)) == 3)
        assert not set(children(node).values()) & set(killed.values())
        last = children(node)
        assert node.stop() == 0
        assert not any(map(is_running, last.values()))
    finally:
        node.kill()
    log = node.log()
    assert log.count("was ended by signal 9 (SIGKILL); it starts again in 0.1 s") == 3, log
    assert "Traceback" not in log


def test_children_end_with_a_parent_that_is_killed(tmp_path):
    node = RunningNode(tmp_path / "data", "--processes", "2", "--containers", "2").start()
    left = children(node)
    assert len(left) == 3
    node.kill()
    wait_until(lambda: not any(map(is_running, left.values())))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--processes", "5"), "--processes 5: each process needs a container, and there are 4"),
        (("--processes", "2", "--one-port"), "--one-port is for one process"),
        (("--processes", "3", "--memory", "256M"), "--memory 256M is too little: 3 processes of 2 containers at most"),
        (("--processes", "0"), "is not a number of processes"),
        (("--processes", "2", "--store-port", "9089"), "the stores need the ports 9089 to 9090"),
    ],
)
def test_processes_that_cannot_be_are_refused(tmp_path, options, reason):
    ended = subprocess.run(
        [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), *options], capture_output=True, text=True,
        timeout=HANG_SECONDS,
    )  # fmt: skip
    assert reason in " ".join(ended.stderr.split())
    assert ended.returncode in (1, 2)
    assert not (tmp_path / "data").exists()
