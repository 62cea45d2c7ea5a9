"""The forms of `start` and `end`."""

from __future__ import annotations

import json

import pytest

from sarit.core.cuts import StreamCut, to_text
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.spark.source.options import parse_read
from sarit.spark.source.starts import Places, equal_quotas, resolve
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S

NOW = 1_769_860_800_000
OTHER = StreamName("s", "u")
CUT = to_text(StreamCut(S, {A: 20, B: 0}))


@pytest.fixture
def stream() -> FakeStream:
    made = FakeStream()
    made.events |= {A: [10] * 4, B: [10] * 2}
    return made


def at(stream, text, option="start"):
    return resolve(Places(option, text, NOW).of(S), stream)


def test_names_of_both_ends(stream):
    assert at(stream, "head") == at(stream, "Earliest") == at(stream, "UNBOUNDED") == {A: 0, B: 0}
    assert at(stream, "tail") == at(stream, " latest ") == at(stream, "now") == {A: 40, B: 20}
    assert at(stream, "UNBOUNDED", "end") == {A: 40, B: 20}


def test_text_of_a_cut(stream):
    assert at(stream, CUT) == {A: 20, B: 0}


def test_each_stream_may_have_its_own_place(stream):
    places = Places("start", json.dumps({"s/t": CUT, "s/u": "tail", "a/b": -7, "a/c": NOW}), NOW)
    assert resolve(places.of(S), stream) == {A: 20, B: 0}
    assert places.of(OTHER).which == "tail"
    assert places.of(StreamName("a", "b")).last_events == 7
    assert places.of(StreamName("a", "c")).time_ms == NOW


def test_places_and_streams_must_match():
    one = Places("start", json.dumps({"s/t": "head"}), NOW)
    one.check([S])
    with pytest.raises(Invalid, match="option start names s/t, but not s/u, which the read selects"):
        one.check([S, OTHER])
    with pytest.raises(Invalid, match="option start names s/t, which the read does not select"):
        Places("start", json.dumps({"s/t": "head", "s/u": "head"}), NOW).check([OTHER])
    with pytest.raises(Invalid, match="option end is a cut of s/t, not of s/u"):
        Places("end", CUT, NOW).check([OTHER])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("begin", "option start is 'begin': give head .*cut, a time"),
        ("H4sIAAAA", "the text of a stream cut"),
        ("-10 parsecs", "option start: '-10 parsecs' has no unit of time"),
        ("2026-01-31T12:00:00", "no zone of time"),
        ('{"s/t": 1.5}', "give text for each stream"),
        ('{"s/t"', "no JSON"),
        ("{}", "give text for each stream"),
        ('{"t": "head"}', "not SCOPE/STREAM"),
    ],
)
def test_value_of_no_form_is_refused_at_once(text, message):
    with pytest.raises(Invalid, match=message):
        parse_read({"stream": "s/t", "start": text})


def test_time_is_a_cut_by_the_record_of_the_node(stream):
    stream.record = {0: {A: 0, B: 0}, NOW - 600_000: {A: 10, B: 10}, NOW - 60_000: {A: 30, B: 10}}
    assert at(stream, "-10 minutes") == at(stream, "-2 min", "end") == {A: 10, B: 10}
    assert at(stream, "2026-01-31T12:00:00Z") == at(stream, str(NOW)) == {A: 30, B: 10}
    stream.starts[A] = 20
    assert at(stream, "-10 minutes") == {A: 20, B: 0}


def test_time_is_a_watermark_where_writers_noted_times(stream):
    stream.record = {0: {A: 40, B: 20}}
    stream.noted = [(NOW - 5000, {A: 10, B: 0}), (NOW - 3000, {A: 20, B: 10})]
    assert at(stream, "-2s") == {A: 20, B: 10}
    assert at(stream, "-3s") == at(stream, "-4s") == {A: 10, B: 0}
    assert at(stream, "-1h") == {A: 0, B: 0}
    # Truncated above that watermark: the head.
    stream.starts[B] = 10
    assert at(stream, "-4s") == {A: 0, B: 10}


@pytest.mark.parametrize(("unit", "noted"), [(None, NOW // 1000), (None, NOW * 1000), ("seconds", NOW), ("none", NOW)])
def test_noted_times_of_another_unit_are_refused_where_they_meet_the_clock(stream, unit, noted):
    stream.stated = {} if unit is None else {"time-unit": unit}
    stream.noted = [(noted, {A: 10, B: 0})]
    for option in ("start", "end"):
        with pytest.raises(Invalid, match="time-unit"):
            at(stream, "-10 minutes", option)
    assert at(stream, "head") == {A: 0, B: 0}
    stream.stated = {"time-unit": "milliseconds"}
    at(stream, "-10 minutes")


def test_plain_times_of_today_are_milliseconds(stream):
    stream.stated = {}
    stream.noted = [(NOW - 5000, {A: 10, B: 0})]
    assert at(stream, "-2s") == {A: 10, B: 0}


def count_after(stream, position):
    """How many events come after a position, its successors included."""
    entered = {s: 0 for segment in stream.sealed if segment in position for s in stream.next[segment]}
    total = 0
    for segment, start in {**entered, **position}.items():
        total += sum(1 for _, offsets in stream.batches(segment, start, sum(stream.events[segment])) for _ in offsets)
    return total


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6])
def test_last_events_are_exactly_as_many(stream, count):
    position = at(stream, f"-{count}")
    assert count_after(stream, position) == count
    assert abs((40 - position[A]) - (20 - position[B])) <= 10 or position[B] == 0


def test_more_than_all_events_are_all(stream):
    assert at(stream, "-100") == {A: 0, B: 0}
    stream.starts[A] = 20
    assert at(stream, "-100") == {A: 20, B: 0}


@pytest.mark.parametrize("count", [1, 4, 5, 6, 8, 9, 50])
def test_last_events_reach_behind_a_scale(stream, count):
    stream.split_b()
    stream.events |= {LEFT: [10], RIGHT: [10, 10]}
    position = at(stream, f"-{count}")
    assert count_after(stream, position) == min(count, 9)
    assert set(position) == ({A, LEFT, RIGHT} if count <= 7 else {A, B})


def test_last_events_stop_at_a_deleted_segment(stream):
    stream.split_b()
    stream.events |= {LEFT: [10], RIGHT: []}
    del stream.events[B]
    assert at(stream, "-50") == {A: 0, LEFT: 0, RIGHT: 0}


def test_last_events_read_only_the_end_of_a_long_segment(stream):
    stream.events |= {A: [1000] * 20_000, B: []}
    assert at(stream, "-30")[A] == 1000 * (20_000 - 30)
    assert stream.read_bytes <= 2_000_000
    stream.read_bytes = 0
    assert at(stream, "-5000")[A] == 1000 * (20_000 - 5000)
    assert stream.read_bytes <= 12_000_000


@pytest.mark.parametrize("count", range(12))
def test_quotas_are_equal_where_they_can_be(count):
    has = {A: 1, B: 10, LEFT: 3}
    quotas = equal_quotas(has, count)
    assert sum(quotas.values()) == count
    most = max(quotas.values())
    assert all(quotas[s] == has[s] or most - 1 <= quotas[s] <= has[s] for s in has)
