"""Packs: small runs of many segments in one object, which goes with its last piece."""

import asyncio
import gc
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.index import keys
from sarit.storage.layout import load_chunk_extent
from sarit.storage.names import is_pack
from sarit.store.tiering import compaction, references
from sarit.store.tiering.checkpoint import FlushLimits
from tests.unit.store.harness import SMALL, World, Writer, read_all

NAMES = [f"s/t/{number}.#epoch.0" for number in range(6)]
BY_HAND = FlushLimits(interval_seconds=1000, inline_below_bytes=1, small_extent_bytes=600, packs=True)


class Packed:
    """A store whose checkpoints are made by hand, and a writer for each segment."""

    def __init__(self, limits: FlushLimits = BY_HAND) -> None:
        self.world = World(replace(SMALL, containers=1, flush=limits))
        self.expected = {name: b"" for name in NAMES}
        self.numbers = dict.fromkeys(NAMES, 0)

    async def start(self) -> "Packed":
        self.store = await self.world.start()
        for name in NAMES:
            await self.container.create(name)
        await self.set_up()
        return self

    async def set_up(self) -> None:
        self.writers = {name: Writer(self.store, name) for name in NAMES}
        for writer in self.writers.values():
            await writer.set_up()

    @property
    def container(self):
        return self.store.opened()[0].container

    @property
    def flusher(self):
        return self.store.opened()[0].flusher

    async def append(self, size: int, names=NAMES) -> None:
        for name in names:
            self.numbers[name] += 1
            data = bytes([65 + NAMES.index(name) + self.numbers[name] % 7]) * size
            self.expected[name] += data
            self.writers[name].append(data, self.numbers[name])
        for name in names:
            await self.writers[name].wait_for_replies()

    async def flush(self) -> None:
        await self.flusher.checkpoint()
        await self.flusher.garbage.collect()

    def rows(self, kind: bytes) -> dict[bytes, bytes]:
        return {key: value for key, value in self.world.indexes.snapshot(0).items() if key[:1] == kind}

    async def check(self, names=NAMES) -> None:
        for name in names:
            segment = await self.container.metadata.require(name)
            assert await read_all(self.store, name) == self.expected[name][segment.start :], name
        self.check_references()

    def check_references(self) -> None:
        """Each object is named by an extent, and each piece that an extent names has its record, and no other."""
        extents = [load_chunk_extent(keys.number_of(key), value) for key, value in self.rows(keys.EXTENT).items()]
        assert {one.reference for one in extents if is_pack(one.chunk)} == {
            keys.parse_piece_key(key) for key in self.rows(keys.PIECE)
        }
        assert set(self.world.storage.chunks) == {one.chunk for one in extents if one.chunk}


def test_small_runs_of_one_checkpoint_are_one_object():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        (name,) = packed.world.storage.chunks
        assert is_pack(name)
        assert len(packed.world.storage.chunks[name]) == 600
        assert len(packed.rows(keys.PIECE)) == len(NAMES)
        await packed.check()
        packed.store = await packed.world.crash(packed.store)
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


def test_runs_that_are_not_small_and_a_single_small_one_are_chunks_of_their_own():
    async def main():
        packed = await Packed().start()
        await packed.append(700, NAMES[:2])
        await packed.append(100, NAMES[2:3])
        await packed.flush()
        assert len(packed.world.storage.chunks) == 3
        assert not any(map(is_pack, packed.world.storage.chunks))
        assert not packed.rows(keys.PIECE)
        await packed.check(NAMES[:3])
        await packed.store.stop()

    asyncio.run(main())


def test_a_pack_is_no_longer_than_a_chunk_may_be():
    async def main():
        packed = await Packed(replace(BY_HAND, chunk_bytes=250)).start()
        await packed.append(100)
        await packed.flush()
        assert sorted(map(len, packed.world.storage.chunks.values())) == [200, 200, 200]
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("drop", ["delete", "truncate"])
def test_a_pack_goes_with_its_last_piece(drop):
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        for left, name in reversed(list(enumerate(NAMES))):
            if drop == "delete":
                await packed.container.delete(name)
            else:
                await packed.container.truncate(name, 100)
            await packed.flush()
            assert len(packed.world.storage.chunks) == (1 if left else 0), left
            assert len(packed.rows(keys.PIECE)) == left
            await packed.check(NAMES[:left])
        await packed.store.stop()

    asyncio.run(main())


def test_a_pack_goes_when_all_its_pieces_are_dropped_in_one_checkpoint():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        for name in NAMES:
            await packed.container.delete(name)
        await packed.flush()
        assert not packed.world.storage.chunks
        await packed.store.stop()

    asyncio.run(main())


def test_segments_that_are_truncated_while_their_pack_is_written_leave_nothing_behind():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        real = packed.world.storage.write

        async def write(*arguments):
            await real(*arguments)
            for name in NAMES:
                await packed.container.truncate(name, 100)

        packed.world.storage.write = write
        await packed.flusher.checkpoint()
        packed.world.storage.write = real
        await packed.flush()
        packed.check_references()
        assert not packed.world.storage.chunks
        await packed.store.stop()

    asyncio.run(main())


def test_a_pack_whose_write_failed_is_garbage_and_another_one_holds_the_bytes():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        real, failures = packed.world.storage.write, iter([True, True])

        async def write(*arguments):
            if next(failures, False):
                await real(*arguments)  # it happened all the same
                raise Unavailable("no answer")
            await real(*arguments)

        packed.world.storage.write = write
        await packed.flush()
        assert len(packed.world.storage.chunks) == 1
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


def test_a_crash_between_pack_and_commit_leaves_an_orphan_that_the_sweep_deletes():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        written = asyncio.Event()
        real = packed.world.storage.write

        async def write(*arguments):
            await real(*arguments)
            written.set()
            await asyncio.Event().wait()

        packed.world.storage.write = write
        checkpoint = asyncio.ensure_future(packed.flusher.checkpoint())
        await written.wait()
        checkpoint.cancel()
        packed.world.storage.write = real
        (orphan,) = packed.world.storage.chunks
        packed.store = await packed.world.crash(packed.store)
        assert await packed.store.opened()[0].orphan_sweep.run() <= 1
        assert orphan not in packed.world.storage.chunks
        await packed.flush()
        await packed.check()
        await packed.store.stop()

    asyncio.run(main())


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


def test_damage_of_one_piece_is_that_of_one_segment():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        packed.store = await packed.world.crash(packed.store)
        (name,) = packed.world.storage.chunks
        data = bytearray(packed.world.storage.chunks[name])
        at = bytes(data).index(packed.expected[NAMES[2]])
        data[at + 50] ^= 1
        packed.world.storage.chunks[name] = bytes(data)
        with pytest.raises(Corrupt, match=f"{name} does not match its checksum between bytes {at} and {at + 100}"):
            await read_all(packed.store, NAMES[2])
        for other in (*NAMES[:2], *NAMES[3:]):
            assert await read_all(packed.store, other) == packed.expected[other]
        await packed.store.stop()

    asyncio.run(main())


def test_a_merged_segment_takes_its_piece_along():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        source, target = NAMES[0], NAMES[1]
        await packed.container.seal(source)
        await packed.container.merge(target, source)
        await packed.flush()
        packed.expected[target] += packed.expected.pop(source)
        await packed.check(NAMES[1:])
        # Its piece is the target's now; the pack stays until the target goes, too.
        for name in NAMES[1:]:
            assert packed.world.storage.chunks
            await packed.container.delete(name)
            await packed.flush()
        assert not packed.world.storage.chunks
        await packed.store.stop()

    asyncio.run(main())


def test_a_pack_stays_while_the_record_of_a_piece_cannot_be_read(monkeypatch):
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()

        async def unreadable(index, start, end, limit):
            return [], Corrupt("the record is damaged")

        monkeypatch.setattr(references, "scan_page", unreadable)
        for name in NAMES:
            await packed.container.delete(name)
        await packed.flush()
        assert len(packed.world.storage.chunks) == 1
        await packed.store.stop()

    asyncio.run(main())


def test_an_index_from_before_packs_is_continued_with_packs():
    async def main():
        packed = await Packed(replace(BY_HAND, packs=False)).start()
        await packed.append(100)
        await packed.flush()
        assert not any(map(is_pack, packed.world.storage.chunks))
        await packed.store.stop()
        packed.world.limits = replace(packed.world.limits, flush=BY_HAND)
        packed.store = await packed.world.start()
        await packed.set_up()
        await packed.append(100)
        await packed.flush()
        assert sum(map(is_pack, packed.world.storage.chunks)) == 1
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


def test_garbage_records_go_with_the_next_checkpoint():
    async def main():
        packed = await Packed().start()
        await packed.append(100)
        await packed.flush()
        for name in NAMES[:5]:
            await packed.container.delete(name)
        await packed.flush()
        await packed.container.delete(NAMES[5])
        await packed.flusher.checkpoint()
        before = packed.world.indexes._tables[0].commits
        await packed.flusher.garbage.collect()
        await packed.flusher.garbage.collect()
        assert not packed.world.storage.chunks
        assert packed.world.indexes._tables[0].commits == before
        assert packed.rows(keys.GARBAGE)
        await packed.container.create("s/t/9.#epoch.0")
        await packed.flusher.checkpoint()
        assert not packed.rows(keys.GARBAGE)
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
        await asyncio.wait_for(asked.wait(), 10)
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
