"""Two real nodes with a network between them that is cut, slow, far away, or down."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks.peers.ports import free_ports
from sarit.client import aio
from sarit.client.core.login import Tls, UserPassword
from sarit.core.errors import SaritError
from sarit.core.links import LinkDirection, LinkSettings
from sarit.env.real import real_env
from sarit.mirror.peer import Peer, read_password
from sarit.mirror.remote import RemoteSource
from sarit.mirror.values import FROM_HEAD, Position, Range
from sarit.rpc.generated import sarit_pb2
from sarit.rpc.link_messages import info_of, settings_message
from sarit.rpc.methods import SARIT
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from sarit.controller.model.epochs import Epoch
    from sarit.core.links import LinkInfo
    from sarit.core.names import StreamName
    from sarit.mirror.ports import MirrorSource
    from sarit.mirror.values import StreamFacts

_PIECE_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
WHOLE: Final = 1 << 40
SCOPE: Final = "factory"


class LinkProxy:
    """A TCP proxy at `port` of the loopback address, before a node's controller at `target` (HOST:PORT).

    `delay_seconds`: of each byte, each way.  `bytes_per_second`: each way, of all connections; 0: no limit.  `carried`:
    the bytes that went to the node, and those that came from it."""

    def __init__(self, target: str) -> None:
        self.target = target
        (self.port,) = free_ports(1)
        self.delay_seconds = 0.0
        self.bytes_per_second = 0
        self.is_down = False
        self.accepted = 0
        self.carried = [0, 0]
        self._free_at = [0.0, 0.0]  # when the network takes the next byte, each way
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    @property
    def address(self) -> str:
        """`HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)

    def cut(self) -> int:
        """Break all connections by RST; returns how many there were."""
        broken = list(self._open.items())
        for task, writers in broken:
            for writer in writers:
                with suppress(OSError, AttributeError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
            task.cancel()
        return len(broken)

    def go_down(self) -> None:
        """Break all connections, and refuse others until `come_up`."""
        self.is_down = True
        self.cut()

    def come_up(self) -> None:
        """Accept connections again."""
        self.is_down = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = (writer,)
        try:
            host, _, port = self.target.rpartition(":")
            answers, questions = await asyncio.open_connection(host, int(port))
            self._open[task] = (writer, questions)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, questions, 0))
                group.create_task(self._forward(answers, writer, 1))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            for each in self._open.pop(task):
                each.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: int) -> None:
        """Read at the pace of the network, and write each piece when its delay is over."""
        clock = asyncio.get_running_loop().time
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                due, piece = await pieces.get()
                if (wait := due - clock()) > 0:
                    await asyncio.sleep(wait)
                if not piece:
                    raise ConnectionResetError  # one side has closed: end the other
                self.carried[way] += len(piece)
                sink.write(piece)
                await sink.drain()

        async def read() -> None:
            while True:
                piece = await source.read(_PIECE_BYTES)
                if self.bytes_per_second:
                    self._free_at[way] = max(self._free_at[way], clock()) + len(piece) / self.bytes_per_second
                    await asyncio.sleep(self._free_at[way] - clock())
                pieces.put_nowait((clock() + self.delay_seconds, piece))
                if not piece:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            group.create_task(read())


@dataclass(frozen=True)
class Outline:
    """What an installation has of a stream at a clean moment, without its bytes.  `closed`: segments that do not grow
    any more."""

    facts: StreamFacts
    epochs: tuple[Epoch, ...]
    lengths: dict[int, int]
    closed: frozenset[int]


@dataclass(frozen=True)
class Whole:
    """All that an installation has of a stream: its epochs, and the bytes of each segment with their start."""

    creation_id: bytes
    epochs: tuple[Epoch, ...]
    segments: dict[int, tuple[int, bytes]]
    sealed: bool
    closed: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def size(self) -> int:
        """The number of its bytes."""
        return sum(len(data) for _, data in self.segments.values())


async def outline(source: MirrorSource, name: StreamName) -> Outline | None:
    """Return what an installation has of a stream now; None: it has no such stream."""
    (facts,) = await source.facts(name.scope, [name], FROM_HEAD)
    if facts is None:
        return None
    epochs = [facts.first]
    position, lengths = Position(name, facts.first.number, facts.head), dict(facts.head)
    closed: frozenset[int] = frozenset()
    while True:
        (offer,) = await source.offers(name.scope, [position], WHOLE)
        if offer is None:
            return None
        epochs += offer.epochs
        lengths |= offer.lengths
        closed |= offer.sealed
        last = epochs[-1]
        position = Position(name, last.number, {s: at for s, at in lengths.items() if s in last.ids})
        if not offer.more:
            return Outline(facts, tuple(epochs), lengths, closed)


async def whole(source: MirrorSource, name: StreamName) -> Whole | None:
    """Return a stream as an installation has it now, with all its bytes; None: it has no such stream."""
    if (found := await outline(source, name)) is None:
        return None
    facts, segments = found.facts, {}
    for segment, end in sorted(found.lengths.items()):
        start = at = facts.head.get(segment, 0)
        data = b""
        while at < end:
            (piece,) = await source.read(name.scope, [Range(name, segment, at, end - at)])
            data += piece
            at += len(piece)
        segments[segment] = start, data
    return Whole(facts.creation_id, found.epochs, segments, facts.sealed, found.closed)


@dataclass(frozen=True)
class Login:
    """A user at a node with TLS; `password`: its place, as of a link."""

    user: str
    password: str
    ca: str


class Installation:
    """A running node, its client, and its streams as a link sees them.  `login`: who tests are there."""

    def __init__(self, node: RunningNode, login: Login | None = None) -> None:
        self.node = node
        self.login = login
        self.client: aio.Client
        self._peer: Peer

    async def open(self) -> None:
        """Connect to the node."""
        address, login = self.node.controller, self.login
        if login is None:
            self.client = await aio.connect(address)
            settings = LinkSettings(LinkDirection.PULL, address)
        else:
            credentials = UserPassword(login.user, read_password(login.password))
            self.client = await aio.connect(address, credentials=credentials, tls=Tls(login.ca))
            settings = LinkSettings(LinkDirection.PULL, f"tls://{address}", login.user, login.password, login.ca)
        self._peer = Peer(settings, real_env(), "test")

    async def close(self) -> None:
        """End the connections."""
        await self.client.close()
        await self._peer.close()

    async def restart(self, *, killed: bool) -> None:
        """End the node, by a power cut if `killed`, and start it at the same addresses."""
        await asyncio.to_thread(self.node.kill if killed else self.node.stop)
        await asyncio.to_thread(self.node.start)

    async def whole(self, name: StreamName) -> Whole | None:
        """Return one of its streams; None: it has no such stream, or it is away."""
        try:
            return await whole(RemoteSource(self._peer), name)
        except SaritError:
            return None

    async def size(self, name: StreamName) -> int:
        """Return how many bytes it has of a stream; -1: it has no such stream, or it is away."""
        try:
            found = await outline(RemoteSource(self._peer), name)
        except SaritError:
            return -1
        return -1 if found is None else sum(found.lengths.values())

    async def link(self, name: str, direction: LinkDirection, peer: str, **chosen: object) -> LinkInfo:
        """Create a link."""
        settings = LinkSettings(direction, peer, include=(f"{SCOPE}/*",), **chosen)  # type: ignore[arg-type]
        request = sarit_pb2.CreateLinkRequest(name=name, linkId=os.urandom(16), settings=settings_message(settings))
        return info_of(await self.client.session.controller.call(SARIT.createLink, request))

    async def status(self, name: str) -> LinkInfo:
        """Return a link, and how far it is."""
        request = sarit_pb2.LinkStatusRequest(name=name)
        return info_of(await self.client.session.controller.call(SARIT.linkStatus, request))


async def until(condition: Callable[[], object], every: float = 0.25) -> object:
    """Wait until an async condition holds, and return what it returned."""
    while not (found := await condition()):  # type: ignore[misc]
        await asyncio.sleep(every)
    return found


async def until_equal(source: Installation, mirror: Installation, names: Sequence[StreamName]) -> None:
    """Wait until each stream is the same at both, to the byte."""
    for name in names:

        async def equal(name: StreamName = name) -> bool:
            there, here = await source.whole(name), await mirror.whole(name)
            return there is not None and there == here

        await until(equal)


@asynccontextmanager
async def two_nodes(
    path: Path, *, core_options: Sequence[str] = (), core_login: Login | None = None
) -> AsyncIterator[tuple[Installation, Installation, LinkProxy]]:
    """Return an edge, a core, and the proxy before the core (set `target` to be before the edge)."""
    nodes = [RunningNode(path / "edge"), RunningNode(path / "core", *core_options)]
    made = [Installation(nodes[0]), Installation(nodes[1], core_login)]
    proxy = LinkProxy("")
    try:
        for one in made:
            await asyncio.to_thread(one.node.start)
            await one.open()
        proxy.target = nodes[1].controller
        await proxy.start()
        yield made[0], made[1], proxy
    finally:
        await proxy.close()
        for one in made:
            with suppress(AttributeError):
                await one.close()
            with suppress(AssertionError):
                await asyncio.to_thread(one.node.stop)
