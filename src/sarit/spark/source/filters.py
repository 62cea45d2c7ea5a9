"""Which ranges a query's filters leave.  Pure.

Spark offers the filters of a query as a conjunction.  Those of `scope`, `stream`, `segment_id`, `offset` and
`key` say which segments, and which of their bytes, can hold a row that passes: only these are read.  A filter
is never taken over: Spark evaluates all of them again on the rows, so planning may leave more than it must.

An event with a routing key is in a segment whose part of the key space holds the hash of the key.  Column `key` is the
routing key only where the writers made it so, so the user must say it (option `keyIsRoutingKey`).  Filters of
`event_time` leave everything: an event may be appended long after its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.keyspace import KeyRange, hash_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.core.names import SegmentId, StreamName

_TEXT_COLUMNS: Final = ("scope", "stream", "key")
_NUMBER_COLUMNS: Final = ("segment_id", "offset")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column operator values`; the operators are "=", "<", "<=", ">", ">=" (one value) and "in"."""

    column: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that the filters leave.  None: no filter.  Offsets: `low` <= offset <= `high`."""

    scopes: frozenset[str] | None = None
    streams: frozenset[str] | None = None
    segments: frozenset[int] | None = None  # packed
    segment_low: int = 0
    segment_high: int | None = None
    low: int = 0
    high: int | None = None
    keys: frozenset[float] | None = None  # hashes

    def has_stream(self, stream: StreamName) -> bool:
        """Return whether rows of a stream can pass."""
        return _within(stream.scope, self.scopes) and _within(stream.stream, self.streams)

    def has_segment(self, segment: SegmentId) -> bool:
        """Return whether rows of a segment can pass, by its id."""
        packed = segment.packed
        inside = packed >= self.segment_low and (self.segment_high is None or packed <= self.segment_high)
        return inside and _within(packed, self.segments)

    def has_keys(self, part: KeyRange | None) -> bool:
        """Return whether rows of a segment can pass, by its part of the key space; None: not known."""
        return self.keys is None or part is None or any(key in part for key in self.keys)


EVERYTHING: Final = Wanted()


def _within(value: object, allowed: frozenset[Any] | None) -> bool:
    return allowed is None or value in allowed


def _narrowed(bounds: tuple[int, int | None], found: Comparison) -> tuple[int, int | None]:
    low, high = bounds
    (value,) = found.values
    if found.operator in (">", ">="):
        return max(low, value + (found.operator == ">")), high
    last = value - (found.operator == "<")
    return low, last if high is None else min(high, last)


def wanted(comparisons: Iterable[Comparison], *, key_is_routing_key: bool = False) -> Wanted:
    """Return what a conjunction leaves; comparisons of other columns, or with values of other types, leave
    everything."""
    sets: dict[str, frozenset[Any]] = {}
    bounds: dict[str, tuple[int, int | None]] = {}
    for found in comparisons:
        kind = str if found.column in _TEXT_COLUMNS else int
        if found.column not in (*_TEXT_COLUMNS, *_NUMBER_COLUMNS) or not all(type(v) is kind for v in found.values):
            continue
        if found.operator in ("=", "in"):
            values = frozenset(found.values)
            sets[found.column] = sets.get(found.column, values) & values
        elif found.column in _NUMBER_COLUMNS:
            bounds[found.column] = _narrowed(bounds.get(found.column, (0, None)), found)
    low, high = bounds.get("offset", (0, None))
    offsets = sets.get("offset")
    if offsets is not None:
        # A set of offsets leaves what is between the first and the last; none: nothing.
        last = max(offsets, default=-1)
        low, high = max(low, min(offsets, default=0)), last if high is None else min(high, last)
    segment_low, segment_high = bounds.get("segment_id", (0, None))
    keys = sets.get("key") if key_is_routing_key else None
    return Wanted(
        scopes=sets.get("scope"),
        streams=sets.get("stream"),
        segments=sets.get("segment_id"),
        segment_low=segment_low,
        segment_high=segment_high,
        low=low,
        high=high,
        keys=None if keys is None else frozenset(map(hash_key, keys)),
    )
