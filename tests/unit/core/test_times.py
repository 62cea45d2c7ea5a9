"""Points in time as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sarit.core.errors import Invalid
from sarit.core.times import parse_event_time, parse_time

NOW = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        (" NOW ", NOW),
        ("-10 minutes", NOW - 600_000),
        ("-10m", NOW - 600_000),
        ("- 1 hour", NOW - 3_600_000),
        ("-90s", NOW - 90_000),
        ("-500 ms", NOW - 500),
        ("-2 Days", NOW - 2 * 86_400_000),
        ("-1w", NOW - 7 * 86_400_000),
        ("2026-01-31T12:00:00Z", NOW),
        ("2026-01-31 12:00Z", NOW),
        ("2026-01-31T12:00:00.2509z", NOW + 250),
        ("2026-01-31T12:00:00.5Z", NOW + 500),
        ("2026-01-31T13:00:00+01:00", NOW),
        ("2026-01-31T06:30:00 -0530", NOW),
        ("1970-01-01T00:00:00Z", 0),
        (str(NOW), NOW),
        ("0", 0),
        ("100000000000", 100_000_000_000),
    ],
)
def test_a_time_is_parsed_to_milliseconds_since_1970(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


def test_days_are_those_of_the_calendar_for_500_years() -> None:
    at = datetime(1970, 1, 1, 23, 59, 59, tzinfo=UTC)
    for _ in range(2000):
        assert parse_time(at.isoformat(), NOW) == int(at.timestamp()) * 1000
        at += timedelta(days=97)
    assert at.year > 2470


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T00:00:00+01:00", -3_600_000),
        ("1968-02-29T00:00Z", -672 * 86_400_000),
        ("-30000 days", NOW - 30_000 * 86_400_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("1970-01-01T00:00:00Z", 0),
        (str(NOW), NOW),
    ],
)
def test_time_of_an_event_may_lie_before_1970(text: str, expected: int) -> None:
    assert parse_event_time(text, NOW) == expected
    if expected < 0:
        with pytest.raises(Invalid, match="before 1970"):
            parse_time(text, NOW)


@pytest.mark.parametrize("text", ["0001-01-01T00:59:59+01:00", "-800000 days", "-999999999999 weeks"])
def test_time_of_an_event_has_a_date_of_the_calendar(text: str) -> None:
    with pytest.raises(Invalid, match="before the year 1"):
        parse_event_time(text, NOW)


def test_days_before_1970_are_those_of_the_calendar_too() -> None:
    at = datetime(1970, 1, 1, 23, 59, 59, tzinfo=UTC)
    for _ in range(2000):
        at -= timedelta(days=97)
        assert parse_event_time(at.isoformat(), NOW) == int(at.timestamp()) * 1000
    assert at.year < 1470


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'give "now"'),
        ("yesterday", "-10 minutes"),
        ("10 minutes", "-10 minutes"),
        ("+10 minutes", "-10 minutes"),
        ("-10 years", "no unit of time"),
        ("-10", "is no time"),
        ("-99999999 days", "before 1970"),
        ("1769860800", "give 1769860800000"),
        ("35", "is a time before 1974"),
        ("99999999999", "is a time before 1974"),
        ("1769860800000000", "after the year 5000"),
        ("2026-01-31", "is a day: give a time of it with a zone, as 2026-01-31T00:00:00Z"),
        ("2026-01-31T12:00:00", "add Z"),
        ("2026-02-29T12:00:00Z", "no day"),
        ("2026-13-01T12:00:00Z", "no day"),
        ("0000-12-31T12:00:00Z", "no day"),
        ("1969-12-31T12:00:00Z", "before 1970"),
        ("1969-02-29T12:00:00Z", "no day"),
        ("1970-01-01T00:00:00+01:00", "before 1970"),
        ("2026-01-31T24:00:00Z", "time of day"),
        ("2026-01-31T12:00:00+24:00", "difference to UTC"),
        ("١٢٣", "is no time"),
    ],
)
def test_what_is_no_time_raises_invalid_and_says_what_to_give(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        parse_time(text, NOW)


def test_a_leap_day_is_a_day() -> None:
    assert parse_time("2028-02-29T00:00:00Z", NOW) == int(datetime(2028, 2, 29, tzinfo=UTC).timestamp()) * 1000
