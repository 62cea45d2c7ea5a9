"""Filter pushdown: which segments and offsets a query's filters leave.

Spark offers the filters of a query as a conjunction.  Filters on `scope`, `stream`, `segment_id`, `offset` and `key`
tell which segments, and which of their bytes, can have rows that pass: only these are read.  Spark still evaluates all
filters on the rows, so planning may leave more than necessary.

An event with a routing key is in a segment whose key range contains the hash of the key.  Column `key` is the routing
key only if the writers made it so, which the user must state (option `keyIsRoutingKey`).  Filters on `event_time` are
not used: an event may be appended long after its time.
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
    """A filter `column operator values`.  Operators: "=", "<", "<=", ">", ">=", with one value, and "in"."""

    column: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that the filters leave; None: no filter.  `low` and `high` bound the offset, both included."""

    scopes: frozenset[str] | None = None
    streams: frozenset[str] | None = None
    segments: frozenset[int] | None = None  # packed
    segment_low: int = 0
    segment_high: int | None = None
    low: int = 0
    high: int | None = None
    keys: frozenset[float] | None = None  # hashes

    def has_stream(self, stream: StreamName) -> bool:
        """Return whether rows of a stream can pass the filters."""
        return _within(stream.scope, self.scopes) and _within(stream.stream, self.streams)

    def has_segment(self, segment: SegmentId) -> bool:
        """Return whether rows of a segment can pass the filters, by its id."""
        packed = segment.packed
        inside = packed >= self.segment_low and (self.segment_high is None or packed <= self.segment_high)
        return inside and _within(packed, self.segments)

    def has_keys(self, part: KeyRange | None) -> bool:
        """Return whether rows of a segment can pass the filters, by its key range; None: unknown."""
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
    """Return the rows that a conjunction leaves.  Ignores other columns, and values of other types."""
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
        # A set of offsets leaves those from its first to its last; an empty set leaves none.
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
