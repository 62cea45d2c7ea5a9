"""Actors on a byte stream of the Python client: a writer of pieces of any size, and a reader that seeks.

The bytes are framed events, so that `checkers/log.py` can judge them; the stream knows nothing of that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from checkers import log as checker
from sarit.core.names import StreamName
from simulation.actors.clients import SCOPE, connect_client, retry_forever
from simulation.actors.readers import within_deadline
from simulation.events import BrokenBytes, History, SegmentParser, body, framed
from simulation.world import now

if TYPE_CHECKING:
    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.streams.byte_streams import ByteWriter
    from simulation.cluster import Cluster

STREAM: Final = StreamName(SCOPE, "bytes")
_NAME: Final = "bytes"
_WRITER: Final = 1
_FLUSH_ONE_IN: Final = 5


class ByteUsers:
    """The writer, the reader, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = History(cluster.trace)
        self._places = [0]

    def __repr__(self) -> str:
        return f"<ByteUsers, {self._places[-1]} bytes>"

    @property
    def written(self) -> int:
        """Pieces written so far."""
        return len(self._places)

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.cluster.options.byte_streams:
            return [], []
        spawn = self.cluster.spawn
        return [spawn(self._write(), "byte writer")], [spawn(self._read(), "byte reader")]

    def check(self) -> list[Violation]:
        """All violations."""
        return checker.check(self.history.log)

    async def _client(self) -> Client:
        client = await connect_client(self.cluster)
        await client.create_stream(STREAM)
        return client

    async def _write(self) -> None:
        client, options = await self._client(), self.cluster.options
        rng, log = self.cluster.rng("byte writer"), self.history.log
        segment = self.history.segment(_NAME)
        writer = await retry_forever(lambda: self._opened(client))
        for number in range(1, options.events + 1):
            data = framed(body(_WRITER, number, rng.randrange(options.event_bytes)))
            log.sent(_WRITER, number, segment, len(data), now())
            cut = rng.randrange(len(data))
            for piece in (data[:cut], data[cut:]) if rng.random() < 0.3 else (data,):
                writer.write(piece)
            self._places.append(self._places[-1] + len(data))
            if rng.randrange(_FLUSH_ONE_IN) == 0 or number == options.events:
                await writer.flush()
                log.acked(_WRITER, number, segment, self._places[-1], now())
                await asyncio.sleep(rng.random() * 4 * options.think_seconds)
        begun = now()
        end = await retry_forever(writer.tell)
        log.info(segment, 0, end, begun, now())
        await writer.close()
        await client.close()

    async def _opened(self, client: Client) -> ByteWriter:
        """A writer that has found its segment; one that timed out before would refuse all writes."""
        writer = client.byte_writer(STREAM)
        await writer.flush()
        return writer

    async def _read(self) -> None:
        """Read from the start, then again from other offsets."""
        client, rng = await self._client(), self.cluster.rng("byte reader")
        place = 0
        while True:
            parser = SegmentParser(self.history, self.history.new_reader(), _NAME, place)
            async with client.byte_reader(STREAM, place) as reader:
                for _ in range(rng.choice((3, 30))):
                    begun = now()
                    data = await retry_forever(lambda: reader.read(rng.choice((7, 500, 1 << 16)), 0.5))
                    self._feed(parser, data, begun)
            await asyncio.sleep(rng.random())
            place = rng.choice([place for place in self._places if place <= parser.offset])

    def _feed(self, parser: SegmentParser, data: bytes, begun: float) -> None:
        try:
            parser.feed(data, begun, now())
        except BrokenBytes as error:
            self.cluster.failures.append(f"bytes torn: {error}")

    async def read_again(self, name: str) -> None:
        """Read the whole stream."""
        if not self.cluster.options.byte_streams:
            return
        client = await self._client()
        reader = client.byte_reader(STREAM)
        number = self.history.new_reader()
        parser = SegmentParser(self.history, number, _NAME, 0)
        end = await within_deadline(reader.tail_offset(), f"end of {STREAM} {name}")
        while parser.position < end:
            begun = now()
            self._feed(parser, await within_deadline(reader.read(end - parser.position), f"bytes {name}"), begun)
        self.history.log.scanned(number, self.history.segment(_NAME), 0, end)
        reader.close()
        await client.close()


__all__ = ["STREAM", "ByteUsers"]
