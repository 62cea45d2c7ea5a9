"""A segment store on in-memory log, index and long-term storage, and a writer that uses it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from sarit.core.errors import Moved
from sarit.env.ports import Env
from sarit.index.memory import MemoryIndexes
from sarit.log.memory import MemoryLogProvider
from sarit.storage.memory import MemoryChunks
from sarit.store.container.container import ContainerLimits
from sarit.store.container.writer_session import WriterSession
from sarit.store.store import SegmentStore, StartPolicy, StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.frames import Append

SMALL = StoreLimits(
    containers=2,
    flush=FlushLimits(interval_seconds=0.02, inline_below_bytes=200, chunk_bytes=1000, trigger_bytes=3000),
    late_writes_seconds=0.0,
    container=ContainerLimits(max_segments=3),
)


class _Clock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class _Random:
    def __init__(self) -> None:
        self._random = random.Random(1)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random(self) -> float:
        return self._random.random()


class _Worker:
    async def close(self) -> None:
        return


class _Threads:
    def worker(self, name: str) -> Any:
        return _Worker()


def memory_env() -> Env:
    """An Env without disk and network."""
    nothing: Any = None
    return Env(_Clock(), _Random(), nothing, _Threads(), nothing)


@dataclass
class World:
    """The durable parts, which survive a crash."""

    limits: StoreLimits = SMALL
    logs: MemoryLogProvider = field(default_factory=MemoryLogProvider)
    indexes: MemoryIndexes = field(default_factory=MemoryIndexes)
    storage: MemoryChunks = field(default_factory=MemoryChunks)

    async def start(self, policy: StartPolicy | None = None) -> SegmentStore:
        """Open a store on what the world holds."""
        policy = policy or StartPolicy()
        store = SegmentStore(memory_env(), self.logs, self.indexes, self.storage, self.limits, None, policy)
        await store.start()
        return store

    async def crash(self, store: SegmentStore) -> SegmentStore:
        """Kill the process and open a new store."""
        for task in [*store._background._tasks, *(task for hosted in store._hosted for task in hosted.tasks)]:
            task.cancel()
        for opened in store.opened():
            await opened.container.log.close()
        await asyncio.sleep(0)
        return await self.start()


@dataclass
class Replies:
    """Records the replies to appends."""

    acknowledgements: list[tuple[int, int, int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        self.acknowledgements.append((append.last_event_number, previous, end_offset))

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        self.errors.append(error)

    def segment_missing(self, session: WriterSession) -> None:
        session.close()

    def moved(self, session: WriterSession) -> None:
        self.errors.append(Moved("it has left"))


WRITER = b"w" * 16


class Writer:
    """One writer of one segment."""

    def __init__(self, store: SegmentStore, segment: str, writer: bytes = WRITER) -> None:
        self.store = store
        self.segment = segment
        self.writer = writer
        self.replies = Replies()
        self.session: WriterSession

    async def set_up(self) -> int:
        """Set up; the writer's last event number."""
        self.session = WriterSession(self.writer, self.replies)
        await self.store.container(self.segment).set_up_writer(self.segment, self.session)
        return self.session.last

    def append(self, data: bytes, number: int, expected_offset: int | None = None) -> None:
        """Send one append of one event."""
        self.session.append(Append(self.writer, [data], len(data), 1, number, 0), expected_offset)

    async def wait_for_replies(self) -> Replies:
        """Wait until each append has its reply."""
        await self.store.container(self.segment).group_commit.wait_durable()
        return self.replies


async def read_all(store: SegmentStore, name: str) -> bytes:
    """All bytes of a segment from its start, as a reader gets them."""
    reads = store.reads(name)
    segment = await reads.find(name)
    at, out = segment.start, b""
    while True:
        result = reads.from_memory(segment, at, 700) or await reads.from_chunks(segment, at, 700)
        if not result.length:
            return out
        out += b"".join(bytes(part) for part in result.parts)
        at += result.length
