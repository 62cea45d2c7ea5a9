"""Scenarios as processes, several at a time: they mostly wait for timers of the client."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS = 100.0
AT_ONCE = 4


def start(name: str, endpoint: str, scope: str, notes: Path) -> subprocess.Popen[str]:
    """A scenario's process, its stdin and stdout open."""
    command = [sys.executable, "-u", "-m", "tests.interop.scenario", name, endpoint, scope, str(notes)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(name: str, process: subprocess.Popen[str], seconds: float = SCENARIO_SECONDS) -> None:
    """Wait for a scenario's end.  Raises AssertionError with what it said when it did not pass."""
    begun = time.monotonic()
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        error += f"\nstill running after {time.monotonic() - begun:.0f} s"
    assert f"passed {name}\n" in out, f"{name} failed ({process.returncode}):\n{out[-2000:]}\n{error[-6000:]}"


def run(name: str, endpoint: str, scope: str, notes: Path) -> None:
    """One scenario from start to end."""
    finish(name, start(name, endpoint, scope, notes))


class Batch:
    """Scenarios that run beside each other; `result(name)` waits for one and raises what it raised."""

    def __init__(self, names: Iterable[str], endpoint: str, scope: str, notes: Path) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._running: dict[str, Future[None]] = {
            name: self._pool.submit(run, name, endpoint, scope, notes) for name in names
        }

    def result(self, name: str) -> None:
        """What became of it."""
        self._running[name].result()

    def close(self) -> None:
        """Start no more; wait for those that run."""
        self._pool.shutdown(cancel_futures=True)
