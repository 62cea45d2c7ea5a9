"""A TCP proxy that resets, stalls and half-opens connections, as networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

_PIECE_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class _Pair:
    """A client's connection and ours to the server."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = writers
        self.swallow_from: int | None = None

    def reset(self) -> None:
        """End both with RST."""
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


class Proxy:
    """Listens on `host:port` and forwards to `target:target_port`, by default the same port.

    `accepted`: how many connections there were."""

    def __init__(self, host: str, port: int, target: str, target_port: int | None = None) -> None:
        self.host, self.port, self._target = host, port, (target, target_port or port)
        self.accepted = 0
        self._pairs: set[_Pair] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port)

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> int:
        """Break all connections; how many there were."""
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def stall(self) -> None:
        """Forward nothing until `flow`; nothing is lost."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forward again."""
        self._flowing.set()

    def half_open(self, side: int) -> int:
        """From now on lose what comes from clients (0) or from the server (1) on the connections there are.

        The ends are not notified.  End the connections by `reset`: the lost bytes cannot be recovered."""
        for pair in self._pairs:
            pair.swallow_from = side
        return len(self._pairs)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            back_reader, back_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, back_writer)
        self._pairs.add(pair)
        for task in (
            asyncio.ensure_future(self._forward(pair, 0, reader, back_writer)),
            asyncio.ensure_future(self._forward(pair, 1, back_reader, writer)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, pair: _Pair, side: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(_PIECE_BYTES):
                await self._flowing.wait()
                if pair.swallow_from == side:
                    continue
                writer.write(data)
                await writer.drain()
            writer.close()
        except OSError:
            pair.reset()
        finally:
            if side == 0 or writer.is_closing():
                self._pairs.discard(pair)
