"""Manual scaling: plans, and writers and readers that continue under load."""

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.client.core.values import SegmentRange
from sarit.client.streams import manual_scaling as scaling
from sarit.controller.model.epochs import promoted_epoch
from sarit.controller.model.records import Work, WorkKind
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName
from tests.unit.client.nodes import in_keys, on_node


def ranges(*highs: float) -> list[SegmentRange]:
    lows = (0.0, *highs)
    return [SegmentRange(SegmentId(0, n), lows[n], high) for n, high in enumerate((*highs, 1.0))]


def test_plans_replace_the_fewest_segments() -> None:
    current = ranges(0.25, 0.5)
    assert scaling.to_count(current, 2) == ([SegmentId(0, 0), SegmentId(0, 1)], [KeyRange(0.0, 0.5)])
    assert scaling.to_count(ranges(0.5), 2) == ([], [])
    thirds = ranges(0.3333333333333333, 0.6666666666666667)  # as another client may have rounded it
    assert scaling.to_count(thirds, 3) == ([], [])
    assert scaling.split(current, SegmentId(0, 2), 2) == ([SegmentId(0, 2)], [KeyRange(0.5, 0.75), KeyRange(0.75, 1.0)])
    assert scaling.merge(current, [SegmentId(0, 1), SegmentId(0, 0)])[1] == [KeyRange(0.0, 0.5)]
    for segments in ([SegmentId(0, 0)], [SegmentId(0, 0), SegmentId(0, 2)]):
        with pytest.raises(Invalid, match="neighbours"):
            scaling.merge(current, segments)
    with pytest.raises(NotFound, match=r"7\.#epoch\.0 is not active"):
        scaling.split(current, SegmentId(0, 7), 2)
    with pytest.raises(Invalid):
        scaling.split(current, SegmentId(0, 1), 1)
    for count in (0, 10_001, 10**18):  # the last would take all memory
        with pytest.raises(Invalid, match="1 to 10000 segments"):
            scaling.to_count(current, count)
    assert len(scaling.split(current, SegmentId(0, 1), 9_998)[1]) == 9_998
    with pytest.raises(Invalid, match="1 to 10000 segments, not 10001"):
        scaling.split(current, SegmentId(0, 1), 9_999)


@on_node
async def test_split_merge_and_epochs(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    stream = made.client.stream("s/t")
    first, second = (found.segment for found in await stream.segments())
    assert await stream.split(second, into=3)
    assert [found.high for found in await stream.segments()] == [0.5, pytest.approx(2 / 3), pytest.approx(5 / 6), 1.0]
    with pytest.raises(NotFound, match="not active"):
        await stream.split(second)
    assert await stream.merge([found.segment for found in await stream.segments()][2:])
    assert not await stream.scale(2) or await stream.scale(3)
    assert [len(epoch.segments) for epoch in await stream.epochs()][:3] == [2, 4, 3]
    assert [epoch.number for epoch in await stream.epochs()] == list(range(len(await stream.epochs())))
    await made.client.seal_stream("s/t")
    with pytest.raises(Conflict, match="sealed"):
        await stream.scale(5)


@on_node
async def test_epochs_of_a_promoted_stream_have_a_gap(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    stream = made.client.stream("s/t")

    def jump(record, _):
        return replace(record, work=Work(WorkKind.SCALE, (), (promoted_epoch(record.current, 1_000_000, 0),)))

    await made.node.controller.streams.change(StreamName("s", "t"), jump)
    assert await stream.scale(4)
    assert [epoch.number for epoch in await stream.epochs()] == [0, 1_000_000, 1_000_001]
    # A position beyond the end at which a segment was sealed is of the source, which had more: nothing is skipped.
    beyond = StreamCut(StreamName("s", "t"), {SegmentId(0, 0): 0, SegmentId(0, 1): 50})
    with pytest.raises(Invalid, match=r"offset 50 is after the end 0 of sealed segment s/t/1"):
        await made.read("s/t", start=beyond)


@on_node
async def test_writers_and_readers_continue_through_scales_under_load(made) -> None:
    """Four writers at full speed, a stream that scales up and down all the time, connections that break, a reader at
    the tail: every event once, and in order per key."""
    await made.client.create_stream("s/t")
    stream = made.client.stream("s/t")
    going = True
    written = dict.fromkeys((b"%d.%d" % (w, k) for w in range(4) for k in range(25)), 0)

    async def write(name: int) -> None:
        rng = random.Random(name)
        async with made.client.writer("s/t", buffer_bytes=400_000) as writer:
            while going:
                for _ in range(100):
                    key = b"%d.%d" % (name, rng.randrange(25))
                    writer.write(b"%s:%d" % (key, written[key]), key=key.decode())
                    written[key] += 1
                await writer.drain()
                await asyncio.sleep(0)

    async def scale() -> None:
        nonlocal going
        rng = random.Random(9)
        for count in (4, 1, 7, 16, 2, 8):
            await stream.scale(count)
            await asyncio.sleep(0.02)
            if rng.random() < 0.5:
                made.cut_connections()
            some = rng.choice(await stream.segments())
            await stream.split(some.segment)
            await asyncio.sleep(0.02)
        going = False

    async def read() -> dict[bytes, list[int]]:
        seen: list[bytes] = []
        async with made.client.reader("s/t") as reader:
            async for events in reader.batches():
                seen += events
        return in_keys(seen)

    reading = asyncio.ensure_future(read())
    await asyncio.gather(*(write(name) for name in range(4)), scale())
    await made.client.seal_stream("s/t")
    expected = {key: list(range(count)) for key, count in written.items()}
    assert sum(written.values()) > 50_000
    assert await reading == expected
    assert in_keys(await made.read("s/t")) == expected
    assert len(await stream.epochs()) == 13
