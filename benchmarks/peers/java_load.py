"""Load generators in Java, with a peer's own client, compiled once into `.cache/peers`.

They follow the rules of `benchmarks/loads/open_loop.py` and print the same line of JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from benchmarks.peers.maven import CACHE, HERE, PeerMissing
from benchmarks.peers.process import JAVA_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

LOAD_SECONDS = 300


def _compiled(main: str, classes: str) -> Path:
    """The directory of the classes of `main`, compiled again when a source is newer.  Raises PeerMissing."""
    target: Path = CACHE / f"{main}-classes"
    sources = [HERE / "OpenLoop.java", HERE / f"{main}.java"]
    made = target / f"{main}.class"
    if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        if shutil.which("javac") is None:
            raise PeerMissing(f"{main} needs javac (a JDK), which is not here")
        target.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-cp", classes, "-d", str(target), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise PeerMissing(f"{main} does not compile: {done.stdout[-500:]}{done.stderr[-500:]}")
    return target


def java_load(main: str, classes: str, logging: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run `main` on a peer's class path; `logging` is a logback configuration.  Raises PeerMissing."""
    path = f"{classes}:{_compiled(main, classes)}"
    arguments = [f"{name}={value}" for name, value in options.items()]
    logback = f"-Dlogback.configurationFile={logging}"
    command = ["java", *JAVA_OPTIONS, "-Xmx1g", logback, "-cp", path, main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerMissing(f"{main} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-800:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
