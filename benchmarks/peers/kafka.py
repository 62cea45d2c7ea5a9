"""One Kafka node (KRaft, broker and controller in one) that syncs every batch before it acknowledges it.

`log.flush.interval.messages=1` makes the broker fsync the log segment with every append, as Sarit does
before it acknowledges; without it Kafka acknowledges data in the page cache.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from benchmarks.peers.maven import PeerMissing, class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import JAVA_OPTIONS, Process, accepts

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class Kafka:
    """A broker on `bootstrap`, its data under `directory`."""

    name = "Kafka 4.1.0, fsync per batch"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port, self._controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.classes = class_path("kafka")
        self._process: Process | None = None

    def java(self, *arguments: str, heap: str = "512m") -> list[str]:
        """A command line with Kafka's classes."""
        return ["java", *JAVA_OPTIONS, f"-Xmx{heap}", "-cp", self.classes, *arguments]

    def start(self) -> Kafka:
        """Format the directory and serve.  Raises PeerMissing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        properties = self._directory / "server.properties"
        properties.write_text(self._properties())
        formatted = subprocess.run(
            self.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if formatted.returncode:
            raise PeerMissing(f"Kafka's directory was not formatted: {formatted.stdout}{formatted.stderr}")
        self._process = Process(self.java("kafka.Kafka", str(properties), heap="1g"), self._directory, "kafka")
        self._process.wait_until(lambda: accepts(self.port), 60)
        return self

    def stop(self) -> None:
        """End the broker."""
        if self._process is not None:
            self._process.stop()

    def _properties(self) -> str:
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
            "log.flush.interval.messages": "1",
            "num.partitions": "1",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())
