"""A server process: start it, wait until it is ready, stop it by its id."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.maven import PeerMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STOP_SECONDS = 20.0
JAVA_OPTIONS = (
    "-XX:+UseG1GC",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


def accepts(port: int) -> bool:
    """Whether something listens on a port of the loopback interface."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


class Process:
    """One running server; `log` is the file that holds what it printed."""

    def __init__(self, command: Sequence[str], directory: Path, name: str, env: dict[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"{name}.log"
        self._name = name
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=directory,
                env={**os.environ, **(env or {})},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready()` is true.  Raises PeerMissing with its last output when it ends or takes too long."""
        end = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None:
                raise PeerMissing(f"{self._name} ended with {self._process.returncode}: {self.last_words()}")
            if time.monotonic() > end:
                self.stop()
                raise PeerMissing(f"{self._name} was not ready after {seconds:.0f} s: {self.last_words()}")
            time.sleep(0.02)

    def printed(self, pattern: str) -> re.Match[str] | None:
        """The first place in its output that matches."""
        return re.search(pattern, self.log.read_text(errors="replace"))

    def last_words(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-1500:]

    def memory_mb(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1000 if found else 0.0

    def cpu_seconds(self) -> float:
        """Processor time used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Terminate it, and kill it when that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
