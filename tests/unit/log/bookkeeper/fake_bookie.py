"""A bookie on the loopback interface, in the test's event loop: it keeps entries in memory, or does as a test says."""

from __future__ import annotations

import asyncio
import struct

from benchmarks.peers.ports import free_ports

ADD, READ = 1, 2
OK, NO_LEDGER, NO_ENTRY, UNAUTHORIZED, FENCED = 0, 1, 2, 102, 104


class Seen:
    """A request as it came.  `reply` answers it, now or later."""

    def __init__(self, bookie: FakeBookie, writer: asyncio.StreamWriter, frame: bytes) -> None:
        (header,) = struct.unpack_from(">I", frame)
        assert header >> 24 == 2
        self.operation, self.flags = header >> 16 & 0xFF, header & 0xFFFF
        self.body = frame[24:] if self.operation == ADD else b""
        self.ledger, self.entry = struct.unpack_from(">qq", frame, 24 if self.operation == ADD else 4)
        self._bookie = bookie
        self._writer = writer

    def __repr__(self) -> str:
        return f"{'add' if self.operation == ADD else 'read'} {self.ledger}/{self.entry} flags {self.flags}"

    def reply(self, status: int = OK, body: bytes = b"") -> None:
        head = struct.pack(
            ">IIiqq", 24 + len(body), 2 << 24 | self.operation << 16, status, self.ledger, self.entry
        )  # fmt: skip
        self._writer.write(head + body)

    def serve(self) -> None:
        """Answer as a bookie does."""
        entries = self._bookie.ledgers.get(self.ledger)
        if self.operation == ADD:
            if self.ledger in self._bookie.fenced and not self.flags & 2:
                self.reply(FENCED)
                return
            self._bookie.ledgers.setdefault(self.ledger, {}).setdefault(self.entry, self.body)
            self.reply()
            return
        if self.flags & 1:
            self._bookie.fenced.add(self.ledger)
        if entries is None:
            self.reply(NO_LEDGER)
            return
        entry = max(entries, default=-1) if self.entry == -1 else self.entry
        body = entries.get(entry)
        self.reply(NO_ENTRY) if body is None else self.reply(OK, body)


class FakeBookie:
    """`answer`: what is done with each request; by default it is served."""

    def __init__(self, answer=Seen.serve) -> None:
        self.answer = answer
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.fenced: set[int] = set()
        self.seen: list[Seen] = []
        self.connections = 0
        (self.port,) = free_ports(1)
        self.reading = asyncio.Event()
        self.reading.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._came = asyncio.Condition()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeBookie:
        await self.start()
        return self

    async def __aexit__(self, *_error) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """As kill -9: connections are reset, and the port refuses."""
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def wait_for(self, count: int) -> None:
        """Until that many requests have come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.seen) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                await self.reading.wait()
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                request = Seen(self, writer, await reader.readexactly(length))
                self.seen.append(request)
                self.answer(request)
                async with self._came:
                    self._came.notify_all()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
