"""Values of fields that are no texts, in the one form that events and queries are compared by.  Pure.

Times are milliseconds since 1970.  One without a zone is in UTC.  A time that names no seconds, or a day alone, begins
with the first millisecond of its minute or day, and in a query stands for all of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final

from sarit.search.limits import MAX_KEYWORD_CHARACTERS

_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ](\d\d:\d\d)(:\d\d(?:[.,](\d{1,9}))?)? ?(?:[Zz]|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# Numbers outside are no milliseconds since 1970, but seconds, microseconds or something else: 1973 to 5138.
_LEAST_TIME: Final = 10**11
_MOST_TIME: Final = 10**14
_MS_OF_DAY: Final = 86_400_000
_MS_OF_MINUTE: Final = 60_000
_MS_OF_SECOND: Final = 1000
_ORDER_BITS: Final = 20
# Order keys have 64 bits with their sign: times up to the year 2248.
_LAST_ORDERED: Final = (1 << 43) - 1


def keyword(text: str) -> str:
    """Return a value of a keyword, cut at MAX_KEYWORD_CHARACTERS; halves of surrogate pairs become question marks."""
    cut = text[:MAX_KEYWORD_CHARACTERS]
    return cut if cut.isascii() else cut.encode(errors="replace").decode()


def number(value: int | float) -> float | None:
    """Return a number as events have it; None: no double can hold it."""
    try:
        found = float(value) + 0.0  # there is one zero
    except OverflowError:
        return None
    return found if isfinite(found) else None


def time_span(text: str) -> tuple[int, int] | None:
    """Return the first millisecond of a time and the one after its last; None: the text is no time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" +", "+").replace(" Z", "Z").upper())
        aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        begin = (aware - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None
    if match[1] is None:
        return begin, begin + _MS_OF_DAY
    if match[2] is None:
        return begin, begin + _MS_OF_MINUTE
    return begin, begin + (1 if match[3] is not None else _MS_OF_SECOND)


def time_of(value: str | int | float) -> int | None:
    """Return a time in a document: ISO 8601, or milliseconds since 1970 as a whole number; None: it is none."""
    if isinstance(value, str):
        # No longer text is a time, and few texts begin with a digit.
        span = time_span(value) if len(value) <= 40 and value[:1].isdigit() else None
        return None if span is None else span[0]
    return int(value) if _LEAST_TIME <= value < _MOST_TIME else None


def order_key(time_ms: int, number: int) -> int:
    """Return what hits are sorted by: a time, and a number that tells apart the events of one millisecond.

    Of the number the lowest 20 bits count.  Times before 1970 and after 2248 are as those moments."""
    return (min(max(time_ms, 0), _LAST_ORDERED) << _ORDER_BITS) | (number & ((1 << _ORDER_BITS) - 1))


__all__ = ["keyword", "number", "order_key", "time_of", "time_span"]
