"""Shards that grow in a process: few at a time, for many indexers in turn."""

import asyncio

import pytest

from sarit.search import growing_slots
from sarit.search.growing_slots import GrowingSlots
from sarit.search.indexer import GROWING_TURN_SECONDS
from sarit.search.memory_world import MemoryEvents
from tests.unit.search.index_world import NAME, Clock, Killed, World, stop, turns


class CountedWriter:
    def __init__(self, engine, writer) -> None:
        self.engine = engine
        self.add, self.commit, self.merge = writer.add, writer.commit, writer.merge
        engine.opened += 1
        engine.now += 1
        engine.most = max(engine.most, engine.now)

    def close(self) -> None:
        self.engine.now -= 1


class CountedShards:
    """Counts the writers that are open."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.opened = self.now = self.most = 0
        self.open, self.discard = engine.open, engine.discard

    def create(self, directory, mapping):
        return CountedWriter(self, self.engine.create(directory, mapping))

    def resume(self, directory, mapping):
        return CountedWriter(self, self.engine.resume(directory, mapping))


class BusyEvents(MemoryEvents):
    """A stream that has always one more event: nobody comes to its tail."""

    async def follow(self, start, until_due):
        self.write(b"first")
        async for found in super().follow(start, until_due):
            await asyncio.sleep(0)
            if found is not None:
                yield found
                self.write(b"more")


class Process:
    """Indexers of several streams in one process, which have one shard that grows together."""

    def __init__(self, directory, streams) -> None:
        self.slots, self.clock = GrowingSlots(1), Clock()
        self.worlds = [
            World(directory / str(number), stream, slots=self.slots, clock=self.clock)
            for number, stream in enumerate(streams)
        ]
        self.engine = CountedShards(self.worlds[0].engine)
        self.kills = 0
        for world in self.worlds:
            world.engine = self.engine
        self.tasks = [asyncio.ensure_future(world.indexer().run()) for world in self.worlds]

    async def go_on(self, seconds: float) -> None:
        """Let time pass, and start indexers again that were killed."""
        await turns()
        self.clock.seconds += seconds
        for number, task in enumerate(self.tasks):
            if task.done():
                assert isinstance(task.exception(), Killed)
                self.kills += 1
                self.tasks[number] = asyncio.ensure_future(self.worlds[number].indexer().run())

    async def reach_the_tail(self) -> None:
        for _ in range(200):
            await self.go_on(2.0)
            if all([world.state.cut == await world.stream.edge("tail") for world in self.worlds if world.row.state]):
                return
        raise AssertionError("an indexer waits for ever")

    async def stop(self) -> None:
        for task in self.tasks:
            await stop(task)
        assert self.engine.now == 0
        assert repr(self.slots) == "<GrowingSlots, 0 of 1 taken, 0 wait>"


@pytest.mark.parametrize("kills", [False, True])
def test_all_indexers_reach_the_tail_with_one_shard_in_turn(tmp_path, kills):
    async def main():
        process = Process(tmp_path, [MemoryEvents(NAME, 2) for _ in range(3)])
        for part in range(12):
            for number, world in enumerate(process.worlds):
                world.stream.write(*(b"event %d %d" % (part, n) for n in range(3)), segment=part % 2)
                if kills and (part + number) % 2:
                    world.kill_at = world.passed + 1 + part
            await process.reach_the_tail()
        for world in process.worlds:
            world.kill_at = None
            assert await world.places() == world.stream.places()
            assert world.state.events == 36
        assert process.engine.most == 1
        assert process.engine.opened >= 3 * 8
        assert process.kills >= 10 if kills else process.kills == 0
        await process.stop()

    asyncio.run(main())


def test_stream_that_has_always_events_gives_its_shard_up_after_its_turn(tmp_path):
    async def main():
        process = Process(tmp_path, [BusyEvents(NAME), MemoryEvents(NAME), BusyEvents(NAME)])
        busy, quiet, other = process.worlds
        await process.go_on(6.0)
        quiet.stream.write(b"one")
        await process.go_on(6.0)
        assert process.engine.opened == 1
        assert busy.state.events > 0
        assert not quiet.state.events
        for _ in range(int(3 * GROWING_TURN_SECONDS / 6)):
            await process.go_on(6.0)
        assert quiet.state.events == 1
        before = busy.state.events, other.state.events
        for _ in range(int(3 * GROWING_TURN_SECONDS / 6)):
            await process.go_on(6.0)
        assert busy.state.events > before[0]
        assert other.state.events > before[1] > 0
        assert process.engine.most == 1
        # For about a minute each, however often they commit.
        assert process.engine.opened <= 9
        await process.stop()

    asyncio.run(main())


def test_indexer_that_waits_shows_its_lag_and_ends_when_the_job_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_slots, "HOUSEKEEPING_SECONDS", 0.001)

    async def main():
        world = World(tmp_path, slots=GrowingSlots(1))
        await world.slots.take(turns)
        found = world.indexer()
        task = asyncio.ensure_future(found.run())
        world.stream.write(b"one")
        saves = world.row.saves
        for _ in range(10_000):
            await asyncio.sleep(0.001)
            if world.row.saves >= saves + 5:
                break
        assert found.statistics.lag_bytes == 8 + len(b"one")
        assert found.statistics.behind_since_ms is not None
        world.row.fence += 1
        await asyncio.wait([task], timeout=30)
        assert "another worker" in str(task.exception())
        assert not world.slots.is_wanted
        world.slots.give_back()
        assert repr(world.slots) == "<GrowingSlots, 0 of 1 taken, 0 wait>"

    asyncio.run(main())


def test_bytes_that_were_truncated_do_not_push_a_shard_aside_that_is_not_open(tmp_path):
    async def main():
        world = World(tmp_path)
        world.stream.write(b"one", b"two")
        world.stream.write(b"three", segment=1)
        await world.index()
        world.stream.write(b"four", segment=1)
        world.stream.truncate(1, 8 + len(b"three") + 8 + len(b"four"))
        await world.index()
        assert world.state.lost_bytes == 8 + len(b"four")
        assert [shard.events for shard in await world.shards()] == [3]
        world.stream.write(b"five")
        await world.index()
        assert len(await world.places()) == 4

    asyncio.run(main())
