"""Extents read from the index during a commit may or may not include it, and must not be used."""

import asyncio

import pytest

from tests.unit.store.harness import World, Writer, read_all

NAME = "scope/stream/0.#epoch.0"


@pytest.mark.parametrize("reload", [False, True], ids=["first read", "read again"])
def test_extents_read_during_commit_are_not_used(reload):
    async def main():
        store = await World().start()
        container = store.container(NAME)
        await container.create(NAME)
        writer = Writer(store, NAME)
        await writer.set_up()
        opened = next(one for one in store.opened() if one.container is container)
        for task in [task for hosted in store._hosted for task in hosted.tasks]:
            task.cancel()
        await asyncio.sleep(0)
        await opened.flusher.checkpoint()
        segment = await container.metadata.require(NAME)
        assert segment.committed
        writer.append(b"x" * 300, 1)
        await writer.wait_for_replies()
        if reload:
            await container.metadata.chunks(segment)

        commit, committed, notified = container.index.commit, asyncio.Event(), asyncio.Event()

        async def slowly(batch):
            await commit(batch)
            committed.set()
            await notified.wait()  # the index has committed; the event loop is not notified yet

        container.index.commit = slowly
        checkpoint = asyncio.ensure_future(opened.flusher.checkpoint())
        await committed.wait()
        read = container.metadata.reload_chunks if reload else container.metadata.chunks
        reading = asyncio.ensure_future(read(segment))
        await asyncio.wait([reading], timeout=0.05)
        notified.set()
        assert await checkpoint
        await reading
        assert [(extent.start, extent.end) for extent in await container.metadata.chunks(segment)] == [(0, 300)]
        writer.append(b"y" * 300, 2)
        await writer.wait_for_replies()
        assert await opened.flusher.checkpoint()
        assert await read_all(store, NAME) == b"x" * 300 + b"y" * 300

    asyncio.run(main())
