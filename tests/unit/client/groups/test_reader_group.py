"""Reader groups against a whole node: readers join, leave and die while streams scale; every event is read once."""

import asyncio

import pytest

from sarit.client.groups.position import Position
from sarit.client.groups.reader import CheckpointEvent
from sarit.client.groups.state import AcquireSegment, ReleaseSegment
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Truncated, Unavailable
from tests.limits import HANG_SECONDS
from tests.unit.client.groups.harness import Worker, fill, total, until
from tests.unit.client.nodes import create_shrinkable, in_keys, on_node


@on_node
async def test_readers_share_segments_and_read_every_event_once(local):
    await local.client.create_stream("s/t", segments=4)
    events = await fill(local.client, "s/t", 1000)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.1)
    workers = [await Worker(group, f"r{number}").start() for number in range(3)]
    await until(lambda: len(total(*workers)) == len(events))
    await until(lambda: sorted(len(worker.reader.segments) for worker in workers) == [1, 1, 2])
    await local.client.seal_stream("s/t")
    await asyncio.gather(*(worker.task for worker in workers))
    assert sorted(total(*workers)) == sorted(events)
    assert await group.online_readers() == ["r0", "r1", "r2"]
    for worker in workers:
        await worker.leave()
    assert await group.online_readers() == []


@on_node
async def test_progress_adds_up_to_the_unread_bytes_across_a_scale(local):
    await local.client.create_stream("s/t", segments=2)
    await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    rows = await group.progress()
    assert [(one.state, one.reader, one.position) for one in rows] == [("unassigned", None, 0)] * 2
    assert sum(one.unread for one in rows) == await group.unread_bytes() > 0
    worker = await Worker(group, "one").start()
    await until(lambda: len(total(worker)) == 100)
    await group.checkpoint("all")
    await local.client.stream("s/t").scale(3)
    await worker.leave()
    assert {(one.state, one.unread) for one in await group.progress()} == {("unassigned", 0)}
    await fill(local.client, "s/t", 50, 100)
    rows = await group.progress()
    assert sum(one.unread for one in rows) == await group.unread_bytes() > 0
    assert len([one for one in rows if one.unread]) == 3


@on_node
async def test_progress_counts_segments_that_the_group_has_not_reached(local):
    await local.client.create_stream("s/t", segments=1)
    await fill(local.client, "s/t", 20)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    await local.client.stream("s/t").scale(2)
    await fill(local.client, "s/t", 50, 20)
    rows = await group.progress()
    assert [one.state for one in rows] == ["unassigned", "later", "later"]
    assert sum(one.unread for one in rows) == await group.unread_bytes()
    assert all(one.unread for one in rows)


@pytest.mark.parametrize("checkpoint", [0.1, None])
def test_readers_join_leave_and_die_while_the_stream_scales(checkpoint, tmp_path):
    @on_node
    async def test(local):
        await create_shrinkable(local.client, "s/t", 2)
        events = await fill(local.client, "s/t", 300)
        group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=checkpoint)
        stream = local.client.stream("s/t")
        one, two = [await Worker(group, name).start() for name in ("one", "two")]
        await until(lambda: len(total(one, two)) > 100)
        left = (await local.client.stream_info("s/t")).segments[0]
        assert await stream.split(left.segment)
        events += await fill(local.client, "s/t", 300, 300)
        three = await Worker(group, "three").start()
        await until(lambda: len(total(one, two, three)) > 450)
        await one.die()
        assert await group.reader_offline("one", one.position)
        assert not await group.reader_offline("one", one.position)
        assert await stream.scale(1)
        events += await fill(local.client, "s/t", 300, 600)
        await two.leave()
        four = await Worker(group, "one").start()  # the name is free again
        await local.client.seal_stream("s/t")
        await asyncio.gather(three.task, four.task)
        found = total(one, two, three, four)
        assert sorted(found) == sorted(events)
        assert (await group.info()).at_end
        await group.end_of_data(1.0)
        for numbers in in_keys(three.done).values():
            assert numbers == sorted(numbers)
        await three.leave()
        await four.leave()

    test(tmp_path)


@on_node
async def test_lost_reader_without_position_resumes_at_its_checkpoint(local):
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    lost = await group.reader("lost")
    for _ in range(10):
        await lost.read(HANG_SECONDS)
    waiting = asyncio.create_task(group.checkpoint("half"))
    early = 10
    while not isinstance(found := await lost.read(HANG_SECONDS), CheckpointEvent):
        early += 1
        await asyncio.sleep(0.002)
    assert found.name == "half"
    for _ in range(5):
        await lost.read(HANG_SECONDS)  # the first of these passes the checkpoint
    checkpoint = await waiting
    await lost._stop(Conflict("killed by the test"))
    await group.reader_offline("lost")
    other = await Worker(group, "other").start()
    await until(lambda: len(other.done) == 100 - early)
    assert other.done == events[early:]
    await other.leave()

    assert await group.reset(checkpoint) == 1
    again = await Worker(group, "other").start()
    await until(lambda: len(again.done) == 100 - early)
    assert again.done == events[early:]
    assert await group.unread_bytes() == sum(map(len, events[early:])) + 8 * len(events[early:])
    await again.leave()


@on_node
async def test_positions_stored_with_results_give_exactly_once(local):
    await local.client.create_stream("s/t", segments=3)
    events = await fill(local.client, "s/t", 600)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.05)
    results: list[bytes] = []
    for _ in range(20):
        reader = await group.reader("r")
        stored = None
        for _ in range(40):
            found = await reader.read(2)
            if found is None:
                break
            stored = found.position.to_bytes()  # with the result, in one step
            if not isinstance(found, CheckpointEvent):
                results.append(found.event)
        await reader._stop(Conflict("killed by the test"))
        await group.reader_offline("r", Position.from_bytes(stored) if stored else None)
        if len(results) >= len(events):
            break
    assert sorted(results) == sorted(events)


@pytest.mark.parametrize("rewind", [False, True])
def test_position_stored_before_a_segment_came_back_repeats_nothing(rewind, tmp_path):
    @on_node
    async def test(local):
        await local.client.create_stream("s/t")
        events = await fill(local.client, "s/t", 50)
        group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
        reader = await group.reader("one")
        for _ in range(10):
            stored = (await reader.read(HANG_SECONDS)).position
        for _ in range(15):  # as if another reader had read these: the segment left "one" and came back
            found = await reader.read(HANG_SECONDS)
        ((segment, after),) = found.position.offsets.items()
        await reader._stop(Conflict("killed by the test"))
        moved = [ReleaseSegment("one", segment, after), AcquireSegment("one", segment)]
        assert await group._shared.update(lambda state: moved if "one" in state.assigned else [])
        assert await group.reader_offline("one", stored, rewind=rewind)
        other = await Worker(group, "other").start()
        expected = events[10 if rewind else 25 :]
        await until(lambda: len(other.done) >= len(expected))
        assert other.done == expected
        await other.leave()

    test(tmp_path)


@on_node
async def test_closing_at_an_older_position_than_the_group_knows_repeats_nothing(local):
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 30)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    first = await group.reader("one")
    stored = (await first.read(HANG_SECONDS)).position
    await first.read(HANG_SECONDS)
    await first.close()
    second = await group.reader("one")
    assert (await second.read(HANG_SECONDS)).event == events[2]
    await second.close(stored)
    third = await group.reader("one")
    assert (await third.read(HANG_SECONDS)).event == events[2]
    await third.close(stored, rewind=True)
    async with await group.reader("one") as fourth:
        assert (await fourth.read(HANG_SECONDS)).event == events[1]


@on_node
async def test_reset_removes_readers_and_retains_the_end(local):
    await local.client.create_stream("s/t", segments=2)
    events = await fill(local.client, "s/t", 50)
    end = await local.client.stream_cut_tail("s/t")
    await fill(local.client, "s/t", 50, 50)
    group = await local.client.reader_groups.create("s/g", "s/t", end=end, automatic_checkpoint=0.05)
    assert await group.unread_bytes() == sum(end.positions.values())
    worker = await Worker(group, "r").start()
    await worker.task
    assert sorted(worker.done) == sorted(events)
    assert await group.unread_bytes() == 0
    assert await group.reset(await local.client.stream_cut_head("s/t")) == 1
    with pytest.raises(Conflict, match="reset"):
        while True:
            await worker.reader.read(0.01)
    again = await Worker(group, "r").start()
    await again.task
    assert sorted(again.done) == sorted(events)
    with pytest.raises(Invalid, match="does not read"):
        await local.client.create_stream("s/other")
        await group.reset(await local.client.stream_cut_head("s/other"))
    assert (await group.info()).generation == 1
    await again.leave()


@on_node
async def test_stream_cuts_are_silent_and_pending_checkpoints_are_bounded(local):
    await local.client.create_stream("s/t", segments=2)
    events = await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    worker = await Worker(group, "r").start()
    await until(lambda: len(worker.done) == len(events))
    cuts = await group.stream_cuts()
    assert list(cuts.values()) == [await local.client.stream_cut_tail("s/t")]
    assert worker.checkpoints == []
    await worker.die()  # no reader passes checkpoints any more
    for name in ("a", "b", "c"):
        with pytest.raises(Unavailable, match="within"):
            await group.checkpoint(name, timeout=0.01)
    with pytest.raises(Conflict, match="3 checkpoints pending: a, b, c"):
        await group.checkpoint("d")
    with pytest.raises(Conflict, match="already"):
        await group.checkpoint("a")
    await group.give_up_checkpoints()
    assert (await group.info()).checkpoints == ()
    await group.reader_offline("r", worker.position)
    assert (await group.checkpoint("d", timeout=5)).cuts == cuts


@on_node
async def test_reader_without_heartbeat_is_declared_offline_after_the_death_timeout(local):
    await local.client.create_stream("s/t", segments=2)
    events = await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.1)
    lost = await Worker(group, "lost").start()
    await until(lambda: len(lost.done) == len(events))
    await lost.die()
    watcher = await Worker(group, "watcher", death_timeout=0.5).start()
    await until(lambda: len(watcher.reader.segments) == 2)
    assert await group.online_readers() == ["watcher"]
    await watcher.leave()


@on_node
async def test_truncated_data_raises_unless_skipped(local):
    await local.client.create_stream("s/t")
    await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t")
    await local.client.truncate_stream("s/t", cut="tail")
    events = await fill(local.client, "s/t", 10, 100)
    reader = await group.reader("strict")
    for _ in range(2):
        with pytest.raises(Truncated, match="skip_truncated"):
            await reader.read(HANG_SECONDS)
    await reader.close()
    worker = await Worker(group, "skips", skip_truncated=True).start()
    await until(lambda: worker.done == events)
    await worker.leave()


@on_node
async def test_failed_close_can_be_repeated(local):
    await local.client.create_stream("s/t")
    await fill(local.client, "s/t", 10)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    reader = await group.reader("r")
    third = [await reader.read(HANG_SECONDS) for _ in range(3)][-1]
    right, answers = reader._shared.update, [Unavailable("the store is away"), asyncio.CancelledError()]

    async def update(decide):
        if answers:
            raise answers.pop(0)
        return await right(decide)

    reader._shared.update = update
    with pytest.raises(Unavailable):
        await reader.close()
    with pytest.raises(asyncio.CancelledError):
        await reader.close()
    assert await group.online_readers() == ["r"]
    await reader.close()
    state = await group._shared.fetch()
    assert (state.readers, state.unassigned) == ((), third.position.offsets)
    reader._shared.update = None  # it has left: no reader is asked
    await reader.close()
    lost = await group.reader("lost")
    answers.append(Unavailable("the store is away"))
    lost._shared.update = update
    with pytest.raises(Unavailable):
        await lost.close()
    await local.client.close()
    await lost.close()  # there is no reader to ask any more


@on_node
async def test_invalid_arguments_are_refused(local):
    groups = local.client.reader_groups
    await local.client.create_stream("s/t")
    for name in ("s", "s/a_b", "s/"):
        with pytest.raises(Invalid):
            await groups.create(name, "s/t")
    for wrong in ({"automatic_checkpoint": 0}, {"retention": "yes"}, {"streams": []}, {"start": "nonsense"}):
        with pytest.raises(Invalid):
            await groups.create("s/g", **{"streams": "s/t"} | wrong)
    for missing in ("s/no", "no/t"):
        with pytest.raises(NotFound):
            await groups.create("s/g", missing)
    with pytest.raises(NotFound):
        await groups.create("no/g", "s/t")
    with pytest.raises(NotFound):
        await groups.open("s/g")
    group = await groups.create("s/g", "s/t")
    await local.client.create_stream("s/u")
    with pytest.raises(Exists, match="reads s/t"):
        await groups.create("s/g", ["s/t", "s/u"])
    assert [name async for name in groups.list("s")] == ["s/g"]
    reader = await group.reader("r")
    with pytest.raises(Conflict, match="in group s/g already"):
        await group.reader("r")
    with pytest.raises(Invalid):
        await group.reader("a_b")
    with pytest.raises(Invalid, match="death timeout"):
        await group.reader("hasty", death_timeout=0.1)
    assert await group.online_readers() == ["r"]
    with pytest.raises(Invalid, match="manual"):
        await group.update_retention_cut(await local.client.stream_cut_tail("s/t"))
    await reader.close()
    await reader.close()
    with pytest.raises(Invalid, match="closed"):
        await reader.read()
    orphan = await group.reader("orphan")
    await groups.delete("s/g")
    with pytest.raises(NotFound):
        await orphan.read(HANG_SECONDS)
    with pytest.raises(NotFound):
        await groups.delete("s/g")
    assert [name async for name in groups.list("s")] == []
