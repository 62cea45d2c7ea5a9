"""A joint checkpoint shows all containers at one moment, and its chunks stay while a hold is active."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace

import pytest

from sarit.core.errors import Unavailable
from sarit.index import keys
from sarit.log.memory import MemoryLogProvider, StoredLog
from sarit.storage.memory import MemoryChunks, StorageFaults
from sarit.store.tiering.chunk_gc import DeletionHold
from sarit.store.tiering.joint_checkpoint import JointCheckpoint
from tests.unit.log.world import simulate
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENTS = ("a/b/0.#epoch.0", "a/b/1.#epoch.0", "a/b/2.#epoch.0", "a/b/3.#epoch.0")
EVENT = 50


async def _started(world):
    store = await world.start()
    writers = []
    for number, name in enumerate(SEGMENTS):
        await store.container(name).create(name)
        writer = Writer(store, name, bytes([number]) * 16)
        await writer.set_up()
        writers.append(writer)
    assert len({store.container(name).number for name in SEGMENTS}) == 2
    return store, writers


async def _write_in_turn(writers):
    """Each event is written when the one before, in another segment, is acknowledged."""
    number = 0
    while True:
        number += 1
        for writer in writers:
            writer.append(b"%d " % number * EVENT, number)
            await writer.wait_for_replies()
            assert not writer.replies.errors


def _joint(store):
    return JointCheckpoint({each.container.number: each.flusher for each in store.opened()})


async def _snapshot(world, store, joint):
    """Copies of all indexes, as `sarit backup` makes them: each when its container has committed."""
    joint.ask()
    await joint.begun(10.0)
    indexes = copy.deepcopy(world.indexes)
    for each in store.opened():
        number = each.container.number
        frame = await joint.committed(number, 10.0)
        table = indexes._tables[number] = copy.deepcopy(world.indexes._tables[number])
        stored = table.values.get(keys.meta_key("frame"))
        assert (0 if stored is None else keys.parse_attribute_value(stored[4:])) == frame
        joint.release(number)
    return indexes


@pytest.mark.parametrize("seed", range(8))
def test_containers_show_one_moment_while_writers_go_on(seed) -> None:
    async def main() -> None:
        limits = replace(SMALL, flush=replace(SMALL.flush, interval_seconds=0.05))
        world = World(limits=limits, logs=MemoryLogProvider(delay_seconds=0.003))
        world.storage.faults = StorageFaults(delay=lambda length: 0.01 * (length % (seed + 2)))
        store, writers = await _started(world)
        writing = asyncio.ensure_future(_write_in_turn(writers))
        await asyncio.sleep(0.1 + seed * 0.013)
        acknowledged = [len(writer.replies.acknowledgements) for writer in writers]
        hold, joint = DeletionHold(), _joint(store)
        for each in store.opened():
            each.flusher.garbage.hold = hold
        indexes = await _snapshot(world, store, joint)
        await asyncio.sleep(0.5)  # compaction makes garbage of what the snapshots name
        restored = World(world.limits, MemoryLogProvider(), indexes, MemoryChunks())
        restored.storage.chunks.update(world.storage.chunks)
        hold.end("copied")
        for number, table in indexes._tables.items():
            identity, epoch = keys.parse_log_value(table.values[keys.meta_key("log")][4:])
            restored.logs.stored[number] = StoredLog(identity, epoch)
        other = await restored.start()
        contents = [await read_all(other, name) for name in SEGMENTS]
        counts = [_whole_events(content) for content in contents]
        # What was acknowledged before is there; a later event is there only with all that it followed.
        assert all(count >= known for count, known in zip(counts, acknowledged, strict=True)), (counts, acknowledged)
        assert counts == sorted(counts, reverse=True), counts
        assert counts[0] - counts[-1] <= 1, counts
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.stop()
        await other.stop()

    simulate(main)


def _whole_events(content: bytes) -> int:
    number = at = 0
    while at < len(content):
        number += 1
        event = b"%d " % number * EVENT
        assert content[at : at + len(event)] == event
        at += len(event)
    return number


class _Flusher:
    """Counts what it is asked for; with `changed` it has something to checkpoint."""

    def __init__(self, changed: bool) -> None:
        self.changed = changed
        self.begun = self.checkpoints = 0
        self.checkpoint_frame = 7
        self.joint: JointCheckpoint | None = None

    def wake(self) -> None:
        return

    def begin(self) -> bool:
        self.begun += 1
        return self.changed

    async def checkpoint(self) -> bool:
        assert self.begun, "it would show a later moment"
        self.checkpoints += 1
        self.checkpoint_frame += 1
        return True


def test_all_snapshots_begin_in_the_turn_in_which_the_last_flusher_arrives() -> None:
    async def main() -> None:
        flushers = {0: _Flusher(True), 1: _Flusher(False), 2: _Flusher(True)}
        joint = JointCheckpoint(flushers)
        joint.ask()
        taking = [asyncio.ensure_future(joint.take_part(flushers[number])) for number in (0, 1)]
        await asyncio.sleep(0.1)
        assert [flusher.begun for flusher in flushers.values()] == [0, 0, 0]
        last = joint.take_part(flushers[2])
        last.send(None)  # as far as its first await
        assert [flusher.begun for flusher in flushers.values()] == [1, 1, 1]
        # What changes from here on belongs to a later moment: the one without changes commits nothing.
        flushers[1].changed = True
        assert [await joint.committed(number, 1.0) for number in (0, 1)] == [8, 7]
        assert [flusher.checkpoints for flusher in flushers.values()] == [1, 0, 1]
        assert not any(task.done() for task in taking)
        joint.release(0)
        await asyncio.wait(taking, timeout=0.2)
        assert [task.done() for task in taking] == [True, False]
        joint.abandon()
        await asyncio.gather(*taking)
        last.close()

    asyncio.run(main())


def test_hold_keeps_garbage_until_it_ends() -> None:
    async def main() -> None:
        world = World(limits=replace(SMALL, containers=1))
        store, writer = await _started_one(world)
        hold = DeletionHold()
        (opened,) = store.opened()
        opened.flusher.garbage.hold = hold
        for number in range(1, 40):
            writer.append(b"z" * 400, number)
            await writer.wait_for_replies()
            await asyncio.sleep(0.03)
        kept = len(world.storage.chunks)
        assert opened.flusher.compactor.joined > 0
        hold.end("done")
        opened.flusher.wake()
        await asyncio.sleep(0.2)
        assert len(world.storage.chunks) < kept
        await store.stop()

    simulate(main)


def test_hold_ends_when_storage_takes_no_chunk() -> None:
    async def main() -> None:
        world = World(limits=replace(SMALL, containers=1))
        store, writer = await _started_one(world)
        (opened,) = store.opened()
        opened.flusher.garbage.hold = hold = DeletionHold()
        world.storage.faults.unavailable = True
        writer.append(b"z" * 900, 1)
        await writer.wait_for_replies()
        await asyncio.sleep(1.0)
        assert "may be full" in hold.ended
        world.storage.faults.unavailable = False
        await store.stop()

    simulate(main)


def test_joint_checkpoint_that_nobody_can_begin_is_given_up_and_flushes_go_on() -> None:
    async def main() -> None:
        world = World()
        store, writers = await _started(world)
        world.storage.faults.unavailable = True
        writers[0].append(b"x" * 900, 1)
        await writers[0].wait_for_replies()
        await asyncio.sleep(0.2)
        joint = _joint(store)
        joint.ask()
        with pytest.raises(Unavailable, match="did not finish its flush within 1 s"):
            await joint.begun(1.0)
        joint.abandon()
        world.storage.faults.unavailable = False
        await asyncio.sleep(3.0)
        assert not any(each.container.state.changed for each in store.opened())
        await store.stop()

    simulate(main)


async def _started_one(world):
    store = await world.start()
    await store.container(SEGMENTS[0]).create(SEGMENTS[0])
    writer = Writer(store, SEGMENTS[0])
    await writer.set_up()
    return store, writer
