"""Where an event begins near an offset: known finely in memory, in chunks, after compaction, merges and recovery."""

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.core.errors import NotFound
from sarit.core.names import transaction_segment, transient_segment
from sarit.storage.layout import Extent
from sarit.store.container.offset_appends import append_in_order
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENT = "s/t/0.#epoch.0"
STEP = 400
LONGEST = 1500
LIMITS = replace(
    SMALL,
    containers=1,
    # By hand: checkpoints and compactions are the test's.
    flush=replace(
        SMALL.flush,
        interval_seconds=1e6,
        trigger_bytes=1 << 40,
        small_extent_bytes=3000,
        compaction_bytes=6000,
        boundary_step_bytes=STEP,
    ),
)


class Model:
    """What is written, and where events begin.  Transient segments have pieces of one event, others whole events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(limits=LIMITS)
        self.starts: list[int] = []
        self.length = 0
        self.longest = 0
        self.numbers = 0

    async def open(self) -> None:
        self.store = await self.world.start()
        self.find_flusher()
        await self.store.container(SEGMENT).create(SEGMENT)

    def find_flusher(self) -> None:
        (opened,) = self.store.opened()
        self.flusher = opened.flusher

    async def crash(self) -> None:
        self.store = await self.world.crash(self.store)
        self.find_flusher()

    async def flush(self) -> None:
        await self.flusher.checkpoint()

    async def compact(self) -> None:
        await self.flusher._compact()
        await self.flusher.garbage.collect()

    async def write(self, name: str, lengths: list[int], writer: bytes) -> None:
        one = Writer(self.store, name, writer)
        number = await one.set_up()
        for length in lengths:
            number = max(number, 0) + 1
            one.append(bytes([self.random.randrange(256)]) * length, number)
            if self.random.random() < 0.3:
                await one.wait_for_replies()
            if self.random.random() < 0.1:
                await self.flush()
        await one.wait_for_replies()
        assert not one.replies.errors
        one.session.close()

    def lengths(self) -> list[int]:
        short = self.random.random() < 0.5
        return [self.random.randrange(1, 40 if short else LONGEST) for _ in range(self.random.randrange(1, 40))]

    def wrote(self, lengths: list[int]) -> None:
        for length in lengths:
            self.starts.append(self.length)
            self.length += length
            self.longest = max(self.longest, length)

    async def append(self) -> None:
        lengths = self.lengths()
        await self.write(SEGMENT, lengths, b"w" * 16)
        self.wrote(lengths)

    async def append_large(self, into: str = SEGMENT) -> int:
        """One event in pieces, as writers append what is too long for one append."""
        self.numbers += 1
        name = transient_segment(into, b"l" * 16, self.numbers.to_bytes(16, "big"))
        await self.store.container(name).create(name)
        lengths = [self.random.randrange(1, LONGEST) for _ in range(self.random.randrange(1, 8))]
        await self.write(name, lengths, b"l" * 16)
        if self.random.random() < 0.5:
            await self.flush()
            await self.compact()
        await self.store.container(into).merge(into, name)
        if into == SEGMENT:
            self.wrote([sum(lengths)])
        return sum(lengths)

    async def commit_transaction(self) -> None:
        self.numbers += 1
        name = transaction_segment(SEGMENT, self.numbers)
        await self.store.container(name).create(name)
        lengths = self.lengths()
        await self.write(name, lengths, b"t" * 16)
        lengths.append(await self.append_large(name))
        if self.random.random() < 0.5:
            await self.flush()
            await self.compact()
        await self.store.container(SEGMENT).merge(SEGMENT, name)
        self.wrote(lengths)

    async def copy_staged(self) -> None:
        """What a link's copier stages: whole events, in pieces of any size, of which the first begins with an event."""
        self.numbers += 1
        name = transaction_segment(SEGMENT, self.numbers)
        container = self.store.container(SEGMENT)
        await container.create(name, mirror=True)
        pieces, offset = self.lengths(), 0
        for length in pieces:
            assert await append_in_order(container, [(name, offset, b"m" * length)]) == [offset + length]
            offset += length
            if self.random.random() < 0.2:
                await self.flush()
        if self.random.random() < 0.5:
            await self.compact()
        _, durable = await container.begin_merge(SEGMENT, name, offset=self.length)
        await durable
        self.wrote([offset])

    async def copy_in_pieces(self) -> None:
        """An event, or several, whose bytes are appended at offsets."""
        pieces = self.lengths()
        for at, length in enumerate(pieces):
            write = (SEGMENT, self.length + sum(pieces[:at]), b"p" * length)
            await append_in_order(self.store.container(SEGMENT), [write], begin_events=not at)
        self.wrote([sum(pieces)])

    async def check(self) -> None:
        """Located offsets are event boundaries, and near."""
        reads, length = self.store.reads(SEGMENT), self.length
        segment = await reads.find(SEGMENT)
        assert segment.length == length
        boundaries = {*self.starts, length}
        for target in [0, length - 1, length, *(self.random.randrange(length + 1) for _ in range(60))]:
            found = await reads.event_boundary(SEGMENT, target)
            assert found >= max(target, segment.start)
            assert found in boundaries, (target, found)
            if target >= segment.start:
                assert found - target <= STEP + self.longest, (target, found)
        assert await reads.event_boundary(SEGMENT, length + 5) == length


@pytest.mark.parametrize("seed", range(12))
def test_located_offsets_are_event_boundaries_and_near(seed) -> None:
    async def main() -> None:
        model = Model(seed)
        await model.open()
        acts = [
            model.append, model.append_large, model.commit_transaction, model.copy_staged,
            model.copy_in_pieces, model.flush, model.compact, model.crash,
        ]  # fmt: skip
        await model.append()
        for _ in range(40):
            await model.random.choice(acts)()
            await model.check()
        joined = model.flusher.compactor.joined
        await model.store.container(SEGMENT).truncate(SEGMENT, model.starts[len(model.starts) // 2])
        await model.check()
        await model.flush()
        await model.check()
        assert joined or seed != 1, "compaction has joined something in a run"
        assert len(await read_all(model.store, SEGMENT)) == model.length - model.starts[len(model.starts) // 2]
        await model.store.stop()

    asyncio.run(main())


def test_steps_stay_short_after_many_compactions() -> None:
    async def main() -> None:
        model = Model(0)
        await model.open()
        for _ in range(60):
            lengths = [model.random.randrange(1, 60) for _ in range(10)]
            await model.write(SEGMENT, lengths, b"w" * 16)
            model.wrote(lengths)
            await model.flush()
            await model.compact()
        assert model.flusher.compactor.joined > 50
        container = model.store.container(SEGMENT)
        segment = await container.metadata.require(SEGMENT)
        extents = await container.metadata.extents.load_all(segment.id)
        assert max(extent.length for extent in extents) >= 3000
        reads = model.store.reads(SEGMENT)
        for target in range(0, model.length, 7):
            found = await reads.event_boundary(SEGMENT, target)
            assert found in {*model.starts, model.length}
            assert found - target < STEP + 60
        await model.store.stop()

    asyncio.run(main())


def test_pieces_of_a_large_event_are_no_boundaries_at_any_time() -> None:
    async def main() -> None:
        model = Model(1)
        await model.open()
        await model.write(SEGMENT, [100], b"w" * 16)
        name = transient_segment(SEGMENT, b"l" * 16, b"n" * 16)
        await model.store.container(name).create(name)
        await model.write(name, [900, 900, 50], b"l" * 16)
        await model.store.container(SEGMENT).merge(SEGMENT, name)
        await model.write(SEGMENT, [100], b"w" * 16)
        targets = {0: 0, 1: 100, 100: 100, 101: 1950, 1000: 1950, 1900: 1950, 1949: 1950, 1951: 2050}

        async def check() -> None:
            reads = model.store.reads(SEGMENT)
            for target, expected in targets.items():
                assert await reads.event_boundary(SEGMENT, target) == expected

        await check()
        await model.crash()
        await check()
        await model.flush()
        await check()
        await model.crash()
        await check()

    asyncio.run(main())


def test_the_last_piece_of_a_large_event_is_not_inlined() -> None:
    """An inlined extent begins with an append: readers of the index take it for granted."""

    async def main() -> None:
        model = Model(2)
        await model.open()
        name = transient_segment(SEGMENT, b"l" * 16, b"n" * 16)
        await model.store.container(name).create(name)
        await model.write(name, [900], b"l" * 16)
        await model.flush()
        await model.write(name, [50], b"l" * 16)
        await model.store.container(SEGMENT).merge(SEGMENT, name)
        await model.flush()
        container = model.store.container(SEGMENT)
        segment = await container.metadata.require(SEGMENT)
        assert [(one.start, one.length, bool(one.chunk)) for one in await container.metadata.extents.load_all(
            segment.id
        )] == [(0, 900, True), (900, 50, True)]  # fmt: skip
        for target in (1, 900, 949):
            assert await model.store.reads(SEGMENT).event_boundary(SEGMENT, target) == 950
        await model.store.stop()

    asyncio.run(main())


def test_boundary_in_a_deleted_segment_is_not_found() -> None:
    async def main() -> None:
        model = Model(3)
        await model.open()
        await model.write(SEGMENT, [300, 300], b"w" * 16)
        await model.flush()
        reads = model.store.reads(SEGMENT)
        locate = model.store.container(SEGMENT).metadata.extents.locate

        async def meanwhile(*arguments: int) -> list[Extent]:
            await model.store.container(SEGMENT).delete(SEGMENT)
            await model.flush()
            return await locate(*arguments)

        model.store.container(SEGMENT).metadata.extents.locate = meanwhile
        with pytest.raises(NotFound):
            await reads.event_boundary(SEGMENT, 1)
        with pytest.raises(NotFound):
            await reads.event_boundary(SEGMENT, 1)
        await model.store.stop()

    asyncio.run(main())


def test_boundary_is_found_although_blocks_leave_the_tail_meanwhile() -> None:
    async def main() -> None:
        model = Model(4)
        await model.open()
        name = transient_segment(SEGMENT, b"l" * 16, b"n" * 16)
        await model.store.container(name).create(name)
        await model.write(name, [900, 900], b"l" * 16)
        await model.store.container(SEGMENT).merge(SEGMENT, name)
        await model.flush()
        await model.write(SEGMENT, [300, 300], b"w" * 16)
        extents = model.store.container(SEGMENT).metadata.extents
        locate, calls = extents.locate, 0

        async def meanwhile(*arguments: int) -> list[Extent]:
            nonlocal calls
            calls += 1
            found = await locate(*arguments)
            if calls == 3:
                await model.flush()
            return found

        extents.locate = meanwhile
        assert await model.store.reads(SEGMENT).event_boundary(SEGMENT, 1) == 1800
        assert calls > 3
        await model.store.stop()

    asyncio.run(main())
