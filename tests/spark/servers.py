"""Spark's own servers on this machine, from the scripts that PySpark brings: a standalone cluster, a Connect server.

Each process is started in the foreground, found by what it logs, and stopped by its pid.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Sequence

SPARK = Path(pyspark.__file__).parent
START_SECONDS = 300  # only a hang takes that long, however busy the machine is


class Server:
    """One process; `found` is what the pattern matched in its log."""

    def __init__(self, command: Sequence[str], ready: str, log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [str(SPARK / "bin" / command[0]), *command[1:]],
                stdout=output, stderr=subprocess.STDOUT, env=env, cwd=log.parent, start_new_session=True,
            )  # fmt: skip
        self.found = self._wait(re.compile(ready))

    def _wait(self, ready: re.Pattern[str]) -> str:
        for _ in range(START_SECONDS * 20):
            match = ready.search(self.log())
            if match:
                return match[1]
            try:
                self._process.wait(0.05)
                break
            except subprocess.TimeoutExpired:
                continue
        self.stop()
        raise AssertionError(f"{self._process.args} did not start:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Its process id, which leads a session."""
        return self._process.pid

    def stop(self) -> None:
        """End it; a worker ends its executors."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def environment() -> dict[str, str]:
    """Of servers: loopback alone, small daemons, and no hint where Sarit or its Python is."""
    unwanted = ("PYSPARK_PYTHON", "PYTHONPATH", "SARIT_CONTROLLER", "SPARK_HOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    own = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != own)
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}


class StandaloneCluster:
    """A master and two workers of one core each; `url` is the master's, `pids` lead a session each."""

    def __init__(self, directory: Path, **env: str) -> None:
        self._directory = directory
        self._env = env
        self._servers: list[Server] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            master = self._start("master", "127.0.0.1", r"Starting Spark master at (spark://\S+)", "master.Master")
            self.url = master.found
            # Spark runs no second attempt of a task on the host of the first: two addresses are two hosts.
            for name, host in (("one", "127.0.0.1"), ("two", "127.0.0.2")):
                options = ("--cores", "1", "--memory", "600m", "--work-dir", str(self._directory / name), self.url)
                self._start(name, host, r"Successfully registered with master (\S+)", "worker.Worker", *options)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, host: str, ready: str, main: str, *options: str) -> Server:
        common = ("--host", host, "--port", "0", "--webui-port", "0")
        command = ("spark-class", f"org.apache.spark.deploy.{main}", *common, *options)
        env = environment() | {"SPARK_LOCAL_IP": host} | self._env
        server = Server(command, ready, self._directory / f"{name}.log", env)
        self._servers.append(server)
        return server

    @property
    def pids(self) -> list[int]:
        """Of the master and of the workers."""
        return [server.pid for server in self._servers]

    def __exit__(self, *_: object) -> None:
        for server in reversed(self._servers):
            server.stop()


class ConnectServer:
    """Spark Connect over `local[2]`; `url` is what `SparkSession.builder.remote` takes."""

    def __init__(self, directory: Path, port: int, **env: str) -> None:
        self._directory = directory
        self._env = env
        self._port = port
        self.url = f"sc://127.0.0.1:{port}"

    def __enter__(self) -> ConnectServer:
        settings = {
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        main = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
        # The server runs the Python workers, so it is the server that needs the Python with Sarit.
        env = environment() | {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "700m"} | self._env
        ready = r"Spark Connect server (started) at"
        command = ("spark-submit", "--master", "local[2]", *conf, *main)
        self._server = Server(command, ready, self._directory / "connect.log", env)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
