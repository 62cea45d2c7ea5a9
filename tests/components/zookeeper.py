"""A real ZooKeeper on the loopback interface, started by a test.  It keeps its data and its port over a restart."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers.maven import class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 120  # only a hang takes that long
TICK_MS = 500
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Djava.net.preferIPv4Stack=true")


class ZooKeeperServer:
    """One server.  Sessions of 1 to 10 s (`session_bounds_ms`) are allowed."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.port = port or free_ports(1)[0]
        self._directory = directory
        self._process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\ndataDir={directory / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nminSessionTimeout=1000\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n"
        )

    @property
    def hosts(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> ZooKeeperServer:
        """Start it; it serves when this returns."""
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ("java", *OPTIONS, "-cp", class_path("zookeeper"), main, str(self._directory / "zoo.cfg"))
        self._process = Process(command, self._directory, "zookeeper")
        self._process.wait_until(self._serves, START_SECONDS)
        return self

    def kill(self) -> None:
        """As kill -9."""
        if self._process is not None:
            self._process.kill()

    def _serves(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
        return False


class Gate:
    """A TCP port in front of a server, which a test closes and opens; it runs on the test's event loop."""

    def __init__(self, target_port: int) -> None:
        self.port = free_ports(1)[0]
        self._target_port = target_port
        self._open = True
        self._frozen = asyncio.Event()
        self._frozen.set()
        self._server: asyncio.Server | None = None
        self._transports: set[asyncio.WriteTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._transports) // 2

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def shut(self) -> None:
        """End all connections and take no more."""
        self._open = False
        for transport in list(self._transports):
            transport.abort()

    def open(self) -> None:
        """Let connections through again."""
        self._open = True

    def freeze(self) -> None:
        """Connections stay open, and nothing passes: as a server that is stopped."""
        self._frozen.clear()

    def thaw(self) -> None:
        self._frozen.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer.transport, far_writer.transport}
        self._transports |= ends
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        except OSError:
            pass
        finally:
            for transport in ends:
                transport.abort()
            self._transports -= ends

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._frozen.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@pytest.fixture(scope="module")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server for the tests of a module."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server.start()
    finally:
        server.kill()
