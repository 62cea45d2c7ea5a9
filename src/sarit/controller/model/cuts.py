"""Stream cuts as the controller sees them: {packed segment id: offset in bytes}, judged against a stream's epochs.

A cut is valid when its segments exist and cover the key space exactly once.  "Before" and "after" are decided per
pair of overlapping segments by their creation epochs (see `epochs`): the lower one comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.model.epochs import creation_epoch
from sarit.core.keyspace import KeyRange, tiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.epochs import SegmentRange

Cut = dict[int, int]


def is_cut(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> bool:
    """Whether a cut's segments exist and cover the key space exactly once, at offsets >= 0."""
    if not cut or not cut.keys() <= known.keys() or min(cut.values()) < 0:
        return False
    return tiles(KeyRange(known[segment].low, known[segment].high) for segment in cut)


def follows(known: Mapping[int, SegmentRange], earlier: Mapping[int, int], later: Mapping[int, int]) -> bool:
    """Whether `later` is at or behind `earlier` everywhere.  Either may cover a part of the key space alone."""
    for segment, offset in later.items():
        if segment in earlier:
            if offset < earlier[segment]:
                return False
            continue
        mine, born = known[segment], creation_epoch(segment)
        if any(born < creation_epoch(other) and mine.overlaps(known[other]) for other in earlier):
            return False
    return True


def segments_before(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[int]:
    """Segments that lie wholly before a cut: everything of their range has passed to a later one."""
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) > creation_epoch(s) for o in _at(known, cut, s))
    ]


def segments_after(known: Mapping[int, SegmentRange], cut: Mapping[int, int]) -> list[int]:
    """Segments that lie wholly behind a cut."""
    return [
        s
        for s in sorted(known)
        if s not in cut and all(creation_epoch(o) < creation_epoch(s) for o in _at(known, cut, s))
    ]


def segments_between(known: Mapping[int, SegmentRange], start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
    """All segments from one cut to another, those of both cuts included."""
    outside = set(segments_before(known, start)) | set(segments_after(known, end))
    return [segment for segment in sorted(known) if segment not in outside]


def _at(known: Mapping[int, SegmentRange], cut: Mapping[int, int], segment: int) -> list[int]:
    mine = known[segment]
    return [other for other in cut if known[other].overlaps(mine)]
