"""The event reader: order, ends, positions, truncation, scaling, broken connections."""

import asyncio
import random

import pytest

from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.names import SegmentId
from tests.limits import HANG_SECONDS
from tests.unit.client.world import on_loop, until
from tests.unit.client.writer.test_writer import by_key

FIRST = SegmentId(0, 0)
NAME = "s/t/0.#epoch.0"


def numbered(count: int, pad: int = 0) -> list[bytes]:
    return [b"%d" % number + b"." * pad for number in range(count)]


async def write(world, events, **options) -> None:
    async with world.client.writer("s/t") as writer:
        writer.write_many(events, **options)


@pytest.mark.parametrize("most", [11, 100, 4096])
@pytest.mark.parametrize("pad", [0, 50, 1000])
def test_events_are_whole_for_any_division_of_replies(most: int, pad: int) -> None:
    @on_loop
    async def check(world) -> None:
        world.controller.create("s/t")
        world.store.max_read = most
        events = numbered(200 if pad < 1000 else 12, pad)
        await write(world, events)
        async with world.client.reader("s/t", end="tail") as reader:
            assert [event async for event in reader] == events
            assert reader.position() == await world.client.stream_cut_tail("s/t")
        async with world.client.reader("s/t", end="tail") as reader:
            tables = [batch async for batch in reader.arrow_batches()]
        assert [event for table in tables for event in table.column("event").to_pylist()] == events
        offsets = [offset for table in tables for offset in table.column("offset").to_pylist()]
        data = world.store.segments[NAME].data
        assert [bytes(data[o + 8 : o + 8 + len(e)]) for o, e in zip(offsets, events, strict=True)] == events
        assert {s for table in tables for s in table.column("segment").to_pylist()} == {FIRST.packed}

    check()


@on_loop
async def test_position_is_exact_after_every_event(world) -> None:
    world.controller.create("s/t", 3)
    events = [f"{n % 13}:{n}".encode() for n in range(300)]
    await write(world, events, keys=[str(n % 13) for n in range(300)])
    rng = random.Random(1)
    seen: list[bytes] = []
    position: StreamCut | str = "head"
    while len(seen) < 300:
        async with world.client.reader("s/t", start=position, end="tail") as reader:
            stop_after = rng.randrange(1, 20)
            way = rng.randrange(3)
            if way == 0:
                async for event in reader:
                    seen.append(event)
                    stop_after -= 1
                    if not stop_after:
                        break
            elif way == 1:
                seen += await reader.read_events(stop_after)
            else:
                table = await reader.read_arrow(stop_after)
                seen += table.column("event").to_pylist()
            position = reader.position()
    expected = {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 300, 13)] for k in range(13)}
    assert by_key(seen) == expected


@on_loop
async def test_reading_methods_can_be_mixed(world) -> None:
    world.controller.create("s/t")
    events = numbered(500)
    await write(world, events)
    reader = world.client.reader("s/t", end="tail")
    seen = await reader.read_events(7)
    seen += (await reader.read_arrow(5)).column("event").to_pylist()
    async for event in reader:
        seen.append(event)
        if len(seen) == 40:
            break
    table = await reader.read_arrow(10)
    assert len(table) == 10
    seen += table.column("event").to_pylist()
    assert reader.position().positions[FIRST] == sum(len(event) + 8 for event in seen)
    seen += await reader.read_events(3)
    assert reader.position().positions[FIRST] == sum(len(event) + 8 for event in seen)
    async for batch in reader.batches():
        seen += batch
    assert seen == events
    reader.close()


@pytest.mark.parametrize("most", [0, -1])
def test_to_ask_for_no_events_is_refused(most: int) -> None:
    """A limit of 0 gave empty batches for ever, and an empty list means the end of the stream."""

    @on_loop
    async def check(world) -> None:
        world.controller.create("s/t")
        await write(world, numbered(9))
        async with world.client.reader("s/t", end="tail") as reader:
            for ask in (reader.read_events, reader.read_arrow, lambda n: anext(reader.arrow_batches(n))):
                with pytest.raises(Invalid, match="give 1 or more"):
                    await ask(most)
            assert await reader.read_events(1) == [b"0"]
            assert len(await reader.read_arrow(1)) == 1

    check()


@on_loop
async def test_error_in_finding_successors_fails_the_reader(world) -> None:
    """Errors that were not foreseen were logged, and the reader waited for ever."""
    stream = world.controller.create("s/t")
    await write(world, [b"one"])
    world.controller.scale(stream, [FIRST], [(0.0, 1.0)])
    world.controller.failures.append(ZeroDivisionError("made by the test"))
    async with world.client.reader("s/t") as reader:
        assert await reader.read_events() == [b"one"]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="made by the test"):
                await reader.read_events(timeout=HANG_SECONDS)


@on_loop
async def test_error_in_fetching_a_segment_fails_the_reader(world) -> None:
    world.controller.create("s/t")

    async def fails(stream, segment):
        raise ZeroDivisionError("made by the test")

    world.controller.endpoint = fails
    async with world.client.reader("s/t") as reader:
        with pytest.raises(ZeroDivisionError, match="made by the test"):
            await reader.read_events(timeout=HANG_SECONDS)


@on_loop
async def test_reader_follows_the_tail(world) -> None:
    world.controller.create("s/t")
    await write(world, [b"old"])
    reader = world.client.reader("s/t", start="tail")
    assert await reader.read_events(timeout=0.02) == []
    assert len(await reader.read_arrow(timeout=0.02)) == 0
    for number in range(5):
        await write(world, [b"new%d" % number])
        assert await reader.read_events(timeout=HANG_SECONDS) == [b"new%d" % number]
    assert await reader.read_events(timeout=0.02) == []
    reader.close()
    with pytest.raises(Invalid, match="closed"):
        await reader.read_events()


@on_loop
async def test_reader_ends_with_a_sealed_stream(world) -> None:
    stream = world.controller.create("s/t", 2)
    await write(world, numbered(50))
    reader = world.client.reader("s/t")
    seen = await reader.read_events(3)
    asyncio.get_running_loop().call_later(0.02, world.controller.seal, stream)
    seen += [event async for event in reader]
    assert sorted(seen) == sorted(numbered(50))
    assert await reader.read_events() == []
    assert await reader.read_arrow() is None


def test_successors_wait_for_all_their_predecessors() -> None:
    @on_loop
    async def check(world) -> None:
        stream = world.controller.create("s/t", 2)
        world.store.max_read = 64
        expected = {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 1200, 11)] for k in range(11)}
        scales = iter(
            [
                lambda: world.controller.scale(stream, [FIRST], [(0.0, 0.2), (0.2, 0.5)]),
                lambda: world.controller.scale(stream, current(), [(0.0, 0.6), (0.6, 1.0)]),
                lambda: world.controller.scale(stream, current(), [(0.0, 1.0)]),
            ]
        )

        def current() -> list[SegmentId]:
            return [found.segment for found in world.controller.current[stream]]

        async def write_and_scale() -> None:
            async with world.client.writer("s/t") as writer:
                for number in range(1200):
                    writer.write(f"{number % 11}:{number}", key=str(number % 11))
                    if number in (300, 600, 900):
                        await writer.flush()
                        next(scales)()
            world.controller.seal(stream)

        task = asyncio.create_task(write_and_scale())
        seen: list[bytes] = []
        position = "head"
        while True:
            async with world.client.reader("s/t", start=position) as reader:
                batch = await reader.read_events(50)
                seen += batch
                position = reader.position()
            if not batch:
                break
        await task
        assert by_key(seen) == expected
        seen = [event async for event in world.client.reader("s/t")]
        assert by_key(seen) == expected

    check()


@on_loop
async def test_end_cut_is_exact_across_scaling(world) -> None:
    stream = world.controller.create("s/t")
    await write(world, numbered(10))
    start = await world.client.stream_cut_tail("s/t")
    await write(world, [b"a", b"b"])
    world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    await write(world, [b"c%d" % n for n in range(20)], keys=[str(n) for n in range(20)])
    end = await world.client.stream_cut_tail("s/t")
    await write(world, [b"beyond"] * 5)
    seen = [event async for event in world.client.reader("s/t", start, end)]
    assert sorted(seen) == sorted([b"a", b"b", *(b"c%d" % n for n in range(20))])
    assert seen[:2] == [b"a", b"b"]
    assert [event async for event in world.client.reader("s/t", end, end)] == []
    assert [event async for event in world.client.reader("s/t", str(start), start)] == []


@on_loop
async def test_lost_connections_are_invisible_to_the_reader(world) -> None:
    world.controller.create("s/t", 2)
    world.store.max_read = 500
    events = numbered(2000)
    await write(world, events, keys=["a"] * 1000 + ["b"] * 1000)
    seen = []
    async for event in world.client.reader("s/t", end="tail"):
        seen.append(event)
        if len(seen) % 300 == 0:
            world.store.drop_all()
            await asyncio.sleep(0)
    assert sorted(seen) == sorted(events)


@on_loop
async def test_truncation_raises_unless_skipped(world) -> None:
    stream = world.controller.create("s/t", 2)
    await write(world, numbered(100), keys=["a", "b"] * 50)
    early = StreamCut(stream, {SegmentId(0, 0): 0, SegmentId(0, 1): 0})
    for segment in world.store.segments.values():
        segment.start = 18 if segment.length else 0
    with pytest.raises(Truncated, match=r"begins at 18 now.*skip_truncated") as caught:
        [event async for event in world.client.reader("s/t", early, "tail")]
    assert caught.value.start_offset == 18
    left = [event async for event in world.client.reader("s/t", early, "tail", skip_truncated=True)]
    written = sum(segment.length > 0 for segment in world.store.segments.values())
    assert len(left) < 100
    assert sum(len(event) + 8 for event in left) == sum(s.length for s in world.store.segments.values()) - 18 * written


@on_loop
async def test_deleted_segment_is_skipped_only_on_demand(world) -> None:
    stream = world.controller.create("s/t")
    await write(world, [b"gone"])
    world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    await write(world, [b"here"])
    del world.store.segments[NAME]
    with pytest.raises(Truncated, match="is gone"):
        [event async for event in world.client.reader("s/t", "head", "tail")]
    assert [event async for event in world.client.reader("s/t", "head", "tail", skip_truncated=True)] == [b"here"]


@on_loop
async def test_skipping_reader_stops_at_its_end_cut(world) -> None:
    """The end has a segment that is gone, and one of a later epoch than the successors of that one."""
    stream = world.controller.create("s/t", 2)
    left, right = SegmentId(0, 0), SegmentId(0, 1)
    world.store.segments[stream.segment(left)].append([b"\0" * 7 + b"\4gone"])
    nexts = world.controller.scale(stream, [left], [(0.0, 0.5)])
    world.store.segments[stream.segment(nexts[0])].append([b"\0" * 7 + b"\6beyond"])
    last = world.controller.scale(stream, [right], [(0.5, 1.0)])
    world.store.segments[stream.segment(last[0])].append([b"\0" * 7 + b"\4here"])
    start = StreamCut(stream, {left: 0, last[0]: 0})
    end = StreamCut(stream, {left: 12, last[0]: 12})
    del world.store.segments[stream.segment(left)]
    assert [event async for event in world.client.reader("s/t", start, end, skip_truncated=True)] == [b"here"]


@on_loop
async def test_corrupt_bytes_end_the_reader_permanently(world) -> None:
    world.controller.create("s/t")
    world.store.max_read = 12
    segment = world.store.segments[NAME]
    segment.append([b"\0" * 7 + b"\4good" + b"\1" * 12 + b"\0" * 7 + b"\4torn"])
    for arrow in (False, True):
        reader = world.client.reader("s/t", end="tail")
        read = reader.read_arrow if arrow else reader.read_events
        assert len(await read()) == 1
        for _ in range(3):
            with pytest.raises(Corrupt, match="no event begins here"):
                await read()
        assert reader.position().positions == {FIRST: 12}


@on_loop
async def test_unread_events_mean_not_at_the_tail(world) -> None:
    world.controller.create("s/t")
    await write(world, numbered(10))
    reader = world.client.reader("s/t")
    assert not reader.at_tail, "nothing was fetched yet"
    assert (await reader.read_arrow(7)).num_rows == 7
    assert not reader.at_tail, "three more are buffered"
    assert (await reader.read_arrow(7)).num_rows == 3
    assert (await reader.read_arrow(timeout=0.01)).num_rows == 0
    assert reader.at_tail
    world.store.max_read = 31  # the last read meets the tail within what it asks for
    reader = await world.client.reader("s/t").open()
    seen = await reader.read_events()
    await until(lambda: reader._sources[FIRST].fetch.at_tail)
    while not reader.at_tail:
        seen += await reader.read_events()
    assert seen == numbered(10)


@on_loop
async def test_unreadable_sources_raise_clear_errors(world) -> None:
    with pytest.raises(NotFound, match="s/none does not exist"):
        await world.client.reader("s/none").read_events()
    world.controller.create("s/t")
    other = world.controller.create("s/other")
    with pytest.raises(Invalid, match="cut of s/other"):
        await world.client.reader("s/t", StreamCut(other, {FIRST: 0})).open()
    with pytest.raises(Invalid, match="open"):
        world.client.reader("s/t").position()
    world.store.segments[NAME].append([b"\0\0\0\7rubbish"])
    with pytest.raises(Corrupt, match="no event begins here"):
        await world.client.reader("s/t").read_events()


@on_loop
async def test_segment_batches_read_between_two_offsets(world) -> None:
    world.controller.create("s/t")
    events = numbered(300)
    await write(world, events)
    start, end = sum(len(e) + 8 for e in events[:20]), sum(len(e) + 8 for e in events[:170])
    batches = [batch async for batch in world.client.segment_batches("s/t", FIRST, start, end)]
    assert [event for batch in batches for event in batch.column("event").to_pylist()] == events[20:170]
    assert [batch async for batch in world.client.segment_batches("s/t", FIRST, end, end)] == []
    with pytest.raises(Corrupt, match="middle of an event"):
        [batch async for batch in world.client.segment_batches("s/t", FIRST, start, end - 1)]


@on_loop
async def test_end_of_a_sealed_stream_is_found_through_its_scales(world) -> None:
    stream = world.controller.create("s/t")
    await write(world, [b"a"])
    low, high = world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    await write(world, [b"b"] * 3)
    world.controller.seal(stream)
    tail = await world.client.stream_cut_tail("s/t")
    assert set(tail.positions) == {low, high}
    assert sum(tail.positions.values()) == 27
