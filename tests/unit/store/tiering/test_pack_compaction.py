"""Compaction with packs: what it joins, how it reads and how often it writes."""

import asyncio
import gc
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.storage.names import is_pack
from sarit.store.tiering import compaction
from tests.limits import HANG_SECONDS
from tests.unit.store.packed import BY_HAND, NAMES, Packed


def test_compaction_writes_packs_and_then_chunks_of_their_own():
    async def main():
        packed = await Packed(replace(BY_HAND, chunk_bytes=100_000, compaction_bytes=100_000)).start()
        seen = set()
        for _ in range(70):
            await packed.append(13)
            await packed.flush()
            await packed.flusher._compact()
            await packed.flusher.garbage.collect()
            seen |= {is_pack(name) for name in packed.world.storage.chunks}
            packed.check_references()
        assert seen == {True, False}
        assert any(not is_pack(name) for name in packed.world.storage.chunks)
        # 70 checkpoints of 6 segments; without packs more than 420.
        assert packed.flusher._sequence < 150
        await packed.check()
        packed.store = await packed.world.crash(packed.store)
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("below", "packs"), [(0, False), (960, False), (961, True)])
def test_joined_runs_are_packed_up_to_their_own_bound(below, packs):
    async def main():
        limits = replace(BY_HAND, chunk_bytes=100_000, compaction_bytes=100_000, packed_below_bytes=below)
        packed = await Packed(limits).start()
        for _ in range(8):
            await packed.append(120)
            await packed.flush()
        await packed.flusher._compact()
        await packed.flusher.garbage.collect()
        assert [len(chunk) for chunk in packed.world.storage.chunks.values()] == [960 * 6] if packs else [960] * 6
        assert all(is_pack(name) == packs for name in packed.world.storage.chunks)
        await packed.check()
        # It is not small, so it is not joined again.
        before = set(packed.world.storage.chunks)
        for _ in range(8):
            await packed.append(120)
            await packed.flush()
        await packed.flusher._compact()
        await packed.flusher.garbage.collect()
        assert before < set(packed.world.storage.chunks)
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


def test_compaction_searches_for_few_segments_at_a_time(monkeypatch):
    """On an object store each search may ask for a block that the first one would bring into the cache."""

    async def main():
        monkeypatch.setattr(compaction, "PLANNED_AT_ONCE", 2)
        packed = await Packed(replace(BY_HAND, chunk_bytes=100_000, compaction_bytes=100_000)).start()
        for _ in range(8):
            await packed.append(20)
            await packed.flush()
        at_once, most, order, real = set(), [], [], compaction.neighbourhood

        async def search(index, segment, at):
            at_once.add(segment)
            order.append(segment)
            most.append(len(at_once))
            await asyncio.sleep(0)
            found = await real(index, segment, at)
            at_once.remove(segment)
            return found

        monkeypatch.setattr(compaction, "neighbourhood", search)
        await packed.flusher._compact()
        assert max(most) == 2
        assert order == sorted(order)
        assert len(set(order)) == len(NAMES)
        await packed.store.stop()

    asyncio.run(main())


def test_compaction_reads_the_pieces_of_a_pack_by_one_request():
    async def main():
        packed = await Packed(replace(BY_HAND, chunk_bytes=100_000, compaction_bytes=100_000)).start()
        for _ in range(8):
            await packed.append(20)
            await packed.flush()
        reads, real = [], packed.world.storage.read

        async def read(name, *rest):
            reads.append(name)
            return await real(name, *rest)

        packed.world.storage.read = read
        await packed.flusher._compact()
        assert len(reads) == 8
        assert len(set(reads)) == 8
        packed.world.storage.read = real
        await packed.flusher.garbage.collect()
        assert len(packed.world.storage.chunks) == 1
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("packs", "commits"), [(True, 1), (False, len(NAMES))])
def test_compaction_of_packs_commits_once_for_all_batches_of_a_group(packs, commits):
    async def main():
        # Each segment is a batch of its own.
        limits = replace(BY_HAND, chunk_bytes=100_000, compaction_bytes=200, packs=packs)
        packed = await Packed(limits).start()
        for _ in range(8):
            await packed.append(20)
            await packed.flush()
        table = packed.world.indexes._tables[0]
        before = table.commits
        await packed.flusher._compact()
        assert table.commits - before == commits
        await packed.flusher.garbage.collect()
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


def test_a_pack_of_which_little_is_needed_is_written_again():
    async def main():
        limits = replace(BY_HAND, sweep_interval_seconds=0.0, chunk_bytes=100_000, compaction_bytes=100_000)
        packed = await Packed(limits).start()
        for _ in range(3):
            await packed.append(100)
            await packed.flush()
        assert sorted(map(len, packed.world.storage.chunks.values())) == [600, 600, 600]
        for name in NAMES[1:]:
            await packed.container.delete(name)
        for _ in range(4):
            await packed.flush()
            await packed.flusher._compact()
        await packed.flusher.garbage.collect()
        (chunk,) = packed.world.storage.chunks.values()
        assert len(chunk) == 300
        await packed.check(NAMES[:1])
        await packed.store.stop()

    asyncio.run(main())


def test_a_compaction_that_is_cancelled_drops_no_failure_of_its_reads():
    async def main():
        limits = replace(BY_HAND, sweep_interval_seconds=0.0, chunk_bytes=100_000, compaction_bytes=100_000)
        packed = await Packed(limits).start()
        for _ in range(3):
            await packed.append(100)
            await packed.flush()
        for name in NAMES[1:]:
            await packed.container.delete(name)
        await packed.flush()
        storage, asked, answers = packed.world.storage, asyncio.Event(), asyncio.Event()
        reads = set()

        async def read(*arguments):
            reads.add(asyncio.current_task())
            asked.set()
            await answers.wait()
            raise Unavailable("long-term storage reported a failure")

        real, storage.read = storage.read, read
        compaction = asyncio.ensure_future(packed.flusher._compact())
        await asyncio.wait_for(asked.wait(), HANG_SECONDS)
        compaction.cancel()
        await asyncio.wait((compaction,))
        del compaction  # its traceback refers to the reads
        storage.read = real
        reports = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        answers.set()
        await asyncio.wait(reads)
        reads.clear()
        gc.collect()  # asyncio reports a failure that nobody saw when its task is dropped
        assert reports == []
        await packed.check(NAMES[:1])
        await packed.store.stop()

    asyncio.run(main())
