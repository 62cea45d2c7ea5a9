"""A segment is truncated while its bytes are written to chunks: its extents still have no gap."""

import asyncio

import pytest

from tests.unit.store.harness import World, Writer, read_all

NAME = "scope/stream/0.#epoch.0"
DATA = b"a" * 300 + b"b" * 300 + b"c" * 300 + b"d" * 300 + b"e" * 300


def flusher_of(store):
    """The flusher of the segment's container, which the test runs by hand."""
    for task in [task for hosted in store._hosted for task in hosted.tasks]:
        task.cancel()
    return next(one for one in store.opened() if one.container is store.container(NAME)).flusher


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("start", [100, 300, 500, 700, 1300, 1500])
def test_truncation_during_flush_leaves_no_gap_and_no_garbage(start, known, crash):
    """`known`: the segment's extents are cached."""

    async def main():
        world = World()
        store = await world.start()
        container, flusher = store.container(NAME), flusher_of(store)
        await container.create(NAME)
        writer = Writer(store, NAME)
        await writer.set_up()
        segment = await container.metadata.require(NAME)
        writer.append(DATA[:300], 1)
        await writer.wait_for_replies()
        assert await flusher.checkpoint()
        if known:
            assert await container.metadata.extents.locate(segment.id, 0, 1)
        for number in range(2, 6):
            writer.append(DATA[300 * number - 300 : 300 * number], number)
        await writer.wait_for_replies()
        write = world.storage.write

        async def meanwhile(*arguments):
            world.storage.write = write
            await container.truncate(NAME, start)
            await write(*arguments)

        world.storage.write = meanwhile  # two chunks: of 900 bytes, and of 300
        assert await flusher.checkpoint()
        assert await read_all(store, NAME) == DATA[start:]
        assert [(one.start, one.end) for one in await container.metadata.extents.load_all(segment.id)][1:] == [
            (300, 1200), (1200, 1500),
        ]  # fmt: skip
        if crash:
            store = await world.crash(store)
            flusher = flusher_of(store)
            assert await read_all(store, NAME) == DATA[start:]
        await flusher.checkpoint()
        await flusher.garbage.collect()
        left = [name async for name, _ in world.storage.list("")]
        assert len(left) == sum(start < end for end in (300, 1200, 1500))
        assert await read_all(store, NAME) == DATA[start:]
        assert flusher._container.state.dirty.append_bytes == 0
        await store.stop()

    asyncio.run(main())
