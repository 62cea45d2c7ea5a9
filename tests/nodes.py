"""A real node in a process of its own, for tests of what lies outside it."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.ports import free_ports
from tests import fork_server, secured
from tests.fork_server import SARIT
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from types import TracebackType

READY = re.compile(
    r"sarit is ready: controller (\S+:\d+), store (\S+:\d+)(?:.*, HTTP (\S+:\d+))?(?:.*, schema registry (\S+:\d+))?"
)
STOP_SECONDS = HANG_SECONDS
FIRST_PASSED = 100  # above those that systemd's have
PASS_SOCKETS = """
import os, sys
count = int(sys.argv[1])
for number in range(count):
    os.dup2(int(sys.argv[2 + number]), 3 + number)
command = sys.argv[2 + count:]
os.execve(command[0], command, os.environ | {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)})
"""
# `make interop-processes` runs tests against nodes of so many store processes.
PROCESSES = os.environ.get("SARIT_TEST_PROCESSES", "")


def hears_signals() -> None:
    """For `preexec_fn`: a shell has what it runs in the background ignore Ctrl-C, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])


def passed_descriptors(sockets: Sequence[socket.socket]) -> list[int]:
    """Descriptors of them for `pass_fds`, for as long as this process runs."""
    return [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_PASSED) for each in sockets]


def passing(descriptors: Sequence[int]) -> list[str]:
    """What comes before a command that gets these descriptors as systemd passes sockets; nothing for none."""
    return [sys.executable, "-c", PASS_SOCKETS, str(len(descriptors)), *map(str, descriptors)] if descriptors else []


def free_listeners(command: Sequence[str]) -> list[str]:
    """Options of `sarit standalone` for ports of its own: it needs one for each store process, from the first on."""
    stores = int(command[command.index("--processes") + 1]) if "--processes" in command else 1
    controller, *store = free_ports(1 + stores)
    return [
        "--controller-port",
        str(controller),
        *(("--store-port", str(store[0])) if "--one-port" not in command else ()),
    ]


class RunningNode:
    """`sarit standalone`, on the same ports in all of its lives; `controller` and `store` are its addresses.

    `http`, `registry`: with `--http-port 0` and `--registry on` among `options`.  `passed`: sockets that it gets as
    from systemd."""

    def __init__(
        self, directory: Path, *options: str, sarit: Sequence[str] = (SARIT,), env: dict[str, str] | None = None,
        passed: Sequence[socket.socket] = (),
    ) -> None:  # fmt: skip
        self._command = [*sarit, "standalone", "--data-dir", str(directory), *options]
        if PROCESSES and not {"--processes", "--containers", "--one-port"} & set(options):
            self._command += ["--processes", PROCESSES]
        self._by_name = secured.ON and "--users" not in options
        if self._by_name:
            self._command += secured.options()
            secured.set_environment()
        if "--controller-port" not in options:
            self._command += free_listeners(self._command)
        self._passed = passed_descriptors(passed)
        self._log = directory.with_name(directory.name + ".log")
        self._env = {"SARIT_HTTP_PORT": "off", **(os.environ if env is None else env)}
        self._process: subprocess.Popen[str] | fork_server.Forked | None = None
        self.controller = self.store = self.http = self.registry = ""

    def start(self) -> RunningNode:
        """Start it and wait until it is ready.  Raises AssertionError with its last words."""
        with self._log.open("a") as log:
            command = [*passing(self._passed), *self._command]
            if command[0] == SARIT:
                self._process = fork_server.start(command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._env)
            else:
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._env, pass_fds=self._passed
                )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = READY.search(line)
            if found:
                self.controller, self.store, self.http, self.registry = (each or "" for each in found.groups())
                if self._by_name:
                    # Certificates are for names: official clients take no others.
                    self.controller = self.controller.replace("127.0.0.1", "localhost")
                return self
        self._process.wait()
        raise AssertionError(f"the node did not start:\n{self.log()[-4000:]}")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What it has logged in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def resident_bytes(self) -> int:
        """The memory it uses now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def stop(self) -> int:
        """End it as an operator does; returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the node did not stop in {STOP_SECONDS} s") from None
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def __enter__(self) -> RunningNode:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
