"""Real bookies of Apache BookKeeper on the loopback interface, started by a test, beside a real ZooKeeper."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from benchmarks.peers.maven import PeerMissing, class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.components.zookeeper import ZooKeeperServer

# The file that the documents recommend, which these bookies are started with.
DOCUMENTED = Path(__file__).resolve().parents[2] / "deploy" / "bookkeeper" / "bk_server.conf"
COLLECTION_MS = 1500  # between two collections of files without ledgers, of a cluster with `delete_ledgers`
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


def configuration(changes: Mapping[str, object]) -> str:
    """The documented file with other values; a key that it does not have is added."""
    missing, lines = dict(changes), []
    for line in DOCUMENTED.read_text().splitlines():
        key = line.partition("=")[0]
        lines.append(f"{key}={missing.pop(key)}" if key in missing else line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in missing.items()), ""])


def addresses(zookeeper: ZooKeeperServer) -> dict[str, object]:
    """What a configuration has in place of the addresses of the documented file: those of this machine."""
    return {
        "metadataServiceUri": f"zk+longhierarchical://{zookeeper.hosts}/ledgers",
        "advertisedAddress": "127.0.0.1",
        "listeningInterface": "lo",
        "allowLoopback": "true",
    }


class BookieServer:
    """One bookie; it keeps its data, its port and its name over a restart."""

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperServer, ports: tuple[int, int], options: tuple[str, ...] = OPTIONS,
        **settings: object,
    ) -> None:  # fmt: skip
        """`ports`: for entries, and of its HTTP admin.  `options`: of Java.

        `settings`: in place of those of the documented file."""
        self.port, self._http_port = ports
        self._classes = f"{class_path('bookkeeper')}:{class_path('bookkeeper-http')}"
        self._options = options
        self.name = f"127.0.0.1:{self.port}"
        self._directory = directory
        self._process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration = directory / "bookie.conf"
        self.configuration.write_text(configuration(self._values(zookeeper) | settings))

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

    def is_ready(self) -> bool | None:
        """What its HTTP admin says to a supervisor; None: nothing."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/api/v1/bookie/is_ready", timeout=5):
                return True
        except urllib.error.HTTPError:
            return False
        except OSError:
            return None

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
        """What stands in place of the documented file's values: addresses and directories."""
        return {
            **addresses(zookeeper),
            "bookiePort": self.port,
            "httpServerHost": "127.0.0.1",
            "httpServerPort": self._http_port,
            "journalDirectories": self._directory / "journal",
            "ledgerDirectories": self._directory / "ledgers",
        }


class AutoRecovery:
    """BookKeeper's own recovery, in a process of its own as the documented file demands."""

    def __init__(self, directory: Path, cluster: BookKeeperCluster, **settings: object) -> None:
        """`settings`: in place of those of the documented file."""
        file = directory / "autorecovery.conf"
        values = addresses(cluster.zookeeper) | {"httpServerEnabled": "false"}
        file.write_text(configuration(values | settings))
        main = ("org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(file))
        self.process = Process(("java", *OPTIONS, "-cp", class_path("bookkeeper"), *main), directory, "autorecovery")


class BookKeeperCluster:
    """`count` bookies, registered at a ZooKeeper below /ledgers."""

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperServer, count: int = 3, options: tuple[str, ...] = OPTIONS,
        **settings: object,
    ) -> None:  # fmt: skip
        self.zookeeper = zookeeper
        ports = free_ports(2 * count)
        self.bookies = [
            BookieServer(directory / f"bookie-{number}", zookeeper, each, options, **settings)
            for number, each in enumerate(zip(ports[:count], ports[count:], strict=True))
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
        """Delete all ledgers, and wait until bookies with a gcWaitTime of COLLECTION_MS have collected their files."""
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
