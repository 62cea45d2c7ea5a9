"""Which recorded cuts are thinned, and which answers for a time."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.limits import (
    MAX_TIMELINE_CUTS,
    TIMELINE_AGES_MS,
    TIMELINE_INTERVAL_SECONDS,
    TIMELINE_OLDEST_SPAN_MS,
)
from sarit.controller.model.timeline import THINNING_INTERVAL_MS, is_thinning_due, newest_at, span_of, surplus

MINUTE, HOUR, DAY = 60_000, 3_600_000, 24 * 3_600_000
NOW = 1_770_000_000_123


def thinned(times: list[int], now: int) -> list[int]:
    gone = set(surplus(times, now))
    return [time for time in times if time not in gone]


def test_spans_are_multiples_of_each_other_and_grow_with_the_age():
    spans = [span for _, span in TIMELINE_AGES_MS] + [TIMELINE_OLDEST_SPAN_MS]
    assert all(longer % shorter == 0 for shorter, longer in pairwise(spans))
    assert spans[0] == TIMELINE_INTERVAL_SECONDS * 1000
    assert [span_of(age) for age in (0, HOUR - 1, HOUR, DAY, 7 * DAY, 400 * DAY)] == [
        MINUTE, MINUTE, 10 * MINUTE, HOUR, DAY, DAY,
    ]  # fmt: skip


def test_a_stream_that_always_grows_has_a_bounded_number_of_records():
    """A record a minute for 80 days, thinned once an hour as the controller does."""
    times: list[int] = []
    begin = NOW - 80 * DAY
    most = 0
    for now in range(begin, NOW, MINUTE):
        times.append(now)
        if is_thinning_due(17, now - MINUTE, now):
            times = thinned(times, now)
        most = max(most, len(times))
    assert most <= MAX_TIMELINE_CUTS + 61
    times = thinned(times, NOW)
    assert len(times) <= MAX_TIMELINE_CUTS
    for age, step in ((30 * MINUTE, MINUTE), (20 * HOUR, 10 * MINUTE), (6 * DAY, HOUR), (50 * DAY, DAY)):
        newest = max(time for time in times if time <= NOW - age)
        assert NOW - age - newest <= 2 * step


@given(st.lists(st.integers(0, 20 * DAY), max_size=60), st.lists(st.integers(0, 3 * DAY), max_size=4))
def test_thinning_often_keeps_a_record_wherever_thinning_once_does(ages, delays):
    times = sorted({NOW - age for age in ages})
    often, now = times, NOW
    for delay in delays:
        now += delay
        often = thinned(often, now)
    once = thinned(times, now)
    often = thinned(often, now)
    assert set(often) <= set(times)
    for time in once:
        # Nothing but a record of the same span stands for it.
        span = span_of(now - time)
        assert any(abs(time - other) < 2 * span for other in often)


def test_a_seldom_changed_stream_keeps_all_its_records():
    times = [NOW - age for age in (300 * DAY, 200 * DAY, 9 * DAY, 5 * DAY, 3 * HOUR, 5 * MINUTE)]
    assert surplus(times, NOW) == []
    assert surplus([], NOW) == []


def test_beyond_the_bound_the_oldest_records_go():
    times = [NOW - age * DAY for age in range(MAX_TIMELINE_CUTS + 50, 0, -1)]
    assert surplus(times, NOW) == times[:50]


def test_thinning_is_due_once_an_interval_at_the_phase_of_the_stream():
    for phase in (0, 5, THINNING_INTERVAL_MS - 1):
        due = [now for now in range(NOW, NOW + DAY, MINUTE) if is_thinning_due(phase, now - MINUTE, now)]
        assert len(due) == 24
    assert is_thinning_due(0, NOW - 30 * DAY, NOW)


def test_the_newest_record_at_or_before_a_time_answers():
    records = [(10, 1), (20, 2), (30, 3)]
    assert [newest_at(records, time) for time in (9, 10, 19, 20, 29, 30, 99)] == [None, 0, 0, 1, 1, 2, 2]
    assert newest_at([], 5) is None


def test_after_the_clock_was_set_back_a_time_that_came_twice_is_answered_by_its_first():
    # Recorded in the order of the numbers: at 10, 100; then the clock was set back to 50: at 50, 60, 110.
    records = [(10, 1), (50, 3), (60, 4), (100, 2), (110, 5)]
    answers = {time: newest_at(records, time) for time in (9, 10, 55, 70, 99, 100, 105, 110)}
    assert answers == {9: None, 10: 0, 55: 0, 70: 0, 99: 0, 100: 3, 105: 3, 110: 4}


def test_no_answer_was_recorded_after_a_record_of_a_later_time():
    rng = random.Random(4)
    for _ in range(300):
        records = sorted((rng.randrange(50), number) for number in range(12))
        time = rng.randrange(50)
        place = newest_at(records, time)
        fit = [
            at for at, (when, number) in enumerate(records)
            if when <= time and all(number < other for later, other in records if later > time)
        ]  # fmt: skip
        if place is None:
            assert not fit
        else:
            assert place in fit
