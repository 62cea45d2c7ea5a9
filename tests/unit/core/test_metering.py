"""Which rates lead to a split or a merge."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.core.metering import Rates, ScaleAdvice, ScalingTimes, scale_advice
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy

EVENTS = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 4)
KILOBYTES = ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 100, 4)
TIMES = ScalingTimes(cool_down=60.0)
FOREVER = 100_000.0


def rates(two, five, ten, twenty, age=FOREVER):
    return Rates((two, five, ten, twenty), (0.0, 0.0, 0.0, 0.0), age)


@pytest.mark.parametrize(
    ("measured", "advice"),
    [
        (rates(501, 0, 0, 0), ScaleAdvice.SPLIT),
        (rates(500, 200, 100, 100), ScaleAdvice.NONE),
        (rates(0, 201, 0, 0), ScaleAdvice.SPLIT),
        (rates(0, 0, 101, 0), ScaleAdvice.SPLIT),
        (rates(0, 0, 0, 10_000), ScaleAdvice.NONE),
        (rates(99, 99, 99, 49), ScaleAdvice.MERGE),
        (rates(99, 99, 99, 50), ScaleAdvice.NONE),
        (rates(100, 0, 0, 0), ScaleAdvice.NONE),
        (rates(0, 0, 0, 0), ScaleAdvice.MERGE),
    ],
)
def test_rates_against_a_target_of_100(measured, advice):
    assert scale_advice(EVENTS, measured, TIMES) is advice


def test_rate_window_counts_after_it_was_measured_whole():
    for position, window in enumerate(TIMES.windows[:3]):
        hot = [0.0] * 4
        hot[position] = 10_000.0
        assert scale_advice(EVENTS, rates(*hot, age=window - 1), TIMES) is ScaleAdvice.NONE
        assert scale_advice(EVENTS, rates(*hot, age=window), TIMES) is ScaleAdvice.SPLIT
    assert scale_advice(EVENTS, rates(0, 0, 0, 0, age=1199), TIMES) is ScaleAdvice.NONE
    assert scale_advice(EVENTS, rates(0, 0, 0, 0, age=1200), TIMES) is ScaleAdvice.MERGE


def test_nothing_within_the_cool_down():
    slow = ScalingTimes(cool_down=5000.0)
    assert scale_advice(EVENTS, rates(9999, 9999, 9999, 9999, age=4999), slow) is ScaleAdvice.NONE
    assert scale_advice(EVENTS, rates(9999, 9999, 9999, 9999, age=5000), slow) is ScaleAdvice.SPLIT
    assert scale_advice(EVENTS, rates(0, 0, 0, 0, age=4999), slow) is ScaleAdvice.NONE


def test_the_unit_is_the_policys():
    big = Rates((1.0, 1.0, 1.0, 1.0), (102_401.0, 102_401.0, 102_401.0, 102_401.0), FOREVER)
    assert scale_advice(KILOBYTES, big, TIMES) is ScaleAdvice.SPLIT
    assert scale_advice(EVENTS, big, TIMES) is ScaleAdvice.MERGE
    assert scale_advice(ScalingPolicy(), big, TIMES) is ScaleAdvice.NONE


def test_scaling_times_are_all_divided_by_the_factor():
    fast = ScalingTimes().shrunk(100)
    assert fast.windows == (1.2, 3.0, 6.0, 12.0)
    assert (fast.interval, fast.cool_down, fast.mute) == (0.05, 6.0, 6.0)


@pytest.mark.parametrize("limits", [(-1, 0), (5, -1), (5, 4)])
def test_invalid_retention_policy_is_refused(limits):
    with pytest.raises(Invalid):
        RetentionPolicy(RetentionType.SIZE, *limits).check()
    RetentionPolicy(RetentionType.TIME, 5, 5).check()
    RetentionPolicy(RetentionType.TIME, 5, 0).check()
