"""Packs: small runs of many segments in one object, which goes with its last piece."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.index import keys
from sarit.storage.names import is_pack
from sarit.store.tiering import references
from tests.unit.store.harness import read_all
from tests.unit.store.packed import BY_HAND, NAMES, Packed


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
