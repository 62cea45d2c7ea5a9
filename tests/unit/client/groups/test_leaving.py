"""Where other readers continue when a reader's block ends: after what it processed, not after what it was handed."""

import pytest

import sarit
from sarit.client.groups.reader import CheckpointEvent
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.unit.client.groups.harness import fill
from tests.unit.client.nodes import on_node


async def handed(asked):
    """What was asked for, in any of the three forms, as a list of events."""
    found = await asked
    assert found is not None
    assert not isinstance(found, CheckpointEvent)
    if hasattr(found, "event"):
        return [found.event]
    return found.events if isinstance(found.events, list) else found.events.column(0).to_pylist()


WAYS = [
    lambda reader: reader.read(HANG_SECONDS),
    lambda reader: reader.read_batch(timeout=HANG_SECONDS),
    lambda reader: reader.read_batch(7, HANG_SECONDS),
    lambda reader: reader.read_arrow(HANG_SECONDS),
]


@pytest.mark.parametrize("before", range(3), ids=["at once", "after an event", "after a batch of seven"])
@pytest.mark.parametrize("way", range(4), ids=["an event", "a batch", "a batch of seven", "arrow"])
def test_unprocessed_events_are_read_again_after_an_error(before, way, tmp_path):
    """After an error, or Ctrl-C, in a reader's block up to 10,000 events counted as read that were not processed."""

    @on_node
    async def test(local):
        await local.client.create_stream("s/t")
        events = await fill(local.client, "s/t", 100)
        group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
        done = []
        with pytest.raises(KeyboardInterrupt):
            async with await group.reader("one") as reader:
                if before:
                    done += await handed(WAYS[2 * before - 2](reader))
                await handed(WAYS[way](reader))
                raise KeyboardInterrupt
        async with await group.reader("two") as reader:
            while len(done) < 100:
                done += await handed(reader.read_batch(timeout=HANG_SECONDS))
        assert done == events

    test(tmp_path)


@on_node
async def test_normal_block_end_and_close_consume_all_that_was_handed_out(local):
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 30)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    async with await group.reader("one") as reader:
        found = await handed(reader.read_batch(7, HANG_SECONDS))
    with pytest.raises(KeyError):
        async with await group.reader("two") as reader:
            found += await handed(reader.read_batch(7, HANG_SECONDS))
            await reader.close()
            raise KeyError
    async with await group.reader("three") as reader:
        found += await handed(reader.read_batch(timeout=HANG_SECONDS))
    assert found == events


@on_node
async def test_failed_read_consumes_what_was_handed_out_before(local):
    """A reader that requests the next events has processed the last, also when the request fails."""
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 20)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    with pytest.raises(TimeoutError):
        async with await group.reader("one") as reader:
            found = await handed(reader.read_batch(timeout=HANG_SECONDS))
            assert await reader.read(0) is None
            raise TimeoutError
    events += await fill(local.client, "s/t", 10, 20)
    async with await group.reader("two") as reader:
        assert found + await handed(reader.read_batch(timeout=HANG_SECONDS)) == events


def test_blocking_reader_leaves_at_the_same_positions(tmp_path):
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t")
        with client.writer("s/t") as writer:
            writer.write_many([f"{number}" for number in range(20)])
        group = client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
        with pytest.raises(KeyError), group.reader("one") as reader:
            assert reader.read(HANG_SECONDS).event == b"0"
            assert len(reader.read_batch(timeout=HANG_SECONDS).events) == 19
            raise KeyError
        with group.reader("two") as reader:
            assert reader.read_batch(timeout=HANG_SECONDS).events == [b"%d" % number for number in range(1, 20)]
