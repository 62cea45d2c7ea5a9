"""The scrub: it finds damage that nobody reads, once, at its rate; it reports nothing that is not stored any more."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.index import keys
from sarit.storage.verified_reads import verify_extent
from sarit.store.tiering import scrub as scrub_module
from sarit.store.tiering.scrub import Scrub, ScrubRateLimiter
from tests.unit.store.container.test_damaged_chunks import NAME, append, flip, run, started
from tests.unit.store.harness import memory_env

FAST = 1 << 40
SIZES = [600, 700, 800]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(scrub_module, "SCRUB_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(scrub_module, "SCRUB_START_SECONDS", 0.0)


async def one_pass(opened, rate=FAST):
    """All chunks once, as far as it can be known from outside: a pass and its pause."""
    scrub = Scrub(opened.container, ScrubRateLimiter(opened.container.env.clock, rate), 0.001)
    running = asyncio.ensure_future(scrub.run())
    while not scrub.passes and not running.done():
        await asyncio.sleep(0.001)
    running.cancel()
    return scrub


@pytest.mark.parametrize("kind", ["flipped", "short", "missing"])
def test_damage_that_nobody_reads_is_found_once(kind, caplog):
    async def main():
        world, store, opened = await started(*SIZES)
        damaged = sorted(world.storage.chunks)[1]
        if kind == "flipped":
            flip(world, damaged, 600)
        elif kind == "short":
            world.storage.chunks[damaged] = world.storage.chunks[damaged][:100]
        else:
            del world.storage.chunks[damaged]
        for _ in range(3):
            assert (await one_pass(opened)).chunk_bytes >= 600 + 800
        lines = [line for line in caplog.messages if "long-term storage is damaged" in line]
        assert len(lines) == 1
        assert NAME in lines[0]
        assert damaged in lines[0]
        assert list(opened.container.damage.chunks) == [damaged]
        assert opened.container.failure is None
        await store.stop()

    run(main)


def test_whole_chunks_are_counted_and_not_reported(caplog):
    async def main():
        world, store, opened = await started(*SIZES)
        scrub = await one_pass(opened)
        assert scrub.chunk_bytes == sum(SIZES)
        assert not opened.container.damage.chunks
        assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
        await store.stop()

    run(main)


def test_chunk_that_was_replaced_meanwhile_is_no_damage(monkeypatch):
    async def main():
        world, store, opened = await started(*SIZES)
        right = opened.container.storage.read
        container = opened.container

        async def deleted_first(name, *others):
            container.storage.read = right
            await container.truncate(NAME, sum(SIZES))
            await append(store, NAME, 10)
            await opened.flusher.checkpoint()
            await opened.flusher.garbage.collect()
            return await right(name, *others)

        container.storage.read = deleted_first
        await one_pass(opened)
        assert container.storage.read == right
        assert not container.damage.chunks
        await store.stop()

    run(main)


def test_scrub_waits_for_storage_that_is_away():
    async def main():
        world, store, opened = await started(*SIZES)
        world.storage.faults.unavailable = True
        scrub = asyncio.ensure_future(one_pass(opened))
        await asyncio.sleep(0.05)
        assert not scrub.done()
        assert not opened.container.damage.chunks
        world.storage.faults.unavailable = False
        assert (await scrub).chunk_bytes == sum(SIZES)
        await store.stop()

    run(main)


def test_scrub_reads_no_faster_than_its_rate():
    async def main():
        world, store, opened = await started(*SIZES)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await one_pass(opened, rate=sum(SIZES) * 5)
        assert loop.time() - begun >= 0.2
        await store.stop()

    run(main)


def test_rate_is_shared():
    async def main():
        limiter = ScrubRateLimiter(memory_env().clock, 1000)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(limiter(20) for _ in range(5)))
        assert loop.time() - begun >= 0.1

    run(main)


def test_rate_of_zero_reads_nothing_until_it_is_raised():
    async def main():
        world, store, opened = await started(*SIZES)
        limiter = ScrubRateLimiter(opened.container.env.clock, 0)
        scrub = Scrub(opened.container, limiter, 0.001)
        running = asyncio.ensure_future(scrub.run())
        await asyncio.sleep(0.01)
        assert (scrub.chunk_bytes, scrub.passes) == (0, 0)
        limiter.change(FAST)
        while not scrub.passes:
            await asyncio.sleep(0.001)
        limiter.change(0)
        await asyncio.sleep(0.01)
        before = scrub.chunk_bytes
        assert before >= sum(SIZES)
        await asyncio.sleep(0.01)
        assert scrub.chunk_bytes == before
        assert not running.done()
        passes = scrub.passes
        limiter.change(FAST)
        while scrub.passes == passes:
            assert not running.done()
            await asyncio.sleep(0.001)
        running.cancel()
        await store.stop()

    run(main)


def test_scrub_ends_with_its_container():
    async def main():
        world, store, opened = await started(*SIZES)
        (hosted,) = store._hosted
        assert hosted.scrub is not None
        await store.stop()
        assert all(task.done() for task in hosted.tasks)
        assert len(hosted.tasks) == 3

    run(main)


def test_pieces_of_a_large_extent_are_whole_blocks(monkeypatch):
    async def main():
        world, store, opened = await started(5000)
        reads, right = [], world.storage.read

        async def counted(name, offset, length, check):
            reads.append((offset, length))
            return await right(name, offset, length, check)

        world.storage.read = counted
        monkeypatch.setattr("sarit.storage.verified_reads.SCRUB_READ_BYTES", 1100)
        ((key, value),) = await opened.container.index.scan(*keys.kind_range(keys.EXTENT), 10)
        extent = scrub_module.load_chunk_extent(0, value)
        assert await verify_extent(world.storage, extent) == 5000
        assert reads == [(0, 1024), (1024, 1024), (2048, 1024), (3072, 1024), (4096, 904)]
        part = replace(extent, start=0, length=100, chunk_offset=1500)
        assert await verify_extent(world.storage, part) == 1024
        world.storage.faults.unavailable = True
        with pytest.raises(Unavailable):
            await verify_extent(world.storage, part)
        await store.stop()

    run(main)
