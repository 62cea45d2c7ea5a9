"""Histograms: which bucket counts a value, and what is left when two readings are compared."""

from __future__ import annotations

import random

import pytest

from sarit.core.histogram import Histogram


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (1, 0), (1.0001, 1), (2, 1), (5, 2), (5.1, 3), (1e9, 3)]
)  # fmt: skip
def test_value_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed(value, bucket):
    histogram = Histogram((1, 2, 5))
    histogram.observe(value)
    assert histogram.counts == [int(number == bucket) for number in range(4)]
    assert histogram.total == value


def test_value_that_occurred_often_counts_as_often():
    once, often = Histogram((1, 2)), Histogram((1, 2))
    often.observe(1.5, 7)
    for _ in range(7):
        once.observe(1.5)
    assert often.counts == once.counts
    assert often.total == pytest.approx(once.total)
    assert often.count == 7


def test_counts_agree_with_a_count_of_all_values():
    bounds = (0.1, 0.5, 1.0)
    values = [random.Random(3).uniform(0, 2) for _ in range(500)] + list(bounds)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    below = 0
    for bound, count in zip(bounds, histogram.counts, strict=False):
        below += count
        assert below == sum(value <= bound for value in values)
    assert histogram.count == len(values)


def test_bounds_that_do_not_rise_are_refused():
    with pytest.raises(AssertionError):
        Histogram((1, 1, 2))
