"""The orphan sweep deletes chunks that no commit of any epoch referenced, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.index import keys
from sarit.log.memory import MemoryLogProvider
from sarit.storage.names import epoch_prefix
from sarit.store.limits import MAX_CHUNK_DELETIONS_IN_FLIGHT
from sarit.store.store import StartPolicy
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, Writer, read_all

NAME = "a/b/0.#epoch.0"


async def _write(store, count: int) -> None:
    writer = Writer(store, NAME)
    last = max(await writer.set_up(), 0)
    (opened,) = store.opened()
    for number in range(last + 1, last + 1 + count):
        writer.append(b"x" * 500, number)
        await writer.wait_for_replies()
        await opened.flusher.checkpoint()
    writer.session.close()


def _world() -> World:
    return World(limits=replace(SMALL, containers=1, flush=replace(SMALL.flush, interval_seconds=1000)))


def _orphan(world: World, epoch: int, sequence: int) -> str:
    name = f"{epoch_prefix(0, epoch)}/{sequence:012d}-s1-0"
    world.storage.chunks[name] = b"never committed"
    return name


def test_failed_sweep_is_retried_by_later_epoch() -> None:
    """They leaked once a later epoch's commits had passed their numbers (simulation seed 1247284)."""

    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        await _write(store, 2)
        first = store.container(NAME).log.epoch
        orphans = [_orphan(world, first, 3)]
        world.storage.faults.unavailable = True
        store = await world.crash(store)
        await asyncio.sleep(0.01)  # the sweep finds storage unavailable
        world.storage.faults.unavailable = False
        await _write(store, 6)
        orphans.append(_orphan(world, first + 1, 99))
        whole = await read_all(store, NAME)
        store = await world.crash(store)
        (opened,) = store.opened()
        await opened.orphan_sweep.run()
        assert not set(orphans) & set(world.storage.chunks)
        assert len(world.storage.chunks) == 8
        assert await read_all(store, NAME) == whole
        rows = world.indexes.snapshot(0)
        assert not [key for key in rows if key.startswith(keys.meta_key("settled/"))], (
            "rows of swept epochs are deleted"
        )
        await store.stop()

    asyncio.run(main())


def test_sweep_deletes_nothing_of_an_epoch_whose_resolved_number_is_lost() -> None:
    """A record whose key is damaged is not found, and the epoch seems to have committed nothing."""

    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        await _write(store, 3)
        for key in world.indexes.snapshot(0):
            if key.startswith(keys.meta_key("settled/")):
                world.indexes.drop(0, key)
        orphan = _orphan(world, store.container(NAME).log.epoch, 4)
        whole = await read_all(store, NAME)
        store = await world.crash(store)
        (opened,) = store.opened()
        with pytest.raises(Corrupt, match="records of the index are lost"):
            await opened.orphan_sweep.run()
        assert orphan in world.storage.chunks
        assert len(world.storage.chunks) == 4
        assert await read_all(store, NAME) == whole
        await store.stop()

    asyncio.run(main())


def test_sweep_deletes_nothing_while_an_extent_cannot_be_read() -> None:
    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        await _write(store, 3)
        orphan = _orphan(world, store.container(NAME).log.epoch, 4)
        key = keys.extent_key(1, 500)
        world.indexes.flip(0, key, 40)
        store = await world.crash(store)
        (opened,) = store.opened()
        with pytest.raises(Corrupt, match="the extent at offset 500 of segment 1 is damaged"):
            await opened.orphan_sweep.run()
        assert orphan in world.storage.chunks
        world.indexes.flip(0, key, 40)
        assert await opened.orphan_sweep.run() == 1
        assert orphan not in world.storage.chunks
        await store.stop()

    asyncio.run(main())


def test_sweep_spares_chunks_after_epochs_restart_with_lost_log() -> None:
    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        for _ in range(4):
            await _write(store, 2)
            store = await world.crash(store)
            await asyncio.sleep(0.01)
        whole = await read_all(store, NAME)
        await store.stop()
        world.logs = MemoryLogProvider()
        store = await world.start(StartPolicy(accept_data_loss=True))
        for _ in range(6):
            assert await read_all(store, NAME) == whole
            store = await world.crash(store)
            await asyncio.sleep(0.01)
        await store.stop()

    asyncio.run(main())


def test_sweep_deletes_chunks_of_epochs_before_first_checkpoint() -> None:
    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        orphan = _orphan(world, store.container(NAME).log.epoch, 1)
        world.storage.faults.unavailable = True
        store = await world.crash(store)
        await asyncio.sleep(0.01)  # the sweep finds storage unavailable
        world.storage.faults.unavailable = False
        await _write(store, 3)
        whole = await read_all(store, NAME)
        store = await world.crash(store)
        await asyncio.sleep(0.05)
        assert orphan not in world.storage.chunks
        assert await read_all(store, NAME) == whole
        await store.stop()

    asyncio.run(main())


def test_second_sweep_deletes_late_chunks() -> None:
    """A write that was in flight when its owner was lost (simulation seed 3070775388)."""

    async def main() -> None:
        world = _world()
        world.limits = replace(world.limits, late_writes_seconds=0.1)
        store = await world.start()
        await store.container(NAME).create(NAME)
        await _write(store, 2)
        lost = store.container(NAME).log.epoch
        store = await world.crash(store)
        swept = keys.meta_key("swept-epoch")
        await asyncio.sleep(0.02)  # the first sweep
        late = _orphan(world, lost, 99)
        assert swept not in world.indexes.snapshot(0)
        async with asyncio.timeout(HANG_SECONDS):
            while swept not in world.indexes.snapshot(0):
                await asyncio.sleep(0.01)
        assert late not in world.storage.chunks
        await store.stop()

    asyncio.run(main())


def test_compaction_cancelled_on_stop_leaves_no_chunk(monkeypatch) -> None:
    """The last checkpoint resolved the number of its chunk, so no sweep deleted it (simulation seed 3070775388)."""

    async def main() -> None:
        world = _world()
        world.limits = replace(world.limits, flush=replace(world.limits.flush, interval_seconds=0.01))
        monkeypatch.setattr("sarit.store.store.LAST_CHECKPOINT_TIMEOUT_SECONDS", 0.1)
        store = await world.start()
        await store.container(NAME).create(NAME)
        (opened,) = store.opened()
        compacting = asyncio.Event()

        async def compact(next_name) -> None:
            segment = await opened.container.metadata.require(NAME)
            name, _ = next_name([(segment, 0)])
            await world.storage.write(name, [b"joined"])
            compacting.set()
            await asyncio.sleep(1000)

        monkeypatch.setattr(opened.flusher.compactor, "run", compact)
        writer = Writer(store, NAME)
        await writer.set_up()
        writer.append(b"x" * 500, 1)
        await writer.wait_for_replies()
        await compacting.wait()
        writer.append(b"x" * 500, 2)
        await writer.wait_for_replies()
        writer.session.close()
        await store.stop()
        store = await world.start()
        await asyncio.sleep(0.05)
        assert b"joined" not in world.storage.chunks.values()
        assert await read_all(store, NAME) == b"x" * 1000
        await store.stop()

    asyncio.run(main())


def test_undeletable_orphan_does_not_block_others(monkeypatch, caplog) -> None:
    """The failure is logged once, and the orphan deleted once that succeeds."""
    monkeypatch.setattr("sarit.store.hosting.hosted_container.ORPHAN_SWEEP_RETRY_SECONDS", 0.01)

    async def main():
        world = _world()
        store = await world.start()
        epoch = store.container(NAME).log.epoch
        orphans = [_orphan(world, epoch, number) for number in range(1, 5)]
        tries, delete = [], world.storage.delete
        gone = asyncio.Event()

        async def all_but_one(name):
            if name == orphans[1] and len(tries) < 5:
                tries.append(name)
                raise Unavailable("Operation not permitted")
            await delete(name)
            if name == orphans[1]:
                gone.set()

        world.storage.delete = all_but_one
        store = await world.crash(store)
        while len(tries) < 3:
            await asyncio.sleep(0)
        assert list(world.storage.chunks) == [orphans[1]]
        await asyncio.wait_for(gone.wait(), HANG_SECONDS)
        assert sum("Operation not permitted" in line for line in caplog.messages) == 1
        await store.stop()

    asyncio.run(main())


def test_concurrent_sweeps_spare_committed_chunks() -> None:
    """One sweep deletes the resolved numbers of the epochs before the other has read them."""

    async def main():
        world = _world()
        world.limits = replace(world.limits, late_writes_seconds=1000)
        store = await world.start()
        await store.container(NAME).create(NAME)
        for _ in range(3):
            await _write(store, 2)
            store = await world.crash(store)
        (opened,) = store.opened()
        committed = set(world.storage.chunks)
        assert len(committed) == 6
        listing, go_on, everything = asyncio.Event(), asyncio.Event(), world.storage.list

        async def slowly(prefix):
            if not listing.is_set():
                listing.set()
                await go_on.wait()
            async for found in everything(prefix):
                yield found

        world.storage.list = slowly
        first = asyncio.ensure_future(opened.orphan_sweep.run())
        await listing.wait()
        second = asyncio.ensure_future(opened.orphan_sweep.run())
        for _ in range(100):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, second)
        assert set(world.storage.chunks) == committed
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("part", ["flush", "compaction"])
def test_late_chunk_of_failed_write_is_swept_at_next_start(part, monkeypatch) -> None:
    """Its garbage record had been deleted before the chunk appeared."""
    monkeypatch.setattr("sarit.store.tiering.flusher.CHUNK_RETRY_SECONDS", 0.0)

    async def main():
        world = _world()
        world.limits = replace(world.limits, flush=replace(world.limits.flush, small_extent_bytes=10_000))
        store = await world.start()
        await store.container(NAME).create(NAME)
        (opened,) = store.opened()
        write, failed = world.storage.write, []

        async def failing(name, parts, limiter=None, observe=None):
            if not failed:
                failed.append(name)
                raise Unavailable("timed out")
            await write(name, parts, limiter, observe)

        if part == "flush":
            world.storage.write = failing
        await _write(store, 9)
        world.storage.write = failing
        await opened.flusher._compact()
        await _write(store, 1)
        await opened.flusher.garbage.collect()
        world.storage.chunks[failed[0]] = b"late"
        store = await world.crash(store)
        (opened,) = store.opened()
        await opened.orphan_sweep.run()
        assert failed[0] not in world.storage.chunks
        assert await read_all(store, NAME) == b"x" * 5000
        prefix = keys.meta_key("failed/")
        assert not [key for key in world.indexes.snapshot(0) if key.startswith(prefix)], (
            "rows of swept epochs are deleted"
        )
        await store.stop()

    asyncio.run(main())


def test_orphan_deletions_in_flight_are_bounded() -> None:
    """One by one, each queued after chunks of a long flush, they took minutes (simulation seed 91033212)."""

    async def main() -> None:
        world = _world()
        store = await world.start()
        await store.container(NAME).create(NAME)
        await _write(store, 1)
        first = store.container(NAME).log.epoch
        orphans = {_orphan(world, first, 99 + number) for number in range(2 * MAX_CHUNK_DELETIONS_IN_FLIGHT + 1)}
        under_way, most, delete = 0, 0, world.storage.delete

        async def slowly(name):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            await delete(name)
            under_way -= 1

        world.storage.delete = slowly
        store = await world.crash(store)
        (opened,) = store.opened()
        await opened.orphan_sweep.run()
        assert not orphans & set(world.storage.chunks)
        assert most == MAX_CHUNK_DELETIONS_IN_FLIGHT
        await store.stop()

    asyncio.run(main())
