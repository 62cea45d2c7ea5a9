"""Shared by tests of bad input: many bare connections to a real node, and a regular client that must be served on."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct

from sarit.client.aio import connect
from sarit.core.names import StreamName
from sarit.wire import commands as wire
from tests.unit.store.server.test_connection import Client

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SERVED_SECONDS = 120.0  # only a stall takes that long, however busy the machine is


def more_descriptors(wanted: int) -> None:
    """For this process: each connection is one of its descriptors too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def address_of(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


async def bare(address: str, *, hello: bool = True) -> Client:
    """A bare connection to a store.  Raises ConnectionError when it is closed at once."""
    client = Client(*await asyncio.open_connection(*address_of(address)))
    if hello:
        try:
            assert await client.ask(wire.Hello(17, 5)) == wire.Hello(17, 5)
        except OSError:
            client.writer.transport.abort()
            raise
    return client


async def many(count: int, make, at_once: int = 200):
    """Make `count` of them, some at a time (a listener's queue is bounded)."""
    made = []
    for first in range(0, count, at_once):
        made += await asyncio.gather(*(make() for _ in range(min(at_once, count - first))), return_exceptions=True)
    return made


def reset(client: Client) -> None:
    """Reset the connection."""
    with contextlib.suppress(OSError):  # it has ended already
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    client.writer.transport.abort()


class RegularClient:
    """Writes and reads one event after the other, and records the longest round."""

    def __init__(self, controller: str, stream: str = "good/customer") -> None:
        self._controller = controller
        self.stream = stream
        self.slowest = 0.0
        self.rounds = 0
        self._served = asyncio.Event()

    async def __aenter__(self) -> RegularClient:
        self.client = await connect(self._controller)
        name = StreamName.parse(self.stream)
        await self.client.create_scope(name.scope)
        await self.client.create_stream(name)
        (only,) = await self.client.stream(name).segments()
        self.segment = name.segment(only.segment)
        self._task = asyncio.create_task(self._go_on())
        await self.served_again()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

    async def served_again(self, times: int = 5) -> None:
        """Wait until it was served `times` more; each time within SERVED_SECONDS."""
        goal = self.rounds + times
        while self.rounds < goal:
            if self._task.done():
                self._task.result()
            self._served.clear()
            async with asyncio.timeout(SERVED_SECONDS):
                await self._served.wait()

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        writer, reader = self.client.writer(self.stream), self.client.reader(self.stream, "tail")
        await reader.open()
        while True:
            begun = loop.time()
            event = b"round %d" % self.rounds
            writer.write(event)
            await writer.flush()
            got: list[bytes] = []
            while not got:
                got = [one for one in await reader.read_events() if one.startswith(b"round")]
            assert got == [event]
            await self.client.stream_info(self.stream)
            self.slowest = max(self.slowest, loop.time() - begun)
            self.rounds += 1
            self._served.set()
            await asyncio.sleep(0.01)


async def ends(client: Client, seconds: float = 30.0) -> None:
    """Wait until the node has closed it, whatever it sends before."""
    async with asyncio.timeout(seconds):
        with contextlib.suppress(OSError):
            while await client.reader.read(1 << 20):
                pass
