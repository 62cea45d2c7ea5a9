"""Containers report every release of memory to the budget, and nothing after they have failed."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.storage.memory import MemoryChunks
from tests.unit.store.harness import SMALL, World, Writer

BIG, OTHER = "s/big/0.#epoch.0", "s/other/0.#epoch.0"
BOUND = 100_000
LIMITS = replace(
    SMALL,
    containers=1,
    max_dirty_bytes=BOUND,
    flush=replace(SMALL.flush, interval_seconds=1000, trigger_bytes=1 << 40),
)


class SlowChunks(MemoryChunks):
    """Chunk storage whose writes return when the test releases them."""

    def __init__(self):
        super().__init__()
        self.writing = asyncio.Event()
        self.let_go = asyncio.get_running_loop().create_future()

    async def write(self, *arguments):
        self.writing.set()
        await self.let_go
        await super().write(*arguments)


@asynccontextmanager
async def exhausted(**options):
    """A store that segment BIG has brought over its append limit."""
    store = await World(limits=LIMITS, **options).start()
    for name in (BIG, OTHER):
        await store.container(name).create(name)
    writer = Writer(store, BIG)
    await writer.set_up()
    number = 0
    while not store.budget.over_append_limit:
        number += 1
        writer.append(b"x" * 10_000, number)
    await writer.wait_for_replies()
    yield store
    await store.stop()


CHANGES = {
    "deletion": lambda container: container.delete(BIG),
    "truncation": lambda container: container.truncate(BIG, container.state.names[BIG].length),
}


@pytest.mark.parametrize("change", CHANGES)
def test_deletion_and_truncation_release_throttled_appends_at_once(change):
    """The appends waited for the next report of any kind: without long-term storage, for ever."""

    async def main():
        async with exhausted() as store:
            container = store.container(BIG)
            writer = Writer(store, OTHER, b"o" * 16)
            await writer.set_up()
            for number in (1, 2, 3):
                writer.append(b"waits", number)
            assert container.throttled == 3
            await CHANGES[change](container)
            assert not container.throttled
            assert store.budget.charged_bytes == container.state.dirty.charged_bytes < BOUND
            assert len((await writer.wait_for_replies()).acknowledgements) == 3

    asyncio.run(main())


def test_released_append_is_refused_after_the_acknowledgements_of_the_frame_that_freed_memory():
    async def main():
        async with exhausted() as store:
            container = store.container(BIG)
            order = []
            writer = Writer(store, OTHER, b"o" * 16)
            await writer.set_up()
            writer.append(b"at a wrong offset", 1, 77)
            writer.replies.refused = lambda *_: order.append("refused")
            container.group_commit.add(
                container.state.delete(container.state.names[BIG]), lambda _: order.append("deleted")
            )
            await container.group_commit.wait_durable()
            assert order == ["deleted", "refused"]

    asyncio.run(main())


def test_failed_container_has_no_charge():
    """A chunk written during the failure charged the container's memory again, and the charge was never removed."""

    async def main():
        storage = SlowChunks()
        async with exhausted(storage=storage) as store:
            (opened,) = store.opened()
            checkpoint = asyncio.ensure_future(opened.flusher.checkpoint())
            await storage.writing.wait()
            reopening = asyncio.get_running_loop().create_future()

            async def later(number):
                await reopening

            store.parts.logs.claim = later
            opened.container.fail(Unavailable("the disk of the log failed"))
            assert store.budget.charged_bytes == 0
            storage.let_go.set_result(None)
            await asyncio.gather(checkpoint, return_exceptions=True)
            assert store.budget.charged_bytes == 0
            assert store.budget.dirty_bytes == 0

    asyncio.run(main())


def test_append_after_failure_adds_no_charge():
    async def main():
        async with exhausted() as store:
            container = store.container(OTHER)
            writer = Writer(store, OTHER, b"o" * 16)
            await writer.set_up()
            container.fail(Unavailable("the disk of the log failed"))
            writer.append(b"late", 1)
            assert store.budget.charged_bytes == 0
            assert isinstance(writer.replies.errors[0], Unavailable)

    asyncio.run(main())
