"""The times that writers noted, as a column of micro-batches: no row is below the watermark that Spark derives."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType, TimestampType

from sarit.core.cuts import from_text
from sarit.core.errors import Invalid
from sarit.spark.formats.columns import Projection, read_schema
from sarit.spark.formats.options import parse_formats
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S, planner_of, take


def options(**given):
    return parse_read({"stream": "s/t", "notedTime": "true", **given})


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def test_times_of_a_micro_batch_are_those_of_passed_watermarks(stream):
    stream.events |= {A: [10] * 10, B: [10] * 10}
    stream.lowers = [(1000, {A: 20, B: 30}), (2000, {A: 50, B: 60}), (3000, {A: 110, B: 70})]
    planner = planner_of(options(), stream)
    begin = planner.initial()
    end, ranges = take(planner, begin)
    assert [(part.segment, part.times) for part in ranges] == [
        (A, ((20, 1000), (50, 2000))),
        (B, ((30, 1000), (60, 2000))),  # 3000 is not passed in A
    ]
    assert end["times"] == {"s/t": 2000}
    # The same when it runs again, although more is known.
    stream.events[A] += [10] * 5
    stream.lowers.append((4000, {A: 120, B: 70}))
    again = planner_of(options(), stream)
    assert again.ranges(begin, end) == ranges
    end, [part] = take(again, end)
    assert part == Range(S, A, 100, 150, times=((0, 2000), (110, 3000), (120, 4000)))
    assert end["times"] == {"s/t": 4000}


@pytest.mark.parametrize(("stated", "lower"), [({"time-unit": "seconds"}, 1_790_000_000_000), ({}, 1_790_000_000)])
def test_times_of_another_unit_are_refused(stream, stated, lower):
    stream.events |= {A: [10] * 10, B: [10] * 10}
    stream.stated, stream.lowers = stated, [(lower, {A: 20, B: 30})]
    planner = planner_of(options(), stream)
    begin = planner.initial()
    with pytest.raises(Invalid, match="no notedTime"):
        take(planner, begin)
    stream.stated = {"time-unit": "milliseconds"}
    assert take(planner, begin)[0]["times"] == {"s/t": lower}


def test_times_follow_a_scale(stream):
    stream.events |= {A: [10] * 10, B: [10] * 10}
    stream.lowers = [(1000, {A: 0, B: 100})]
    planner = planner_of(options(), stream)
    at, ranges = take(planner, planner.initial())
    assert [part.times for part in ranges] == [((0, 1000),), ((100, 1000),)]
    stream.split_b()
    stream.events |= {LEFT: [10] * 2, RIGHT: [10]}
    stream.lowers.append((2000, {A: 100, LEFT: 10, RIGHT: 0}))
    at, ranges = take(planner, at)
    assert [(part.segment, part.times) for part in ranges] == [
        (LEFT, ((0, 1000), (10, 2000))),
        (RIGHT, ((0, 1000), (0, 2000))),
    ]


def test_no_row_is_below_the_watermark_of_earlier_micro_batches(stream):
    stream.events |= {A: [10] * 40, B: [10] * 25}
    stream.lowers = [(100 * n, {A: 10 * n, B: 6 * n}) for n in range(1, 40)]
    planner = planner_of(options(maxEventsPerTrigger="7"), stream)
    at, highest, seen = planner.initial(), -1, set()
    while True:
        at, ranges = take(planner, at)
        if not ranges:
            break
        times = []
        for part in ranges:
            offsets = pa.array(range(part.start, part.end, 10), pa.int64())
            batch = PROJECTION.batch(pa.array([b"x"] * len(offsets)), offsets, part)
            times += [time.timestamp() * 1000 for time in batch.column("noted_time").to_pylist() if time is not None]
        assert min(times, default=highest) >= highest
        highest = max([highest, *times])
        seen |= set(times)
    assert len(seen) > 30


def test_without_watermarks_and_without_the_option_there_are_no_times(stream):
    stream.events[A] = [10]
    planner = planner_of(options(), stream)
    end, [part] = take(planner, planner.initial())
    assert part.times == ()
    assert "times" not in end
    batch = PROJECTION.batch(pa.array([b"x"]), pa.array([0], pa.int64()), part)
    assert batch.column("noted_time").null_count == 1
    stream.lowers = [(1000, {A: 0, B: 0})]
    planner = planner_of(parse_read({"stream": "s/t"}), stream)
    assert take(planner, planner.initial())[1][0].times == ()


FORMATS = parse_formats({"notedTime": "true"})
PROJECTION = Projection(StructType().add("offset", LongType()).add("noted_time", TimestampType()), FORMATS)


def test_column_has_the_time_at_each_offset():
    offsets = pa.array([0, 10, 20, 30, 40], pa.int64())
    batch = PROJECTION.batch(pa.array([b"x"] * 5), offsets, Range(S, A, 0, 50, times=((10, 1000), (25, 2500))))
    seconds = [None if time is None else time.timestamp() for time in batch.column("noted_time").to_pylist()]
    assert seconds == [None, 1.0, 1.0, 2.5, 2.5]
    assert batch.column("noted_time").to_pylist()[1].tzinfo is not None
    assert datetime.timedelta(0) == batch.column("noted_time").to_pylist()[1].utcoffset()


def test_column_is_in_the_schema_with_the_option_alone():
    assert read_schema(FORMATS).names[-1] == "noted_time"
    assert "noted_time" not in read_schema(parse_formats({})).names
    with pytest.raises(Invalid, match="noted_time"):
        Projection(StructType().add("noted_time", TimestampType()))


def test_offset_with_times_is_stored_as_json(stream):
    stream.events[A] = [10]
    stream.lowers = [(1000, {A: 0, B: 0})]
    planner = planner_of(options(), stream)
    end, _ = take(planner, planner.initial())
    assert json.loads(json.dumps(end)) == end
    assert take(planner, end) == (end, [])


def test_micro_batches_give_the_cut_of_their_end(stream):
    stream.events |= {A: [10], B: [10]}
    planner = planner_of(parse_read({"stream": "s/t", "includeCut": "true"}), stream)
    _, ranges = take(planner, planner.initial())
    assert [from_text(part.cut).positions for part in ranges] == [{A: 10, B: 10}] * 2
