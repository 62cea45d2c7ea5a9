"""Pravega 0.13: controller and segment store in one JVM (its own `LocalPravegaEmulator`), durable or in memory.

The emulator holds both tiers in memory by default.  System properties override its settings, so that the segment store
can have its log in BookKeeper and its chunks in a directory: `Durable` also starts a ZooKeeper and one bookie
(Pravega's own `BookKeeperServiceRunner`, journal fsync on as by default).  One bookie means one copy, as on a single
node of any other system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.maven import class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import JAVA_OPTIONS, Process, accepts

if TYPE_CHECKING:
    from pathlib import Path

LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <logger name="io.pravega.local" level="INFO"/>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
CACHE_BYTES = 2 << 30
LEDGERS = "/ledgers"


class Pravega:
    """A node at `endpoint`; `durable`: an acknowledgement means that BookKeeper's journal was synced."""

    def __init__(self, directory: Path, *, durable: bool, zookeeper: str = "") -> None:
        """`zookeeper`: of bookies that run already: three copies, two for an acknowledgement; else one of its own."""
        self._directory = directory
        self.durable = durable
        self._zookeeper = zookeeper
        self.name = "Pravega 0.13, " + ("BookKeeper journal synced" if durable else "in memory")
        self.port, self._store, self._zk, self._bookie_zk, self._bookie = free_ports(5)
        self.endpoint = f"127.0.0.1:{self.port}"
        self.classes = class_path("pravega")
        self.logging = directory / "logback.xml"
        self._processes: list[Process] = []

    def java(self, *arguments: str, heap: str = "512m") -> list[str]:
        """A command line with Pravega's classes."""
        logback = f"-Dlogback.configurationFile={self.logging}"
        temporary = f"-Djava.io.tmpdir={self._directory}"
        return ["java", *JAVA_OPTIONS, f"-Xmx{heap}", logback, temporary, "-cp", self.classes, *arguments]

    def start(self) -> Pravega:
        """Serve.  Raises PeerMissing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.logging.write_text(LOGBACK)
        (self._directory / "empty.properties").write_text("")
        settings = self._settings()
        if self.durable:
            if not self._zookeeper:
                self._start_bookie()
            settings |= self._durable_settings()
        options = [f"-D{name}={value}" for name, value in settings.items()]
        direct = "-XX:MaxDirectMemorySize=4g"
        main = "io.pravega.local.LocalPravegaEmulator"
        node = Process(self.java(direct, *options, main, heap="1536m"), self._directory, "pravega")
        self._processes.append(node)
        node.wait_until(lambda: bool(node.printed("Sandbox is running locally")) and accepts(self.port), 90)
        return self

    def cpu_seconds(self) -> float:
        """Processor time used so far, in seconds, by the node alone."""
        return self._processes[-1].cpu_seconds()

    def stop(self) -> None:
        """End its processes, the node first."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()

    def _start_bookie(self) -> None:
        settings = {
            "basePort": self._bookie, "bookieCount": 1, "zkPort": self._bookie_zk, "zkLedgersPath": LEDGERS,
            "startZk": "true", "zookeeper.admin.enableServer": "false",
        }  # fmt: skip
        options = [f"-D{name}={value}" for name, value in settings.items()]
        main = "io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperServiceRunner"
        bookie = Process(self.java(*options, main, heap="1g"), self._directory, "bookie")
        self._processes.append(bookie)
        bookie.wait_until(lambda: accepts(self._bookie), 60)

    def _settings(self) -> dict[str, object]:
        return {
            "singlenode.configurationFile": self._directory / "empty.properties",
            "singlenode.zk.port": self._zk,
            "singlenode.segmentStore.port": self._store,
            "singlenode.controller.rpc.port": self.port,
            "singlenode.controller.rest.enable": "false",
            "singlenode.admin.gateway.enable": "false",
            "pravegaservice.service.listener.host.nameOrIp": "127.0.0.1",
            "pravegaservice.service.published.host.nameOrIp": "127.0.0.1",
            # At its default of 128 MiB one fast writer fills the cache and takes the container down for a minute.
            "pravegaservice.cache.size.max": CACHE_BYTES,
            "zookeeper.admin.enableServer": "false",
        }

    def _durable_settings(self) -> dict[str, object]:
        copies, acks = (3, 2) if self._zookeeper else (1, 1)
        return {
            "pravegaservice.dataLog.impl.name": "BOOKKEEPER",
            "pravegaservice.storage.impl.name": "FILESYSTEM",
            "filesystem.root": self._directory / "chunks",
            "bookkeeper.zk.connect.uri": self._zookeeper or f"127.0.0.1:{self._bookie_zk}",
            "bookkeeper.ledger.path": LEDGERS,
            "bookkeeper.ensemble.size": copies,
            "bookkeeper.write.quorum.size": copies,
            "bookkeeper.ack.quorum.size": acks,
        }
