"""A mirror that begins at an offset, through flushes, compaction, truncation, crashes and scrubs: its bytes stay."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, Truncated
from sarit.core.names import transaction_segment
from sarit.store.container.offset_appends import append_in_order
from sarit.store.server.batches import read_many
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import SMALL, World, read_all

SEGMENT = "s/t/7.#epoch.2"
TABLE = "s/t_kvtable/0.#epoch.0"
START = (1 << 40) + 5
BY_HAND = {"interval_seconds": 1e6, "trigger_bytes": 1 << 40}


class Model:
    """The mirror as it is expected: `data` from START on."""

    def __init__(self, seed: int, limits) -> None:
        self.random = random.Random(seed)
        self.world = World(limits=limits)
        self.data = b""
        self.start = START
        self.numbers = 0
        self.entries: dict[bytes, tuple[bytes, int]] = {}

    async def open(self) -> None:
        self.store = await self.world.start()
        self.find()
        await self.container.create(SEGMENT, offset=START, mirror=True)
        await self.store.tables(TABLE).create(TABLE, 0, position=1 << 48, mirror=True)

    def find(self) -> None:
        (opened,) = self.store.opened()
        self.container, self.flusher = opened.container, opened.flusher

    @property
    def end(self) -> int:
        return START + len(self.data)

    def piece(self) -> bytes:
        return self.random.randbytes(self.random.choice((1, 30, 150, 700, 2500)))

    async def append(self) -> None:
        pieces = [self.piece() for _ in range(self.random.randrange(1, 8))]
        writes, offset = [], self.end
        for data in pieces:
            writes.append((SEGMENT, offset, data))
            offset += len(data)
        assert await append_in_order(self.container, writes) == [at + len(data) for _, at, data in writes]
        self.data += b"".join(pieces)

    async def append_again(self) -> None:
        """As after a lost answer: refused, with the end."""
        (refused,) = await append_in_order(self.container, [(SEGMENT, self.end - 1, b"xx")])
        assert isinstance(refused, Conflict)
        assert refused.actual == self.end

    async def stage(self) -> None:
        self.numbers += 1
        name = transaction_segment(SEGMENT, self.numbers)
        await self.container.create(name, mirror=True)
        staged = b""
        for _ in range(self.random.randrange(1, 6)):
            data = self.piece()
            assert await append_in_order(self.container, [(name, len(staged), data)]) == [len(staged) + len(data)]
            staged += data
            if self.random.random() < 0.3:
                await self.random.choice((self.flush, self.compact, self.crash))()
        _, durable = await self.container.begin_merge(SEGMENT, name, offset=self.end)
        await durable
        self.data += staged

    async def change_table(self) -> None:
        key, value = self.random.choice((b"a", b"b", b"c")), self.random.randbytes(20)
        (version,) = await self.store.tables(TABLE).update(TABLE, [(key, value, NO_VERSION)])
        assert version >= 1 << 48
        self.entries[key] = value, version

    async def truncate(self) -> None:
        self.start = self.random.randint(self.start, self.end)
        await self.container.truncate(SEGMENT, self.start)

    async def flush(self) -> None:
        await self.flusher.checkpoint()

    async def compact(self) -> None:
        await self.flusher._compact()
        await self.flusher.garbage.collect()

    async def crash(self) -> None:
        self.store = await self.world.crash(self.store)
        self.find()

    async def check(self) -> None:
        info = await self.container.info(SEGMENT)
        assert (info.start_offset, info.length) == (self.start, self.end)
        assert (await self.container.metadata.require(SEGMENT)).mirror
        assert await read_all(self.store, SEGMENT) == self.data[self.start - START :]
        ranges = [(SEGMENT, self.random.randint(self.start, self.end), 3000) for _ in range(4)]
        for (_, offset, length), found in zip(ranges, await read_many(self.store, ranges), strict=True):
            assert found == self.data[offset - START :][:length]
        (below,) = await read_many(self.store, [(SEGMENT, self.start - 1, 5)])
        assert isinstance(below, Truncated)
        assert await self.store.reads(SEGMENT).event_boundary(SEGMENT, 0) >= self.start
        found = await self.store.tables(TABLE).scan(TABLE, b"", None, 10)
        assert {entry.key: (entry.value, entry.version) for entry in found} == self.entries
        changes, done, _ = await self.store.tables(TABLE).delta(TABLE, 0, 10)
        assert (len(changes), done) == (len(self.entries), True)


@pytest.mark.parametrize("packs", [False, True], ids=["chunks", "packs"])
@pytest.mark.parametrize("seed", range(6))
def test_mirror_keeps_its_bytes_at_their_offsets(seed, packs):
    async def main():
        flush = replace(SMALL.flush, small_extent_bytes=3000, compaction_bytes=6000, packs=packs, **BY_HAND)
        model = Model(seed, replace(SMALL, containers=1, flush=flush))
        await model.open()
        acts = [
            model.append, model.append, model.append_again, model.stage, model.change_table, model.truncate,
            model.flush, model.compact, model.crash,
        ]  # fmt: skip
        for _ in range(50):
            await model.random.choice(acts)()
            await model.check()
        await model.crash()
        await model.flush()
        await model.crash()
        await model.check()
        await model.store.stop()

    asyncio.run(main())


def test_empty_mirror_survives_flush_and_eviction():
    async def main():
        model = Model(0, replace(SMALL, containers=1, flush=replace(SMALL.flush, **BY_HAND)))
        await model.open()
        for number in range(20):  # more than stay in memory
            await model.container.create(f"s/other/{number}.#epoch.0")
        await model.flush()
        assert model.container.state.names.get(SEGMENT) is None
        await model.check()
        await model.append()
        await model.check()
        await model.store.stop()

    asyncio.run(main())
