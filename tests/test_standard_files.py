"""Commands that are started with standard input, output or error closed, as by `<&-` or a starter of daemons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.peers.ports import free_ports
from sarit.core.limits import MIB
from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode

CLOSED = {0: "<&-", 1: ">&-", 2: "2>&-"}
EVERY = [part for count in (1, 2, 3) for part in combinations(CLOSED, count)]
ONE_OR_ALL = [part for part in EVERY if len(part) != 2]
SHOW = """
import os
from sarit.cli.main import main
main.__globals__["_run"] = lambda: print(*(os.readlink("/proc/self/fd/%d" % n) for n in range(3)), file=open({!r}, "w"))
main()
"""


def closed(words, numbers, **options) -> subprocess.CompletedProcess[bytes]:
    """Run a command with these descriptors closed, by a shell."""
    shell = " ".join(["exec", '"$@"', *(CLOSED[number] for number in numbers)])
    return subprocess.run(
        ["sh", "-c", shell, "sh", *map(str, words)], capture_output=True, timeout=HANG_SECONDS, check=False, **options
    )


@pytest.mark.parametrize("numbers", EVERY)
def test_closed_standard_files_are_the_null_device(numbers, tmp_path) -> None:
    done = closed([sys.executable, "-c", SHOW.format(str(tmp_path / "shown"))], numbers, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    files = (tmp_path / "shown").read_text().split()
    assert [files[number] for number in numbers] == ["/dev/null"] * len(numbers)
    assert all(files[number].startswith("pipe:") for number in {1, 2} - set(numbers))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_node_keeps_closed_standard_files_and_ends_well(processes, tmp_path) -> None:
    """Its directory stays small, too: one without an event took 513 MB."""
    first, second, _ = free_ports(3)
    words = [
        "standalone", "--data-dir", tmp_path / "data", "--controller-port", first, "--store-port", second,
        "--processes", processes,
    ]  # fmt: skip
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {" ".join(CLOSED.values())}', "sh", SARIT, *map(str, words)],
        env={**os.environ, "SARIT_HTTP_PORT": "off"},
    )
    try:
        deadline = time.monotonic() + HANG_SECONDS
        asked = [SARIT, "scope", "list", "--controller", f"127.0.0.1:{first}"]
        while fork_server.run(asked, check=False, timeout=HANG_SECONDS).returncode:
            assert process.poll() is None
            assert time.monotonic() < deadline
        assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in CLOSED] == ["/dev/null"] * 3
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= (processes != "1") * (int(processes) + 1)
        for child in children:
            # Input and output are pipes of the node, and what a C library says goes nowhere.
            assert os.readlink(f"/proc/{child}/fd/2") == "/dev/null"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_SECONDS) == 0
        assert not [child for child in children if Path(f"/proc/{child}/exe").exists()]
        kept = sum(path.stat().st_blocks * 512 for path in (tmp_path / "data").rglob("*"))
        assert kept < 16 * MIB
    finally:
        process.kill()
        process.wait()


def test_a_process_of_a_node_that_nobody_describes_ends() -> None:
    done = closed([sys.executable, "-m", "sarit.process.child"], CLOSED)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_read_and_write_without_standard_files_end_without_a_traceback(tmp_path) -> None:
    with RunningNode(tmp_path / "data") as node:
        options = {"env": {**os.environ, "SARIT_CONTROLLER": node.controller}, "stdin": subprocess.DEVNULL}
        written = closed([SARIT, "write", "s/t", "--create"], [0], **options)
        assert (written.returncode, written.stdout) == (0, b"0 events written to s/t\n")
        # Two that are closed become the null device as one does, which is tested above.
        for numbers in ONE_OR_ALL:
            for words in (["read", "s/t", "--print-cut"], ["write", "s/t"], ["export", "s/t", "-", "--as", "raw"]):
                done = closed([SARIT, *words], numbers, **options)
                assert done.returncode == 0, (numbers, words, done.stderr)
                assert b"Traceback" not in done.stderr
