"""Notes of time, watermarks, and the windows readers make of them."""

import pytest

from sarit.client.streams import watermarks
from sarit.client.streams.event_time import TimeWindow
from sarit.client.streams.watermarks import Watermark
from sarit.controller.model import watermarks as made_by_controller
from sarit.controller.model.epochs import SegmentRange
from sarit.core.errors import Invalid
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName
from tests.unit.client.nodes import on_node

NAME = StreamName("s", "t")
LEFT, RIGHT = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)
BOTH = KeyRange(0.0, 1.0)
A, B, C, D = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2), SegmentId(2, 3)


def test_watermark_decodes_java_bytes() -> None:
    """By naming.md par. 5: version head, one revision, two longs, then pairs of a range with a head of its own and a
    long."""
    data = bytes.fromhex(
        "00 00 01 00 0000003c 000000000000000a 000000000000001e 01"
        "00 00 01 00 00000018 0000000100000002 0000000000000000 3ff0000000000000"
        "0000000000000063".replace(" ", "")
    )
    size = len(data) - 8
    data = data[:4] + size.to_bytes(4, "big") + data[8:]
    assert watermarks.decode(data) == Watermark(10, 30, {C: (BOTH, 99)})
    assert data == made_by_controller.encode(
        made_by_controller.Watermark(10, 30, ((SegmentRange(0.0, 1.0, C.packed), 99),))
    )
    for broken in (data[:-1], data[:20], b"", b"\x00\x01" + data[2:]):
        with pytest.raises(Invalid):
            watermarks.decode(broken)


@pytest.mark.parametrize(
    ("position", "behind", "ahead"),
    [
        ({A: (LEFT, 10), B: (RIGHT, 5)}, False, True),
        ({A: (LEFT, 50), B: (RIGHT, 50)}, True, True),
        ({A: (LEFT, 60), B: (RIGHT, 50)}, True, False),
        ({A: (LEFT, 60), B: (RIGHT, 40)}, False, False),
        ({C: (BOTH, 0)}, True, False),
        ({A: (LEFT, 50), D: (RIGHT, 0)}, True, False),
    ],
)
def test_position_is_compared_with_a_watermark_per_segment(position, behind, ahead) -> None:
    mark = Watermark(1, 2, {A: (LEFT, 50), B: (RIGHT, 50)})
    assert (watermarks.is_behind(mark, position), watermarks.is_ahead(mark, position)) == (behind, ahead)


def test_watermark_of_successors_is_ahead_of_predecessors() -> None:
    mark = Watermark(1, 2, {C: (BOTH, 0)})
    position = {A: (LEFT, 50), B: (RIGHT, 50)}
    assert (watermarks.is_behind(mark, position), watermarks.is_ahead(mark, position)) == (False, True)


@on_node
async def test_time_windows_follow_all_writers(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    stream, advance = made.client.stream("s/t"), made.node.controller.watermarks.advance
    cuts = [await made.client.stream_cut_tail("s/t")]
    windows = stream.time_windows()
    assert await windows.at(cuts[0]) == TimeWindow(None, None)
    one, two = made.client.writer("s/t", name="one"), made.client.writer("s/t", name="two")
    for time in (100, 200, 300):
        if time == 300:
            await stream.scale(3)
        for writer, late in ((one, 0), (two, 5)):
            for number in range(50):
                writer.write(f"{number}", key=str(number))
            await writer.note_time(time + late)
        assert await advance(NAME)
        cuts.append(await made.client.stream_cut_tail("s/t"))
    found = [await windows.at(cut) for cut in cuts]
    assert found == [TimeWindow(None, 105), TimeWindow(100, 105), TimeWindow(200, 205), TimeWindow(300, 305)]
    async with made.client.reader("s/t", end=cuts[1]) as reader:
        between = stream.time_windows()
        await reader.read_events(30)
        assert await between.at(reader.position()) == TimeWindow(None, 105)
        while await reader.read_events():
            pass
        assert (await between.at(reader.position())).lower == 100
    with pytest.raises(Invalid, match="later time"):
        await one.note_time(50)
    with pytest.raises(Invalid, match="not in s/t"):
        await windows.at(await made.client.stream_cut_head("s/_MARKt"))
    await two.close()
    one.write("more")
    await one.note_time(400)
    await advance(NAME)  # takes into account the last note of the writer that left
    await advance(NAME)
    assert (await windows.at(await made.client.stream_cut_tail("s/t"))).lower == 400
    await one.close()


@on_node
async def test_commit_with_time_notes_it(made) -> None:
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t", name="payments")
    transaction = await writer.begin()
    transaction.write("x")
    await transaction.commit(time=77)
    await made.node.controller.watermarks.advance(NAME)
    windows = made.client.stream("s/t").time_windows()
    assert (await windows.at(await made.client.stream_cut_tail("s/t"))).lower == 77


@on_node
async def test_many_watermarks_are_read_in_bounded_batches(made) -> None:
    await made.client.create_stream("s/t")
    segment = (await made.client.stream("s/t").segments())[0].segment
    async with made.client.writer("s/t") as writer:
        writer.write_many([b"x" * 92] * 3000)
    entries = []
    for number in range(3000):
        cut = ((SegmentRange(0.0, 1.0, segment.packed), 100 * number),)
        entries.append(made_by_controller.encode_entry(made_by_controller.Watermark(number, number + 5, cut)))
    (mark,) = await made.client.stream("s/_MARKt").segments()
    await made.node.controller.segments.write(StreamName("s", "_MARKt").segment(mark.segment), b"".join(entries), 0)
    windows = made.client.stream("s/t").time_windows()
    async with made.client.reader("s/t", end="tail") as reader:
        for count in (0, 1, 500, 1499, 2500):
            while (at := reader.position().positions[segment] // 100) < count:
                await reader.read_events(count - at)
            assert await windows.at(reader.position()) == TimeWindow(count, count + 5)
            assert len(windows._pending) <= 2000
