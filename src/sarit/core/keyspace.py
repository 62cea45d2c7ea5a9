"""The key space [0, 1): where a routing key falls, and which range owns it.

A stream's active segments tile the space: sorted, the first range begins at 0.0, the last ends at 1.0, and each
begins with *the same double* as the one before ends.  Bounds are therefore computed once and shared, never compared
with a tolerance.  Clients compute bounds, too, and not as we do: Pravega's are `x * (1.0 / n)`.  So the bounds that a
client asks for are first replaced by those that there are (`snapped`).

A range is written [low, high), but a key exactly on a bound belongs to the *lower* range, as in the official clients:
they search by high bound, and the smallest one that is not below the key wins.  The key 0.0 belongs
to the first range.

The position of a routing key is MurmurHash3 (x64, 128 bit) of its UTF-16LE code units, with seed 1741865571 (Java's
hash code of "EventRouter"); the upper 52 bits of the first half are the fraction.

Source: naming.md par. 3, Pravega `HashHelper`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import mmh3

from sarit.core.errors import Invalid
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

V = TypeVar("V")

_EVENT_ROUTER_SEED: Final = 1741865571
_LOW_64_BITS: Final = (1 << 64) - 1
_UNUSED_BITS: Final = 12
_FRACTION: Final = 2.0**-52
# Bounds that differ by less are the same, computed in different ways.
BOUND_TOLERANCE: Final = 1e-9


def hash_key(key: str) -> float:
    """Return the position of a routing key in [0, 1).  It must never change: every client and release computes the
    same."""
    digest = mmh3.mmh3_x64_128_uintdigest(key.encode("utf-16-le", "surrogatepass"), _EVENT_ROUTER_SEED)
    return ((digest & _LOW_64_BITS) >> _UNUSED_BITS) * _FRACTION


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """A part of the key space, 0 <= low < high <= 1.  Raises Invalid otherwise."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise Invalid(f"{self.low} to {self.high} is not a range of the key space")

    def __contains__(self, place: float) -> bool:
        """Return whether the range owns `place`; a bound belongs to the range below it."""
        return self.low < place <= self.high or place == self.low == 0.0

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether some key could belong to both; neighbours do not overlap."""
        return self.low < other.high and other.low < self.high

    def split_evenly(self, count: int) -> list[KeyRange]:
        """Return `count` ranges of about equal width that tile this one.

        Raises Invalid when count < 1, or when the range is too narrow to be cut so often.
        """
        if count < 1:
            raise Invalid(f"a range cannot be cut into {count} parts")
        width = self.high - self.low
        bounds = [self.low + width * part / count for part in range(count)]
        bounds.append(self.high)
        return [KeyRange(bounds[part], bounds[part + 1]) for part in range(count)]


WHOLE: Final = KeyRange(0.0, 1.0)


def split_evenly(count: int) -> list[KeyRange]:
    """Return the ranges of a new stream with `count` segments: i/count to (i+1)/count.  Raises Invalid when count <
    1."""
    return WHOLE.split_evenly(count)


def merged(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the same part of the key space in as few ranges as possible, ascending.  Raises Invalid when two overlap.

    Two sets of ranges cover the same part exactly when `merged` of them is equal: the rule for a scale, whose new
    ranges must be what the sealed segments leave.
    """
    runs: list[KeyRange] = []
    for part in sorted(ranges):
        if runs and part.low < runs[-1].high:
            raise Invalid(f"the ranges {runs[-1].low} to {runs[-1].high} and {part.low} to {part.high} overlap")
        if runs and part.low == runs[-1].high:
            runs[-1] = KeyRange(runs[-1].low, part.high)
        else:
            runs.append(part)
    return runs


def snapped(asked: Iterable[tuple[float, float]], bounds: Iterable[float]) -> list[KeyRange]:
    """Make ranges of the bounds that a client asks for, each replaced by the nearest of `bounds`, 0 and 1 if near.

    Near is what rounding explains, and a quarter of the range at most.  Bounds that are nobody's yet are replaced by an
    earlier one of `asked` in the same way.  Raises Invalid, also for more ranges than a stream has segments."""
    known = sorted({0.0, 1.0, *bounds})
    out = list[KeyRange]()
    for low, high in asked:
        if len(out) == MAX_SEGMENTS_PER_STREAM:
            raise Invalid(f"a stream has {MAX_SEGMENTS_PER_STREAM} segments at most, and more ranges are asked for")
        near = min(BOUND_TOLERANCE, (high - low) / 4)
        out.append(KeyRange(_nearest(known, low, near), _nearest(known, high, near)))
        for bound in (out[-1].low, out[-1].high):
            if known[bisect_left(known, bound)] != bound:  # `known` has 1.0, so the index is within it
                insort(known, bound)
    return out


def _nearest(known: Sequence[float], bound: float, near: float) -> float:
    at = bisect_left(known, bound)
    found = min(known[max(0, at - 1) : at + 1], key=lambda other: abs(other - bound))
    return found if abs(found - bound) <= near else bound


def tiles(ranges: Iterable[KeyRange]) -> bool:
    """Return whether the ranges, in any order, cover the whole key space exactly once."""
    try:
        return merged(ranges) == [WHOLE]
    except Invalid:
        return False


class RangeMap(Generic[V]):
    """A map from ranges that tile the key space to owners; searched by high bound."""

    __slots__ = ("_highs", "_values", "ranges")

    def __init__(self, owners: Iterable[tuple[KeyRange, V]]) -> None:
        """Raise Invalid when the ranges do not tile the key space."""
        ordered = sorted(owners, key=lambda owner: owner[0])
        self.ranges = [owned for owned, _ in ordered]
        if not tiles(self.ranges):
            bounds = ", ".join(f"{owned.low} to {owned.high}" for owned in self.ranges)
            raise Invalid(f"the ranges {bounds or '(none)'} do not tile the key space")
        self._highs = [owned.high for owned in self.ranges]
        self._values = [value for _, value in ordered]

    def __repr__(self) -> str:
        return f"RangeMap({list(zip(self.ranges, self._values, strict=True))})"

    def at(self, place: float) -> V:
        """Return the owner of a position in [0, 1]."""
        return self._values[bisect_left(self._highs, place)]

    def of_key(self, key: str) -> V:
        """Return the owner of a routing key."""
        return self.at(hash_key(key))

    def overlapping(self, part: KeyRange) -> list[V]:
        """Return the owners of anything in `part`, ascending: the predecessors or successors of that range."""
        return [value for owned, value in zip(self.ranges, self._values, strict=True) if owned.overlaps(part)]
