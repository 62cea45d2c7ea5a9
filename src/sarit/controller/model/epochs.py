"""Epochs: the generations of a stream's active segments.

The segments of an epoch tile [0, 1) exactly: in order, each begins at the very double at which the one before ends.
A scale makes the next epoch.  Unchanged segments keep their ids.  New ones carry the new epoch, and their numbers
continue from the highest number of the epoch before, which is the highest so far.  Two invariants follow:

* A segment's id names the epoch that created it.
* Of two different segments whose ranges overlap, the one of the lower creation epoch came first: they were never
  active at the same time, and the second replaced the first (perhaps through others in between).

A transaction that commits after its epoch has passed is rolled in by two epochs at once: in the first, copies of its
sealed segments (same numbers, same ranges) stand in for their replacements; in the second, copies of the replacements
return.  Numbers thus repeat across epochs, ids never do.  Source: Pravega `RecordHelper`; naming.md par. 2.

Epoch numbers rise, and are contiguous but for promotions: the mirror of a stream that is promoted goes on in an epoch
far behind all that its source may have had (`promoted_epoch`).  No epoch is found by counting from another one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from sarit.controller.limits import MAX_EPOCH
from sarit.core.errors import Conflict, Invalid
from sarit.core.keyspace import KeyRange, split_evenly, tiles
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LOW = attrgetter("low")
_NUMBER = attrgetter("number")


@dataclass(frozen=True, slots=True, order=True)
class SegmentRange:
    """A segment (packed id) and the range of the key space it serves."""

    low: float
    high: float
    segment: int

    def overlaps(self, other: SegmentRange) -> bool:
        """Return whether two segments have keys in common; neighbours do not."""
        return self.low < other.high and other.low < self.high


@dataclass(frozen=True, slots=True)
class Epoch:
    """One generation of active segments.  `segments`: by low bound.  `created_ms`: ms since 1970."""

    number: int
    segments: tuple[SegmentRange, ...]
    created_ms: int

    @property
    def ids(self) -> frozenset[int]:
        """The packed ids of the epoch's segments."""
        return frozenset(s.segment for s in self.segments)

    def overlapping(self, part: SegmentRange) -> tuple[SegmentRange, ...]:
        """Return the segments that serve any key of `part`, ascending."""
        # The segments cover [0, 1) without a gap, so the last one that begins at or before `part.low` contains it.
        first = bisect_right(self.segments, part.low, key=_LOW) - 1
        return tuple(itertools.takewhile(lambda s: s.low < part.high, self.segments[first:]))


def check_epoch(epoch: Epoch) -> Epoch:
    """Return the epoch.  Raises AssertionError if its segments do not tile the key space in order."""
    # Check every new epoch before it is stored: a wrong one could not be undone.
    ranges = [KeyRange(s.low, s.high) for s in epoch.segments]
    assert ranges == sorted(ranges), f"epoch {epoch.number} is not in order"
    assert tiles(ranges), f"epoch {epoch.number} does not tile the key space"
    assert len(epoch.ids) == len(epoch.segments), f"epoch {epoch.number} has a segment twice"
    assert all(creation_epoch(s.segment) <= epoch.number for s in epoch.segments)
    return epoch


def creation_epoch(segment: int) -> int:
    """Return the epoch a segment was created in."""
    return SegmentId.unpack(segment).epoch


def highest_number(epoch: Epoch) -> int:
    """Return the highest segment number of this epoch, which no earlier epoch exceeds."""
    return max(SegmentId.unpack(s.segment).number for s in epoch.segments)


def first_epoch(count: int, first_number: int, now_ms: int) -> Epoch:
    """Return epoch 0 of a new stream: `count` segments of equal ranges, numbered from `first_number`."""
    ranges = enumerate(split_evenly(count))
    segments = tuple(SegmentRange(r.low, r.high, SegmentId(0, first_number + i).packed) for i, r in ranges)
    return check_epoch(Epoch(0, segments, now_ms))


def next_epoch(current: Epoch, replaced: Sequence[int], ranges: Sequence[KeyRange], now_ms: int) -> Epoch:
    """Return the epoch in which `ranges`, in their order, replace the segments `replaced`.

    Raises Conflict (`replaced` are not distinct active segments), Invalid (the ranges do not cover exactly theirs)."""
    gone = set(replaced)
    # Check this first: a Conflict tells the caller that it decided on an old epoch, and has to read again.
    if not gone or len(gone) != len(replaced) or not gone <= current.ids:
        raise Conflict("the segments to replace are not all active")
    unchanged = [s for s in current.segments if s.segment not in gone]
    # Together with the unchanged segments, the ranges tile the key space only if they cover exactly what is missing.
    if not tiles([KeyRange(s.low, s.high) for s in unchanged] + list(ranges)):
        raise Invalid("the new key ranges do not cover exactly what the replaced segments cover")
    # Number new segments from the highest number on, so that no segment name is reused.
    number, first = current.number + 1, highest_number(current) + 1
    new = [SegmentRange(r.low, r.high, SegmentId(number, first + i).packed) for i, r in enumerate(ranges)]
    return check_epoch(Epoch(number, tuple(sorted(unchanged + new)), now_ms))


def promoted_epoch(current: Epoch, ahead: int, now_ms: int) -> Epoch:
    """Return the epoch in which new segments of the same ranges replace all active ones, `ahead` numbers later.

    Raises Invalid: the stream was promoted so often that its epochs have no higher number."""
    number, first = current.number + ahead, highest_number(current) + 1
    if number > MAX_EPOCH:
        raise Invalid(f"epoch {number} is beyond {MAX_EPOCH}: the stream was promoted too often: copy it")
    new = (SegmentRange(s.low, s.high, SegmentId(number, first + i).packed) for i, s in enumerate(current.segments))
    return check_epoch(Epoch(number, tuple(new), now_ms))


def place_of(epochs: Sequence[Epoch], number: int) -> int:
    """Return the index of the first epoch with this number or a higher one; the length of `epochs` if there is none."""
    return bisect_left(epochs, number, key=_NUMBER)


def stand_ins(current: Epoch, past: Epoch) -> dict[int, int]:
    """Return the active segment for each segment of `past` that is active or has an active copy."""
    # Match by number: a copy has the number of its original, and another epoch.
    active = {SegmentId.unpack(s.segment).number: s for s in current.segments}
    pairs = [(s, active.get(SegmentId.unpack(s.segment).number)) for s in past.segments]
    assert all(p.low == a.low and p.high == a.high for p, a in pairs if a is not None), "a number for two ranges"
    return {p.segment: a.segment for p, a in pairs if a is not None}


def rolled_epochs(current: Epoch, past: Epoch, now_ms: int) -> tuple[Epoch, Epoch]:
    """Return the two epochs that merge transactions of `past`: one with copies of its segments, and one with copies of
    the present segments.

    A segment that is active in both epochs, or is a copy of a past one already, is not copied."""
    present = stand_ins(current, past)
    stay = set(present.values())
    old = _copies((s for s in past.segments if s.segment not in present), current.number + 1)
    new = _copies((s for s in current.segments if s.segment not in stay), current.number + 2)
    unchanged = [s for s in current.segments if s.segment in stay]
    first = Epoch(current.number + 1, tuple(sorted(unchanged + old)), now_ms)
    return check_epoch(first), check_epoch(Epoch(current.number + 2, tuple(sorted(unchanged + new)), now_ms))


def _copies(segments: Iterable[SegmentRange], epoch: int) -> list[SegmentRange]:
    return [SegmentRange(s.low, s.high, SegmentId(epoch, SegmentId.unpack(s.segment).number).packed) for s in segments]


def created_in(epoch: Epoch) -> tuple[SegmentRange, ...]:
    """Return the segments that the epoch created."""
    return tuple(s for s in epoch.segments if creation_epoch(s.segment) == epoch.number)


def successors(epochs: Sequence[Epoch], segment: int) -> list[tuple[SegmentRange, list[int]]]:
    """Return the successors of a segment, each with all of its predecessors; none if the segment is active, or sealed
    with its stream.

    `epochs`: all epochs, in order, from the one that created the segment on.  Raises KeyError: it never existed."""
    # The first of `epochs` is the one that the segment's id names, so a segment that is not in it never existed.
    mine = next((s for s in epochs[0].segments if s.segment == segment), None) if epochs else None
    if mine is None:
        raise KeyError(segment)
    for before, after in itertools.pairwise(epochs):
        # The successors are the overlapping segments of the first epoch without `segment`.  Their predecessors include
        # segments older than `segment`: readers of a merged segment wait for all of them.
        if not _has(after, mine):
            return [(s, [p.segment for p in before.overlapping(s)]) for s in after.overlapping(mine)]
    return []


def _has(epoch: Epoch, segment: SegmentRange) -> bool:
    # The segments of an epoch are in order and cover all keys, so one of them contains `segment.low`.
    at = bisect_right(epoch.segments, segment.low, key=_LOW) - 1
    return epoch.segments[at].segment == segment.segment


def known_segments(epochs: Iterable[Epoch]) -> dict[int, SegmentRange]:
    """Return every segment of these epochs, by id."""
    return {s.segment: s for epoch in epochs for s in epoch.segments}


def even_replacement(current: Epoch, count: int, now_ms: int) -> Epoch:
    """Return the epoch in which `count` equal ranges replace all active segments."""
    return next_epoch(current, [s.segment for s in current.segments], split_evenly(count), now_ms)


def replaced_by(current: Epoch, after: Epoch) -> list[int]:
    """Return the segments of `current` that are not in `after`."""
    last = after.ids
    return [s.segment for s in current.segments if s.segment not in last]
