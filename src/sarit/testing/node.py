"""A node for tests: `sarit standalone --dev` in a process that ends with this one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from sarit.env.real import real_env
from sarit.testing.limits import FIRST_PORT, LAST_PORT, LOG_END_BYTES, STOP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

_READY: Final = re.compile(r"sarit is ready: controller (\S+:\d+), store (\S+:\d+)(?:.*, HTTP (\S+:\d+))?")


class NodeProcess:
    """A node in a process of its own, on a temporary directory, with the same ports in all of its lives.

    `controller`, `store`: HOST:PORT.  `http`: likewise; empty, unless `--http-port` is among the options."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self.controller = self.store = self.http = ""
        self._directory = tempfile.mkdtemp(prefix="sarit-test-")
        self._options = list(options)
        if not any(option.partition("=")[0] == "--http-port" for option in options):
            self._options += ["--http-port", "off"]
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"<NodeProcess {self.controller or 'not started'}, {'running' if self.running else 'ended'}>"

    def __enter__(self) -> NodeProcess:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the id of the process.  Raises RuntimeError: it does not run."""
        if self._process is None or not self.running:
            raise RuntimeError("the node does not run: call start() first")
        return self._process.pid

    @property
    def log(self) -> str:
        """Return what the node has logged in all of its lives: warnings and errors, unless options say otherwise."""
        with open(self._log_path, errors="replace") as file:
            return file.read()

    @property
    def _log_path(self) -> str:
        return os.path.join(self._directory, "log.txt")

    def start(self) -> None:
        """Start the node unless it runs, and wait until it serves.  Raises RuntimeError with the end of its log."""
        if self.running:
            return
        self._release()
        ports = self._ports()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SARIT_")}
        command = [
            sys.executable, "-m", "sarit.testing.node_main", self._directory, "standalone", "--dev",
            "--data-dir", os.path.join(self._directory, "data"), *ports, *self._options,
        ]  # fmt: skip
        with open(self._log_path, "a") as log:
            # A session of its own: Ctrl-C ends the tests, and they end the node.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environ,
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _READY.search(line):
                self.controller, self.store, self.http = found[1], found[2], found[3] or ""
                return
        code = self._process.wait()
        raise RuntimeError(f"the node ended with code {code} before it served:\n{self.log[-LOG_END_BYTES:]}")

    def kill(self) -> None:
        """End the node as a loss of power does (kill -9): what it has acknowledged is there after the next start."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the node as an operator does (SIGTERM): it flushes to long-term storage first."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill the node, and start it again."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Kill the node, and delete its data."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ports(self) -> list[str]:
        named = {option.partition("=")[0] for option in self._options}
        if {"--controller-port", "--store-port", "--one-port"} & named:
            return []
        if self.controller:
            known = [address.rpartition(":")[2] for address in (self.controller, self.store)]
        else:
            known = [str(port) for port in _free_ports(2)]
        return ["--controller-port", known[0], "--store-port", known[1]]

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the node did not stop within {STOP_SECONDS:g} s, and was killed") from None
        finally:
            self._release()

    def _release(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody has.

    They are below those that the system gives to connections: one of these could take a port while its node is away,
    even one to that very port.  Raises RuntimeError."""
    random = real_env().random
    found: list[int] = []
    for _ in range(LAST_PORT - FIRST_PORT):
        port = FIRST_PORT + int.from_bytes(random.bytes(4)) % (LAST_PORT - FIRST_PORT)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no port of 127.0.0.1 from {FIRST_PORT} to {LAST_PORT} is free")
