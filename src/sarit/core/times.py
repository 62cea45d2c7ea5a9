"""Points in time as people write them.  Pure: the caller gives the present."""

from __future__ import annotations

import re
from typing import Final

from sarit.core.errors import Invalid

_UNITS: Final = (
    (1, ("ms", "millisecond", "milliseconds")),
    (1000, ("s", "sec", "second", "seconds")),
    (60_000, ("m", "min", "minute", "minutes")),
    (3_600_000, ("h", "hour", "hours")),
    (86_400_000, ("d", "day", "days")),
    (7 * 86_400_000, ("w", "week", "weeks")),
)
_UNIT_IN_MS: Final = {name: factor for factor, names in _UNITS for name in names}
_RELATIVE: Final = re.compile(r"-\s*(\d{1,12})\s*([a-z]+)", re.ASCII)
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH_MS: Final = re.compile(r"\d{1,20}", re.ASCII)
# Numbers that as milliseconds are in the months after 1970, but as seconds in this century or the next ones.
_LIKELY_SECONDS: Final = range(10**9, 10**10)
# Numbers outside are meant as something else: an offset, a count, microseconds.  0 is "from the beginning".
_LIKELY_MS: Final = range(10**11, 10**14)  # 1973 to 5138
_YEAR_1: Final = -62_135_596_800_000  # where the dates of ISO 8601 begin
_DAYS_OF_MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
TIME_FORMS: Final = '"now", a time before now ("-10 minutes"), ISO 8601 ("2026-01-31T12:00:00Z") or ms since 1970'


def parse_time(text: str, now_ms: int) -> int:
    """Return a point in time from 1970 (UTC) on, in milliseconds since then, out of one of these forms.

    "now"; a time before now: "-10 minutes", "-2h", "-500 ms" (ms, s, min, h, d, w and their words); ISO 8601 with a
    zone: "2026-01-31T12:00:00Z", "2026-01-31 13:00:00.250+01:00"; milliseconds since 1970: "1769860800000".
    Fractions of a millisecond are cut off.  `now_ms`: the present, in ms since 1970.  Raises Invalid."""
    found = _parse(text, now_ms)
    if found < 0:
        raise Invalid(f"{text!r} is before 1970")
    return found


def parse_event_time(text: str, now_ms: int) -> int:
    """Return when an event happened, perhaps before 1970: less than 0.  Forms, units and errors as of `parse_time`."""
    found = _parse(text, now_ms)
    if found < _YEAR_1:
        raise Invalid(f"{text!r} is before the year 1")
    return found


def _parse(text: str, now_ms: int) -> int:
    wanted = text.strip()
    if wanted.lower() == "now":
        return now_ms
    if (relative := _RELATIVE.fullmatch(wanted.lower())) is not None:
        return _before(text, now_ms, int(relative[1]), relative[2])
    if _EPOCH_MS.fullmatch(wanted):
        if int(wanted) in _LIKELY_SECONDS:
            raise Invalid(f"{text!r} is a time in 1970: if it is in seconds, give {wanted}000")
        if int(wanted) and int(wanted) not in _LIKELY_MS:
            when = "before 1974" if int(wanted) < _LIKELY_MS.start else "after the year 5000"
            raise Invalid(f"{text!r} is a time {when} in milliseconds since 1970: give {TIME_FORMS}")
        return int(wanted)
    if (iso := _ISO.fullmatch(wanted)) is not None:
        return _of_iso(text, iso)
    if _DAY.fullmatch(wanted):
        raise Invalid(f"{text!r} is a day: give a time of it with a zone, as {wanted}T00:00:00Z")
    raise Invalid(f"{text!r} is no time: give {TIME_FORMS}")


def _before(text: str, now_ms: int, count: int, unit: str) -> int:
    factor = _UNIT_IN_MS.get(unit)
    if factor is None:
        raise Invalid(f"{text!r} has no unit of time: give ms, seconds, minutes, hours, days or weeks")
    return now_ms - count * factor


def _of_iso(text: str, match: re.Match[str]) -> int:
    year, month, day, hour, minute = (int(match[part]) for part in range(1, 6))
    second, fraction, zone = int(match[6] or 0), (match[7] or "").ljust(3, "0")[:3], match[8]
    if zone is None:
        raise Invalid(f"{text!r} has no zone of time: add Z for UTC, or the difference to it, as +01:00")
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _days_of_month(year, month):
        raise Invalid(f"{text!r} is no day")
    ahead_minutes = 0
    if zone.upper() != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            raise Invalid(f"{text!r} has no valid difference to UTC: {zone}")
        ahead_minutes = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    if hour > 23 or minute > 59 or second > 59:
        raise Invalid(f"{text!r} is no time of day")
    minutes_since = (_days_since_1970(year, month, day) * 24 + hour) * 60 + minute - ahead_minutes
    return (minutes_since * 60 + second) * 1000 + int(fraction)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_of_month(year: int, month: int) -> int:
    return _DAYS_OF_MONTHS[month - 1] + (month == 2 and _is_leap(year))


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Return the days from 1 January 1970 to a day of the Gregorian calendar, which may be earlier."""
    before = year - 1
    leap_days = before // 4 - before // 100 + before // 400 - (1969 // 4 - 1969 // 100 + 1969 // 400)
    months = sum(_days_of_month(year, earlier) for earlier in range(1, month))
    return (year - 1970) * 365 + leap_days + months + day - 1
