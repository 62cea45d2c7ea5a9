"""Cached runs: bytes that stay in memory after a flush.  Bytes merged from chunks leave holes among them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sarit.store.container.operations import Create
from sarit.store.container.segment import Block, Segment, slice_blocks
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.limits import BLOCK_OVERHEAD_BYTES
from tests.unit.store.harness import SMALL, World, Writer, read_all


def test_slice_of_blocks_ends_at_first_hole() -> None:
    blocks = [Block(0, 4, [b"abcd"]), Block(4, 4, [b"efgh"]), Block(12, 4, [b"mnop"])]
    assert b"".join(slice_blocks(blocks, 2, 100)) == b"cdefgh"
    assert slice_blocks(blocks, 8, 100) == []
    assert slice_blocks(blocks, 11, 100) == []
    assert slice_blocks(blocks, 16, 100) == []
    assert b"".join(slice_blocks(blocks, 13, 2)) == b"no"


def test_cached_runs_have_no_holes() -> None:
    segment = Segment(Create(1, "a/b/0.#epoch.0"), 0)
    budget = MemoryBudget(1 << 20, 1 << 20)
    blocks = [Block(0, 4, [b"abcd"]), Block(4, 4, None, "chunk"), Block(8, 4, [b"ijkl"]), Block(12, 4, [b"mnop"])]
    budget.cache(segment.cache_flushed(blocks))
    assert [[block.offset for block in run] for run in segment.cached] == [[0], [8, 12]]
    assert budget.cached_bytes == 12 + 3 * BLOCK_OVERHEAD_BYTES


def test_cache_reader_does_not_skip_bytes_merged_from_chunks() -> None:
    """Readers got bytes of a later offset (simulation seed 1247284)."""

    async def main() -> None:
        limits = replace(SMALL, containers=1, cache_bytes=1 << 20, flush=replace(SMALL.flush, interval_seconds=1000))
        world = World(limits=limits)
        store = await world.start()
        target, source = "a/b/0.#epoch.0", "a/b/0.#epoch.0#transaction." + "0" * 32
        container = store.container(target)
        (opened,) = store.opened()
        await container.create(target)
        await container.create(source)
        one, two = Writer(store, target, b"1" * 16), Writer(store, source, b"2" * 16)
        await one.set_up()
        await two.set_up()
        one.append(b"a" * 300, 1)
        two.append(b"b" * 300, 1)
        await two.wait_for_replies()
        await opened.flusher.checkpoint()
        one.append(b"c" * 300, 2)
        await container.merge(target, source)
        one.append(b"d" * 300, 3)
        await one.wait_for_replies()
        whole = b"a" * 300 + b"c" * 300 + b"b" * 300 + b"d" * 300
        assert await read_all(store, target) == whole
        await opened.flusher.checkpoint()
        assert await read_all(store, target) == whole
        for offset in (250, 350, 600, 650, 899, 900, 1199):
            result = await store.reads(target).from_chunks(container.state.names[target], offset, 100)
            found = b"".join(bytes(part) for part in result.parts)
            assert found == whole[offset : offset + len(found)], offset
        await store.stop()

    asyncio.run(main())
