"""The dirty bytes of a container: added and removed once each; small appends count by their memory."""

import asyncio
import contextlib
import random
from dataclasses import replace

import pytest

from sarit.core.errors import SaritError
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.limits import BLOCK_OVERHEAD_BYTES
from tests.unit.store.harness import SMALL, World, Writer

NAMES = [f"s/t/{n}.#epoch.0" for n in range(4)]
LIMITS = replace(SMALL, containers=1, flush=replace(SMALL.flush, interval_seconds=1000, trigger_bytes=1 << 40))


def counted(container):
    """Bytes and number of the blocks that no chunk holds, counted one by one."""
    blocks = [block for segment in container.state.segments.values() for block in segment.tail if block.chunk is None]
    return sum(block.length for block in blocks), len(blocks)


class History:
    """Random changes of a few segments, with checkpoints and crashes."""

    def __init__(self, seed, store, world):
        self.rnd, self.store, self.world = random.Random(seed), store, world
        self.number = 0

    @property
    def container(self):
        return self.store.container(NAMES[0])

    @property
    def flusher(self):
        return self.store.opened()[0].flusher

    async def append(self, name):
        writer = Writer(self.store, name)
        last = await writer.set_up()
        number = 0 if last == NULL_ATTRIBUTE_VALUE else last
        for _ in range(self.rnd.randint(1, 3)):
            number += 1
            writer.append(self.rnd.randbytes(self.rnd.choice((0, 1, 50, 150, 700))), number)
        await writer.wait_for_replies()
        writer.session.close()

    async def change(self, name):
        state = self.container.state
        segment = state.names.get(name)
        length = segment.length if segment is not None else 0
        what = self.rnd.choice(("create", "append", "append", "append", "truncate", "delete", "merge", "seal"))
        if what == "create":
            await self.container.create(name)
        elif what == "append":
            await self.append(name)
        elif what == "truncate":
            await self.container.truncate(name, self.rnd.randint(0, length))
        elif what == "delete":
            await self.container.delete(name)
        elif what == "merge":
            await self.container.merge(self.rnd.choice(NAMES), name)
        else:
            await self.container.seal(name)

    async def step(self):
        with contextlib.suppress(SaritError):
            await self.change(self.rnd.choice(NAMES))
        luck = self.rnd.random()
        if luck < 0.2:
            changing = asyncio.ensure_future(asyncio.gather(*map(self.change, NAMES), return_exceptions=True))
            await self.flusher.checkpoint()
            await changing
        elif luck < 0.25:
            self.store = await self.world.crash(self.store)
        await self.container.group_commit.wait_durable()


@pytest.mark.parametrize("seed", range(12))
def test_dirty_bytes_match_the_blocks_of_random_operations(seed):
    async def main():
        world = World(limits=LIMITS)
        history = History(seed, await world.start(), world)
        for _ in range(60):
            await history.step()
            state = history.container.state
            assert (state.dirty.append_bytes, state.dirty.append_blocks) == counted(history.container)
            state.dirty.check()
        while await history.flusher.checkpoint():
            pass
        assert history.container.state.dirty.charged_bytes == 0
        assert history.store.budget.charged_bytes == 0
        await history.store.stop()

    asyncio.run(main())


def test_small_appends_are_throttled_by_charged_memory():
    """The limit was on payload alone: with appends of 100 bytes, memory held seven times as much."""

    async def main():
        world = World(limits=replace(LIMITS, max_dirty_bytes=100_000))
        store = await world.start()
        await store.container(NAMES[0]).create(NAMES[0])
        await store.opened()[0].flusher.checkpoint()
        writer = Writer(store, NAMES[0])
        await writer.set_up()
        for number in range(1, 501):
            writer.append(b"x" * 100, number)
        taken = 500 - store.container(NAMES[0]).throttled
        assert taken == -(-100_000 // (100 + BLOCK_OVERHEAD_BYTES))
        assert store.container(NAMES[0]).state.dirty.append_bytes == taken * 100, "by which flushing goes"
        while store.container(NAMES[0]).throttled:
            await writer.wait_for_replies()
            await store.opened()[0].flusher.checkpoint()
        assert len((await writer.wait_for_replies()).acknowledgements) == 500
        await store.stop()

    asyncio.run(main())
