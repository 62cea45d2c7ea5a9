"""A stream, a job's row and an index in memory, in which an indexer runs without nodes and without waiting."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, Unavailable
from sarit.core.names import StreamName
from sarit.env.ports import Env
from sarit.env.real import real_env
from sarit.search.documents import Document
from sarit.search.growing_slots import GrowingSlots
from sarit.search.indexer import Indexer
from sarit.search.mapping import Mapping
from sarit.search.memory_shards import MemoryShards
from sarit.search.memory_world import MemoryBlobs, MemoryEvents, MemoryRows
from sarit.search.ports import ShardQuestion
from sarit.search.query import ALL_TEXT, Everything
from sarit.search.settings import SearchSettings
from sarit.search.shard_files import download, read_file
from sarit.search.state import IndexState, decode_shards

if TYPE_CHECKING:
    from pathlib import Path

NAME = StreamName("shop", "orders")
EVER = (-(1 << 63), 1 << 63)


class Clock:
    """A clock that stands, until it is moved on."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.seconds * 1000)


class Seeded:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self.source.randbytes(count)

    def random(self) -> float:
        return self.source.random()


class Inline:
    """A worker that runs calls at once."""

    async def run(self, call):
        return call()

    async def close(self) -> None:
        pass


class Words:
    """Fields of events that are words."""

    def maker(self, mapping):
        return self

    def infer(self, events):
        return Mapping()

    def document(self, event: bytes) -> Document:
        return Document({ALL_TEXT: [event.decode().split()]}, problem="odd" if event.startswith(b"odd") else "")


class Killed(BaseException):
    """The process has ended."""


@dataclass
class Row:
    """The row of the job."""

    state: bytes = b""
    held: object = None
    fence: int = 0
    saves: int = 0


@dataclass
class World:
    """An installation with one stream and its index.  `kill_at`: at which passage of a gate a process ends."""

    directory: Path
    stream: MemoryEvents = field(default_factory=lambda: MemoryEvents(NAME, 2))
    row: Row = field(default_factory=Row)
    clock: Clock = field(default_factory=Clock)
    rows: MemoryRows = field(default_factory=MemoryRows)
    kill_at: int | None = None
    passed: int = 0
    failure: type[BaseException] = Killed
    settings: SearchSettings = field(default_factory=SearchSettings)
    slots: GrowingSlots = field(default_factory=GrowingSlots)

    def __post_init__(self) -> None:
        self.blobs = MemoryBlobs(self.gate)
        self.random = Seeded(7)
        real = real_env()
        self.env = Env(self.clock, self.random, real.files, real.threads, real.network)
        self.engine = MemoryShards(real.files)

    async def gate(self, _: str) -> None:
        self.passed += 1
        if self.kill_at is not None and self.passed == self.kill_at:
            self.kill_at = None
            raise self.failure("here")
        await asyncio.sleep(0)

    def indexer(self) -> Indexer:
        """A process takes the job over."""
        self.row.fence += 1
        fence = self.row.fence

        async def save(state: bytes, held) -> None:
            await self.gate("save")
            if fence != self.row.fence:
                raise Fenced("the job is another worker's")
            self.row.state, self.row.held = state, held
            self.row.saves += 1
            await self.gate("saved")

        place = self.directory / f"process-{fence}"
        return Indexer(
            self.settings, self.stream, self.blobs, self.rows, self.engine, Words(), save, self.env, Inline(), place,
            self.row.state, slots=self.slots,
        )  # fmt: skip

    async def index(self, indexer: Indexer | None = None, seconds: float = 5.0, steps: int = 50) -> Indexer:
        """Run until everything that is there is committed."""
        found = indexer or self.indexer()
        task = asyncio.ensure_future(found.run())
        for _ in range(steps):
            await turns()
            if task.done():
                break
            self.clock.seconds += seconds / 5
            if self.state.cut == await self.stream.edge("tail") and found._added is None:
                break
        else:
            raise AssertionError("it does not end")
        if task.done():
            task.result()
        await stop(task)
        return found

    @property
    def state(self) -> IndexState:
        return IndexState.decode(self.row.state)

    async def shards(self):
        state = self.state
        closed = [] if state.closed is None else decode_shards(await read_file(self.blobs, state.closed))
        return [*closed, *([] if state.growing is None else [state.growing])]

    async def places(self) -> list[tuple[int, int]]:
        """The place of each event in the index, as somebody finds them who has nothing but the state and the blobs."""
        found = []
        for shard in await self.shards():
            where = self.directory / f"search-{self.random.bytes(4).hex()}"
            await download(self.blobs, shard.files, where, self.env.files, Inline())
            hits = self.engine.open(where, shard.mapping).search(ShardQuestion(Everything(), *EVER, limit=10**6)).hits
            assert len(hits) == shard.events
            found += [(hit.place.segment, hit.place.offset) for hit in hits]
        return sorted(found)


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def stop(task) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Unavailable):
        await task
