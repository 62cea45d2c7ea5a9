"""A real HDFS of one namenode and one datanode on the loopback interface, in one Java process, or in two."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import hdfs_native
import pytest

from benchmarks.peers.maven import class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 240  # only a hang takes that long
SETTINGS = {
    "dfs.replication": "1",
    "dfs.permissions.enabled": "false",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
}


class HdfsServer:
    """A cluster of one machine; `url` is its file system."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        name_port, http_port = free_ports(2)
        self.url = f"hdfs://127.0.0.1:{name_port}"
        self._details = directory / "details.json"
        settings = [word for name, value in SETTINGS.items() for word in ("-D", f"{name}={value}")]
        self._command = [
            "java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dtest.build.data={directory}",
            f"-Dhadoop.log.dir={directory}", "-cp", class_path("hadoop"),
            "org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-nnport", str(name_port),
            "-httpport", str(http_port), "-writeDetails", str(self._details), *settings,
        ]  # fmt: skip
        self.process: Process | None = None

    def start(self, *, fresh: bool = True) -> HdfsServer:
        """Start it and wait until a file can be written.  Unless it is `fresh` it has what it had."""
        self._details.unlink(missing_ok=True)
        self.process = Process([*self._command, *(["-format"] if fresh else [])], self._directory, "hdfs")
        self.process.wait_until(self._is_ready, START_SECONDS)
        return self

    def kill(self) -> None:
        """As kill -9."""
        if self.process is not None:
            self.process.kill()

    def _is_ready(self) -> bool:
        with suppress(Exception):
            json.loads(self._details.read_text())
            return takes_files(self.url)
        return False


def takes_files(url: str) -> bool:
    """Whether a file can be written."""
    with suppress(Exception):
        client = hdfs_native.Client(url)
        options = hdfs_native.WriteOptions(overwrite=True, create_parent=True)
        with client.create("/ready", options) as file:
            file.write(b"x")
        return True
    return False


class HdfsParts:
    """A namenode and a datanode, each a process that keeps its port and its data over a restart.

    Permissions are checked: whoever starts it is the superuser."""

    def __init__(self, directory: Path) -> None:
        name_port, http_port, *data_ports = free_ports(5)
        self.url = f"hdfs://127.0.0.1:{name_port}"
        self._directory = directory
        configuration = directory / "conf"
        configuration.mkdir(parents=True)
        data, ipc, http = (f"127.0.0.1:{port}" for port in data_ports)
        settings = SETTINGS | {
            "fs.defaultFS": self.url,
            "hadoop.tmp.dir": str(directory / "tmp"),
            "dfs.permissions.enabled": "true",
            "dfs.namenode.rpc-address": f"127.0.0.1:{name_port}",
            "dfs.namenode.http-address": f"127.0.0.1:{http_port}",
            "dfs.namenode.name.dir": f"file://{directory / 'name'}",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.data.dir": f"file://{directory / 'data'}",
            "dfs.datanode.address": data,
            "dfs.datanode.ipc.address": ipc,
            "dfs.datanode.http.address": http,
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
        }
        values = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (configuration / name).write_text(f"<configuration>{values}</configuration>")
        self.namenode: Process | None = None
        self.datanode: Process | None = None

    def start(self) -> HdfsParts:
        """Format it, start both, and wait until a file can be written."""
        done = subprocess.run(
            [*self._java("namenode.NameNode"), "-format", "-force", "-nonInteractive"],
            capture_output=True, text=True, timeout=START_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        self.start_namenode()
        self.start_datanode()
        self.wait()
        return self

    def start_namenode(self) -> None:
        """Without waiting."""
        self.namenode = Process(self._java("namenode.NameNode"), self._directory, "namenode")

    def start_datanode(self) -> None:
        """Without waiting."""
        self.datanode = Process(self._java("datanode.DataNode"), self._directory, "datanode")

    def wait(self) -> None:
        """Until a file can be written."""
        assert self.namenode is not None
        self.namenode.wait_until(lambda: takes_files(self.url), START_SECONDS)

    def kill(self) -> None:
        """Both, as kill -9."""
        for part in (self.namenode, self.datanode):
            if part is not None:
                part.kill()

    def _java(self, name: str) -> list[str]:
        return [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dhadoop.log.dir={self._directory}",
            "-cp", f"{self._directory / 'conf'}:{class_path('hadoop')}", f"org.apache.hadoop.hdfs.server.{name}",
        ]  # fmt: skip


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """A running HDFS."""
    server = HdfsServer(tmp_path_factory.mktemp("hdfs")).start()
    try:
        yield server
    finally:
        server.kill()
