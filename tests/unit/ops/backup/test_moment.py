"""Snapshots of several stores are of one moment, and nobody waits for a backup that died."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import replace

import pytest

from sarit.coordination.container_map import ContainerMap, StoreAddress
from sarit.core.errors import Invalid
from sarit.index import keys
from sarit.log.memory import MemoryLogProvider, StoredLog
from sarit.ops.backup.cluster import addresses_of
from sarit.ops.backup.moment import Stores, check_whole
from sarit.ops.backup.node_connection import TryAgain
from sarit.storage.memory import MemoryChunks
from sarit.store.backup_session import BackupEnded, Backups
from sarit.store.container.group_commit import GroupCommit
from sarit.store.limits import BACKUP_HOLD_SECONDS, BACKUP_IDLE_SECONDS
from sarit.store.store import SegmentStore, StartPolicy, container_of
from tests.unit.log.world import simulate
from tests.unit.store.harness import SMALL, World, Writer, memory_env, read_all

STORES = 3
EVENT = 50
LIMITS = replace(SMALL, containers=STORES, flush=replace(SMALL.flush, interval_seconds=0.05))
# One segment in each container, and each container in a store of its own.
SEGMENTS = [
    next(name for name in (f"a/b/{n}.#epoch.0" for n in range(100)) if container_of(name, STORES) == number)
    for number in range(STORES)
]


class Connection:
    """A store of this process, at a distance."""

    def __init__(self, store: SegmentStore, number: int, delay) -> None:
        self.backups = Backups(store)
        self.session = self.backups.begin({"backup": 2})
        self.containers = frozenset(self.session.begun()["containers"])
        assert self.containers == {number}
        self._delay = delay

    async def ask(self, timeout_seconds, **message):
        async with asyncio.timeout(timeout_seconds):
            await asyncio.sleep(self._delay())
            try:
                found = await self.session.answer(message)
            except BackupEnded as error:
                raise TryAgain(str(error)) from None
            await asyncio.sleep(self._delay())
            return found

    async def close(self):
        self.session.end("the backup has ended", again=False)


async def start_all(world):
    stores = []
    for number in range(STORES):
        parts = memory_env(), world.logs, world.indexes, world.storage, world.limits, None, StartPolicy(), None
        store = SegmentStore(*parts, frozenset({number}))
        await store.start()
        stores.append(store)
    writers = []
    for store, name in zip(stores, SEGMENTS, strict=True):
        await store.container(name).create(name)
        writer = Writer(store, name, name.encode()[:16].ljust(16))
        await writer.set_up()
        writers.append(writer)
    return stores, writers


async def write_in_turn(writers):
    """Each event is written when the one before, in another store, is acknowledged."""
    number = 0
    while True:
        number += 1
        for writer in writers:
            writer.append(b"%d " % number * EVENT, number)
            await writer.wait_for_replies()
            assert not writer.replies.errors


def whole_events(content):
    number = at = 0
    while at < len(content):
        number += 1
        event = b"%d " % number * EVENT
        assert content[at : at + len(event)] == event
        at += len(event)
    return number


async def restored_counts(world, stores, connected):
    """How many events each segment has in what a backup copies."""
    indexes = copy.deepcopy(world.indexes)
    for number in range(STORES):
        frame = await connected.committed(number)
        table = indexes._tables[number] = copy.deepcopy(world.indexes._tables[number])
        assert keys.parse_attribute_value(table.values[keys.meta_key("frame")][4:]) == frame
        await connected.read(number)
    await asyncio.sleep(0.5)  # compaction makes garbage of what the snapshots name
    other = World(world.limits, MemoryLogProvider(), indexes, MemoryChunks())
    other.storage.chunks.update(world.storage.chunks)
    for number, table in indexes._tables.items():
        identity, epoch = keys.parse_log_value(table.values[keys.meta_key("log")][4:])
        other.logs.stored[number] = StoredLog(identity, epoch)
    store = await other.start()
    counts = [whole_events(await read_all(store, name)) for name in SEGMENTS]
    await store.stop()
    return counts


async def back_up_under_load(seed):
    """What each segment had acknowledged before, what a restored store has, and how long acknowledgements waited."""
    chance = random.Random(seed)
    world = World(limits=LIMITS, logs=MemoryLogProvider(delay_seconds=0.001))
    stores, writers = await start_all(world)
    writing = asyncio.ensure_future(write_in_turn(writers))
    await asyncio.sleep(0.1 + seed * 0.013)
    acknowledged = [len(writer.replies.acknowledgements) for writer in writers]
    connections = [Connection(store, n, lambda: chance.random() * 0.02) for n, store in enumerate(stores)]
    connected = Stores(connections, STORES)

    async def work():
        held_ms = await connected.take()
        return held_ms, await restored_counts(world, stores, connected)

    held_ms, counts = await connected.while_kept(work())
    assert not writing.done(), writing
    await connected.close()
    known = len(writers[0].replies.acknowledgements)
    await asyncio.sleep(0.1)
    assert len(writers[0].replies.acknowledgements) > known
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    for store in stores:
        await store.stop()
    return acknowledged, counts, held_ms


def is_one_moment(counts):
    return counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


@pytest.mark.parametrize("seed", range(6))
def test_stores_show_one_moment_while_writers_go_on(seed):
    async def main():
        acknowledged, counts, held_ms = await back_up_under_load(seed)
        assert all(count >= known for count, known in zip(counts, acknowledged, strict=True)), (counts, acknowledged)
        assert is_one_moment(counts), counts
        assert 0 < held_ms < 100

    simulate(main)


def test_without_the_hold_moments_differ(monkeypatch):
    """The test above would see it."""
    monkeypatch.setattr(GroupCommit, "hold", lambda self: None)

    async def main():
        for seed in range(6):
            _, counts, _ = await back_up_under_load(seed)
            if not is_one_moment(counts):
                return
        raise AssertionError("each was of one moment")

    simulate(main)


def test_stores_go_on_when_the_backup_dies_in_its_hold():
    async def main():
        stores, writers = await start_all(World(limits=LIMITS))
        sessions = [Backups(store).begin({"backup": 2}) for store in stores]
        for step in ("prepare", "hold"):
            await asyncio.gather(*(session.answer({step: True}) for session in sessions))
        writers[0].append(b"x", 1)
        await asyncio.sleep(BACKUP_HOLD_SECONDS / 2)
        assert not writers[0].replies.acknowledgements
        await asyncio.sleep(BACKUP_HOLD_SECONDS)
        assert len(writers[0].replies.acknowledgements) == 1
        # A backup that comes back must not take these snapshots for those of one moment.
        with pytest.raises(BackupEnded, match="did not stand still together") as ended:
            await sessions[0].answer({"release": True})
        assert ended.value.again
        for store in stores:
            (opened,) = store.opened()
            assert opened.flusher.garbage.hold is None
            opened.flusher.wake()
        await asyncio.sleep(0.2)
        assert not any(each.container.state.changed for store in stores for each in store.opened())
        for store in stores:
            await store.stop()

    simulate(main)


def test_session_ends_when_it_is_silent_and_admits_the_next_one():
    async def main():
        stores, _ = await start_all(World(limits=LIMITS))
        backups = Backups(stores[0])
        session = backups.begin({"backup": 2})
        with pytest.raises(BackupEnded, match="another backup"):
            backups.begin({"backup": 2})
        await session.answer({"prepare": True})
        await asyncio.sleep(BACKUP_IDLE_SECONDS + 1)
        assert "silent" in str(session.over.exception())
        with pytest.raises(Invalid, match="another version"):
            backups.begin({"backup": 99})
        with pytest.raises(BackupEnded, match="after it was prepared"):
            await backups.begin({"backup": 2}).answer({"hold": True})
        backups.stop()
        counted = stores[0].statistics
        assert (counted.backups_failed, counted.backup_completed_ms) == (2, 0)
        failed_ms = counted.backup_failed_ms
        assert failed_ms > 0
        session = backups.begin({"backup": 2})
        assert await session.answer({"complete": True}) == {"complete": True}
        session.end("the connection is closed", again=False)
        assert (counted.backups_failed, counted.backup_failed_ms) == (2, failed_ms)
        assert counted.backup_completed_ms > 0
        for store in stores:
            await store.stop()

    simulate(main)


def test_store_whose_container_fails_ends_the_backup_of_all():
    async def main():
        stores, _ = await start_all(World(limits=LIMITS))
        connections = [Connection(store, number, lambda: 0.001) for number, store in enumerate(stores)]
        connected = Stores(connections, STORES)
        for step in ("prepare", "hold"):
            await connected._all(1.0, **{step: True})
        (opened,) = stores[1].opened()
        opened.container.fail(RuntimeError("a disk that failed"))
        with pytest.raises(TryAgain, match="recovered or moved"):
            await connected.while_kept(asyncio.sleep(60))
        await connected.close()
        for store in stores:
            assert not store.opened() or store.opened()[0].container.group_commit._held is None
            await store.stop()

    simulate(main)


def test_stores_of_a_cluster_are_those_that_serve_its_containers():
    stores = {name: StoreAddress(name, 1, "m", 0) for name in ("a", "b", "c")}
    record = ContainerMap(7, stores, ("b", "a", "a"), {1: "c"})
    assert addresses_of(record, 3) == [("a", 1), ("b", 1), ("c", 1)]
    with pytest.raises(TryAgain, match="container 2 has no store"):
        addresses_of(ContainerMap(8, stores, ("b", "a", None)), 3)
    with pytest.raises(TryAgain, match="container 0 has no store"):
        addresses_of(None, 3)


def test_each_container_is_in_exactly_one_store():
    check_whole([frozenset({0, 2}), frozenset({1}), frozenset()], 3)
    with pytest.raises(TryAgain, match="container 1 does not serve"):
        check_whole([frozenset({0, 2})], 3)
    with pytest.raises(TryAgain, match="container 2 moves"):
        check_whole([frozenset({0, 2}), frozenset({1, 2})], 3)
