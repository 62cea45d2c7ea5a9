"""Compaction joins small extents, invisibly to readers."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.core.errors import Unavailable
from sarit.index import keys
from sarit.storage.layout import JOIN_EXTENTS, load_chunk_extent
from sarit.store.tiering import compaction
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENT = "s/t/0.#epoch.0"


async def _trickling():
    """A store in its world where extents below 600 bytes are small, and a writer on a segment of it."""
    world = World(limits=replace(SMALL, flush=replace(SMALL.flush, small_extent_bytes=600)))
    store = await world.start()
    await store.container(SEGMENT).create(SEGMENT)
    writer = Writer(store, SEGMENT)
    await writer.set_up()
    return world, store, writer


def test_compaction_of_slow_segments_is_invisible_to_readers():
    async def main():
        world, store, writer = await _trickling()
        expected = b""
        for number in range(1, 60):
            data = bytes([number]) * (50 + number * 5)
            writer.append(data, number)
            expected += data
            await writer.wait_for_replies()
            await asyncio.sleep(0.03)
            if number % 20 == 0:
                assert await read_all(store, SEGMENT) == expected
        joined = sum(o.flusher.compactor.joined for o in store.opened())
        assert joined > 30
        await asyncio.sleep(0.1)
        assert await read_all(store, SEGMENT) == expected
        store = await world.crash(store)
        assert await read_all(store, SEGMENT) == expected
        await asyncio.sleep(0.1)
        opened_container = next(o for o in store.opened() if o.container is store.container(SEGMENT))
        segment = await opened_container.container.metadata.require(SEGMENT)
        chunks = await opened_container.container.metadata.extents.load_all(segment.id)
        named = {extent.chunk for extent in chunks if extent.chunk}
        assert set(world.storage.chunks) == named  # the joined ones are deleted, nothing else is
        await store.stop()

    asyncio.run(main())


def test_compaction_stops_over_soft_limit():
    """With a thousand busy segments it took seconds without a flush, and appends were throttled."""

    async def main():
        _, store, writer = await _trickling()
        half = store.budget.max_dirty_bytes // 2
        store.budget.report(99, SimpleNamespace(charged_bytes=half, append_bytes=0, written_bytes=0))
        numbers = iter(range(1, 1000))
        expected = b""

        async def write_one() -> None:
            nonlocal expected
            number = next(numbers)
            writer.append(bytes([number % 256]) * 300, number)
            expected += bytes([number % 256]) * 300
            await writer.wait_for_replies()
            await asyncio.sleep(0.03)

        def joined() -> int:
            return sum(opened.flusher.compactor.joined for opened in store.opened())

        compactor = next(o.flusher.compactor for o in store.opened() if o.container is store.container(SEGMENT))
        while sum(compactor._counts.values()) < 3 * JOIN_EXTENTS:
            await write_one()
        assert joined() == 0
        store.budget.forget(99)
        while joined() < 3 * JOIN_EXTENTS:
            await write_one()
        assert await read_all(store, SEGMENT) == expected
        await store.stop()

    asyncio.run(main())


def test_compaction_forgets_deleted_segments():
    """An entry for every transaction would have leaked for as long as the node ran."""

    async def main():
        world = World(limits=replace(SMALL, flush=replace(SMALL.flush, interval_seconds=1000)))
        store = await world.start()
        names = [f"a/b/{number}.#epoch.0" for number in range(6)]
        for name in names:
            await store.container(name).create(name)
            writer = Writer(store, name)
            await writer.set_up()
            writer.append(b"x" * 50, 1)
            await writer.wait_for_replies()
            writer.session.close()
        flushers = [opened_container.flusher for opened_container in store.opened()]
        for flusher in flushers:
            await flusher.checkpoint()
        assert sum(len(flusher.compactor._counts) for flusher in flushers) == len(names)
        for name in names[1:]:
            await store.container(name).delete(name)
        for flusher in flushers:
            await flusher.checkpoint()
        assert sum(len(flusher.compactor._counts) for flusher in flushers) == 1
        await store.stop()

    asyncio.run(main())


async def _many(count: int, **limits):
    """A store of one container whose cycles the test runs, and writers on segments of it."""
    flush = replace(SMALL.flush, interval_seconds=1000, small_extent_bytes=2000, **limits)
    world = World(limits=replace(SMALL, containers=1, flush=flush, cache_bytes=0))
    store = await world.start()
    writers = []
    for number in range(count):
        name = f"a/s{number}/0.#epoch.0"
        await store.container(name).create(name)
        writers.append(Writer(store, name))
    return world, store, writers


async def _append_to_all(writers: list[Writer], number: int) -> None:
    for writer in writers:
        await writer.set_up()
        writer.append(bytes([number % 256]) * 150, number)
    for writer in writers:
        await writer.wait_for_replies()
        writer.session.close()


def _small_extents(world: World) -> dict[int, int]:
    """By segment, how many of its extents are small."""
    counts = Counter(keys.segment_of(key) for key in world.indexes.snapshot(0) if key[:1] == keys.INLINED)
    for key, value in world.indexes.snapshot(0).items():
        if key[:1] == keys.EXTENT:
            counts[keys.segment_of(key)] += load_chunk_extent(keys.number_of(key), value).length < 2000
    return counts


def test_segments_that_were_evicted_are_compacted():
    """Compaction forgot a segment that was not in memory when its turn came."""

    async def main():
        world, store, writers = await _many(30)
        (opened,) = store.opened()
        for number in range(1, JOIN_EXTENTS + 1):
            await _append_to_all(writers, number)
            await opened.flusher.checkpoint()
        assert len(opened.container.state.segments) <= 3
        await opened.flusher._compact()
        assert opened.flusher.compactor.joined == 30 * JOIN_EXTENTS
        assert set(_small_extents(world).values()) == {1}
        for writer in writers:
            data = b"".join(bytes([number]) * 150 for number in range(1, JOIN_EXTENTS + 1))
            assert await read_all(store, writer.segment) == data
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("inline_below_bytes", [1, 200], ids=["in chunks", "inlined"])
def test_small_extents_of_before_a_restart_are_found_and_joined(inline_below_bytes):
    async def main():
        world, store, writers = await _many(20, inline_below_bytes=inline_below_bytes)
        for number in range(1, 2 * JOIN_EXTENTS):
            await _append_to_all(writers, number)
            await store.opened()[0].flusher.checkpoint()
        store = await world.crash(store)
        (opened,) = store.opened()
        assert not opened.flusher.compactor._counts
        for _ in range(4):
            await opened.flusher._compact()
            await opened.flusher.garbage.collect()
        assert opened.flusher.compactor.joined >= 20 * JOIN_EXTENTS
        assert max(_small_extents(world).values()) < JOIN_EXTENTS
        for writer in writers:
            data = b"".join(bytes([number]) * 150 for number in range(1, 2 * JOIN_EXTENTS))
            assert await read_all(store, writer.segment) == data
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("short", [False, True], ids=["memory", "short of memory"])
def test_small_extents_stay_bounded_while_many_segments_trickle(short, monkeypatch):
    """At most 64 segments were joined in a cycle, and none while memory was short: extents grew without bound.

    The bounds of a cycle are lowered in proportion to the load."""

    async def main():
        monkeypatch.setattr(compaction, "MAX_COMPACTED_BYTES_PER_CYCLE", 5_000)
        world, store, writers = await _many(100, compaction_bytes=10_000)
        (opened,) = store.opened()
        if short:
            half = store.budget.max_dirty_bytes // 2
            store.budget.report(99, SimpleNamespace(charged_bytes=half, append_bytes=0, written_bytes=0))
        for number in range(1, 81):
            await _append_to_all(writers, number)
            await opened.flusher.checkpoint()
            await opened.flusher._compact()
            assert max(_small_extents(world).values()) <= compaction.MAX_SMALL_EXTENTS, number
        assert opened.flusher.compactor.joined > 100 * 30
        for writer in writers[:3]:
            data = b"".join(bytes([number]) * 150 for number in range(1, 81))
            assert await read_all(store, writer.segment) == data
        await store.stop()

    asyncio.run(main())


def test_compaction_joins_the_others_of_a_group_when_one_chunk_cannot_be_written():
    async def main():
        world, store, writers = await _many(10)
        (opened,) = store.opened()
        for number in range(1, JOIN_EXTENTS + 1):
            await _append_to_all(writers, number)
            await opened.flusher.checkpoint()
        write, refused = world.storage.write, []

        async def refuse_first(name, *arguments):
            if not refused:
                refused.append(name)
                raise Unavailable("no")
            await write(name, *arguments)

        world.storage.write = refuse_first
        await opened.flusher._compact()
        assert opened.flusher.compactor.joined == 9 * JOIN_EXTENTS
        await opened.flusher._compact()
        assert opened.flusher.compactor.joined == 10 * JOIN_EXTENTS
        for writer in writers:
            data = b"".join(bytes([number]) * 150 for number in range(1, JOIN_EXTENTS + 1))
            assert await read_all(store, writer.segment) == data
        await store.stop()

    asyncio.run(main())


def test_counts_of_too_many_segments_are_forgotten_and_the_sweep_finds_them(monkeypatch):
    async def main():
        monkeypatch.setattr(compaction, "MAX_COUNTED_SEGMENTS", 5)
        world, store, writers = await _many(30)
        (opened,) = store.opened()
        for number in range(1, JOIN_EXTENTS + 1):
            await _append_to_all(writers, number)
            await opened.flusher.checkpoint()
            assert len(opened.flusher.compactor._counts) <= 5
        for _ in range(3):
            await opened.flusher._compact()
        assert set(_small_extents(world).values()) == {1}
        await store.stop()

    asyncio.run(main())
