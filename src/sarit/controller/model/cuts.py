"""Stream cuts as the controller sees them: {packed segment id: offset in bytes}, judged against a stream's epochs.

A cut is valid when its segments exist and cover the key space exactly once.  "Before" and "after" are decided per
pair of overlapping segments by their creation epochs (see `epochs`): the lower one comes first.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.core.keyspace import KeyRange, tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sarit.controller.model.epochs import Epoch, SegmentRange

Cut = dict[int, int]
_LOW = attrgetter("low")


def is_cut(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> bool:
    """Return whether a cut's segments exist and cover the key space exactly once, at offsets >= 0."""
    # Clients give cuts, so nothing about them is taken for granted.
    if not cut or not cut.keys() <= known.keys() or min(cut.values()) < 0:
        return False
    return tiles(KeyRange(known[segment].low, known[segment].high) for segment in cut)


def follows(known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int]) -> bool:
    """Return whether `later` is at or after `earlier` everywhere.  Either may cover only a part of the key space."""
    # Pair by pair: a part that only one of the two covers says nothing.
    for segment, offset in later.items():
        if segment in earlier:
            if offset < earlier[segment]:
                return False
            continue
        # Of two segments that overlap, the one created in the later epoch is later.
        mine, born = known[segment], creation_epoch(segment)
        if any(born < creation_epoch(other) and mine.overlaps(known[other]) for other in earlier):
            return False
    return True


def segments_before(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[int]:
    """Segments that lie wholly before a cut: their whole range has passed to later segments."""
    place = _Place(known, cut)
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) > creation_epoch(s) for o in place.at(known[s]))
    ]


def segments_after(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[int]:
    """Segments that lie wholly after a cut."""
    place = _Place(known, cut)
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) < creation_epoch(s) for o in place.at(known[s]))
    ]


def segments_between(known: Mapping[int, SegmentRange], start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
    """Return all segments from one cut to another, those of both cuts included."""
    # By exclusion: a segment partly before a cut has keys that lie between.
    outside = set(segments_before(known, start)) | set(segments_after(known, end))
    return [segment for segment in sorted(known) if segment not in outside]


def bytes_between(
    known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int], lengths: Mapping[int, int]
) -> int:
    """Bytes from one cut to a later one.  `lengths`: of the segments that `to_measure` names; a missing
    one counts only up to the earlier cut."""
    total = sum(later[s] - earlier.get(s, 0) for s in later)
    # A segment without a length is gone by now: nothing of it counts.
    return total + sum(max(0, lengths.get(s, 0) - earlier.get(s, 0)) for s in to_measure(known, earlier, later))


def to_measure(known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int]) -> list[int]:
    """Return the segments that end between two cuts: their lengths count."""
    return [s for s in segments_between(known, earlier, later) if s not in later]


def lower_bound(epochs: Sequence[Epoch], bounds: Sequence[Mapping[int, int]]) -> Cut:
    """Return a cut that is nowhere after any of some whole cuts, as far as that is known without the lengths of
    segments.

    Where the cuts overlap, the earlier segment wins.  The rest of the later segment is covered by the segments that it
    replaced, from their beginnings.  `epochs`: all, in order, from the first segment's of them on."""
    known, first = known_segments(epochs), epochs[0].number
    out: Cut = {}
    replaced: set[int] = set()
    waiting: deque[tuple[int, int | None]] = deque((s, offset) for cut in bounds for s, offset in sorted(cut.items()))
    while waiting:  # the cuts themselves first, then replaced segments, which have no offset
        segment, offset = waiting.popleft()
        if segment in out:
            out[segment] = out[segment] if offset is None else min(out[segment], offset)
            continue
        mine, born = known[segment], creation_epoch(segment)
        rivals = [s for s in out if known[s].overlaps(mine)]
        # The earlier segment wins: later rivals leave, and what they replaced is queued to cover the rest.
        gone = sorted(s for s in rivals if creation_epoch(s) > born)
        for later in gone:
            del out[later]
        if len(gone) == len(rivals):
            out[segment] = offset or 0
        else:
            gone.append(segment)
        for later in gone:
            if later not in replaced:
                replaced.add(later)
                # What covered these keys in the epoch before `later` was created.  Epochs are numbered without gaps.
                before = epochs[creation_epoch(later) - 1 - first].overlapping(known[later])
                waiting += ((s.segment, None) for s in before)
    return out


def upper_bound(epochs: Sequence[Epoch], bounds: Sequence[Mapping[int, int]]) -> Cut:
    """Return a whole cut at or after all of some positions, each of which may cover a part of the key space.

    Where they overlap, the later segment wins.  Parts that none covers are filled with segments of the latest epoch
    among them, from their beginnings.  `epochs` as above.  At least one position is not empty.  Source: Pravega
    `PeriodicWatermarking`."""
    known = known_segments(epochs)
    furthest: Cut = {}
    for cut in bounds:
        for segment, offset in cut.items():
            furthest[segment] = max(offset, furthest.get(segment, 0))
    out = {
        s: offset
        for s, offset in sorted(furthest.items())
        if not any(known[o].overlaps(known[s]) and creation_epoch(o) > creation_epoch(s) for o in furthest)
    }
    latest = epochs[max(map(creation_epoch, out)) - epochs[0].number]
    # A segment that fills a gap may overlap others of the cut.  They leave, which may open gaps beside it; each round
    # adds segments of `latest` only, so it ends.
    while gaps := _gaps(known, out):
        for s in latest.segments:
            if s.segment not in out and any(s.low < high and low < s.high for low, high in gaps):
                for gone in [o for o in out if known[o].overlaps(s)]:
                    del out[gone]
                out[s.segment] = 0
    return out


def _gaps(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[tuple[float, float]]:
    out, at = [], 0.0
    for part in sorted(known[s] for s in cut):
        if part.low > at:
            out.append((at, part.low))
        at = part.high
    return out if at == 1.0 else [*out, (at, 1.0)]


class _Place:
    """Which segments of a whole cut overlap a range."""

    def __init__(self, known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> None:
        self._order = sorted((known[s] for s in cut), key=_LOW)

    def at(self, part: SegmentRange) -> Iterator[int]:
        first = max(0, bisect_right(self._order, part.low, key=_LOW) - 1)
        for s in itertools.islice(self._order, first, None):
            if s.low >= part.high:
                return
            if s.overlaps(part):
                yield s.segment
