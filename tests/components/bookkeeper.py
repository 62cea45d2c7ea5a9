"""Real bookies of Apache BookKeeper on the loopback interface, started by a test, beside a real ZooKeeper."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from benchmarks.peers.maven import PeerMissing, class_path
from benchmarks.peers.process import Process, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.components.zookeeper import ZooKeeperServer

COLLECTION_MS = 1500  # between two collections of files without ledgers
START_SECONDS = 300  # only a hang takes that long, however busy the machine is
STARTS = 3
LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"
OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xms64m",
    "-Xmx160m",
    "-XX:MaxDirectMemorySize=160m",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# For measurements: as in production, with both of Java's compilers.
FAST_OPTIONS = tuple(
    {"-XX:TieredStopAtLevel=1": "-XX:+TieredCompilation", "-Xmx160m": "-Xmx512m", "-Xms64m": "-Xms512m",
     "-XX:MaxDirectMemorySize=160m": "-XX:MaxDirectMemorySize=512m"}.get(option, option)
    for option in OPTIONS
)  # fmt: skip
# A read that no bookie can answer with an entry: any response shows that it serves.
PROBE = struct.pack(">IIqq", 20, 2 << 24 | 2 << 16, 1 << 62, 0)


class BookieServer:
    """One bookie; it keeps its data, its port and its name over a restart."""

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperServer, port: int, options: tuple[str, ...] = OPTIONS,
        **settings: object,
    ) -> None:  # fmt: skip
        """`options`: of Java.  `settings`: of its configuration, in place of those below."""
        self.port = port
        self._classes = class_path("bookkeeper")
        if settings.get("httpServerEnabled"):
            self._classes += f":{class_path('bookkeeper-http')}"
        self._options = options
        self.name = f"127.0.0.1:{port}"
        self._directory = directory
        self._process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration = directory / "bookie.conf"
        values = self._values(zookeeper) | settings
        self.configuration.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    @property
    def process(self) -> Process:
        """Its process."""
        assert self._process is not None
        return self._process

    def start(self) -> BookieServer:
        """Start it, without waiting."""
        main = ("org.apache.bookkeeper.server.Main", "--conf", str(self.configuration))
        self._process = Process(("java", *self._options, "-cp", self._classes, *main), self._directory, "bookie")
        return self

    def wait(self) -> None:
        """Until it serves.  Its port accepts before that, and its registration is there before that."""
        self.process.wait_until(self._serves, START_SECONDS)

    def start_until_it_serves(self) -> None:
        """As a service manager does: again, when it ends while it starts.  Raises PeerMissing: it ends each time.

        On a busy machine its connection to ZooKeeper times out."""
        for _ in range(STARTS - 1):
            with suppress(PeerMissing):
                return self.start().wait()
        self.start().wait()

    def kill(self) -> None:
        """As kill -9."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Stop it with all its connections open."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def _serves(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(PROBE)
            return bool(connection.recv(4))
        return False

    def _values(self, zookeeper: ZooKeeperServer) -> dict[str, object]:
        mib = 1 << 20
        return {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "metadataServiceUri": f"zk+longhierarchical://{zookeeper.hosts}/ledgers",
            "zkTimeout": 4000,
            "journalDirectories": self._directory / "journal",
            "ledgerDirectories": self._directory / "ledgers",
            "journalSyncData": "true",
            "journalMaxGroupWaitMSec": 1,
            "journalPreAllocSizeMB": 4,
            "journalMaxSizeMB": 64,
            # Its default.  With 0, a bookie killed twice may not start again: what a replay has flushed is noted late,
            # with a mark in a journal that is collected by then ("Recovery log ... is missing").
            "journalMaxBackups": 5,
            "logSizeLimit": 128 * mib,
            "skipListSizeLimit": 32 * mib,
            "minUsableSizeForIndexFileCreation": 16 * mib,
            "minUsableSizeForEntryLogCreation": 16 * mib,
            "minUsableSizeForHighPriorityWrites": 16 * mib,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "gcWaitTime": COLLECTION_MS,
            "httpServerEnabled": "false",
            "autoRecoveryDaemonEnabled": "false",
        }


class BookKeeperCluster:
    """`count` bookies, registered at a ZooKeeper below /ledgers."""

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperServer, count: int = 3, options: tuple[str, ...] = OPTIONS,
        **settings: object,
    ) -> None:  # fmt: skip
        self.zookeeper = zookeeper
        self.bookies = [
            BookieServer(directory / f"bookie-{number}", zookeeper, port, options, **settings)
            for number, port in enumerate(free_ports(count))
        ]

    def start(self) -> BookKeeperCluster:
        """Set ZooKeeper up, and start all bookies; they serve when this returns."""
        set_up(self.zookeeper)
        for bookie in self.bookies:
            bookie.start()
        for bookie in self.bookies:
            bookie.wait()
        return self

    def kill(self) -> None:
        """End all."""
        for bookie in self.bookies:
            bookie.kill()

    def wait_registered(self) -> None:
        """Until ZooKeeper knows all bookies: after its restart they may have to register again."""
        client = KazooClient(self.zookeeper.hosts)
        client.start()
        deadline = time.monotonic() + START_SECONDS
        try:
            while not {bookie.name for bookie in self.bookies} <= set(client.get_children("/ledgers/available")):
                assert time.monotonic() < deadline, "a bookie is not registered again"
                time.sleep(0.1)
        finally:
            client.stop()
            client.close()

    def delete_ledgers(self) -> None:
        """Delete all ledgers, and wait until bookies have had time to collect their files."""
        client = KazooClient(self.zookeeper.hosts)
        client.start()
        try:
            for name in client.get_children("/ledgers"):
                if len(name) == len("000") and name.isdigit():
                    client.delete(f"/ledgers/{name}", recursive=True)
        finally:
            client.stop()
            client.close()
        time.sleep(2 * COLLECTION_MS / 1000)

    def shell(self, *arguments: str) -> str:
        """What a command of BookKeeper's own shell prints."""
        main = ("org.apache.bookkeeper.bookie.BookieShell", "-conf", str(self.bookies[0].configuration))
        return java(class_path("bookkeeper"), *main, *arguments)


def java(classes: str, *arguments: str) -> str:
    """Run a Java program to its end; what it prints.  Raises AssertionError with that when it fails."""
    done = subprocess.run(
        ("java", *OPTIONS, "-cp", classes, *arguments),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=START_SECONDS, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stdout[-3000:]
    return done.stdout


def set_up(zookeeper: ZooKeeperServer, layout: bytes = LAYOUT) -> None:
    """What `initnewcluster` of BookKeeper's shell does, without a Java process."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        client.create("/ledgers/available/readonly", b"", makepath=True)
        client.create("/ledgers/LAYOUT", layout)
        client.create("/ledgers/INSTANCEID", b"5a3f5e5e-0000-4000-8000-000000000001")
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def bookkeeper(
    tmp_path_factory: pytest.TempPathFactory, zookeeper_server: ZooKeeperServer
) -> Iterator[BookKeeperCluster]:
    """Three bookies for the tests of a module; a test that kills one starts it again."""
    cluster = BookKeeperCluster(tmp_path_factory.mktemp("bookkeeper"), zookeeper_server)
    try:
        yield cluster.start()
    finally:
        cluster.kill()
