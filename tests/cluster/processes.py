"""A cluster of real processes on this machine: ZooKeeper, stores, controllers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.peers.ports import free_ports
from sarit.cli.cluster import NOT_SERVED
from tests import secured
from tests.components.bookkeeper import BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, passed_descriptors, passing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from tests.contract.s3 import S3Server

READY = re.compile(r"sarit is ready: (?:store (?P<store>\S+)|controller|worker) at (?P<address>\S+:\d+),")
LEASE_SECONDS = 4.0


class ClusterProcess:
    """One process of a cluster, which keeps its port over a restart."""

    def __init__(
        self, name: str, directory: Path, command: list[str], environ: dict[str, str], http_port: int | None = None
    ) -> None:
        self.name = name
        self.address = ""
        # Where it answers probes; empty: nowhere.
        self.http = "" if http_port is None else f"127.0.0.1:{http_port}"
        if http_port is not None:
            command = [*command, "--http-port", str(http_port)]
        self._command = command
        # A socket that it gets as from systemd.
        self.held: socket.socket | None = None
        self._passed: list[int] = []
        self._environ = environ
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()

    def begin(self) -> ClusterProcess:
        """Start it; `wait` waits until it is ready."""
        self._ready.clear()
        command = [*passing(self._passed), *self._command]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environ, pass_fds=self._passed
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def hold(self, port: int) -> ClusterProcess:
        """Have its port stay open over restarts, as a socket unit of systemd does."""
        self.held = socket.create_server(("127.0.0.1", port))
        self._passed = passed_descriptors([self.held])
        return self

    def release(self) -> None:
        """Close its port, if it is held."""
        if self.held is not None:
            self.held.close()
            for descriptor in self._passed:
                os.close(descriptor)
            self.held, self._passed = None, []

    def use(self, program: str) -> ClusterProcess:
        """Have the next start run this command `sarit`."""
        self._command = [program, *self._command[1:]]
        return self

    @property
    def program(self) -> str:
        """The command `sarit` that its next start runs."""
        return self._command[0]

    def wait(self) -> ClusterProcess:
        """Wait until it is ready.  Raises AssertionError with its last words."""
        end = time.monotonic() + HANG_SECONDS
        while not self._ready.wait(0.05):
            assert self._process is not None
            assert self._process.poll() is None, f"{self.name} ended:\n{self.log()[-4000:]}"
            assert time.monotonic() < end, f"{self.name} is not ready:\n{self.log()[-4000:]}"
        return self

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def log(self) -> str:
        """What it has logged in all its lives."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """As kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As an operator does; the exit code."""
        return self._end(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(how)
        return self._process.wait(HANG_SECONDS)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if found := READY.search(line):
                self.address = found["address"]
                self._ready.set()


class RunningCluster:
    """ZooKeeper, `stores` and `controllers`, all started, or to be started one by one."""

    def __init__(
        self, directory: Path, stores: int = 3, controllers: int = 2, containers: int = 12, *, bookies: int = 0,
        s3: S3Server | None = None, http: bool = False, program: str = SARIT, sockets: bool = False,
        storage: str = "", environ: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`bookies`: for the log; none: a directory.  `s3`: for index and long-term storage; None: directories.

        `http`: each process answers probes.  `sockets`: of controllers stay open over restarts.
        `program`: the command `sarit` that makes it, and runs its processes.  `storage`: the URL of long-term storage.
        `environ`: more variables of its processes and of the commands of this cluster."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.program = program
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.url = f"zookeeper://{self.zookeeper.hosts}/test"
        self._http, self._sockets = http, sockets
        self._ports = free_ports(2 * (stores + controllers) + 6)
        self._containers = containers
        self._count = stores
        self.bookkeeper = BookKeeperCluster(directory, self.zookeeper, bookies) if bookies else None
        self._s3 = s3
        self._storage = storage
        # Each store on a machine of its own, if nothing is shared but services.
        self._apart = bool(bookies and s3)
        aws = s3.environ if s3 is not None else {}
        self.environ = {"SARIT_HTTP_PORT": "off", **os.environ, "SARIT_CLUSTER": self.url, **aws}
        if secured.ON:
            secured.set_environment()
            self.environ |= secured.client_environment(secured.files()["ca"]) | secured.server_environment()
        self.environ |= environ or {}
        self.controllers = [self._controller(number) for number in range(controllers)]
        self.stores: dict[str, ClusterProcess] = {}

    @property
    def controller(self) -> str:
        """The addresses of all controllers, for a client."""
        return ",".join(controller.address for controller in self.controllers)

    def start(self) -> RunningCluster:
        """Make the cluster and start all of it."""
        self.zookeeper.start()
        if self.bookkeeper is not None:
            self.bookkeeper.start()
        log = (
            f"file://{self.directory}/log"
            if self.bookkeeper is None
            else f"bookkeeper://{self.zookeeper.hosts}/ledgers"
        )
        storage = f"file://{self.directory}/chunks" if self._s3 is None else f"s3://{self._s3.bucket}/cluster"
        storage = self._storage or storage
        self.sarit(
            "cluster", "init", "--containers", str(self._containers), "--log", log, "--storage", storage,
            "--lease", str(LEASE_SECONDS),
        )  # fmt: skip
        processes = [self.add_store(wait=False) for _ in range(self._count)]
        processes += [controller.begin() for controller in self.controllers]
        for process in processes:
            process.wait()
        self.until(lambda status: all(entry["store"] != "-" for entry in status["containers"]))
        return self

    def add_store(self, *, wait: bool = True) -> ClusterProcess:
        """Start one more store."""
        name = f"s{len(self.stores) + 1}"
        command = [
            self.program, "store", "--cluster", self.url, "--id", name, "--port", str(self._ports.pop()),
            "--memory", "1G",
        ]  # fmt: skip
        if self._apart:
            command += ["--machine", f"machine-{name}"]
        process = self.stores[name] = self._process(name, command).begin()
        return process.wait() if wait else process

    def _controller(self, number: int) -> ClusterProcess:
        port = self._ports.pop()
        command = [self.program, "controller", "--cluster", self.url, "--port", str(port), "--expect", str(self._count)]
        process = self._process(f"controller-{number}", command)
        return process.hold(port) if self._sockets else process

    def _process(self, name: str, command: list[str]) -> ClusterProcess:
        http_port = self._ports.pop() if self._http else None
        return ClusterProcess(name, self.directory, command, self.environ, http_port)

    def sarit(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of this cluster; what it printed."""
        done = subprocess.run(
            [self.program, *arguments], env=self.environ, capture_output=True, text=True,
            timeout=HANG_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode in codes, done.stderr
        return done.stdout

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a command of this cluster; it goes on."""
        return subprocess.Popen([self.program, *arguments], env=self.environ, stdout=subprocess.DEVNULL)

    def status(self) -> dict:
        """What `sarit cluster status` says."""
        return json.loads(self.sarit("cluster", "status", "--format", "json", codes=(0, NOT_SERVED)))

    def owners(self) -> dict[int, str]:
        """The store of each container."""
        return {entry["container"]: entry["store"] for entry in self.status()["containers"]}

    def until(self, holds: Callable[[dict], bool]) -> dict:
        """Wait until the status is so."""
        end = time.monotonic() + HANG_SECONDS
        while not holds(status := self.status()):
            assert time.monotonic() < end, status
        return status

    def log(self) -> str:
        """What all processes have logged."""
        return "".join(process.log() for process in (*self.stores.values(), *self.controllers))

    def stop(self) -> None:
        """End all of it; stores at once, one after the other."""
        for process in (*self.controllers, *self.stores.values()):
            if process.running:
                process.kill()
        for controller in self.controllers:
            controller.release()
        if self.bookkeeper is not None:
            self.bookkeeper.kill()
        self.zookeeper.kill()

    def __enter__(self) -> RunningCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
