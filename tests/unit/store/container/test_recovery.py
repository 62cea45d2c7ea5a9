"""Recovery: few rounds of reads of the index, the same state whatever the window, damaged records that stay alone."""

import asyncio
import logging
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt
from sarit.core.names import transaction_segment
from sarit.index import keys
from sarit.index.memory import MemoryIndex
from sarit.store.container.container import ContainerLimits
from sarit.store.container.recovery import OPERATIONS_PER_TURN
from sarit.store.container.segment import AttributeUpdate
from sarit.store.hosting import container_opening as opening_module
from sarit.store.tiering.checkpoint import FlushLimits
from tests.unit.store.harness import SMALL, World, Writer, read_all

# Checkpoints are made by the tests alone.
BY_HAND = replace(
    SMALL,
    containers=1,
    flush=FlushLimits(interval_seconds=3600.0, inline_below_bytes=200),
    container=ContainerLimits(),
)


def name_of(number):
    return f"s/t{number}/0.#epoch.0"


async def append(store, name, data, number, writer=b"w" * 16):
    one = Writer(store, name, writer)
    await one.set_up()
    one.append(data, number)
    assert not (await one.wait_for_replies()).errors


async def checkpoint(store):
    (opened,) = store.opened()
    await opened.flusher.checkpoint()


def counted(monkeypatch):
    """Rounds of reads: calls that begin while another one is under way belong to its round."""
    rounds = []
    under_way = 0

    def counting(right, what):
        async def call(self, *arguments, **options):
            nonlocal under_way
            if not under_way:
                rounds.append(what)
            under_way += 1
            try:
                await asyncio.sleep(0)
                return await right(self, *arguments, **options)
            finally:
                under_way -= 1

        return call

    monkeypatch.setattr(MemoryIndex, "get", counting(MemoryIndex.get, "get"))
    monkeypatch.setattr(MemoryIndex, "scan", counting(MemoryIndex.scan, "scan"))
    return rounds


def test_recovery_of_many_segments_reads_the_index_in_few_rounds(monkeypatch):
    """48,000 segments took 96,000 rounds, and 10 s of processor time."""

    async def main():
        world = World(BY_HAND)
        store = await world.start()
        for number in range(100):
            await store.container("").create(name_of(number))
            await append(store, name_of(number), b"old", 1)
        await checkpoint(store)
        for number in range(100):
            await append(store, name_of(number), b"new", 2)
        for number in range(50, 60):
            await store.container("").merge(name_of(number - 10), name_of(number))
        rounds, of_replay = counted(monkeypatch), []

        async def after_replay(container):
            of_replay.extend(rounds)

        monkeypatch.setattr(opening_module, "delete_transients", after_replay)
        store = await world.crash(store)
        # The checkpoint; the segments of the window.
        assert of_replay.count("get") == 2
        # Segments set aside; extents of the merged segments, all at once, in a scan each for chunks and inlined ones.
        assert of_replay.count("scan") <= 3
        assert await read_all(store, name_of(45)) == b"oldnewoldnew"
        await store.stop()

    asyncio.run(main())


async def everything(store):
    """All of a container's state that recovery makes."""
    (container,) = store.serving()
    segments = {}
    for segment in container.state.segments.values():
        attributes = {key: (one.assigned, one.applied) for key, one in segment.attributes.items()}
        blocks = [(block.offset, block.length, block.chunk) for block in segment.tail]
        state = (segment.created, segment.deleted, segment.sealed, segment.start, segment.length, segment.events)
        table = dict(segment.table.dirty) if segment.table else None
        segments[segment.name, segment.id] = (state, attributes, blocks, segment.merged_into, table)
    return segments, container.state.applied_frame, container.state.dirty.charged_bytes


@pytest.mark.parametrize("window_bytes", [1, 200, 1 << 30])
def test_recovery_gives_the_same_state_whatever_the_window(window_bytes):
    async def main():
        limits = replace(BY_HAND, container=ContainerLimits(recovery_window_bytes=window_bytes))
        world = World(limits)
        store = await world.start()
        container, tables = store.serving()[0], store.tables("")
        a, b, c, d = (name_of(number) for number in range(4))
        other = b"o" * 16
        transaction = transaction_segment(a, 1)
        for name in (a, b, c, transaction):
            await container.create(name)
        await tables.create("s/_t", 0)
        await append(store, a, b"1", 5)
        await append(store, c, b"1" * 300, 5)
        await append(store, transaction, b"2", 7)
        await container.update_attribute(b, other, 4, -(1 << 63))
        await checkpoint(store)
        # In the log alone: changes of what the index has, and segments that are created, merged and deleted.
        await append(store, a, b"3", 6)
        await append(store, a, b"4", 9)
        await append(store, a, b"5", 1, other)
        await container.update_attribute(b, other, 8, 4)
        await container.update_attribute(b, other, 9, 8)
        await container.merge(a, transaction, (AttributeUpdate(b"p" * 16, 1, 3, 0),))
        await container.create(d)
        await append(store, d, b"6", 2)
        await container.merge(a, d)
        await container.delete(b)
        await container.create(b)
        await append(store, b, b"7", 1)
        await container.merge(a, c)
        await tables.update("s/_t", [(b"k", b"v", -(1 << 63))])
        await container.truncate(a, 1)
        await container.seal(a)
        before = await everything(store)
        store = await world.crash(store)
        after = await everything(store)
        # A segment whose writer came back has the number of before in memory, too: compare what the log changed.
        assert after[1:] == before[1:]
        assert {name: one[0] for name, one in after[0].items()} == {name: one[0] for name, one in before[0].items()}
        for name, (_, attributes, blocks, merged_into, table) in after[0].items():
            known = before[0][name]
            assert attributes.items() <= known[1].items()
            assert (blocks, merged_into, table) == (known[2], known[3], known[4])
        assert await read_all(store, a) == b"34526" + b"1" * 300
        await checkpoint(store)
        store = await world.crash(store)
        assert await read_all(store, a) == b"34526" + b"1" * 300
        assert await store.container(a).get_attribute(a, other) == 1
        assert await store.container(a).get_attribute(a, b"w" * 16) == 9
        assert await store.container(b).get_attribute(b, other) == -(1 << 63)
        await store.stop()

    asyncio.run(main())


def test_recovery_of_a_long_frame_lets_others_run():
    async def main():
        world = World(BY_HAND)
        store = await world.start()
        await store.container("").create(name_of(0))
        writer = Writer(store, name_of(0))
        await writer.set_up()
        for number in range(1, 10 * OPERATIONS_PER_TURN + 1):  # in one turn: one frame
            writer.append(b"x", number)
        await writer.wait_for_replies()
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.ensure_future(count())
        store = await world.crash(store)
        counter.cancel()
        assert turns > 3 * 10, "decoding, loading and applying pause every OPERATIONS_PER_TURN"
        assert await store.container("").length(name_of(0)) == 10 * OPERATIONS_PER_TURN
        await store.stop()

    asyncio.run(main())


class Damaged(Corrupt):
    """What an index raises for one damaged record."""

    def __init__(self, key):
        super().__init__(f"record {key.hex()} is damaged")
        self.key = key


def damage(monkeypatch, damaged):
    right = MemoryIndex.get

    async def get(self, asked):
        if damaged in asked:
            raise Damaged(damaged)
        return await right(self, asked)

    monkeypatch.setattr(MemoryIndex, "get", get)


def test_segment_with_a_damaged_record_does_not_stop_the_recovery_of_its_container(monkeypatch, caplog):
    async def main():
        world = World(BY_HAND)
        store = await world.start()
        for number in range(5):
            await store.container("").create(name_of(number))
            await append(store, name_of(number), b"old", 1)
        await checkpoint(store)
        (container,) = store.serving()
        damaged = container.state.names[name_of(2)].id
        for number in range(5):
            await append(store, name_of(number), b"new", 2)
        with monkeypatch.context() as context, caplog.at_level(logging.ERROR):
            damage(context, keys.segment_key(damaged))
            store = await world.crash(store)
            assert f"segment {damaged} is unreadable" in caplog.text
            with pytest.raises(Corrupt):
                await store.container("").info(name_of(2))
            await checkpoint(store)
        # The log is truncated.  The record can be read again, without the bytes of the log: it must not be served so.
        store = await world.crash(store)
        with pytest.raises(Corrupt, match="set aside"):
            await store.container("").info(name_of(2))
        for number in (0, 1, 3, 4):
            assert await read_all(store, name_of(number)) == b"oldnew"
        rows = [key for key in world.indexes.snapshot(0) if key.startswith(keys.meta_key("set-aside/"))]
        assert len(rows) == 1
        assert b"new" in world.indexes.snapshot(0)[rows[0]]
        await store.stop()

    asyncio.run(main())


def test_merge_of_an_unreadable_segment_stops_the_recovery(monkeypatch):
    """The bytes of one would be missing in the other: neither may be served."""

    async def main():
        world = World(BY_HAND)
        store = await world.start()
        for number in range(2):
            await store.container("").create(name_of(number))
            await append(store, name_of(number), b"old", 1)
        await checkpoint(store)
        source = store.serving()[0].state.names[name_of(1)].id
        await store.container("").merge(name_of(0), name_of(1))
        with monkeypatch.context() as context:
            damage(context, keys.segment_key(source))
            with pytest.raises(Corrupt, match="the log merges segment"):
                await world.crash(store)
        store = await world.crash(store)
        assert await read_all(store, name_of(0)) == b"oldold"
        await store.stop()

    asyncio.run(main())


def test_segment_of_the_log_without_a_record_stops_the_recovery(monkeypatch):
    async def main():
        world = World(BY_HAND)
        store = await world.start()
        await store.container("").create(name_of(0))
        await append(store, name_of(0), b"old", 1)
        await checkpoint(store)
        segment = store.serving()[0].state.names[name_of(0)].id
        await append(store, name_of(0), b"new", 2)
        right = MemoryIndex.get

        async def get(self, asked):
            missing = keys.segment_key(segment)
            rows = await right(self, asked)
            return [None if key == missing else row for key, row in zip(asked, rows, strict=True)]

        monkeypatch.setattr(MemoryIndex, "get", get)
        with pytest.raises(Corrupt, match="has no record of it"):
            await world.crash(store)

    asyncio.run(main())
