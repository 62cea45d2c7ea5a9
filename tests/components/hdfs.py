"""A real HDFS of one namenode and one datanode on the loopback interface, in one Java process."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import hdfs_native
import pytest

from benchmarks.peers.maven import class_path
from benchmarks.peers.process import Process, free_ports

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
            client = hdfs_native.Client(self.url)
            options = hdfs_native.WriteOptions(overwrite=True, create_parent=True)
            with client.create("/ready", options) as file:
                file.write(b"x")
            return True
        return False


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """A running HDFS."""
    server = HdfsServer(tmp_path_factory.mktemp("hdfs")).start()
    try:
        yield server
    finally:
        server.kill()
