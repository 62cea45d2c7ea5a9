"""How many requests a day a trickle costs on an object store: `python -m benchmarks.micro.object_requests`.

A store with the limits of a node whose chunks and indexes are on an object store; its log, chunks and index are in
memory, and its clock is set by hand.  Each segment takes an append of 100 bytes to 10 kB in every interval of
checkpoints.  Each cycle of each container's flusher runs as in a node: checkpoint, compaction, deletions.  Requests are
counted after the first cycles, in which nothing is joined yet.  Commits of an index are counted.  What they and the
compactions of SlateDB cost was counted on a real S3 server (`tests/contract/test_slate_requests.py`,
`benchmarks.object_store`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sarit.cluster.limits import DAY_SECONDS, S3_GET_DOLLARS, S3_PUT_DOLLARS
from sarit.env.ports import Env
from sarit.index.limits import INDEX_POLL_SECONDS
from sarit.index.memory import MemoryIndexes
from sarit.log.memory import MemoryLogProvider
from sarit.process.settings import divide_memory
from sarit.storage.memory import MemoryChunks
from sarit.store.container.writer_session import WriterSession
from sarit.store.store import SegmentStore, StartPolicy
from sarit.wire.frames import Append

MIB: Final = 1 << 20
# A table and a manifest; the manifest before, and the boundary of collection twice.
PUTS_PER_COMMIT: Final = 2
GETS_PER_COMMIT: Final = 3
# SlateDB's compaction of an index, once in INDEX_POLL_SECONDS: its plan in five steps, a table, two manifests.
PUTS_PER_COMPACTION: Final = 8
GETS_PER_COMPACTION: Final = 30
GETS_PER_TABLE: Final = 4  # that is compacted: what every search needs of it, and its rows
LEAST_BYTES: Final = 100
MOST_BYTES: Final = 10_000


class Clock:
    """Seconds since the start, set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """See `env.ports`."""
        return self.now

    def wall_ms(self) -> int:
        """See `env.ports`."""
        return int(self.now * 1000)


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


class _Replies:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@dataclass
class Counted:
    """Requests since the last reset."""

    puts: int = 0
    gets: int = 0
    deletes: int = 0
    put_bytes: int = 0
    get_bytes: int = 0
    commits: int = 0


class CountedChunks(MemoryChunks):
    """Chunks in memory that count what is asked of them."""

    counted = Counted()

    async def write(self, name: str, parts: Any, limiter: Any = None, observe: Any = None) -> None:
        """See `ChunkStorage`."""
        self.counted.puts += 1
        self.counted.put_bytes += sum(map(len, parts))
        await super().write(name, parts, limiter, observe)

    async def read(self, name: str, offset: int, length: int, check: Any = None) -> bytes:
        """See `ChunkStorage`."""
        self.counted.gets += 1
        self.counted.get_bytes += length
        return await super().read(name, offset, length, check)

    async def delete(self, name: str) -> None:
        """See `ChunkStorage`."""
        self.counted.deletes += 1
        await super().delete(name)


@dataclass
class Trickle:
    """A store and its writers."""

    segments: int
    containers: int
    packs: bool
    busy: float
    clock: Clock = field(default_factory=Clock)
    storage: CountedChunks = field(default_factory=CountedChunks)
    indexes: MemoryIndexes = field(default_factory=MemoryIndexes)

    async def start(self) -> None:
        """Open the store and create the segments."""
        nothing: Any = None
        limits = divide_memory(2048 * MIB, self.containers, object_storage=True, shared_index=True)
        self.interval_seconds = limits.flush.interval_seconds
        flush = replace(limits.flush, interval_seconds=1e9, trigger_bytes=1 << 40)
        if not self.packs:
            flush = replace(flush, packs=False, compaction_interval_seconds=0.0, compaction_segments=64)
        env = Env(self.clock, _Random(), nothing, _Threads(), nothing)
        limits = replace(limits, flush=flush, scrub_bytes_per_second=0)
        self.store = SegmentStore(env, MemoryLogProvider(), self.indexes, self.storage, limits, None, StartPolicy())
        await self.store.start()
        self.writers = []
        for number in range(self.segments):
            name = f"scope/stream/{number}.#epoch.0"
            await self.store.container(name).create(name)
            session = WriterSession(number.to_bytes(16, "big"), _Replies())
            await self.store.container(name).set_up_writer(name, session)
            self.writers.append(session)

    async def cycle(self, rng: random.Random, number: int) -> None:
        """Append to the segments that are busy in this interval, then one cycle of each flusher."""
        for session in self.writers:
            if rng.random() < self.busy:
                data = rng.randbytes(rng.randint(LEAST_BYTES, MOST_BYTES))
                session.append(Append(session.writer, [data], len(data), 1, number, 0), None)
        for opened in self.store.opened():
            await opened.container.group_commit.wait_durable()
        self.clock.now += self.interval_seconds
        for opened in self.store.opened():
            await opened.flusher.checkpoint()
            await opened.flusher._compact()
            await opened.flusher.garbage.collect()

    def commits(self) -> int:
        """Commits of all indexes so far."""
        return sum(table.commits for table in self.indexes._tables.values())


async def measure(given: argparse.Namespace) -> dict[str, float]:
    """Requests a day."""
    trickle, rng = Trickle(given.segments, given.containers, not given.no_packs, given.busy), random.Random(1)
    await trickle.start()
    for number in range(1, given.skipped + 1):
        await trickle.cycle(rng, number)
    trickle.storage.counted = counted = Counted()
    before = trickle.commits()
    for number in range(given.skipped + 1, given.skipped + given.cycles + 1):
        await trickle.cycle(rng, number)
    commits = trickle.commits() - before
    stored = sum(map(len, trickle.storage.chunks.values()))
    await trickle.store.stop()
    days = given.cycles * trickle.interval_seconds / DAY_SECONDS
    compactions = given.containers * given.cycles * trickle.interval_seconds / INDEX_POLL_SECONDS
    index_puts = commits * PUTS_PER_COMMIT + compactions * PUTS_PER_COMPACTION
    index_gets = commits * (GETS_PER_COMMIT + GETS_PER_TABLE) + compactions * GETS_PER_COMPACTION
    return {
        "chunk_puts": counted.puts / days,
        "index_puts": index_puts / days,
        "puts": (counted.puts + index_puts) / days,
        "gets": counted.gets / days,
        "index_gets": index_gets / days,
        "deletes": counted.deletes / days,
        "commits": commits / days,
        "gb_written": counted.put_bytes / days / 1e9,
        "gb_read": counted.get_bytes / days / 1e9,
        "objects": len(trickle.storage.chunks),
        "mb_stored": stored / 1e6,
        "dollars": (
            (counted.puts + index_puts) / days * S3_PUT_DOLLARS + (counted.gets + index_gets) / days * S3_GET_DOLLARS
        ),
    }


def main() -> None:
    """Print requests a day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--containers", type=int, default=4)
    parser.add_argument("--cycles", type=int, default=512, help="checkpoints of each container that are counted")
    parser.add_argument("--skipped", type=int, default=128, help="checkpoints before")
    parser.add_argument("--busy", type=float, default=1.0, help="the share of segments that take bytes in an interval")
    parser.add_argument("--no-packs", action="store_true", help="a chunk for each segment, as in a directory")
    for name, value in asyncio.run(measure(parser.parse_args())).items():
        print(f"{name:12} {value:16,.2f}" if value < 100 else f"{name:12} {value:16,.0f}")


if __name__ == "__main__":
    main()
