"""Runs scenarios as processes, several at a time, since they mostly wait for timers of the client."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.client_deadlock import Watch
from tests.limits import patient

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS = patient(100.0)
AT_ONCE = 4
POLL_SECONDS = 0.5
# Longer than any pause of a client that works, on a machine however busy; shorter than its time-out of 30 s.
STUCK_SECONDS = patient(20.0)
ATTEMPTS = 6
# Second halves need the data of the first: they cannot be repeated, and wait for the client's time-out.
NOT_REPEATED = "restart."


def start(name: str, endpoint: str, scope: str, notes: Path) -> subprocess.Popen[str]:
    """A scenario's process, its stdin and stdout open."""
    command = [sys.executable, "-u", "-m", "tests.interop.scenario", name, endpoint, scope, str(notes)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


class ClientStuck(AssertionError):
    """The client does not take replies that have reached it (see `client_deadlock.py`)."""


def finish(
    name: str, process: subprocess.Popen[str], seconds: float = SCENARIO_SECONDS, stuck_seconds: float = STUCK_SECONDS
) -> None:
    """Wait for a scenario's end.  Raises AssertionError with its output when it failed, ClientStuck."""
    begun = time.monotonic()
    if name.startswith(NOT_REPEATED):
        stuck_seconds = seconds
    watch = Watch(process.pid, round(stuck_seconds / POLL_SECONDS))
    stuck = None
    while True:
        try:
            out, error = process.communicate(timeout=POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            stuck = watch.poll()
            if stuck is None and time.monotonic() - begun < seconds:
                continue
        process.kill()
        out, error = process.communicate()
        error += f"\nstill running after {time.monotonic() - begun:.0f} s"
        break
    if stuck is not None:
        raise ClientStuck(f"{name} does not take replies from its socket {stuck}:\n{error[-6000:]}")
    assert f"passed {name}\n" in out, f"{name} failed ({process.returncode}):\n{out[-2000:]}\n{error[-6000:]}"


def run(name: str, endpoint: str, scope: str, notes: Path) -> None:
    """Run one scenario; again, in a new scope, when the client deadlocks."""
    for attempt in range(ATTEMPTS):
        try:
            finish(name, start(name, endpoint, f"{scope}-{attempt}" if attempt else scope, notes))
            return
        except ClientStuck:
            if attempt + 1 == ATTEMPTS or name.startswith(NOT_REPEATED):
                raise


class Batch:
    """Scenarios that run beside each other; `result(name)` waits for one and raises what it raised."""

    def __init__(self, names: Iterable[str], endpoint: str, scope: str, notes: Path) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._running: dict[str, Future[None]] = {
            name: self._pool.submit(run, name, endpoint, scope, notes) for name in names
        }

    def result(self, name: str) -> None:
        """Wait for a scenario."""
        self._running[name].result()

    def close(self) -> None:
        """Start no more; wait for those that run."""
        self._pool.shutdown(cancel_futures=True)
