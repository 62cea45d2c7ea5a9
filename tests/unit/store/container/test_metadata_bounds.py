"""Segments and attributes in memory are counted in bytes, and evicted by them."""

import asyncio
from dataclasses import replace

from sarit.store.container.container import ContainerLimits
from tests.unit.store.harness import SMALL, World, Writer, read_all

METADATA_BYTES = 200_000


def run(main, **limits) -> None:
    flush = replace(SMALL.flush, interval_seconds=1000)
    container = ContainerLimits(max_segments=10_000, metadata_bytes=METADATA_BYTES)
    world = World(limits=replace(SMALL, containers=1, flush=flush, container=container, **limits))
    asyncio.run(main(world))


def counted(container) -> None:
    """The counters are those of the objects in memory."""
    state = container.state
    assert state.attributes == sum(len(segment.attributes) for segment in state.segments.values())
    assert state.name_bytes == sum(len(segment.name) for segment in state.segments.values())
    assert len(state.names) == len(state.segments)


async def written(world: World, count: int, writers: int = 1):
    store = await world.start()
    (opened,) = store.opened()
    names = [f"a/s{number}/0.#epoch.0" for number in range(count)]
    for name in names:
        await opened.container.create(name)
        for number in range(writers):
            writer = Writer(store, name, number.to_bytes(16, "big"))
            await writer.set_up()
            writer.append(b"x" * 50, 1)
            await writer.wait_for_replies()
            writer.session.close()
    return store, opened, names


def test_idle_segments_are_evicted_by_their_bytes():
    async def main(world):
        store, opened, names = await written(world, 300)
        metadata = opened.container.metadata
        assert metadata.segment_bytes > METADATA_BYTES, "they are dirty"
        counted(opened.container)
        await opened.flusher.checkpoint()
        assert metadata.segment_bytes <= metadata.max_segment_bytes < METADATA_BYTES
        counted(opened.container)
        for name in names:
            assert len(await read_all(store, name)) == 50
            assert metadata.segment_bytes <= metadata.max_segment_bytes + 2000
            assert metadata.extents.cache.bytes <= METADATA_BYTES // 4
        counted(opened.container)
        # What is cached of evicted segments is not counted any more.
        held = sum(sum(map(len, block.parts)) for one in opened.container.state.segments.values()
                   for blocks in one.cached for block in blocks)  # fmt: skip
        assert store.budget.cached_bytes == held + 640 * (held // 50)
        await store.stop()

    run(main)


def test_long_names_count():
    async def main(world):
        store = await world.start()
        (opened,) = store.opened()
        for number in range(60):
            await opened.container.create(f"a/{number:04000}/0.#epoch.0")
        assert opened.container.metadata.segment_bytes > 60 * 4000
        await opened.flusher.checkpoint()
        assert opened.container.metadata.segment_bytes <= METADATA_BYTES
        counted(opened.container)
        await store.stop()

    run(main)


def test_idle_attributes_of_busy_segments_are_evicted_by_their_bytes():
    """Up to 10,000 attributes of each of 12,500 segments were 40 GB."""

    async def main(world):
        store, opened, names = await written(world, 20, writers=60)
        container = opened.container
        counted(container)
        await opened.flusher.checkpoint()
        for name in names:
            (await container.metadata.require(name)).pins += 1
        for number in range(60):
            for name in names:
                assert await container.get_attribute(name, number.to_bytes(16, "big")) == 1
        container.metadata.evict()
        assert container.metadata.segment_bytes <= METADATA_BYTES
        counted(container)
        await store.stop()

    run(main)


def test_counters_follow_replay_deletion_and_new_names():
    async def main(world):
        store, opened, names = await written(world, 20, writers=3)
        for name in names[:10]:
            await opened.container.delete(name)
        await opened.container.create(names[0])
        store = await world.crash(store)
        (opened,) = store.opened()
        await opened.flusher.checkpoint()
        counted(opened.container)
        assert len(opened.container.state.segments) == 11
        await store.stop()

    run(main)
