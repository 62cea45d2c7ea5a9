"""Stands for systemctl on a machine of a runbook: units are files of commands in the folder UNITS of the environment.

    python systemctl.py start|stop PATTERN...

A unit is started again when it ends, as with Restart=always."""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

STOP_SECONDS = 90
SUPERVISOR = """
trap 'kill -TERM $child; wait $child; exit 0' TERM
while :; do bash "$0" & child=$!; wait $child; sleep 1; done
"""


def group_runs(group: int) -> bool:
    """Whether a process of this group has not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, found = path.read_text().rpartition(") ")[2].split()[:3]
            if int(found) == group and state != "Z":
                return True
    return False


def start(unit: Path) -> None:
    """Start a unit, unless it runs."""
    mark = unit.with_suffix(".pid")
    if mark.exists():
        return
    with unit.with_suffix(".log").open("a") as log:
        started = subprocess.Popen(
            ["bash", "-c", SUPERVISOR, unit], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={"PATH": os.environ["PATH"]},  # a unit does not know the shell of its operator
        )  # fmt: skip
    mark.write_text(str(started.pid))


def stop(unit: Path, how: signal.Signals = signal.SIGTERM) -> None:
    """End a unit, and wait for its end; SIGKILL: all its processes at once."""
    mark = unit.with_suffix(".pid")
    if not mark.exists():
        return
    group = int(mark.read_text())
    with suppress(ProcessLookupError):
        (os.killpg if how is signal.SIGKILL else os.kill)(group, how)
    end = time.monotonic() + STOP_SECONDS
    while group_runs(group):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        time.sleep(0.05)
    mark.unlink()


def main(what: str, *patterns: str) -> None:
    """Carry a command out."""
    act = {"start": start, "stop": stop}[what]
    for pattern in patterns:
        for unit in sorted(Path(os.environ["UNITS"]).glob("*.unit")):
            if fnmatch.fnmatch(unit.stem, pattern):
                act(unit)


if __name__ == "__main__":
    main(*sys.argv[1:])
