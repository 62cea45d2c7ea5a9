"""Values of fields that are no texts, in the one form that events and queries are compared by.  Pure.

Times are milliseconds since 1970.  One without a zone is in UTC.  A time that names no seconds, or a day alone, begins
with the first millisecond of its minute or day, and in a query stands for all of it.

*Order keys* are what hits are sorted by: a time, shifted by 20 bits, and a number that tells apart the events of one
millisecond.  They have 64 bits with their sign, so times before 1970 are as good as others; those before 1691 and after
2248 count as these moments, in an index and in a scan.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final

from sarit.core.errors import Invalid
from sarit.search.limits import MAX_KEYWORD_CHARACTERS, MAX_SEARCH_MS

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
_TIE_BITS: Final = 20  # of an order key, below the milliseconds
_TIES: Final = (1 << _TIE_BITS) - 1
_MOST_ORDERED: Final = (1 << 43) - 1
LEAST_KEY, MOST_KEY = -(1 << 63), (1 << 63) - 1


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


def ordered_ms(time_ms: int) -> int:
    """Return the time by which an event is sorted, counted and chosen: its own, if an order key can hold it."""
    return min(max(time_ms, -_MOST_ORDERED), _MOST_ORDERED)


def order_key(time_ms: int, number: int) -> int:
    """Return the order key of an event.  Of the number, which tells apart events of one time, 20 bits count."""
    return ordered_ms(time_ms) << _TIE_BITS | number & _TIES


def time_of_key(key: int) -> int:
    """Return the time of an event by its order key, in milliseconds since 1970."""
    return key >> _TIE_BITS


def first_key(time_ms: int) -> int:
    """Return the order key before which all events of earlier times are.  Raises Invalid: no time of a search."""
    if abs(time_ms) > MAX_SEARCH_MS:
        raise Invalid("the times of a search are milliseconds since 1970, from 1830 to 2109")
    return time_ms << _TIE_BITS


__all__ = [
    "LEAST_KEY", "MOST_KEY", "first_key", "keyword", "number", "order_key", "ordered_ms", "time_of", "time_of_key",
    "time_span",
]  # fmt: skip
