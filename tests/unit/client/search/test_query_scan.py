"""Searches for queries without an index, on a real node."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest

from sarit.client.search import mappings, query_scan
from sarit.client.search.append_times import AppendTimes, append_times
from sarit.client.search.mappings import scan_fields, scan_mapping
from sarit.client.search.query_matcher import QueryMatcher
from sarit.client.search.query_scan import ScanQuestion, scan_query, search_by_scan
from sarit.client.search.scan import Ended, ScanBounds
from sarit.client.streams.jobs import JobInfo
from sarit.client.streams.recorded_cuts import RecordedCut
from sarit.core.cuts import StreamCut
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.query import ALL_TEXT, Term
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.unit.client.nodes import create_shrinkable, on_node

NAME = StreamName("s", "t")
START_MS = 1_700_000_000_000


def order(number: int, **more) -> bytes:
    return json.dumps(
        {"ts": START_MS + number, "n": number, "level": "ERROR" if number % 3 == 0 else "INFO"} | more
    ).encode()


async def write(made, events) -> None:
    async with made.client.writer(NAME) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number))


async def searched(made, query: str, **given):
    async with aclosing(scan_query(made.client.session, NAME, ScanQuestion(query, **given))) as states:
        return [state async for state in states]


def numbers(state) -> list[int]:
    return [json.loads(found.hit.event)["n"] for found in state.hits]


@on_node
async def test_hits_are_in_the_order_of_their_times_over_parallel_segments_and_scales(made) -> None:
    await create_shrinkable(made.client, str(NAME), 3)
    # The times go backwards and forwards while the events are written.
    written = [(7 * at) % 600 for at in range(600)]
    await write(made, map(order, written[:300]))
    await made.client.stream(NAME).scale(2)
    await write(made, map(order, written[300:]))
    errors = list(range(0, 600, 3))
    last = (await searched(made, "level:ERROR", limit=1000))[-1]
    assert numbers(last) == errors[::-1]
    assert (last.total, last.events, last.ended, last.partly) == (200, 600, Ended.RANGE, 0)
    assert last.bytes == last.range_bytes
    assert numbers((await searched(made, "level:ERROR", limit=5))[-1]) == errors[:-6:-1]
    assert numbers((await searched(made, "error n:>=300", limit=5, sort="oldest"))[-1]) == errors[100:105]
    within = (await searched(made, "*", from_ms=START_MS + 10, to_ms=START_MS + 20, limit=100))[-1]
    assert numbers(within) == list(range(19, 9, -1))
    found = (
        await searched(made, "*", from_ms=START_MS + 10, limit=1000, start=await made.client.stream_cut_head(NAME))
    )[-1]
    assert numbers(found) == list(range(599, 9, -1))
    hit = found.hits[0].hit
    assert await made.client.stream(NAME).fetch_event(hit.pointer) == hit.event


@on_node
async def test_events_without_a_time_have_that_of_their_envelope_or_of_writing(made) -> None:
    await made.client.create_stream(NAME)
    now_ms = made.client.session.env.clock.wall_ms()
    await write(made, [b"old", bytes(Envelope(b"middle", event_time=(now_ms - 60_000) * 1000)), b"new"])
    last = (await searched(made, "*"))[-1]
    shown = [found.hit.event[-3:] for found in last.hits]
    assert shown == [b"new", b"old", b"dle"]
    assert [abs(found.time_ms - now_ms) < 50_000 for found in last.hits] == [True, True, False]
    assert last.hits[2].time_ms == now_ms - 60_000
    recent = (await searched(made, "*", from_ms=now_ms - 30_000))[-1]
    assert recent.total == 2
    assert (await searched(made, "*", to_ms=now_ms - 30_000))[-1].total == 1


@on_node
async def test_events_that_say_their_times_are_found_however_late_they_were_written(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, map(order, range(3)))
    recorded = await made.client.stream_cut_tail(NAME)
    await write(made, map(order, range(3, 5)))

    async def cut_behind(_session, _stream, _time_ms, _now_ms):
        return recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_scan, "cut_behind", cut_behind)
        assert (await searched(made, "*", to_ms=START_MS + 10))[-1].events == 5
    assert (await scan_fields(made.client.session, NAME)).own_times
    await made.client.create_stream("s/plain")
    async with made.client.writer("s/plain") as writer:
        writer.write(b"plain")
    assert not (await scan_fields(made.client.session, StreamName("s", "plain"))).own_times
    async with made.client.writer("s/plain") as writer:
        writer.write(Envelope(b"x", event_time=5))
    assert (await scan_fields(made.client.session, StreamName("s", "plain"))).own_times


@on_node
async def test_hits_are_counted_by_time(made) -> None:
    await create_shrinkable(made.client, str(NAME), 2)
    await write(made, map(order, range(25)))
    last = await search_by_scan(made.client.session, NAME, ScanQuestion("level:ERROR", limit=0, bucket_ms=10))
    assert last.buckets == ((START_MS, 4), (START_MS + 10, 3), (START_MS + 20, 2))
    assert (last.hits, last.total) == ((), 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_scan, "MAX_HISTOGRAM_BUCKETS", 2)
        with pytest.raises(Invalid, match="more than 2 buckets: give wider ones"):
            await searched(made, "*", bucket_ms=10)


@on_node
async def test_a_scan_that_ends_early_says_where_to_go_on(made) -> None:
    await create_shrinkable(made.client, str(NAME), 2)
    await write(made, map(order, range(300)))
    first = await searched(made, "level:ERROR", limit=1000, bounds=ScanBounds(2000, 60.0, 1 << 40))
    assert (first[0].bytes, first[0].hits) == (0, ())
    assert first[-1].ended == Ended.BYTES
    rest = await searched(made, "level:ERROR", limit=1000, start=first[-1].position)
    assert sorted(numbers(first[-1]) + numbers(rest[-1])) == list(range(0, 300, 3))


@on_node
async def test_hits_that_fill_the_memory_are_left_out_and_counted(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [order(at, pad="x" * 10_000) for at in range(5)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_scan, "SEARCH_HIT_BYTES", 25_000)
        last = (await searched(made, "*"))[-1]
    assert (numbers(last), last.total, last.left_out) == ([4, 3], 5, 3)


@on_node
async def test_a_wrong_question_is_refused_before_anything_is_read(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [order(1)])
    for query, given, why in (
        ("(", {}, "at character"), ("nope:1", {}, "there is no field nope: there are level, n, ts"),
        ("*", {"sort": "score"}, "needs an index"), ("*", {"limit": 10_001}, "0 to 10,000 hits"),
        ("*", {"bucket_ms": -1}, "above 0"),
    ):  # fmt: skip
        with pytest.raises(Invalid, match=why):
            await searched(made, query, **given)


@on_node
async def test_the_mapping_of_an_index_counts_before_an_inferred_one(made) -> None:
    await made.client.create_stream(NAME)
    assert await scan_mapping(made.client.session, NAME) == Mapping()
    await write(made, [order(1)])
    assert (await scan_mapping(made.client.session, NAME)).time_field == "ts"
    given = Mapping((Field("n", Kind.KEYWORD),))

    async def jobs(_session, _stream):
        return [JobInfo(SEARCH_KIND, SEARCH_JOB, SearchSettings(given).encode(), {}, "", False, "")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mappings, "jobs", jobs)
        assert await scan_mapping(made.client.session, NAME) == given
        assert (await searched(made, "n:1"))[-1].total == 1, "numbers are keywords there"


@on_node
async def test_the_inferred_mapping_of_an_index_counts_before_one_of_other_events(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [order(1)])

    async def jobs(_session, _stream):
        return [JobInfo(SEARCH_KIND, SEARCH_JOB, SearchSettings().encode(), {}, "", False, "")]

    class Answers:
        mapping, time_field = (("n", "keyword"),), ""

    async def index_info(_session, _stream):
        if Answers.mapping is None:
            raise Invalid("no searches")
        return Answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mappings, "jobs", jobs)
        patch.setattr(mappings, "index_info", index_info)
        assert await scan_mapping(made.client.session, NAME) == Mapping((Field("n", Kind.KEYWORD),))
        for nothing in ((), None):
            patch.setattr(Answers, "mapping", nothing)
            assert (await scan_mapping(made.client.session, NAME)).time_field == "ts"


def test_a_matcher_knows_times_and_counts_what_is_not_searched() -> None:
    mapping = Mapping((Field("ts", Kind.TIME),), "ts")
    found = QueryMatcher(Term(ALL_TEXT, "a"), mapping).match([b'{"ts": 1700000000000, "x": "a"}', b"\xff a", b"b"])
    assert (found.places, found.times, found.partly) == ([0, 1], [1_700_000_000_000, None], 1)


def test_places_between_recorded_cuts_have_times_between_theirs() -> None:
    first, second, third = (SegmentId(epoch, epoch) for epoch in range(3))

    def recorded(time_ms, positions):
        return RecordedCut(time_ms, StreamCut(NAME, positions))

    times = AppendTimes(
        [
            recorded(3000, {first: 300, third: 50}), recorded(1000, {first: 100, second: 10}),
            recorded(2000, {first: 200, second: 10}),
        ]
    )  # fmt: skip
    assert [times.of(first, at) for at in (0, 100, 150, 299, 300, 900)] == [1000, 1000, 1500, 2990, 3000, 3000]
    assert times.of(second, 5) == 1000
    assert times.of(second, 50) == 2000
    assert times.of(third, 25) == 2500
    assert times.of(SegmentId(9, 9), 1) == 3000


@on_node
async def test_times_of_a_new_stream_are_those_of_now(made) -> None:
    await made.client.create_stream(NAME)
    await write(made, [b"x"])
    now_ms = made.client.session.env.clock.wall_ms()
    assert abs((await append_times(made.client.session, NAME, 0, now_ms)).of(SegmentId(0, 0), 0) - now_ms) < 60_000
