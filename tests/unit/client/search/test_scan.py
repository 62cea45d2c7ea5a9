"""Searches on a real node."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from sarit.client.search.matchers import Matched, TextMatcher
from sarit.client.search.scan import Ended, ScanBounds, distance, scan
from sarit.client.search.time_range import cut_behind
from sarit.core.limits import MIB
from sarit.core.names import StreamName
from tests.unit.client.nodes import create_shrinkable, on_node

NAME = StreamName("s", "t")
WIDE = ScanBounds(1 << 40, 60.0, 1 << 20)


async def write(made, texts) -> None:
    async with made.client.writer(NAME) as writer:
        for number, text in enumerate(texts):
            writer.write(text, key=str(number))


async def ends(made):
    return await made.client.stream_cut_head(NAME), await made.client.stream_cut_tail(NAME)


async def steps(made, start, end, wanted: str, bounds: ScanBounds):
    async with aclosing(scan(made.client.session, start, end, TextMatcher(wanted), bounds)) as found:
        return [step async for step in found]


@on_node
async def test_a_scan_finds_each_event_once_through_a_scale_whatever_it_stops_for(made) -> None:
    await create_shrinkable(made.client, str(NAME), 2)
    await write(made, [b"a%d needle" % n if n % 3 == 0 else b"a%d" % n for n in range(600)])
    await made.client.stream(NAME).scale(3)
    await write(made, [b"b%d needle" % n if n % 3 == 0 else b"b%d" % n for n in range(600)])
    start, end = await ends(made)
    await write(made, [b"behind the end: needle"])
    for bounds, reason in (
        (WIDE, Ended.RANGE), (ScanBounds(500, 60.0, 1 << 20), Ended.BYTES), (ScanBounds(1 << 40, 60.0, 7), Ended.HITS),
    ):  # fmt: skip
        at, hits, reasons, events = start, [], [], 0
        while not reasons or reasons[-1] != Ended.RANGE:
            last = await steps(made, at, end, "NEEDLE", bounds)
            hits += [hit for step in last for hit in step.hits]
            assert len([hit for step in last for hit in step.hits]) <= bounds.hits
            events += last[-1].events
            at = last[-1].position
            reasons.append(last[-1].ended)
        assert reason in reasons
        wanted = {f"{part}{n} needle".encode() for part in "ab" for n in range(0, 600, 3)}
        assert len(hits) == len(wanted)
        assert {hit.event for hit in hits} == wanted
        assert events == 1200
    pointer = hits[0].pointer
    assert await made.client.stream(NAME).fetch_event(pointer) == hits[0].event


@on_node
async def test_a_scan_says_how_far_it_came(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [bytes(100_000)] * 40)
    start, end = await ends(made)
    whole = await distance(made.client.session, start, end)
    assert whole == 40 * 100_008
    found = await steps(made, start, end, "none", WIDE)
    sizes = [step.bytes for step in found]
    assert sizes == sorted(sizes)
    assert sizes[-1] == whole
    assert len(sizes) >= 10  # slices of 256 KiB
    assert await distance(made.client.session, found[4].position, end) == whole - sizes[4]


@on_node
async def test_a_scan_ends_in_time_where_no_data_comes(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [b"x"])
    start, end = await ends(made)
    beyond = type(end)(NAME, {segment: at + 100 for segment, at in end.positions.items()})
    found = await steps(made, start, beyond, "x", ScanBounds(MIB, 0.3, 10))
    assert [step.ended for step in found][-1] == Ended.SECONDS
    assert found[-1].position == end
    assert len(found[0].hits) == 1


@on_node
async def test_a_scan_that_is_left_ends_its_reader_and_its_thread(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [bytes(100_000)] * 20)
    start, end = await ends(made)
    before, parts = len(asyncio.all_tasks()), len(made.client.session.parts)
    async with aclosing(scan(made.client.session, start, end, TextMatcher("x"), WIDE)) as found:
        await anext(found)
        assert len(made.client.session.parts) == parts + 1
    assert len(made.client.session.parts) == parts
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)


@on_node
async def test_events_are_matched_on_a_thread_slice_by_slice(made) -> None:
    import threading

    class Recorder:
        def __init__(self) -> None:
            self.threads, self.sizes = set(), []

        def match(self, events) -> Matched:
            self.threads.add(threading.get_ident())
            self.sizes.append(sum(map(len, events)))
            return Matched([])

    await made.client.create_stream(NAME)
    await write(made, [bytes(50_000)] * 40 + [bytes(3 * MIB)])
    start, end = await ends(made)
    recorder = Recorder()
    async with aclosing(scan(made.client.session, start, end, recorder, WIDE)) as found:
        async for _ in found:
            pass
    assert threading.get_ident() not in recorder.threads
    assert sorted(recorder.sizes)[-1] <= 3 * MIB + 256 * 1024
    assert sorted(recorder.sizes)[-2] <= 256 * 1024 + 50_000


@on_node
async def test_a_cut_behind_a_time_has_every_earlier_event_before_it(made) -> None:
    clock, timeline = made.node.env.clock, made.node.controller.timeline
    await made.client.create_stream(NAME)
    session = made.client.session
    await write(made, [b"one"])
    await timeline.record(NAME)
    first = await made.client.stream_cut_tail(NAME)
    await write(made, [b"two"])
    now, tail = clock.wall_ms(), await made.client.stream_cut_tail(NAME)
    later = now + 200_000
    assert await cut_behind(session, NAME, now, now) == tail
    # The record is ten seconds behind this time, and not behind the next.
    assert await cut_behind(session, NAME, now - 20_000, later) == first
    assert await cut_behind(session, NAME, now - 5_000, later) == tail
