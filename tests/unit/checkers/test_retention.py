"""Retention: truncations too early and too late are found."""

from __future__ import annotations

import pytest

from checkers.retention import Head, Policy, RetentionHistory, check


def history(policy: Policy, *heads: Head) -> RetentionHistory:
    """Of a stream of segment 0, which 1 and 2 follow, with an event of 10 bytes a second."""
    made = RetentionHistory(policy, heads=[Head(0.0, 0.1, {0: 0}, 0), *heads])
    for segment in (1, 2):
        made.graph.follows(segment, [0])
    for number in range(10):
        made.event(0, number * 10, float(number))
        made.event(1, number * 10, 10.0 + number)
    return made


def kinds(made: RetentionHistory) -> list[str]:
    return [violation.kind for violation in check(made)]


BY_TIME, BY_SIZE = Policy(seconds=5.0), Policy(bytes=50)


def test_retention_within_policy_passes() -> None:
    assert not kinds(history(BY_TIME, Head(8.0, 8.1, {0: 30}), Head(12.0, 12.1, {0: 70})))
    assert not kinds(history(BY_TIME, Head(14.0, 14.1, {1: 0, 2: 0})))
    assert not kinds(history(BY_SIZE, Head(8.0, 8.1, {0: 30}, 50), Head(12.0, 12.1, {0: 70}, 60)))
    assert not kinds(RetentionHistory())


def test_concurrent_head_observations_may_differ() -> None:
    assert not kinds(history(BY_SIZE, Head(8.0, 9.0, {0: 30}, 60), Head(8.5, 8.6, {0: 20}, 70)))


@pytest.mark.parametrize(
    ("policy", "head"),
    [
        (BY_TIME, Head(8.0, 8.1, {0: 50}, -1)),
        (BY_TIME, Head(12.0, 12.1, {1: 0, 2: 0}, -1)),
        (BY_TIME, Head(20.0, 20.1, {1: 80, 2: 0}, -1)),
        (BY_SIZE, Head(8.0, 8.1, {0: 50}, 49)),
        (BY_SIZE, Head(8.0, 8.1, {1: 0, 2: 0}, 0)),
        (Policy(bytes=50, forced=True), Head(8.0, 8.1, {0: 50}, 40)),
    ],
)
def test_truncation_beyond_policy_is_found(policy, head) -> None:
    assert kinds(history(policy, head)) == ["retention-early"]


def test_short_stream_below_policy_passes() -> None:
    assert not kinds(history(BY_SIZE, Head(1.0, 1.1, {0: 0}, 20)))


def test_truncation_beyond_subscriber_is_found() -> None:
    made = history(BY_TIME, Head(8.0, 8.1, {0: 30}), Head(14.0, 14.1, {1: 0, 2: 0}))
    made.released("group", {0: 30}, 7.0)
    assert kinds(made) == ["retention-subscriber"]
    made.released("group", {1: 5, 2: 0}, 13.0)
    assert not kinds(made)


def test_release_counts_from_its_request() -> None:
    made = history(BY_TIME, Head(8.0, 8.1, {0: 30}))
    made.released("group", {0: 20}, 2.0)
    made.released("group", {0: 30}, 8.2)
    assert kinds(made) == ["retention-subscriber"]


def test_every_subscriber_counts() -> None:
    made = history(BY_TIME, Head(8.0, 8.1, {0: 30}))
    made.released("one", {0: 30}, 2.0)
    made.released("two", {0: 0}, 2.0)
    assert kinds(made) == ["retention-subscriber"]


def test_maximum_overrides_subscribers() -> None:
    made = history(Policy(bytes=50, forced=True), Head(8.0, 8.1, {0: 30}, 50))
    made.released("group", {0: 0}, 2.0)
    assert not kinds(made)


def test_head_that_falls_is_found() -> None:
    assert kinds(history(BY_SIZE, Head(8.0, 8.1, {0: 30}, 60), Head(9.0, 9.1, {0: 20}, 70))) == ["head-fell"]
    assert kinds(history(BY_SIZE, Head(8.0, 8.1, {1: 0, 2: 0}, 60), Head(9.0, 9.1, {0: 90}, 70))) == ["head-fell"]


def test_retention_above_policy_for_long_is_found() -> None:
    made = history(BY_SIZE)
    made.retained_at_end = (101, 100)
    assert kinds(made) == ["retention-late"]
    made.retained_at_end = (100, 100)
    assert not kinds(made)


def test_released_data_that_stays_is_found() -> None:
    made = history(BY_SIZE)
    made.released_at_end = ({0: 50}, {0: 40})
    assert kinds(made) == ["retention-held"]
    made.released_at_end = ({0: 50}, {0: 50})
    assert not kinds(made)
