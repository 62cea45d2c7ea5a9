"""A damaged or unknown record of the index: its segment cannot be read, and the container serves everything else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sarit.core.errors import Corrupt, NotFound
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.store.container.recovery import aside_range
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import SMALL, World, Writer, read_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.store.store import SegmentStore

NAME, OTHER = "a/b/0.#epoch.0", "a/b/1.#epoch.0"


async def _written(world: World, sizes: tuple[int, ...] = (500, 50, 500)) -> SegmentStore:
    """A store with two segments that have an extent for each size; small ones are inlined."""
    store = await world.start()
    (opened,) = store.opened()
    for name in (NAME, OTHER):
        await opened.container.create(name)
        writer = Writer(store, name)
        await writer.set_up()
        for number, size in enumerate(sizes, 1):
            writer.append(bytes((number,)) * size, number)
            await writer.wait_for_replies()
            await opened.flusher.checkpoint()
        writer.session.close()
    return store


def _run(main: Callable[[World], Awaitable[None]]) -> None:
    world = World(limits=replace(SMALL, containers=1, flush=replace(SMALL.flush, interval_seconds=1000)))
    asyncio.run(main(world))


async def _flush(store: SegmentStore) -> None:
    (opened,) = store.opened()
    await opened.container.group_commit.wait_durable()
    await opened.flusher.checkpoint()
    await opened.flusher.garbage.collect()
    assert opened.container.failure is None


def _unknown_version(world: World, key: bytes) -> None:
    """The record is of a format to come; its checksum is right."""
    world.indexes.change(0, key, lambda value: bytes((99,)) + value[1:])


DAMAGED = [
    pytest.param(keys.extent_key(1, 0), lambda world, key: world.indexes.flip(0, key, 50), id="extent-flipped"),
    pytest.param(keys.inlined_key(1, 500), lambda world, key: world.indexes.flip(0, key, 50), id="inlined-flipped"),
    pytest.param(keys.extent_key(1, 0), _unknown_version, id="extent-of-unknown-version"),
]


@pytest.mark.parametrize(("key", "damage"), DAMAGED)
def test_a_segment_with_an_unreadable_extent_is_deleted_and_the_container_serves(key, damage) -> None:
    """The checkpoint of the deletion failed, and so did each recovery after it."""

    async def main(world: World) -> None:
        store = await world.crash(await _written(world))
        whole = await read_all(store, OTHER)
        damage(world, key)
        with pytest.raises(Corrupt):
            await read_all(store, NAME)
        assert await read_all(store, OTHER) == whole
        await store.container(NAME).delete(NAME)
        await _flush(store)
        store = await world.crash(store)
        with pytest.raises(NotFound):
            await store.reads(NAME).find(NAME)
        assert await read_all(store, OTHER) == whole
        await store.container(NAME).create(NAME)
        assert await read_all(store, NAME) == b""
        left = [row for row in world.indexes.snapshot(0) if row[1:9] == (1).to_bytes(8, "big")]
        assert not left, "its other records and its readable chunks are gone"
        assert len(world.storage.chunks) == 2 + (key[:1] == keys.EXTENT), "the chunk of the unreadable one stays"
        await store.stop()

    _run(main)


@pytest.mark.parametrize(("key", "damage"), DAMAGED)
def test_a_truncation_drops_an_unreadable_extent_and_no_chunk_that_it_may_name(key, damage) -> None:
    async def main(world: World) -> None:
        store = await _written(world)
        whole = await read_all(store, NAME)
        store = await world.crash(store)
        damage(world, key)
        await store.container(NAME).truncate(NAME, 200)
        await _flush(store)
        with pytest.raises(Corrupt):
            await read_all(store, NAME)
        await store.container(NAME).truncate(NAME, 550)
        await _flush(store)
        # An inlined extent names none.
        assert len(world.storage.chunks) == 4 - (key[:1] == keys.INLINED)
        assert await read_all(store, NAME) == whole[550:], "the damage is below its start"
        store = await world.crash(store)
        assert await read_all(store, NAME) == whole[550:]
        await store.stop()

    _run(main)


def test_a_damaged_garbage_record_deletes_nothing_and_the_others_are_collected() -> None:
    """Its key may be damaged, too: a flipped digit names a chunk in use."""

    async def main(world: World) -> None:
        store = await _written(world)
        (opened,) = store.opened()
        names = sorted(world.storage.chunks)
        for number in (90, 95):
            world.storage.chunks[f"c0/x/{number}-s1-0"] = b""
            garbage = {keys.garbage_key(f"c0/x/{number}-s1-0"): b"", keys.garbage_key(names[0]): b""}
            await opened.container.index.commit(WriteBatch(garbage))
        world.indexes.flip(0, keys.garbage_key(names[0]), 3)
        for _ in range(3):
            await opened.flusher.garbage.collect()
        assert sorted(world.storage.chunks) == names
        assert keys.garbage_key(names[0]) in world.indexes.snapshot(0)
        await store.stop()

    _run(main)


def test_a_table_with_a_damaged_entry_takes_other_changes() -> None:
    """The checkpoint that replaces an entry reads the old one."""

    async def main(world: World) -> None:
        store = await world.start()
        tables = store.tables(NAME)
        await tables.create(NAME, 0)
        await tables.update(NAME, [(b"one", b"1", NO_VERSION), (b"two", b"2", NO_VERSION)])
        await _flush(store)
        await tables.update(NAME, [(b"one", b"new", NO_VERSION), (b"two", b"new", NO_VERSION)])
        world.indexes.flip(0, keys.entry_key(1, b"one"), 80)
        store.opened()[0].container.metadata.entries.drop(1, b"one")
        await _flush(store)
        store = await world.crash(store)
        values = [entry.value for entry in await store.tables(NAME).get(NAME, [b"one", b"two"])]
        assert values == [b"new", b"new"]
        world.indexes.flip(0, keys.entry_key(1, b"one"), 80)
        store = await world.crash(store)
        with pytest.raises(Corrupt, match="the entry with key 6f6e65 of table segment 1 is damaged"):
            await store.tables(NAME).get(NAME, [b"one"])
        assert (await store.tables(NAME).get(NAME, [b"two"]))[0].value == b"new"
        await store.stop()

    _run(main)


@pytest.mark.parametrize("name", ["frame", "next-segment", "chunk-sequence", "settled-from", "epoch"])
@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_container_without_a_value_of_its_checkpoint_does_not_open(name, how) -> None:
    """To take the frame for 0 would apply old frames again, on what they made."""

    async def main(world: World) -> None:
        store = await _written(world)
        await store.stop()
        key = keys.meta_key(name)
        if how == "damaged":
            world.indexes.flip(0, key, 40)
        else:
            world.indexes.drop(0, key)
        with pytest.raises(Corrupt, match=name):
            await world.start()

    _run(main)


def test_a_damaged_attribute_is_an_error_for_its_writer_alone() -> None:
    async def main(world: World) -> None:
        store = await world.crash(await _written(world))
        world.indexes.flip(0, keys.attribute_key(1, b"w" * 16), 40)
        with pytest.raises(Corrupt, match="attribute 7777.* of segment 1 is damaged"):
            await Writer(store, NAME).set_up()
        writer = Writer(store, NAME, b"v" * 16)
        await writer.set_up()
        writer.append(b"more", 1)
        assert len((await writer.wait_for_replies()).acknowledgements) == 1
        await store.stop()

    _run(main)


def _flip(world: World, key: bytes) -> None:
    world.indexes.flip(0, key, 50)


def _lose(world: World, key: bytes) -> None:
    world.indexes.drop(0, key)


@pytest.mark.parametrize(
    ("damage", "flushed"),
    [(_flip, True), (_flip, False), (_unknown_version, True), (_unknown_version, False), (_lose, True)],
)
def test_a_segment_whose_record_cannot_be_read_is_unreadable_and_can_be_deleted(damage, flushed) -> None:
    async def main(world: World) -> None:
        store = await world.crash(await _written(world))
        whole = await read_all(store, OTHER)
        store = await world.crash(store)
        damage(world, keys.segment_key(1))
        for call in (store.reads(NAME).find(NAME), Writer(store, NAME).set_up(), store.container(NAME).seal(NAME)):
            with pytest.raises(Corrupt):
                await call
        await store.container(NAME).delete(NAME)
        with pytest.raises(NotFound):
            await store.container(NAME).delete(NAME)
        if flushed:
            await _flush(store)
        store = await world.crash(store)
        with pytest.raises(NotFound):
            await store.reads(NAME).find(NAME)
        await _flush(store)
        assert await read_all(store, OTHER) == whole
        left = [row for row in world.indexes.snapshot(0) if row[1:9] == (1).to_bytes(8, "big") or b"set-aside" in row]
        assert not left
        assert keys.name_key(NAME) not in world.indexes.snapshot(0)
        assert len(world.storage.chunks) == 2, "its chunks are deleted"
        await store.container(NAME).create(NAME)
        await store.stop()

    _run(main)


def test_a_log_that_changes_a_segment_without_a_record_is_refused() -> None:
    async def main(world: World) -> None:
        store = await world.crash(await _written(world))
        await store.container(NAME).delete(NAME)
        _lose(world, keys.segment_key(1))
        with pytest.raises(Corrupt, match="the log changes segment 1, and the index has no record of it"):
            await world.crash(store)

    _run(main)


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        (keys.meta_key("transient/" + NAME + "#transient.x"), lambda world, key: world.indexes.flip(0, key, 5)),
        (aside_range(2)[0], lambda world, key: world.indexes.flip(0, key, 5)),
        (keys.garbage_key("c0/a"), lambda world, key: world.indexes.flip(0, key, 5)),
        (keys.version_key(2, 7), lambda world, key: world.indexes.flip(0, key, 5)),
    ],
    ids=["transient", "set-aside", "garbage", "version"],
)
def test_other_damaged_records_do_not_keep_a_container_away(key, damage) -> None:
    async def main(world: World) -> None:
        store = await _written(world)
        (opened,) = store.opened()
        await opened.container.index.commit(WriteBatch({key: b""}))
        damage(world, key)
        store = await world.crash(store)
        await read_all(store, NAME)
        await _flush(store)
        await store.stop()

    _run(main)
