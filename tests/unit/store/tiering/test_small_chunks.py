"""A thousand slow segments: small chunks are written concurrently, and no more of them than needed."""

import asyncio
from dataclasses import replace

import pytest

from sarit.store.tiering.checkpoint import FlushLimits
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer

SEGMENTS = [f"s/t/{number}.#epoch.0" for number in range(100)]
BY_HAND = FlushLimits(interval_seconds=1000, inline_below_bytes=1, small_extent_bytes=1000)


async def fill(flush: FlushLimits, names: list[str], size: int):
    """A store with one dirty append of `size` bytes for each segment."""
    world = World(replace(SMALL, containers=1, flush=flush))
    store = await world.start()
    writers = []
    for name in names:
        await store.container(name).create(name)
        writers.append(Writer(store, name))
        await writers[-1].set_up()
    for writer in writers:
        writer.append(bytes(size), 1)
    await writers[-1].wait_for_replies()
    return world, store.opened()[0].flusher


@pytest.mark.parametrize(("size", "most"), [(999, 16), (1000, 3)])
def test_concurrency_of_small_and_large_chunk_writes(size, most):
    async def main():
        world, flusher = await fill(BY_HAND, SEGMENTS, size)
        under_way, seen = 0, []
        real = world.storage.write

        async def write(*arguments):
            nonlocal under_way
            under_way += 1
            seen.append(under_way)
            await asyncio.sleep(0)
            await real(*arguments)
            under_way -= 1

        world.storage.write = write
        await flusher.checkpoint()
        assert len(seen) == len(SEGMENTS)
        assert max(seen) == most

    asyncio.run(main())


@pytest.mark.parametrize(
    ("names", "held_bound", "waits"),
    [(SEGMENTS, 1 << 30, True), (SEGMENTS[:1], 1 << 30, False), (SEGMENTS, 30_000, False)],
)
def test_sparse_dirty_bytes_postpone_checkpoint_under_soft_limit(names, held_bound, waits):
    async def main():
        flush = FlushLimits(interval_seconds=1000, trigger_bytes=4000, inline_below_bytes=1, small_extent_bytes=100)
        _, flusher = await fill(flush, names, 6000 // len(names))
        flusher._container.budget.max_dirty_bytes = held_bound
        flusher.wake()
        await asyncio.sleep(0.05)
        async with asyncio.timeout(HANG_SECONDS):
            while not waits and not flusher.statistics.checkpoints:
                await asyncio.sleep(0.01)
        assert flusher.statistics.checkpoints == (0 if waits else 1)

    asyncio.run(main())


@pytest.mark.parametrize("short", ["memory", "disk", "log"])
def test_shortage_ends_postponed_checkpoint(short, monkeypatch):
    async def main():
        flush = FlushLimits(interval_seconds=4, trigger_bytes=4000, inline_below_bytes=1, small_extent_bytes=100)
        world, flusher = await fill(flush, SEGMENTS, 60)
        loop = asyncio.get_running_loop()
        flusher.wake()
        await asyncio.sleep(0.01)
        assert flusher._interval_factor() > 1
        begun = loop.time()
        container = flusher._container
        if short == "memory":
            container.budget.max_dirty_bytes = 30_000
        elif short == "disk":
            container.budget.disk_full = True
        else:
            monkeypatch.setattr(type(container.log), "short_of_space", True)
        assert flusher._interval_factor() == 1
        while not flusher.statistics.checkpoints:
            await asyncio.sleep(0.005)
        assert loop.time() - begun < 6  # it evaluates every half second; without that it would wait for 8 s

    asyncio.run(main())
