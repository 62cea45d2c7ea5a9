"""The log in a real process on a real disk: killed with -9 at any moment, and with syncs that fail."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.limits import HANG_SECONDS

CHILD = str(Path(__file__).parent / "log_child.py")


class Child:
    """Runs the owner of the log, and checks what it prints."""

    def __init__(self, directory, *prefix: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, CHILD, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.acked = self.opened = self.deaths = 0

    def follow(self, lines: int, acked: int) -> int:
        """Read that many lines; `acked` was acknowledged before.  Returns the highest acknowledged now."""
        for _ in range(lines):
            acked = self._judge(self.process.stdout.readline(), acked)
        return acked

    def kill(self, acked: int) -> int:
        self.process.kill()
        # Not by `communicate`, which does not know what `readline` has read ahead.  The last line may be cut short.
        whole, _, _ = self.process.stdout.read().rpartition("\n")
        self.process.wait()
        for line in whole.splitlines():
            acked = self._judge(line, acked)
        self.process.stdout.close()
        self.process.stderr.close()
        return acked

    def _judge(self, line: str, acked: int) -> int:
        what, _, number = line.strip().partition(" ")
        if what == "open":
            self.opened += 1
            assert int(number) >= acked, f"{acked} was acknowledged, {number} is all there is"
            return int(number)
        if what == "acked":
            assert int(number) == acked + 1
            return acked + 1
        assert what == "dead", (line, self.process.stderr.read() if self.process.poll() is not None else "")
        self.deaths += 1
        return acked


@pytest.mark.parametrize("seed", [1])
def test_log_survives_repeated_kills(tmp_path, seed) -> None:
    rng = random.Random(seed)
    acked = 0
    for _ in range(8):
        child = Child(tmp_path)
        watchdog = threading.Timer(HANG_SECONDS, child.process.kill)
        watchdog.start()
        try:
            acked = child.follow(rng.choice((1, 2, 30, 150)), acked)
        finally:
            acked = child.kill(acked)
            watchdog.cancel()
        assert child.opened == 1
    assert acked > 100


def _can_inject() -> bool:
    return bool(shutil.which("strace")) and subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode == 0


@pytest.mark.skipif(not _can_inject(), reason="needs strace, and leave to trace: it makes the system calls fail")
@pytest.mark.parametrize("call", ["/^pwrite(64|v2?)$", "fdatasync", "fsync"])
def test_failing_system_calls_end_epoch_without_loss(tmp_path, call, monkeypatch) -> None:
    if call == "fdatasync":  # written data is in the page cache then, and recovery reads it
        monkeypatch.setenv("TWO_STEPS", "1")
    inject = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e"]
    when = "12+9" if call == "fsync" else "15+40"
    child = Child(tmp_path, *inject, f"inject={call}:error=EIO:when={when}")
    watchdog = threading.Timer(HANG_SECONDS, child.process.kill)
    watchdog.start()
    acked = 0
    try:
        while child.deaths < 3:
            acked = child.follow(1, acked)
    finally:
        acked = child.kill(acked)
        watchdog.cancel()
    child = Child(tmp_path)
    try:
        # More than was acknowledged may be durable.
        acked = child.follow(1, acked)
    finally:
        child.kill(acked)
    assert acked > 20
