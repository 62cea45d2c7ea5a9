"""Programs on Pravega's Java client, compiled once; `None` and the reason where that is not possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

from benchmarks.peers.maven import CACHE, PeerMissing, class_path
from tests.limits import HANG_SECONDS

SOURCE = Path(__file__).parent / "java" / "GroupPeer.java"
SHARED = os.environ.get("SARIT_TEST_MAVEN") == "1"


def compiled(target: Path, source: Path = SOURCE, peer: str = "pravega") -> str:
    """The class path of the program, compiled into `target`.  Raises PeerMissing: no JDK, or no packages here.

    The packages are those of a benchmarks' peer: the tests bring them only when SARIT_TEST_MAVEN is 1."""
    if not SHARED and not (CACHE / peer / "pom.sha256").exists():
        raise PeerMissing(f"{peer} is not in .cache/peers (SARIT_TEST_MAVEN=1 brings it, make bench some)")
    if shutil.which("javac") is None:
        raise PeerMissing("there is no javac (a JDK)")
    classes = class_path(peer)
    done = subprocess.run(
        ["javac", "-cp", classes, "-d", str(target), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerMissing(f"{source.name} does not compile: {done.stderr[-500:]}")
    return f"{classes}:{target}"


class JavaReader:
    """The program as a process; `said` is what it printed so far."""

    def __init__(self, classes: str, *arguments: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classes, "GroupPeer", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=classes.rpartition(":")[2],  # a configuration in the packages has it write logs
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))

    def events(self) -> list[bytes]:
        """The events it got."""
        return [line.removeprefix("event ").encode() for line in list(self.said) if line.startswith("event ")]

    def leave_soon(self) -> None:
        """Have it leave its group and end."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        """Wait for its end, and for all it said."""
        self.process.wait(HANG_SECONDS)
        self._listener.join(HANG_SECONDS)

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
