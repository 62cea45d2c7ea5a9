"""Which ranges a batch read plans."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.spark.source.batch import batch_ranges
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S

OPTIONS = parse_read({"stream": "s/t"})


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def test_a_batch_reads_across_a_scale(stream):
    stream.events |= {A: [10], B: [10, 10]}
    stream.split_b()
    stream.events |= {LEFT: [5], RIGHT: []}
    assert batch_ranges(OPTIONS, stream) == [Range(S, A, 0, 10), Range(S, B, 0, 20), Range(S, LEFT, 0, 5)]
    with pytest.raises(Invalid, match="before the start"):
        batch_ranges(replace(OPTIONS, start="tail", end="head"), stream)


def between(stream, start, end):
    """The ranges of a batch read between two cuts."""
    stream.cut = {"head": start, "tail": end}.get
    return batch_ranges(OPTIONS, stream)


def test_invalid_cuts_are_refused_by_the_planner(stream):
    stream.events |= {A: [10] * 4, B: [10]}
    assert between(stream, {A: 10, B: 0}, {A: 40, B: 0}) == [Range(S, A, 10, 40)]
    with pytest.raises(Invalid, match="beyond the end of segment 0.#epoch.0, which is at 40"):
        between(stream, {A: 0, B: 0}, {A: 50, B: 10})
    with pytest.raises(Invalid, match="beyond the end of segment 0.#epoch.0, which is at 40"):
        between(stream, {A: 50, B: 0}, {A: 60, B: 10})
    with pytest.raises(Invalid, match="begin at offset 30 of segment 0.#epoch.0, and end before it, at 20"):
        between(stream, {A: 30, B: 0}, {A: 20, B: 10})
    stream.split_b()
    with pytest.raises(Invalid, match="beyond the end of segment 1.#epoch.0, which is at 10"):
        between(stream, {A: 0, B: 20}, {A: 40, LEFT: 0, RIGHT: 0})


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 100])
def test_splits_lie_between_events_and_cover_the_range(stream, splits):
    stream.events |= {A: [7, 100, 3, 9, 11, 5] * 4, B: [13]}
    ranges = batch_ranges(replace(OPTIONS, splits=splits), stream)
    assert len(ranges) >= min(splits, 2)
    begins = {0, *itertools.accumulate(stream.events[A])}
    parts = [r for r in ranges if r.segment == A]
    assert parts[0].start == 0
    assert parts[-1].end == sum(stream.events[A])
    assert all(left.end == right.start and left.end in begins for left, right in itertools.pairwise(parts))
