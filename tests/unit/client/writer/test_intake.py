"""How much a writer batches before it checks its bound and before it sends."""

import asyncio

import pytest

from tests.unit.client.world import on_loop, until


@on_loop
async def test_small_buffer_makes_a_small_intake(world) -> None:
    world.controller.create("s/t")
    full = []
    for buffer_bytes, events in ((0, 65), (100 * 1024, 101), (1 << 25, 513)):
        writer = world.client.writer("s/t", buffer_bytes=buffer_bytes)
        writer.bind_foreign_thread(lambda: None, lambda: full.append(True), lambda: None)
        for number in range(events):
            assert not full, number
            writer.write(bytes(1024 - 8))
        assert full.pop()
        assert writer.pending_bytes() == events * 1024
        writer.bind_foreign_thread(writer.dispatch_soon, writer._dispatch_full, lambda: None)
        await writer.flush()
        await writer.close()


@pytest.mark.parametrize(("segments", "at_once"), [(1, 1), (2, 2)])
def test_second_block_is_batched_with_one_segment_only(segments: int, at_once: int) -> None:
    @on_loop
    async def check(world) -> None:
        world.controller.create("s/t", segments)
        writer = world.client.writer("s/t")
        writer.write(b"warm", "a key")
        await writer.flush()
        world.store.mute.update(world.store.segments)
        before = world.store.appends
        for size in (1000, 10):
            writer.write(b"x" * size, "a key")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: world.store.appends >= before + at_once)
        for _ in range(10):
            await asyncio.sleep(0.001)  # what else is on its way comes: nothing
        assert world.store.appends == before + at_once
        world.store.speak()
        await writer.close()
        assert world.store.appends == before + 2

    check()
