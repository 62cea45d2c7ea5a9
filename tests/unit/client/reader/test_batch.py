"""Batch reads between two cuts, and cuts by distance, on a real node."""

import pickle
import random
from itertools import accumulate, pairwise

import pytest

from sarit.client.core.framing import frame_events
from sarit.client.reader.batch import Slice
from sarit.client.reader.cursor import BoundaryWalk
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.limits import BOUNDARY_STEP_BYTES
from sarit.core.names import SegmentId, StreamName
from tests.unit.client.nodes import create_shrinkable, in_keys, on_node


async def fill(made, count: int, first: int = 0) -> None:
    async with made.client.writer("s/t") as writer:
        for number in range(first, first + count):
            writer.write(b"%d:%d" % (number % 9, number), key=str(number % 9))


async def events_of(batch) -> list[int]:
    return sorted([int(event.partition(b":")[2]) async for event in batch])


@on_node
async def test_batch_reads_everything_between_two_cuts(made) -> None:
    await create_shrinkable(made.client, "s/t", 3)
    stream = made.client.stream("s/t")
    await fill(made, 1000)
    first = await made.client.stream_cut_tail("s/t")
    await fill(made, 1000, 1000)
    await stream.scale(5)
    await fill(made, 1000, 2000)
    await stream.scale(2)
    await fill(made, 1000, 3000)
    second = await made.client.stream_cut_tail("s/t")
    await fill(made, 1000, 4000)
    batch = await stream.batch(first, second)
    assert await events_of(batch) == list(range(1000, 4000))
    assert await events_of(batch) == list(range(1000, 4000))
    rows = [pair async for found in batch.arrow_batches() for pair in zip(*found.to_pydict().values(), strict=True)]
    assert sorted(int(event.partition(b":")[2]) for event, _, _ in rows) == list(range(1000, 4000))
    for part in batch.slices:
        offsets = [at for _, segment, at in rows if segment == part.segment.packed]
        assert (offsets[0], offsets) == (part.start, sorted(offsets))
    assert await events_of(await stream.batch()) == list(range(5000))
    assert await events_of(await stream.batch(parallel=1)) == list(range(5000))
    assert await events_of(await stream.batch(second, second)) == []
    part = pickle.loads(pickle.dumps(batch.slices[0]))
    counted = [found.num_rows async for found in stream.read_slice(part)]
    assert sum(counted) == len([1 for _, segment, _ in rows if segment == part.segment.packed])


@on_node
async def test_next_cuts_tile_history_through_scales(made) -> None:
    await create_shrinkable(made.client, "s/t", 2)
    stream = made.client.stream("s/t")
    rng = random.Random(5)
    async with made.client.writer("s/t") as writer:
        for number in range(6000):
            size = rng.choice([0, 0, 10, 3000])
            writer.write(b"%d:%d" % (number % 9, number) + b":" * size, key=str(number % 9))
            if number in (2000, 4000):
                writer.write(b"large" * 2_000_000, key="large")
                await writer.flush()
                await stream.scale(5 if number == 2000 else 1)
    found = await pieces(stream, await made.client.stream_cut_head("s/t"), 500_000)
    sizes = [sum(map(len, piece)) for piece in found]
    assert max(size for size in sizes if size < 10_000_000) < 600_000
    events = [event for piece in found for event in piece if not event.startswith(b"large")]
    assert in_keys([event.rstrip(b":") for event in events]) == {
        b"%d" % key: list(range(key, 6000, 9)) for key in range(9)
    }
    assert sum(map(len, found)) == 6002
    tail = await made.client.stream_cut_tail("s/t")
    assert await stream.next_cut(tail, 1000) == tail
    with pytest.raises(Invalid, match="must be 1 byte or more, not 0"):
        await stream.next_cut(tail, 0)


async def pieces(stream, cut: StreamCut, distance: int, approximate: bool = False) -> list[list[bytes]]:
    cuts = [cut]
    while len(cuts) < 2 or cuts[-1] != cuts[-2]:
        cuts.append(await stream.next_cut(cuts[-1], distance, approximate=approximate))
    return [[event async for event in await stream.batch(a, b)] for a, b in pairwise(cuts)]


@on_node
async def test_approximate_cuts_lie_between_small_events(made) -> None:
    await made.client.create_stream("s/t")
    async with made.client.writer("s/t") as writer:
        for number in range(2000):
            writer.write(b"%d:%d" % (number % 9, number), key=str(number % 9))
            if number % 50 == 0:
                await writer.flush()
    stream = made.client.stream("s/t")
    found = await pieces(stream, await made.client.stream_cut_head("s/t"), 2000, approximate=True)
    assert len(found) > 10
    assert sorted(int(e.partition(b":")[2]) for piece in found for e in piece) == list(range(2000))


@on_node
async def test_approximate_cuts_and_boundaries_never_lie_in_a_large_event(made) -> None:
    await made.client.create_stream("s/t")
    large = b"0:large" * 1_300_000
    async with made.client.writer("s/t") as writer:
        for _ in range(2):
            writer.write(b"0:small")
            await writer.flush()
            writer.write(large)
    stream, segment = made.client.stream("s/t"), SegmentId(0, 0)
    end = (await made.client.stream_cut_tail("s/t")).positions[segment]
    assert await stream.boundaries(segment, 0, end, 1 << 19) == [15 + 8 + len(large)]
    assert await stream.boundaries(segment, 0, 100, 5) in ([], [15])
    found = await pieces(stream, await made.client.stream_cut_head("s/t"), 1 << 19, approximate=True)
    assert [list(map(len, piece)) for piece in found] == [[7, len(large)], [7, len(large)], []]


@on_node
async def test_truncated_slices_raise_or_are_left_out(made) -> None:
    await create_shrinkable(made.client, "s/t", 2)
    stream = made.client.stream("s/t")
    head = await made.client.stream_cut_head("s/t")
    await fill(made, 1000)
    middle = await made.client.stream_cut_tail("s/t")
    await fill(made, 1000, 1000)
    before = await stream.batch(head, "tail")
    await made.client.truncate_stream("s/t", cut=middle)
    with pytest.raises(Truncated, match="was truncated and begins at"):
        await stream.batch(head, "tail")
    with pytest.raises(Truncated):
        await events_of(before)
    with pytest.raises(Truncated):
        await stream.next_cut(head, 100)
    assert await events_of(await stream.batch(head, "tail", skip_truncated=True)) == list(range(1000, 2000))
    await stream.scale(1)
    await fill(made, 1000, 2000)
    after = await made.client.stream_cut_tail("s/t")
    await made.client.truncate_stream("s/t", cut=after)
    await fill(made, 10, 3000)
    with pytest.raises(Truncated):
        await stream.batch(middle, "tail")
    assert await events_of(await stream.batch(middle, "tail", skip_truncated=True)) == list(range(3000, 3010))


@on_node
async def test_truncation_after_slicing_skips_only_deleted_events(made) -> None:
    await create_shrinkable(made.client, "s/t", 2)
    stream = made.client.stream("s/t")
    await fill(made, 1000)
    middle = await made.client.stream_cut_tail("s/t")
    await fill(made, 1000, 1000)
    batch = await stream.batch(skip_truncated=True)
    await made.client.truncate_stream("s/t", cut=middle)
    assert await events_of(batch) == list(range(1000, 2000))
    assert sum([found.num_rows async for found in batch.arrow_batches()]) == 1000
    tail = await made.client.stream_cut_tail("s/t")
    await fill(made, 10, 2000)
    await made.client.truncate_stream("s/t", cut=tail)
    assert await events_of(batch) == []
    await stream.scale(1)
    await made.client.truncate_stream("s/t", cut=await made.client.stream_cut_tail("s/t"))
    assert await events_of(batch) == []


@on_node
async def test_invalid_cuts_are_refused(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    await made.client.create_stream("s/u", segments=2)
    await fill(made, 100)
    stream = made.client.stream("s/t")
    tail = await made.client.stream_cut_tail("s/t")
    with pytest.raises(Invalid, match="cut of s/u"):
        await stream.batch(await made.client.stream_cut_head("s/u"))
    with pytest.raises(Invalid):
        await stream.batch(tail, "head")
    with pytest.raises(Invalid):
        await stream.batch("head", StreamCut(tail.stream, {SegmentId(0, 0): 0}))
    with pytest.raises(Invalid):
        await stream.batch("head", StreamCut(tail.stream, {segment: 1 << 40 for segment in tail.positions}))
    with pytest.raises(Invalid, match="1 or more"):
        await stream.batch(parallel=0)
    with pytest.raises(NotFound):
        await made.client.stream("s/none").batch()
    inside = StreamCut(tail.stream, {segment: 3 for segment in tail.positions})
    with pytest.raises(Corrupt, match="middle of an event"):
        await events_of(await stream.batch("head", inside))


@on_node
async def test_abandoned_batch_read_leaves_no_task(made) -> None:
    await made.client.create_stream("s/t", segments=4)
    async with made.client.writer("s/t") as writer:
        for number in range(200):
            writer.write(b"x" * 50_000, key=str(number))
    batch = await made.client.stream("s/t").batch()
    before = len(made.client.session.background._tasks)
    batches = batch.batches()
    assert await anext(batches)
    await batches.aclose()
    assert len(made.client.session.background._tasks) <= before + 1


@pytest.mark.parametrize("seed", range(20))
def test_walk_finds_the_first_boundary_after_a_target(seed: int) -> None:
    rng = random.Random(seed)
    events = [bytes(rng.choice([0, 1, 5, 5, 5, 5, 5, 300])) for _ in range(200)]
    data, start = frame_events(events), 1000
    bounds = [start]
    for event in events:
        bounds.append(bounds[-1] + 8 + len(event))
    target = start + rng.randrange(len(data))
    walk, at = BoundaryWalk(start, target), 0
    while at < len(data):
        size = rng.randrange(1, 40 if rng.random() < 0.5 else 2000)
        if walk.feed(memoryview(data)[at : at + size]):
            break
        at += size
    assert walk.last == min(bound for bound in bounds if bound >= target)


def test_walk_ends_before_a_partial_event() -> None:
    data = frame_events([b"one", b"three"])
    walk = BoundaryWalk(0, 1000)
    assert not walk.feed(data[:-1])
    assert walk.last == 11
    with pytest.raises(Corrupt):
        BoundaryWalk(0, 5).feed(b"\xff" * 16)


def test_slice_length_includes_headers() -> None:
    assert Slice(StreamName("s", "t"), SegmentId(0, 0), 5, 9).length == 4


@on_node
async def test_boundaries_are_ascending_event_boundaries_inside_the_range(made) -> None:
    await made.client.create_stream("s/t")
    stream, segment = made.client.stream("s/t"), SegmentId(0, 0)
    async with made.client.writer("s/t") as writer:
        for number in range(2000):
            writer.write(bytes([number % 9]) * 1000)
            if number % 20 == 0:
                await writer.flush()
    end = (await made.client.stream_cut_tail("s/t")).positions[segment]
    begins = set(range(0, end, 1008))
    # A checkpoint may come at any time: then the store knows fewer of them.
    longest = BOUNDARY_STEP_BYTES + 20 * 1008
    for step in (1, 5000, 100_000, 300_000):
        found = await stream.boundaries(segment, 0, end, step)
        assert found == sorted(set(found))
        assert set(found) <= begins - {0, end}
        assert max(b - a for a, b in pairwise([0, *found, end])) <= step + longest, step
        assert len(found) <= end // step
    inner = await stream.boundaries(segment, 300_000, 1_700_000, 100_000)
    assert 300_000 < inner[0] < inner[-1] < 1_700_000
    assert await stream.boundaries(segment, end, end, 10) == []
    assert await stream.boundaries(segment, 0, end, end) == []
    for start, stop, step, message in ((0, 10, 0, "step_bytes=0"), (-1, 10, 1, "start=-1"), (20, 10, 1, "to 10")):
        with pytest.raises(Invalid, match=message):
            await stream.boundaries(segment, start, stop, step)
    with pytest.raises(NotFound):
        await stream.boundaries(SegmentId(7, 0), 0, 10, 5)


@on_node
async def test_event_ends_are_those_of_a_bounded_read(made) -> None:
    await made.client.create_stream("s/t")
    stream, segment = made.client.stream("s/t"), SegmentId(0, 0)
    sizes = [*[10] * 100, 3, 0, 70_000, 5]
    async with made.client.writer("s/t") as writer:
        for size in sizes:
            writer.write(b"x" * size)
    ends = list(accumulate(size + 8 for size in sizes))
    assert await stream.event_ends(segment, 0, ends[-1], 1_000_000) == ends
    assert await stream.event_ends(segment, 0, ends[49], 1_000_000) == ends[:50]
    # The header of the event that does not fit was read.
    assert await stream.event_ends(segment, ends[97], ends[-1], 64) == ends[98:103]
    # Half a header says nothing.
    assert await stream.event_ends(segment, 0, ends[-1], 18 + 7) == ends[:1]
    assert await stream.event_ends(segment, ends[-1], ends[-1], 100) == []
    with pytest.raises(Invalid, match="to 10"):
        await stream.event_ends(segment, 20, 10, 64)
    await made.client.truncate_stream("s/t", cut=StreamCut(stream.name, {segment: ends[5]}))
    with pytest.raises(Truncated):
        await stream.event_ends(segment, 0, ends[-1], 64)
