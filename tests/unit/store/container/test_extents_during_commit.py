"""Extents read from the index during a commit may or may not include it, and must not be used."""

import asyncio

import pytest

from tests.unit.store.harness import World, Writer, read_all

NAME = "scope/stream/0.#epoch.0"


async def _checkpointing(store, container, writer):
    """A checkpoint whose commit the index has, and the event loop does not know of yet; and how to let it know."""
    opened = next(one for one in store.opened() if one.container is container)
    for task in [task for hosted in store._hosted for task in hosted.tasks]:
        task.cancel()
    await asyncio.sleep(0)
    await opened.flusher.checkpoint()
    writer.append(b"x" * 300, 1)
    await writer.wait_for_replies()
    commit, committed, notified = container.index.commit, asyncio.Event(), asyncio.Event()

    async def slowly(batch):
        await commit(batch)
        committed.set()
        await notified.wait()

    container.index.commit = slowly
    checkpoint = asyncio.ensure_future(opened.flusher.checkpoint())
    await committed.wait()
    return checkpoint, notified


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (lambda extents, segment: extents.load_all(segment), [(0, 300)]),
        (lambda extents, segment: extents.locate(segment, 300, 10), []),
        (lambda extents, segment: extents.next_start(segment, 1), (None, 300)),
    ],
    ids=["all", "by offset", "next"],
)
def test_extents_read_during_commit_are_not_used(query, expected):
    async def main():
        store = await World().start()
        container = store.container(NAME)
        await container.create(NAME)
        writer = Writer(store, NAME)
        await writer.set_up()
        checkpoint, notified = await _checkpointing(store, container, writer)
        segment = await container.metadata.require(NAME)
        reading = asyncio.ensure_future(query(container.metadata.extents, segment.id))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        notified.set()
        assert await checkpoint
        found = await reading
        assert ([(one.start, one.end) for one in found] if isinstance(found, list) else found) == expected
        writer.append(b"y" * 300, 2)
        await writer.wait_for_replies()
        await asyncio.sleep(0.05)
        assert await read_all(store, NAME) == b"x" * 300 + b"y" * 300

    asyncio.run(main())


def test_a_merge_has_the_extents_of_a_checkpoint_that_commits_meanwhile():
    async def main():
        store = await World().start()
        container = store.container(NAME)
        names = [f"a/b/{number}.#epoch.0" for number in range(100)]
        target = next(name for name in names if store.container(name) is container)
        await container.create(NAME)
        await container.create(target)
        writer = Writer(store, NAME)
        await writer.set_up()
        checkpoint, notified = await _checkpointing(store, container, writer)
        merging = asyncio.ensure_future(container.merge(target, NAME))
        await asyncio.wait([merging], timeout=0.05)
        notified.set()
        assert await checkpoint
        assert await merging == 300
        assert await read_all(store, target) == b"x" * 300

    asyncio.run(main())
