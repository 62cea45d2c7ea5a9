"""Control operations wait at the control limit; those that free memory never do."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.log.local import LocalLogProvider
from sarit.store.flow_control import control_limit
from sarit.store.limits import BLOCK_OVERHEAD_BYTES
from sarit.store.store import SegmentStore
from sarit.wire.limits import NO_VERSION
from tests.unit.log.world import Machine, simulate
from tests.unit.store.harness import SMALL, World, Writer

NAME, TABLE, SYSTEM = "s/t/0.#epoch.0", "s/_kvtables/t", "_system/_tables/s"
BOUND = 100_000
FILE_BYTES = 64 * 1024
LIMITS = replace(
    SMALL,
    containers=1,
    max_dirty_bytes=BOUND,
    flush=replace(SMALL.flush, interval_seconds=1000, trigger_bytes=1 << 40),
)
VALUE = b"v" * 1000


@asynccontextmanager
async def serving():
    """A store with a segment and two tables, all of them in the index."""
    world = World(limits=LIMITS)
    store = await world.start()
    await store.container(NAME).create(NAME)
    for table in (TABLE, SYSTEM):
        await store.tables(table).create(table, 0)
    await store.opened()[0].flusher.checkpoint()
    assert store.budget.charged_bytes == 0
    yield world, store
    await store.stop()


def put(store, table, key=b"k", value=VALUE):
    return store.tables(table).update(table, [(key, value, NO_VERSION)])


async def free_memory(store):
    await store.opened()[0].flusher.checkpoint()


CHANGES = {
    "table": lambda store: put(store, TABLE),
    "creation": lambda store: store.container("s/t/1.#epoch.0").create("s/t/1.#epoch.0"),
    "table's creation": lambda store: store.tables("s/_kvtables/u").create("s/_kvtables/u", 0),
    "attribute": lambda store: store.container(NAME).update_attribute(NAME, b"a" * 16, 7, NO_VERSION),
}


def test_table_updates_wait_at_the_control_limit_until_a_checkpoint_covers_them():
    async def main():
        async with serving() as (_, store):
            updates = [asyncio.ensure_future(put(store, TABLE, b"the same key")) for _ in range(10)]
            await asyncio.gather(*updates)
            each = store.budget.charged_bytes // 10
            assert len(VALUE) + BLOCK_OVERHEAD_BYTES < each < len(VALUE) + BLOCK_OVERHEAD_BYTES + 100
            done = 10
            while store.budget.charged_bytes < BOUND * 5 // 4:
                await put(store, TABLE, b"the same key")
                done += 1
            assert done == -(-BOUND * 5 // 4 // each)
            waiting = asyncio.ensure_future(put(store, TABLE, b"the same key"))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await free_memory(store)
            await waiting
            assert store.budget.charged_bytes == each, "the charge of the last one"

    asyncio.run(main())


@pytest.mark.parametrize("change", CHANGES)
def test_control_operations_continue_for_a_quarter_above_the_append_limit(change):
    async def main():
        async with serving() as (_, store):
            writer = Writer(store, NAME)
            await writer.set_up()
            number = 0
            while not store.budget.over_append_limit:
                number += 1
                writer.append(VALUE, number)
            await CHANGES[change](store)
            await store.container(NAME).set_policy(NAME, 0, 0)
            store.opened()[0].container.state.dirty.add_operation(BOUND // 4)
            await store.container(NAME).set_policy(NAME, 0, 0)  # it never waits, and it reports to the budget
            assert store.budget.over_control_limit
            await put(store, SYSTEM)
            waiting = asyncio.ensure_future(put(store, TABLE))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await store.container(NAME).truncate(NAME, 1)
            await store.container(NAME).seal(NAME)
            await store.container(NAME).delete(NAME)
            assert not waiting.done()
            store.opened()[0].container.state.dirty.add_operation(-(BOUND // 4))
            await free_memory(store)
            await waiting

    asyncio.run(main())


@pytest.mark.parametrize("change", CHANGES)
def test_control_operation_that_waits_too_long_raises_unavailable(change, monkeypatch):
    async def main():
        async with serving() as (_, store):
            state = store.opened()[0].container.state
            state.dirty.add_operation(2 * BOUND)
            await store.container(NAME).set_policy(NAME, 0, 0)
            monkeypatch.setattr(control_limit, "CONTROL_LIMIT_TIMEOUT_SECONDS", 0.05)
            waiting = asyncio.ensure_future(CHANGES[change](store))
            with pytest.raises(Unavailable, match="wait for memory or disk space"):
                await waiting
            state.dirty.add_operation(-2 * BOUND)
            await free_memory(store)
            await CHANGES[change](store)

    asyncio.run(main())


def test_disk_filled_by_table_updates_is_freed_by_a_checkpoint():
    """They were accepted until the log failed for lack of a file, and for the same reason it could not be opened
    again."""

    async def main():
        machine = Machine(1, capacity_bytes=12 * FILE_BYTES)
        world = World(limits=replace(LIMITS, max_dirty_bytes=1 << 40, disk_reserve_bytes=0))
        env = machine.env()
        logs = LocalLogProvider(env, "/log", FILE_BYTES)
        store = SegmentStore(env, logs, world.indexes, world.storage, world.limits)
        await store.start()
        await store.tables(TABLE).create(TABLE, 0)
        await store.tables(SYSTEM).create(SYSTEM, 0)
        epoch = store.opened()[0].container.log.epoch
        done = 0
        with pytest.raises(Unavailable, match="wait for memory or disk space"):
            while True:
                await put(store, TABLE, value=b"%d" % done + VALUE)
                done += 1
        assert machine.disk.used_bytes() > 11 * FILE_BYTES
        await put(store, SYSTEM)
        assert store.container(TABLE).log.epoch == epoch, "the log did not fail"
        waiting = asyncio.ensure_future(put(store, TABLE, value=b"at last"))
        await asyncio.sleep(1)
        assert not waiting.done()
        await free_memory(store)
        await waiting
        (entry,) = await store.tables(TABLE).get(TABLE, [b"k"])
        assert entry.value == b"at last"
        await store.stop()

    simulate(main)


def test_charge_is_the_same_after_a_crash():
    async def main():
        async with serving() as (world, store):
            for number in range(20):
                await put(store, TABLE, b"%d" % number)
            await store.container(NAME).seal(NAME)
            charged = store.budget.charged_bytes
            assert charged > 20 * (len(VALUE) + BLOCK_OVERHEAD_BYTES)
            again = await world.crash(store)
            assert again.budget.charged_bytes == charged
            await free_memory(again)
            assert again.budget.charged_bytes == 0
            await again.stop()

    asyncio.run(main())


def test_changes_during_a_checkpoint_are_covered_by_the_next_one():
    async def main():
        async with serving() as (world, store):
            writer = Writer(store, NAME)
            await writer.set_up()
            writer.append(VALUE, 1)
            await put(store, TABLE)
            write = world.storage.write

            async def meanwhile(*arguments):
                world.storage.write = write
                await put(store, TABLE, b"other")
                await write(*arguments)

            world.storage.write = meanwhile
            await free_memory(store)
            assert (
                len(VALUE) + BLOCK_OVERHEAD_BYTES < store.budget.charged_bytes < 2 * len(VALUE) + BLOCK_OVERHEAD_BYTES
            )
            await free_memory(store)
            assert store.budget.charged_bytes == 0

    asyncio.run(main())
