"""Stream cuts in the controller, {packed segment id: offset in bytes}, compared by means of a stream's epochs.

A cut is valid when its segments exist and cover the key space exactly once.  Of two overlapping segments, the one of
the lower creation epoch comes before the other (see `epochs`).
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from sarit.controller.model.epochs import creation_epoch, known_segments, place_of
from sarit.core.keyspace import KeyRange, tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sarit.controller.model.epochs import Epoch, SegmentRange

Cut = dict[int, int]
_LOW = attrgetter("low")


def is_cut(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> bool:
    """Return whether a cut's segments exist and cover the key space exactly once, at offsets >= 0."""
    # Check everything: cuts come from clients.
    if not cut or not cut.keys() <= known.keys() or min(cut.values()) < 0:
        return False
    return tiles(KeyRange(known[segment].low, known[segment].high) for segment in cut)


def follows(known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int]) -> bool:
    """Return whether `later` is at or after `earlier` everywhere.  Either may cover only a part of the key space."""
    # Compare overlapping segments only: a part of the key space that one of the two does not cover is ignored.
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
    """Return the segments that lie wholly before a cut: later segments have taken over their whole range."""
    place = _Place(known, cut)
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) > creation_epoch(s) for o in place.at(known[s]))
    ]


def segments_after(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[int]:
    """Return the segments that lie wholly after a cut."""
    place = _Place(known, cut)
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) < creation_epoch(s) for o in place.at(known[s]))
    ]


def segments_between(known: Mapping[int, SegmentRange], start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
    """Return all segments from one cut to another, those of both cuts included."""
    # Exclude what is wholly outside: a segment that is only partly before `start` has keys after it.
    outside = set(segments_before(known, start)) | set(segments_after(known, end))
    return [segment for segment in sorted(known) if segment not in outside]


def bytes_between(
    known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int], lengths: Mapping[int, int]
) -> int:
    """Return the bytes from one cut to a later one.  `lengths`: of the segments that `to_measure` returns."""
    total = sum(later[s] - earlier.get(s, 0) for s in later)
    # A segment without a length was deleted meanwhile, and counts as empty.
    return total + sum(max(0, lengths.get(s, 0) - earlier.get(s, 0)) for s in to_measure(known, earlier, later))


def to_measure(known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int]) -> list[int]:
    """Return the segments that end between two cuts, whose lengths `bytes_between` needs."""
    return [s for s in segments_between(known, earlier, later) if s not in later]


def lower_bound(epochs: Sequence[Epoch], bounds: Sequence[Mapping[int, int]]) -> Cut:
    """Return the latest cut that is nowhere after any of `bounds`, as far as it is known without segment lengths.

    Where the cuts overlap, the earlier segment wins.  The rest of the later segment's range is covered by the segments
    that it replaced, from their beginnings.  `bounds`: whole cuts.  `epochs`: all epochs, in order, from the one that
    created the first segment of the cuts on."""
    known = known_segments(epochs)
    out: Cut = {}
    replaced: set[int] = set()
    waiting: deque[tuple[int, int | None]] = deque((s, offset) for cut in bounds for s, offset in sorted(cut.items()))
    while waiting:  # begins with the segments of the cuts; replaced ones follow, without an offset
        segment, offset = waiting.popleft()
        if segment in out:
            out[segment] = out[segment] if offset is None else min(out[segment], offset)
            continue
        mine, born = known[segment], creation_epoch(segment)
        rivals = [s for s in out if known[s].overlaps(mine)]
        # The earlier segment wins: drop later rivals, and queue the segments that they replaced, to cover the rest.
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
                # Find the segments that `later` replaced in the epoch before.
                before = epochs[place_of(epochs, creation_epoch(later)) - 1].overlapping(known[later])
                waiting += ((s.segment, None) for s in before)
    return out


def upper_bound(epochs: Sequence[Epoch], bounds: Sequence[Mapping[int, int]]) -> Cut:
    """Return a whole cut at or after all of `bounds`, each of which may cover only a part of the key space.

    Where they overlap, the later segment wins.  Parts that none covers are filled with segments of the latest epoch
    among those of the bounds, from their beginnings.  `bounds`: not all empty.  `epochs`: as for `lower_bound`.
    Source: Pravega `PeriodicWatermarking`."""
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
    latest = epochs[place_of(epochs, max(map(creation_epoch, out)))]
    # A segment that fills a gap replaces those of the cut that it overlaps, which may open gaps beside it.  The loop
    # ends, because each round adds segments of `latest`, and these never overlap each other.
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
    """The segments of a whole cut, by key range."""

    def __init__(self, known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> None:
        self._order = sorted((known[s] for s in cut), key=_LOW)

    def at(self, part: SegmentRange) -> Iterator[int]:
        first = max(0, bisect_right(self._order, part.low, key=_LOW) - 1)
        for s in itertools.islice(self._order, first, None):
            if s.low >= part.high:
                return
            if s.overlaps(part):
                yield s.segment
