"""The options of a write."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.spark.sink.options import parse_retention, parse_scaling, parse_write


def test_write_is_exactly_once_and_keeps_its_records_beside_the_stream():
    options = parse_write({"stream": "s/a"})
    assert options.exactly_once
    assert options.state_table == StreamName("s", "spark-sink")
    assert options.create is None
    assert parse_write({"scope": "t"}).state_table == StreamName("t", "spark-sink")
    assert parse_write({"stream": "s/a", "stateTable": "t/x"}).state_table == StreamName("t", "x")
    assert not parse_write({"stream": "s/a", "deliveryguarantee": "At-Least-Once"}).exactly_once


def test_new_stream_has_scaling_and_retention():
    given = {"stream": "s/a", "createStream": "true", "segments": "3", "scaling": "10 events/s", "retention": "2 hours"}
    create = parse_write(given).create
    assert create is not None
    assert create.scaling == ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, 2, 3)
    assert create.retention == RetentionPolicy(RetentionType.TIME, 7_200_000)


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("none", RetentionPolicy()),
        ("7 days", RetentionPolicy(RetentionType.TIME, 604_800_000)),
        ("1 week", RetentionPolicy(RetentionType.TIME, 604_800_000)),
        ("100 GB", RetentionPolicy(RetentionType.SIZE, 100 * 10**9)),
        ("5mb", RetentionPolicy(RetentionType.SIZE, 5 * 10**6)),
    ],
)
def test_retention_is_a_time_or_a_size(text, retention):
    assert parse_retention(text) == retention


def test_scaling_is_fixed_or_a_rate():
    assert parse_scaling("Fixed", 4) == ScalingPolicy(min_segments=4)
    assert parse_scaling("2 MB/s", 1) == ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 2000, 2, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "which stream"),
        ({"stream": "s/a", "deliveryGuarantee": "twice"}, "exactly-once or at-least-once"),
        ({"stream": "s/a", "transactionTimeout": "5"}, "10 to 600"),
        ({"stream": "s/a", "transactionTimeout": "601"}, "10 to 600"),
        ({"stream": "s/a", "segments": "2"}, "createStream"),
        ({"stream": "s/a", "createStream": "true", "retention": "7 parsecs"}, "7 days"),
        ({"stream": "s/a", "createStream": "true", "retention": "0 days"}, "7 days"),
        ({"stream": "s/a", "createStream": "true", "scaling": "fast"}, "1000 events/s"),
        ({"stream": "s/a", "createStream": "true", "scaling": "10 B/s"}, "1000 events/s"),
        ({"stream": "s/a", "jobid2": "x"}, "did you mean jobId"),
    ],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(Invalid, match=text):
        parse_write(options)
