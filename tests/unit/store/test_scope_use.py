"""What scopes use: bytes of everything whose name is theirs, and the tables that clients made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.store.metering import scope_use as module
from sarit.store.metering.scope_use import scope_use
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import SMALL, World, Writer

if TYPE_CHECKING:
    from sarit.store.store import SegmentStore

BY_HAND = replace(SMALL, containers=2, flush=FlushLimits(interval_seconds=1000, inline_below_bytes=10))
STREAM, OTHER = "s/t/0.#epoch.0", "s2/t/0.#epoch.0"
TRANSACTION = f"{STREAM}#transaction.{'a' * 32}"
GROUP, TABLE = "s/g_kvtable/0.#epoch.0", "s/t_kvtable/0.#epoch.0"
HEADER = 17


async def write(store: SegmentStore, name: str, data: bytes) -> None:
    await store.container(name).create(name)
    writer = Writer(store, name)
    await writer.set_up()
    writer.append(data, 1)
    await writer.wait_for_replies()


async def flush(store: SegmentStore) -> None:
    for opened in store.opened():
        await opened.flusher.checkpoint()


async def used(store: SegmentStore, scope: str = "s") -> tuple[int, int, int]:
    use = await scope_use(store, scope)
    return use.bytes, use.tables, use.containers


def test_bytes_of_all_segments_of_a_scope_are_counted(monkeypatch):
    monkeypatch.setattr(module, "_NAMES_PER_PAGE", 2)

    async def main() -> None:
        world = World(BY_HAND)
        store = await world.start()
        assert await used(store) == (0, 0, 2)
        await write(store, STREAM, b"x" * 100)
        await write(store, TRANSACTION, b"x" * 20)
        await write(store, OTHER, b"x" * 1000)
        for number in range(1, 6):
            await write(store, f"s/t/{number}.#epoch.0", b"x" * 10)
        assert await used(store) == (170, 0, 2)
        await flush(store)
        await store.container(STREAM).truncate(STREAM, 30)
        await store.container(TRANSACTION).delete(TRANSACTION)
        assert await used(store) == (120, 0, 2)
        store = await world.crash(store)
        assert await used(store) == (120, 0, 2)
        await flush(store)
        store = await world.crash(store)
        assert not any(container.state.segments for container in store.serving()), "in the index alone"
        assert (await used(store), await used(store, "s2"), await used(store, "s3")) == (
            (120, 0, 2), (1000, 0, 2), (0, 0, 2)
        )  # fmt: skip
        assert not any(container.state.segments for container in store.serving()), "counting loads nothing"
        await store.stop()

    asyncio.run(main())


def test_bytes_of_entries_are_those_that_the_index_holds_at_a_checkpoint():
    async def main() -> None:
        world = World(BY_HAND)
        store = await world.start()
        await store.tables(GROUP).create(GROUP, 0)
        await store.tables(TABLE).create(TABLE, 3)
        assert (await used(store))[1] == 1, "the other is a controller's"

        async def change(name: str, *changes: tuple[bytes, bytes | None]) -> int:
            await store.tables(name).update(name, [(key, value, NO_VERSION) for key, value in changes])
            await flush(store)
            return (await used(store))[0]

        assert await change(GROUP, (b"a", bytes(100)), (b"b", bytes(10))) == 2 * HEADER + 112
        assert await change(TABLE, (b"abc", bytes(50))) == 3 * HEADER + 165
        for size in (1, 20, 30):  # the same key again and again holds no more
            assert await change(GROUP, (b"a", bytes(size))) == 3 * HEADER + 65 + size
        assert await change(GROUP, (b"b", None), (b"a", bytes(5)), (b"a", bytes(6))) == 2 * HEADER + 53 + 7
        store = await world.crash(store)
        assert await used(store) == (2 * HEADER + 60, 1, 2)
        # What comes after the checkpoint is replayed, and counts with the next one.
        await store.tables(GROUP).update(GROUP, [(b"c", bytes(40), NO_VERSION)])
        store = await world.crash(store)
        await flush(store)
        assert await used(store) == (3 * HEADER + 101, 1, 2)
        await store.tables(GROUP).delete(GROUP, must_be_empty=False)
        assert await used(store) == (HEADER + 53, 0, 2)
        await store.stop()

    asyncio.run(main())


def test_entries_of_an_earlier_version_count_as_they_are_replaced():
    async def main() -> None:
        world = World(BY_HAND)
        store = await world.start()
        await store.tables(GROUP).create(GROUP, 0)
        await store.tables(GROUP).update(GROUP, [(b"a", bytes(100), NO_VERSION), (b"b", bytes(1), NO_VERSION)])
        await flush(store)
        store.container(GROUP).state.names[GROUP].entry_bytes = 0  # as its record says
        await store.tables(GROUP).update(GROUP, [(b"a", bytes(1), NO_VERSION)])
        await flush(store)
        assert (await used(store))[0] == 0, "and never less"
        await store.tables(GROUP).update(GROUP, [(b"c", bytes(1), NO_VERSION)])
        await flush(store)
        assert (await used(store))[0] == HEADER + 2
        await store.stop()

    asyncio.run(main())
