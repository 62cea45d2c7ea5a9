"""Reader groups against a whole node: cuts, retention, compaction, several streams, changes half done."""

import asyncio

import pytest

from sarit.client.groups import calls, generations
from sarit.client.groups.progress import newest_positions
from sarit.client.groups.shared_state import _snapshot
from sarit.client.groups.state import (
    AddReader,
    CheckpointReader,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    UpdatingConfig,
)
from sarit.controller.keys import subscriber_key
from sarit.controller.model.codec import decode_subscriber
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Invalid
from sarit.core.names import StreamName
from tests.limits import HANG_SECONDS
from tests.unit.client.groups.harness import Worker, fill, total, until
from tests.unit.client.nodes import create_shrinkable, on_node


async def until_read(workers, count: int) -> None:
    await until(lambda: len(total(*workers)) == count)


@on_node
async def test_cuts_contain_a_pending_merge_and_a_reset_reads_the_rest(local):
    """One predecessor is read to its end and unassigned, the other is not: the cut must cover both."""
    await create_shrinkable(local.client, "s/t", 2)
    events = await fill(local.client, "s/t", 200)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    one, two = await group.reader("one"), await group.reader("two")
    while len(one.segments) != 1 or len(two.segments) != 1:
        await asyncio.gather(one.read_batch(1, 0.01), two.read_batch(1, 0.01))
    assert await local.client.stream("s/t").scale(1)
    events += await fill(local.client, "s/t", 50, 200)
    while one.segments:
        await one.read_batch(1000, 0.01)
    assert len((await group.info()).waiting) == 1
    cut = asyncio.create_task(group.stream_cuts())
    while not cut.done():
        await asyncio.gather(one.read_batch(1, 0.01), two.read_batch(1, 0.01))
    (found,) = (await cut).values()
    assert len(found.positions) == 2
    async with local.client.reader("s/t", end=found) as before:
        read = [event async for event in before]
    await group.reset(found)
    worker = await Worker(group, "again").start()
    await until(lambda: len(worker.done) + len(read) == len(events))
    assert sorted(worker.done + read) == sorted(events)
    await worker.leave()


@on_node
async def test_no_cut_exists_between_two_scales(local):
    """One segment is not read to its end; beside it a reader has continued, and a merged one waits (seed
    4220569625)."""
    await create_shrinkable(local.client, "s/t", 2)
    await fill(local.client, "s/t", 200)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    one, two = await group.reader("one"), await group.reader("two")
    while len(one.segments) != 1 or len(two.segments) != 1:
        await asyncio.gather(one.read_batch(1, 0.01), two.read_batch(1, 0.01))

    async def cuts(first, second):
        """Both pass the silent checkpoint."""
        taken = asyncio.create_task(group.stream_cuts())
        while not taken.done():
            await asyncio.gather(first.read_batch(1, 0.01), second._manage(second._member, None))  # and no events
        return await taken

    stream = local.client.stream("s/t")
    assert await stream.scale(3)
    await fill(local.client, "s/t", 100, 200)
    while not any(segment.segment.epoch == 1 for segment in one.segments):
        await one.read_batch(1000, 0.01)
    with pytest.raises(Conflict, match="between two scales"):  # in the middle of the successor
        await cuts(one, two)
    assert await stream.scale(1)
    while one.segments:
        await one.read_batch(1000, 0.01)
    with pytest.raises(Conflict, match="between two scales"):  # after its end
        await cuts(one, two)
    while not any(segment.segment.epoch == 2 for segment in (*one.segments, *two.segments)):
        await asyncio.gather(one.read_batch(1000, 0.01), two.read_batch(1000, 0.01))
    (found,) = (await cuts(one, two)).values()
    assert [segment.epoch for segment in found.positions] == [2]


@on_node
async def test_between_two_scales_progress_is_right_and_a_reset_loses_nothing(local):
    """One reader is in the third epoch; the other is in the first, so a segment of the second waits."""
    await local.client.create_stream("s/t", segments=2)
    first = await fill(local.client, "s/t", 200)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    one, two = await group.reader("one"), await group.reader("two")
    read: list[bytes] = []

    async def read_on(*readers):
        for reader in readers:
            batch = await reader.read_batch(20, 0.01)
            read.extend(batch.events if batch else [])

    while len(one.segments) != 1 or len(two.segments) != 1:
        await read_on(one, two)
    events = list(first)
    for segments in (3, 6):
        assert await local.client.stream("s/t").scale(segments)
        events += await fill(local.client, "s/t", 100, len(events))
    while not any(segment.segment.epoch == 2 for segment in one.segments):
        await read_on(one)
    await one.close()
    await two.close()
    with pytest.raises(Conflict, match="between two scales"):
        await group.stream_cuts()
    rows = await group.progress()
    assert {row.segment.epoch for row in rows} == {0, 1, 2}
    left = set(events) - set(read)
    assert sum(row.unread for row in rows) == await group.unread_bytes() == sum(8 + len(event) for event in left)
    here = newest_positions(await group._shared.fetch())
    passed = [AddReader("r"), CreateCheckpoint("here"), CheckpointReader("here", "r", here)]
    await group._shared.update(lambda _: passed)
    await group.reset()
    worker = await Worker(group, "again").start()
    again = left | set(events[len(first) :])  # all of the later epochs: no cut is between them
    await until(lambda: len(worker.done) >= len(again))
    assert sorted(worker.done) == sorted(again)
    await worker.leave()


@on_node
async def test_caller_gets_its_checkpoint_although_an_automatic_one_clears_it(local):
    await local.client.create_stream("s/t", segments=2)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    others = (await local.client.reader_groups.open("s/g"))._shared
    await others.update(lambda _: [AddReader("r")])
    right = group._shared.fetch

    async def fetch():
        """Between two fetches of the caller the reader passes the checkpoint, and begins an automatic one."""
        group._shared.fetch = right
        passed = CheckpointReader("mine", "r", {})
        await others.update(lambda _: [passed, CreateCheckpoint("auto"), ClearCheckpointsBefore("auto")])
        return await right()

    group._shared.fetch = fetch
    taken = await group.checkpoint("mine", timeout=5)
    assert list(taken.cuts.values()) == [await local.client.stream_cut_head("s/t")]


@on_node
async def test_consumption_is_released_at_checkpoints_or_manually(local):
    await local.client.create_stream("s/t", segments=2)
    events = await fill(local.client, "s/t", 100)
    groups = local.client.reader_groups
    group = await groups.create("s/auto", "s/t", automatic_checkpoint=0.05, retention="checkpoint")
    by_hand = await groups.create("s/hand", "s/t", retention="manual")
    name = StreamName("s", "t")
    assert await calls.subscribers(local.client.session, name) == ["s/auto", "s/hand"]
    worker = await Worker(group, "r").start()
    await until(lambda: len(worker.done) == len(events))
    tail = await local.client.stream_cut_tail("s/t")

    async def released(subscriber):
        key = subscriber_key("t", subscriber)
        (value,) = await local.node.controller.catalog.get("s", [key])
        return decode_subscriber(value.value).cut

    wanted = {segment.packed: offset for segment, offset in tail.positions.items()}
    while await released("s/auto") != wanted:
        await asyncio.sleep(0.01)
    await by_hand.update_retention_cut(tail)
    assert await released("s/hand") == wanted
    head = await local.client.stream_cut_head("s/t")
    with pytest.raises(Invalid, match="cover"):
        await by_hand.update_retention_cut(StreamCut(name, {next(iter(head.positions)): 0}))
    await worker.leave()
    await group.delete()
    assert await calls.subscribers(local.client.session, name) == ["s/hand"]


@on_node
async def test_readers_continue_through_compaction_and_lost_connections(local):
    await local.client.create_stream("s/t", segments=4)
    events = await fill(local.client, "s/t", 200)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.05)
    workers = [await Worker(group, f"r{number}").start() for number in range(2)]
    for turn in range(4):
        await group._shared.synchronizer.compact(_snapshot)
        local.cut_connections()
        events += await fill(local.client, "s/t", 100, 200 + 100 * turn)
        await until_read(workers, len(events))
    assert sorted(total(*workers)) == sorted(events)
    late = await Worker(group, "late").start()  # it begins at the mark
    await until(lambda: late.reader.segments)
    for worker in (*workers, late):
        await worker.leave()


@on_node
async def test_replaced_reader_raises_conflict_after_a_compaction(local):
    """It may have been suspended all the time; the segments of a later reader of its name are not its own."""
    await local.client.create_stream("s/t")
    (event,) = await fill(local.client, "s/t", 1)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    earlier, also_earlier = await group.reader("r"), await group.reader("other")
    for name in ("r", "other"):
        await group.reader_offline(name)
    later = await group.reader("r")
    await group.reader("other")
    await group._shared.synchronizer.compact(_snapshot)
    with pytest.raises(Conflict, match="not in group"):
        await earlier.read(0.1)
    await also_earlier.close()
    assert await group.online_readers() == ["r", "other"]
    assert (await later.read(HANG_SECONDS)).event == event
    begun_at_the_mark = await local.client.reader_groups.open("s/g")
    assert begun_at_the_mark._shared.state.joined == later._shared.state.joined


@on_node
async def test_one_group_reads_several_streams(local):
    for stream in ("s/a", "s/b"):
        await create_shrinkable(local.client, stream, 2)
    events = await fill(local.client, "s/a", 100) + await fill(local.client, "s/b", 100, 1000)
    group = await local.client.reader_groups.create("s/g", ["s/a", "s/b"], automatic_checkpoint=0.05)
    one, two = [await Worker(group, name).start() for name in ("one", "two")]
    for stream in ("s/a", "s/b"):
        await local.client.stream(stream).scale(1)
    events += await fill(local.client, "s/a", 100, 100) + await fill(local.client, "s/b", 100, 1100)
    for stream in ("s/a", "s/b"):
        await local.client.seal_stream(stream)
    await asyncio.gather(one.task, two.task)
    assert sorted(one.done + two.done) == sorted(events)
    await one.leave()
    await two.leave()


@on_node
async def test_config_change_of_a_lost_author_is_completed(local):
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 20)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.05)
    state = await group._shared.fetch()
    await group._shared.update(lambda _: [UpdatingConfig(True)])
    session = local.client.session
    # The author is slow, or lost: if the flag went now, nobody would look again after its call.
    await generations.adopt_generation(session, group._shared)
    assert (await group._shared.fetch()).updating
    await calls.update(
        session, "s", "g", state.config
    )  # and here the author dies: the controller has generation 1, the state has 0
    await generations.adopt_generation(session, group._shared)
    assert (await group.info()).generation == 1
    assert not (await group._shared.fetch()).updating
    await generations.adopt_generation(session, group._shared)
    worker = await Worker(group, "r").start()
    await until(lambda: worker.done == events)
    await worker.leave()
