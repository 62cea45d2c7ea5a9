"""The processes of Spark in some sessions (`setsid`), by what they are.  A run looks at those it started alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipelines import chain

if TYPE_CHECKING:
    from collections.abc import Iterable

BUSY_SECONDS = 0.2


@dataclass(frozen=True)
class Process:
    """One process; `role` is what it does for Spark, `kind` is `jvm` (of the driver), `executor` or `python`."""

    pid: int
    kind: str
    role: str


def find(leaders: Iterable[int]) -> list[Process]:
    """Those of the sessions of these leaders."""
    found = []
    for leader in leaders:
        for pid in chain.session_processes(leader):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                process = _known(pid, command)
                if process is not None and pid != leader:
                    found.append(process)
    return found


def _known(pid: int, command: list[str]) -> Process | None:
    words = " ".join(command)
    if "CoarseGrainedExecutorBackend" in words:
        return Process(pid, "executor", "executor")
    if "SparkSubmit" in words:
        return Process(pid, "jvm", "driver's JVM")
    if "-m" not in command or not any(word.startswith("pyspark.") for word in command):
        return None
    module = [word for word in command if word.startswith("pyspark.")][-1].rpartition(".")[2]
    parent = Path(f"/proc/{_stat(pid)[1]}/cmdline").read_bytes().decode(errors="replace")
    forked = "pyspark.daemon" in parent
    return Process(pid, "python", module if forked else f"daemon of {module}")


def busy(processes: Iterable[Process]) -> list[Process]:
    """Those that use the processor now."""
    before = {one: _ticks(one.pid) for one in processes}
    time.sleep(BUSY_SECONDS)
    return [one for one, ticks in before.items() if _ticks(one.pid) > ticks]


def kill(process: Process) -> None:
    """`kill -9`, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


def stall(process: Process, seconds: float) -> None:
    """Stop it for some time.  It goes on by itself afterwards, if it is still there."""
    with contextlib.suppress(OSError):
        begun = _stat(process.pid)[19]
        os.kill(process.pid, signal.SIGSTOP)
        timer = threading.Timer(seconds, _go_on, (process.pid, begun))
        timer.daemon = True
        timer.start()


def _go_on(pid: int, begun: str) -> None:
    with contextlib.suppress(OSError):
        if _stat(pid)[19] == begun:  # else another process has its number
            os.kill(pid, signal.SIGCONT)


def _ticks(pid: int) -> int:
    try:
        fields = _stat(pid)
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
