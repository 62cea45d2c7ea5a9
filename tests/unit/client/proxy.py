"""A TCP proxy before a node: it can break one connection at any byte, refuse connections, or fall silent."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from benchmarks.peers.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of FIN, unless it has ended."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()


class Proxy:
    """Forwards connections of `port` to `target`.

    `break_after`: (to the node?, bytes): the next connection that passes so many bytes in that direction ends there, by
    RST when `resets`; after 0 bytes it ends as soon as it is accepted.  `silent`: nothing is forwarded any more, also
    on connections that are open."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        (self.port,) = free_ports(1)
        self.break_after: tuple[bool, int] | None = None
        self.resets = True
        self.silent = False
        self.broken = 0
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    @property
    def address(self) -> str:
        """`HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> Proxy:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def refuse(self) -> None:
        """End all connections and accept no more, as after the node was killed."""
        assert self._server is not None
        self._server.close()
        for writers in list(self._open.values()):
            for writer in writers:
                reset(writer)
        await self._end_tasks()

    async def stop(self) -> None:
        """End everything."""
        await self.refuse()

    async def _end_tasks(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = (writer,)
        try:
            if self.break_after is not None and not self.break_after[1]:
                self._break(writer)
            answers, questions = await asyncio.open_connection(*self.target)
            self._open[task] = (writer, questions)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, questions, writer, to_node=True))
                group.create_task(self._forward(answers, writer, writer, to_node=False))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            for each in self._open.pop(task):
                each.transport.abort()

    def _break(self, client: asyncio.StreamWriter) -> None:
        self.break_after = None
        self.broken += 1
        if self.resets:
            reset(client)
        raise ConnectionResetError

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, client: asyncio.StreamWriter, *, to_node: bool
    ) -> None:
        passed = 0
        while data := await source.read(65536):
            if self.silent:
                continue
            cut = self.break_after
            if cut is not None and cut[0] == to_node and passed + len(data) >= cut[1]:
                sink.write(data[: cut[1] - passed])
                await sink.drain()
                self._break(client)
            passed += len(data)
            sink.write(data)
        if not self.silent:
            raise ConnectionResetError  # one side has closed: end the other


@asynccontextmanager
async def proxy(target: tuple[str, int]) -> AsyncIterator[Proxy]:
    """A proxy before `target`."""
    made = await Proxy(target).start()
    try:
        yield made
    finally:
        await made.stop()
