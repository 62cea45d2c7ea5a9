"""An indexer: each event once, whatever ends a process, and nothing left behind for ever."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.search import index_plan, indexer
from sarit.search.settings import SearchSettings
from tests.unit.search.index_world import Killed, World, stop, turns
from tests.unit.search.test_state import SHARD


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def run(main):
    return asyncio.run(main)


def test_events_are_in_the_index_after_the_interval(world):
    async def main():
        world.stream.write(b"one", b"odd two")
        world.stream.write(b"three", segment=1)
        found = await world.index()
        assert await world.places() == world.stream.places()
        assert (world.state.events, world.state.partly, world.state.commits) == (3, 1, 1)
        assert world.row.held == world.state.cut == await world.stream.edge("tail")
        world.stream.write(b"four")
        await world.index(found)
        assert await world.places() == world.stream.places()
        assert [shard.events for shard in await world.shards()] == [4]
        assert found.statistics.events == 4
        assert found.statistics.index_bytes == sum(f.length for f in world.state.growing.files)

    run(main())


@pytest.mark.parametrize(("interval", "commit_seconds", "most"), [(5, 0.8, 5.0), (1, 0.3, 1.0), (1, 0.9, 2.3)])
def test_event_is_found_an_interval_after_its_write(world, interval, commit_seconds, most):
    """What a commit takes is part of the interval; but half of the time, at least, is for events."""

    async def main():
        world.settings = SearchSettings(interval_seconds=interval)
        found = world.indexer()
        real, written, late, commits = found._uploaded, [], [], []

        async def uploaded(*given):
            commits.append(world.clock.seconds)
            world.clock.seconds += commit_seconds / 2
            world.stream.write(b"during the commit")
            written.append(world.clock.seconds)
            world.clock.seconds += commit_seconds / 2
            return await real(*given)

        found._uploaded = uploaded
        task = asyncio.ensure_future(found.run())
        await turns()
        for _ in range(60 * interval):
            world.stream.write(b"event")
            written.append(world.clock.seconds)
            await turns()
            if world.row.state:
                late += [world.clock.seconds - at for at in written[len(late) : world.state.events]]
            world.clock.seconds += 0.05
        await stop(task)
        # The first commit is not known to take so long.
        assert max(late[-len(late) // 2 :]) <= most + 0.06
        assert len(commits) >= 2
        assert min(b - a for a, b in itertools.pairwise(commits)) >= commit_seconds + interval / 2

    run(main())


def test_index_that_starts_at_the_tail_has_later_events_alone(world):
    async def main():
        world.settings = SearchSettings(start="tail")
        world.stream.write(b"old")
        await world.index()
        world.stream.write(b"new")
        await world.index()
        assert await world.places() == [world.stream.places()[1]]

    run(main())


def rolling(monkeypatch):
    """Shards of few events, so that they are closed often."""
    monkeypatch.setattr(index_plan, "MAX_SHARD_EVENTS", 4)
    monkeypatch.setattr(indexer, "HOUSEKEEPING_SECONDS", 1.0)
    monkeypatch.setattr(indexer, "GARBAGE_SECONDS", 1.0)
    monkeypatch.setattr(indexer, "OLD_BLOB_SECONDS", 2.0)


@pytest.mark.parametrize("failure", [Killed, Unavailable])
def test_process_that_ends_anywhere_loses_and_repeats_nothing(tmp_path, monkeypatch, failure):
    """At each passage of a gate: before and after each change of a blob, each read, and each save."""
    rolling(monkeypatch)

    async def life(world, kill_at):
        world.kill_at, world.passed, world.failure = kill_at, 0, failure
        ended = 0
        for part in range(4):
            world.stream.write(*(b"event %d %d" % (part, number) for number in range(3)), segment=part % 2)
            while True:
                try:
                    await world.index(steps=200)
                    break
                except failure:
                    ended += 1
        return ended

    async def main():
        whole = World(tmp_path / "whole")
        assert await life(whole, None) == 0
        gates = whole.passed
        assert await whole.places() == whole.stream.places()
        assert len(await whole.shards()) >= 2
        assert gates > 40
        ended = 0
        for at in range(1, gates + 1):
            world = World(tmp_path / str(at))
            ended += await life(world, at)
            world.kill_at = None
            assert await world.places() == world.stream.places(), at
            assert world.state.events == len(world.stream.places()), at
        assert ended >= gates - 10

    run(main())


def test_indexer_that_was_replaced_changes_nothing(world, monkeypatch):
    rolling(monkeypatch)

    async def main():
        world.stream.write(b"one", b"two")
        first = world.indexer()
        old = asyncio.ensure_future(first.run())
        await turns()
        world.stream.write(b"three")
        await world.index()
        await world.index()
        state = world.row.state
        world.clock.seconds += 100
        await turns(300)
        assert old.done()
        assert isinstance(old.exception(), Fenced)
        assert world.row.state == state
        assert await world.places() == world.stream.places()

    run(main())


def test_replaced_indexer_deletes_no_blob_of_the_present_one(world, monkeypatch):
    rolling(monkeypatch)
    monkeypatch.setattr(indexer, "OLD_BLOB_SECONDS", 0.0)

    async def main():
        first = world.indexer()
        await world.index(first)
        world.stream.write(*[b"x"] * 9)
        await world.index()
        with pytest.raises(Fenced):
            await first._collect(world.clock.monotonic())
        assert await world.places() == world.stream.places()

    run(main())


def test_old_blobs_are_deleted_in_the_order_of_their_names(world, monkeypatch):
    """In the order of a set they would be deleted in another one by each process: no seed of the simulation repeats."""
    rolling(monkeypatch)
    monkeypatch.setattr(indexer, "OLD_BLOB_SECONDS", 0.0)
    deleted, right = [], world.blobs.delete

    async def delete(name):
        deleted.append(name)
        await right(name)

    async def main():
        world.stream.write(b"one")
        found = world.indexer()
        await world.index(found)
        names = [f"{world.state.stream_id}/left-{number:02}" for number in range(20)]
        for name in names:
            await world.blobs.append(name, [b"x"])
        monkeypatch.setattr(world.blobs, "delete", delete)
        await found._collect(world.clock.monotonic())
        assert deleted == names

    run(main())


def test_old_blobs_are_deleted_later(world, monkeypatch):
    rolling(monkeypatch)
    monkeypatch.setattr(indexer, "OLD_BLOB_SECONDS", 50.0)

    async def main():
        found = world.indexer()
        task = asyncio.ensure_future(found.run())
        most = 0
        for number in range(40):
            world.stream.write(b"event %d" % number)
            world.clock.seconds += 6
            await turns(100)
            most = max(most, len(world.blobs.blobs))
        assert not task.done()
        shards = await world.shards()
        assert len(shards) >= 9
        assert await world.places() == world.stream.places()
        for _ in range(20):
            world.clock.seconds += 6
            await turns(100)
        # A blob for each shard, and one with the list of them.
        assert len(world.blobs.blobs) <= len(shards) + 2 < most
        assert index_plan.blobs_of(world.state, shards) <= set(world.blobs.blobs)
        assert await world.places() == world.stream.places()
        await stop(task)

    run(main())


def test_shards_of_truncated_events_are_dropped(world, monkeypatch):
    rolling(monkeypatch)

    async def main():
        found = world.indexer()
        task = asyncio.ensure_future(found.run())
        for number in range(12):
            world.stream.write(b"event %02d" % number)
            world.clock.seconds += 6
            await turns(100)
        before = await world.shards()
        assert len(before) == 3
        head = next(iter(before[0].end.positions.values()))
        world.stream.truncate(0, head)
        world.clock.seconds += 6
        await turns(100)
        assert [shard.id for shard in await world.shards()] == [shard.id for shard in before[1:]]
        assert world.state.closed_shards == 2
        assert world.state.events == 12
        await stop(task)

    run(main())


def test_bytes_that_were_truncated_before_they_were_read_are_counted(world):
    async def main():
        world.stream.write(b"one", b"two")
        await world.index()
        world.stream.write(b"three", b"four")
        end = world.stream.places()[3][1]
        world.stream.truncate(0, end)
        await world.index()
        assert world.state.lost_bytes == 8 + len(b"three")
        assert len(await world.places()) == 3
        # Nothing but what is truncated.
        world.stream.write(b"five")
        world.stream.truncate(0, next(iter((await world.stream.edge("tail")).positions.values())))
        await world.index()
        assert world.state.lost_bytes == 2 * 8 + len(b"threefive")
        assert world.state.cut == await world.stream.edge("tail")

    run(main())


def test_days_of_events_are_committed_in_parts(world, monkeypatch):
    monkeypatch.setattr(indexer, "MAX_UNCOMMITTED_BYTES", 100)

    async def main():
        for number in range(50):
            world.stream.write(b"event %d" % number * 5, segment=number % 2)
        await world.index(seconds=0.0)
        assert world.state.commits >= 2
        assert await world.places() == world.stream.places()

    run(main())


def test_stream_that_was_made_again_gets_a_new_index(world):
    async def main():
        world.stream.write(b"one", b"two")
        await world.index()
        world.stream.stream_id = "f" * 32
        await world.index()
        assert world.state.stream_id == "f" * 32
        assert world.state.events == 2
        assert await world.places() == world.stream.places()
        assert [key for key, _, _ in await world.rows.scan(b"i/")] == [b"i/" + b"0" * 31 + b"1", b"i/" + b"f" * 32]

    run(main())


def test_damaged_files_are_found_by_who_takes_over(world):
    async def main():
        world.stream.write(b"one", b"two")
        await world.index()
        (blob,) = world.blobs.blobs.values()
        blob[5] ^= 1
        world.stream.write(b"three")
        with pytest.raises(Corrupt, match="not what was stored"):
            await world.index()
        assert not list(world.directory.glob("process-2/*/*"))

    run(main())


def test_shard_of_a_stream_without_events_is_closed_locally(world, monkeypatch):
    monkeypatch.setattr(indexer, "IDLE_SHARD_SECONDS", 100.0)

    def local():
        return [path for path in world.directory.glob("process-*/*") if list(path.iterdir())]

    async def main():
        found = world.indexer()
        task = asyncio.ensure_future(found.run())
        world.stream.write(b"one")
        world.clock.seconds += 6
        await turns()
        assert found._growing is not None
        world.clock.seconds += 101
        await turns()
        assert found._growing is None
        assert local() == []
        world.stream.write(b"two")
        world.clock.seconds += 6
        await turns()
        assert [shard.events for shard in await world.shards()] == [2]
        assert await world.places() == world.stream.places()
        # Old enough to be closed while nothing is here.
        world.clock.seconds += 101
        await turns()
        world.clock.seconds += 86_400
        await turns()
        assert [shard.closed for shard in await world.shards()] == [True]
        assert await world.places() == world.stream.places()
        assert local() == []
        await stop(task)

    run(main())


def test_local_directories_are_removed(world, monkeypatch):
    rolling(monkeypatch)

    async def main():
        for number in range(10):
            world.stream.write(b"event %d" % number)
            await world.index()
        assert not [path for path in world.directory.glob("process-*/*/*") if path.is_file()]

    run(main())


def test_shard_is_closed_at_the_hour_or_when_it_is_large_or_old():
    hour = index_plan.SHARD_HOUR_MS
    due = index_plan.is_due_to_close
    few = replace(SHARD, events=10, opened_ms=10 * hour + 5)
    assert not due(few, 0, 12 * hour)
    assert due(few, 0, 34 * hour + 5)
    assert due(few, index_plan.LARGE_STATE_BYTES, 10 * hour + 6)
    many = replace(few, events=index_plan.MIN_SHARD_EVENTS)
    assert not due(many, 0, 11 * hour - 1)
    assert due(many, 0, 11 * hour)
    assert due(replace(few, events=index_plan.MAX_SHARD_EVENTS), 0, 10 * hour + 6)
    assert not due(replace(few, events=0), 1 << 20, 99 * hour)
