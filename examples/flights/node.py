"""A standalone node as a child process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

READY = re.compile(r"sarit is ready: controller (\S+:\d+)")


class Node:
    """`with Node(directory) as controller:` serves until the block ends; Ctrl-C does not reach it directly."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> str:
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "node.log"
        sarit = str(Path(sys.executable).with_name("sarit"))
        command = [sarit, "standalone", "--data-dir", str(self._directory / "node")]
        with log.open("a") as log_file:
            self._process = subprocess.Popen(
                [*command, "--controller-port", "0", "--store-port", "0", "--http-port", "off"],
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
                start_new_session=True,
            )
        try:
            if (controller := self._ready()) is not None:
                return controller
        except BaseException:  # Ctrl-C: without `__enter__` there is no `__exit__`, and the node would stay
            self._stop()
            raise
        self._process.wait()
        tail = "".join(log.read_text().splitlines(keepends=True)[-5:])
        raise SystemExit(f"the node did not start; the end of {log}:\n{tail}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _ready(self) -> str | None:
        """The address of its controller; None when it has ended without saying one."""
        assert self._process is not None
        assert self._process.stdout is not None
        found = next(filter(None, map(READY.search, self._process.stdout)), None)
        return None if found is None else found[1]

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()  # nothing acknowledged is lost by that either
            self._process.wait()
