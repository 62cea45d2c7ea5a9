"""The time windows of a reader group: of all readers together, never ahead of the last of them."""

import asyncio

import pytest

from sarit.client.streams.event_time import TimeWindow
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node

NAME = StreamName("s", "t")


async def _noted(local, time: int) -> None:
    """20 events and a watermark after them."""
    async with local.client.writer(NAME, name="w") as writer:
        for number in range(20):
            writer.write(f"{time}:{number}", key=str(number))
        await writer.note_time(time)
        assert await local.node.controller.watermarks.advance(NAME)


async def _drain(reader, expected: int) -> int:
    """Read until `expected` events have come, however slow the machine is, and then until there are no more."""
    count = 0
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await reader.read_batch(timeout=0.3)) is not None or count < expected:
            count += len(getattr(found, "events", ()))
    return count


async def _events_of(local, segments) -> int:
    count = 0
    tail = await local.client.stream_cut_tail(NAME)
    for _, segment in segments:
        async for batch in local.client.segment_batches(NAME, segment, end=tail.positions[segment]):
            count += batch.num_rows
    return count


@on_node
async def test_time_window_of_a_single_reader_follows_its_position(local):
    await local.client.create_stream(NAME, segments=2)
    await _noted(local, 100)
    group = await local.client.reader_groups.create("s/g", NAME, automatic_checkpoint=None)
    async with await group.reader("one") as reader:
        assert await reader.time_window(NAME) == TimeWindow(None, 100)
        assert await _drain(reader, 20) == 20
        assert await reader.time_window("s/t") == TimeWindow(100, 100)
        await local.client.stream(NAME).scale(3)
        await _noted(local, 200)
        assert await _drain(reader, 20) == 20
        assert await reader.time_window(NAME) == TimeWindow(200, 200)
        with pytest.raises(Invalid, match="does not read s/other"):
            await reader.time_window("s/other")


@on_node
async def test_time_window_waits_for_the_slowest_reader(local):
    await local.client.create_stream(NAME, segments=2)
    group = await local.client.reader_groups.create("s/g", NAME, automatic_checkpoint=0.1)
    async with await group.reader("one") as one, await group.reader("two") as two:

        async def shared() -> bool:
            await asyncio.gather(one.read_batch(timeout=0.05), two.read_batch(timeout=0.05))
            return len(one.segments) == len(two.segments) == 1

        async with asyncio.timeout(HANG_SECONDS):
            while not await shared():
                pass
        await _noted(local, 100)
        read = await _drain(one, await _events_of(local, one.segments))
        assert 0 < read < 20
        assert (await one.time_window(NAME)).lower is None
        assert read + await _drain(two, 20 - read) == 20
        async with asyncio.timeout(HANG_SECONDS):
            while (await one.time_window(NAME)).lower != 100:  # until the other reader has reported its position
                await asyncio.gather(one.read_batch(timeout=0.2), two.read_batch(timeout=0.2))
