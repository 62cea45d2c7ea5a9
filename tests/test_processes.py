"""A node in several processes: it serves, and a process that dies takes its share down for a moment only."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import sarit
from sarit.core.names import SegmentId, StreamName
from sarit.store.store import container_of
from tests import fork_server, secured
from tests.limits import HANG_SECONDS
from tests.nodes import READY, SARIT, RunningNode, hears_signals


def children(node: RunningNode | subprocess.Popen[str]) -> dict[str, int]:
    """The processes of a node: their names and ids."""
    found = {}
    for pid in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split():
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name == "controller" or name.startswith("store-"):
            found[name] = int(pid)
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


def stream_in(container: int, containers: int) -> str:
    """A stream whose one segment is in a container."""
    names = (StreamName("s", f"t{number}") for number in itertools.count())
    return str(next(name for name in names if container_of(name.segment(SegmentId(0, 0)), containers) == container))


def test_others_serve_on_while_one_store_is_away_and_it_starts_again(tmp_path):
    node = RunningNode(tmp_path / "data", "--processes", "3", "--containers", "3").start()
    try:
        first = children(node)
        assert sorted(first) == ["controller", "store-0", "store-1", "store-2"]
        streams = [stream_in(container, 3) for container in range(3)]
        with sarit.connect(node.controller) as client, ExitStack() as stack:
            client.create_scope("s")
            for name in streams:
                client.create_stream(name)
            writers = [stack.enter_context(client.writer(name)) for name in streams]
            for writer in writers:
                writer.write("before")
                writer.flush()
            os.kill(first["store-1"], signal.SIGSTOP)
            for writer in writers:
                writer.write("meanwhile")
            # Durable, while the third cannot answer.
            writers[0].flush()
            writers[2].flush()
            os.kill(first["store-1"], signal.SIGKILL)
            writers[1].flush()
            os.kill(first["controller"], signal.SIGKILL)
            for name in streams:
                assert [event.decode() for event in client.reader(name, end="tail")] == ["before", "meanwhile"]
        wait_until(lambda: len(children(node)) == 4)
        second = children(node)
        same = {name for name in first if second[name] == first[name]}
        assert same == {"store-0", "store-2"}
        assert node.stop() == 0
        assert not any(map(is_running, second.values()))
    finally:
        node.kill()
    log = node.log()
    assert "store-1 (containers 1) was ended by signal 9 (SIGKILL); it starts again in 0.1 s" in log
    assert "the controller was ended by signal 9 (SIGKILL); it starts again in 0.1 s" in log
    assert "Traceback" not in log, log


@pytest.mark.long
def test_store_that_stands_still_is_killed_and_starts_again(tmp_path):
    node = RunningNode(tmp_path / "data", "--processes", "2", "--containers", "2").start()
    try:
        first = children(node)
        streams = [stream_in(container, 2) for container in range(2)]
        with sarit.connect(node.controller) as client, ExitStack() as stack:
            client.create_scope("s")
            for name in streams:
                client.create_stream(name)
            writers = [stack.enter_context(client.writer(name)) for name in streams]
            os.kill(first["store-1"], signal.SIGSTOP)
            for writer in writers:
                writer.write("meanwhile")
            writers[0].flush()
            writers[1].flush()  # durable in the process that replaced it
            for name in streams:
                assert [event.decode() for event in client.reader(name, end="tail")] == ["meanwhile"]
        second = children(node)
        assert {name for name in first if second[name] == first[name]} == {"store-0", "controller"}
        assert node.stop() == 0
    finally:
        node.kill()
    log = node.log()
    assert "store-1 (containers 1) stands still: no heartbeat for 10 s; it is killed" in log
    assert "Traceback" not in log, log


def test_signal_to_all_processes_stops_them_in_order_and_any_number_serves_the_directory(tmp_path):
    def own_group() -> None:
        os.setsid()
        hears_signals()

    ports = ["--controller-port", "0", "--store-port", "0", *(secured.options() if secured.ON else ())]
    node = subprocess.Popen(
        [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), "--processes", "2", *ports],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=own_group,
    )  # fmt: skip
    try:
        assert node.stdout is not None
        found = READY.search(node.stdout.readline())
        assert found is not None
        with sarit.connect(found[1]) as client:
            client.create_scope("s")
            client.create_stream("s/t", segments=4)
            with client.writer("s/t") as writer:
                for number in range(1000):
                    writer.write(str(number), key=str(number))
        for pid in children(node).values():  # as a service manager does
            os.kill(pid, signal.SIGTERM)
        os.killpg(node.pid, signal.SIGINT)  # as a terminal does
        out, err = node.communicate(timeout=HANG_SECONDS)
    finally:
        node.kill()
    assert node.returncode == 0, err
    assert "sarit stopped; everything acknowledged is on disk" in out
    assert "Traceback" not in err
    assert "not flushed on stop" not in err
    with RunningNode(tmp_path / "data") as alone, sarit.connect(alone.controller) as client:
        assert sorted(int(event) for event in client.reader("s/t", end="tail")) == list(range(1000))


def test_children_end_with_a_parent_that_is_killed(tmp_path):
    node = RunningNode(tmp_path / "data", "--processes", "2", "--containers", "2").start()
    left = children(node)
    assert len(left) == 3
    node.kill()
    wait_until(lambda: not any(map(is_running, left.values())))


# What the machine decides is asked after its ports: another node may have the default ones.
NO_PORTS = ("--controller-port", "0", "--store-port", "0")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--processes", "5"), "--processes 5: each process needs a container, and there are 4"),
        (("--processes", "2", "--one-port"), "--one-port is for one process"),
        (
            ("--processes", "3", "--memory", "256M", *NO_PORTS),
            "--memory 256M is too little: 3 processes of 2 containers at most",
        ),
        (("--processes", "0"), "is not a number of processes"),
        (("--processes", "2", "--store-port", "9089"), "the stores need the ports 9089 to 9090"),
    ],
)
def test_processes_that_cannot_be_are_refused(tmp_path, options, reason):
    command = [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), *options]
    ended = fork_server.run(command, text=True, timeout=HANG_SECONDS, check=False)
    assert reason in " ".join(ended.stderr.split())
    assert ended.returncode in (1, 2)
    assert not (tmp_path / "data").exists()
