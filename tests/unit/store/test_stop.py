"""A stop or an eviction during a checkpoint loses nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.storage.memory import StorageFaults
from sarit.store import store as store_module
from tests.unit.log.world import simulate
from tests.unit.store.harness import SMALL, World, Writer, read_all

SLOW = 0.3


async def _two_segments(world: World):
    store = await world.start()
    for name in ("a/b/0.#epoch.0", "a/b/1.#epoch.0"):
        container = store.container(name)
        if not any(segment.name == name for segment in container.state.segments.values()):
            await container.create(name)
    return store


@pytest.mark.parametrize("timeout", [10.0, 0.05])
def test_stop_during_checkpoint_loses_nothing(timeout, monkeypatch) -> None:
    """The interrupted checkpoint had taken over changes that the last one did not see (simulation seed 17)."""
    monkeypatch.setattr(store_module, "LAST_CHECKPOINT_TIMEOUT_SECONDS", timeout, raising=False)

    async def main() -> None:
        limits = replace(SMALL, containers=1, flush=replace(SMALL.flush, inline_below_bytes=1))
        world = World(limits=limits)
        world.storage.faults = StorageFaults(delay=lambda length: SLOW if length else 0.0)
        first, second = "a/b/0.#epoch.0", "a/b/1.#epoch.0"
        store = await _two_segments(world)
        one, two = Writer(store, first, b"1" * 16), Writer(store, second, b"2" * 16)
        await one.set_up()
        await two.set_up()
        one.append(b"x" * 5000, 1)
        await one.wait_for_replies()
        await asyncio.sleep(SLOW / 2)  # its chunks are being written
        two.append(b"y" * 300, 1)
        await two.wait_for_replies()
        await store.stop()
        world.storage.faults = StorageFaults()
        store = await world.start()
        assert await read_all(store, first) == b"x" * 5000
        assert await read_all(store, second) == b"y" * 300
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("change", ["seal", "truncate"])
def test_change_without_bytes_is_not_evicted_before_commit(change) -> None:
    async def main() -> None:
        flush = replace(SMALL.flush, interval_seconds=1000, trigger_bytes=1 << 30)
        limits = replace(SMALL, containers=1, flush=flush, container=replace(SMALL.container, max_segments=0))
        world = World(limits=limits)
        store = await world.start()
        names = [f"a/b/{number}.#epoch.0" for number in range(8)]
        container = store.container(names[0])
        for name in names:
            await container.create(name)
        writer = Writer(store, names[0])
        await writer.set_up()
        writer.append(b"x" * 100, 1)
        await writer.wait_for_replies()
        writer.session.close()
        (opened,) = store.opened()
        await opened.flusher.checkpoint()
        store.budget.cache_bytes = 0
        container.state.names[names[0]].cached.clear()
        if change == "seal":
            await container.seal(names[0])
        else:
            await container.truncate(names[0], 50)
        container.metadata.evict()
        info = await container.info(names[0])
        assert (info.sealed, info.start_offset) == ((True, 0) if change == "seal" else (False, 50))
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("hurried", [False, True])
def test_stop_of_many_containers_takes_no_longer_than_of_one(hurried) -> None:
    """Long-term storage is unavailable, so no container can be flushed."""

    async def main() -> None:
        world = World(limits=replace(SMALL, containers=4, flush=replace(SMALL.flush, inline_below_bytes=1)))
        store = await world.start()
        names = [name for number in range(40) if (name := f"a/b/{number}.#epoch.0")]
        by_container = {store.container(name).number: name for name in names}
        assert len(by_container) == 4
        world.storage.faults.unavailable = True
        for name in by_container.values():
            await store.container(name).create(name)
            writer = Writer(store, name)
            await writer.set_up()
            writer.append(b"x" * 5000, 1)
            await writer.wait_for_replies()
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        started = loop.time()
        stopping = asyncio.ensure_future(store.stop())
        if hurried:
            await asyncio.sleep(1)
            store.skip_flush()
        await stopping
        # The hurried one takes 1 s, and one after the other would take four times the limit.
        assert loop.time() - started < store_module.LAST_CHECKPOINT_TIMEOUT_SECONDS * (0.5 if hurried else 2)
        world.storage.faults.unavailable = False
        store = await world.start()
        for name in by_container.values():
            assert await read_all(store, name) == b"x" * 5000
        await store.stop()

    simulate(main)


def test_checkpoint_beside_one_in_progress_finds_nothing_to_do() -> None:
    """It went on with the snapshot of the other, and the first to end failed the second."""

    async def main() -> None:
        world = World(limits=replace(SMALL, containers=1))
        store = await world.start()
        container = store.container("a/b/0.#epoch.0")
        await container.create("a/b/0.#epoch.0")
        (opened,) = store.opened()
        assert sorted(await asyncio.gather(opened.flusher.checkpoint(), opened.flusher.checkpoint())) == [False, True]
        assert container.failure is None
        await store.stop()

    asyncio.run(main())
