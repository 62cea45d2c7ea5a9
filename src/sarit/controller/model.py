"""Decisions about epochs, successors and stream cuts: pure functions of records.

An epoch's segments tile [0, 1) exactly; bounds are compared bit by bit.  A scale makes the
next epoch: segments that are not replaced keep their ids, new ones are numbered on from the
highest number of the current epoch.  Source: Pravega `RecordHelper`, controller.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from sarit.controller.records import EpochRecord, SegmentRange
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def even_ranges(count: int) -> list[tuple[float, float]]:
    """[0, 1) in `count` equal parts; neighbours share their bound exactly."""
    bounds = [i / count for i in range(count)] + [1.0]
    return [(bounds[i], bounds[i + 1]) for i in range(count)]


def first_epoch(count: int, first_number: int, now_ms: int) -> EpochRecord:
    """Epoch 0 of a new stream."""
    segments = tuple(
        SegmentRange(low, high, SegmentId(0, first_number + i).packed)
        for i, (low, high) in enumerate(even_ranges(count))
    )
    return EpochRecord(0, segments, now_ms)


def tiles(ranges: Sequence[tuple[float, float]]) -> bool:
    """Whether the ranges cover [0, 1) exactly once."""
    at = 0.0
    for low, high in sorted(ranges):
        if low != at or high <= low:
            return False
        at = high
    return at == 1.0


def next_epoch(
    current: EpochRecord, replaced: Sequence[int], ranges: Sequence[tuple[float, float]], now_ms: int
) -> EpochRecord:
    """The epoch in which `ranges` take the place of `replaced`.  Raises Invalid."""
    by_id = {s.segment: s for s in current.segments}
    if not replaced or len(set(replaced)) != len(replaced) or any(segment not in by_id for segment in replaced):
        raise Invalid("the segments to replace are not all active")
    kept = [s for s in current.segments if s.segment not in set(replaced)]
    if not tiles([(s.low, s.high) for s in kept] + list(ranges)):
        raise Invalid("the new key ranges do not cover exactly what the replaced segments covered")
    highest = max(SegmentId.unpack(s.segment).number for s in current.segments)
    epoch = current.epoch + 1
    new = [SegmentRange(low, high, SegmentId(epoch, highest + 1 + i).packed) for i, (low, high) in enumerate(ranges)]
    return EpochRecord(epoch, tuple(sorted(kept + new)), now_ms)


def successors(history: Sequence[EpochRecord], segment: int) -> list[tuple[SegmentRange, list[int]]]:
    """Who follows `segment`, each with all its predecessors; empty while it is active or sealed with its stream.

    `history`: all epochs from the segment's own on, in order."""
    for before, after in itertools.pairwise(history):
        mine = next((s for s in before.segments if s.segment == segment), None)
        if mine is None or any(s.segment == segment for s in after.segments):
            continue
        out = []
        for candidate in after.segments:
            if candidate.overlaps(mine):
                predecessors = [s.segment for s in before.segments if s.overlaps(candidate)]
                out.append((candidate, predecessors))
        return out
    return []


def ranges_of(history: Sequence[EpochRecord]) -> dict[int, SegmentRange]:
    """Every segment there ever was, by id."""
    return {s.segment: s for epoch in history for s in epoch.segments}


def is_cut(history: Sequence[EpochRecord], cut: Mapping[int, int]) -> bool:
    """Whether the segments of a cut exist and tile the key space."""
    known = ranges_of(history)
    if not cut or any(segment not in known for segment in cut):
        return False
    return tiles([(known[segment].low, known[segment].high) for segment in cut])


def creation_epoch(segment: int) -> int:
    """The epoch a segment was created in."""
    return SegmentId.unpack(segment).epoch


def precedes(history: Sequence[EpochRecord], earlier: Mapping[int, int], later: Mapping[int, int]) -> bool:
    """Whether cut `later` is at or behind cut `earlier` everywhere."""
    known = ranges_of(history)
    for segment, offset in later.items():
        for other, other_offset in earlier.items():
            if segment == other:
                if offset < other_offset:
                    return False
            elif known[segment].overlaps(known[other]) and creation_epoch(segment) < creation_epoch(other):
                return False
    return True


def segments_between(history: Sequence[EpochRecord], start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
    """All segments that hold bytes from cut `start` to cut `end`, those of both cuts included."""
    known = ranges_of(history)
    out = []
    for segment, mine in sorted(known.items()):
        epoch = creation_epoch(segment)
        after_start = segment in start or all(
            creation_epoch(other) <= epoch for other in start if known[other].overlaps(mine)
        )
        before_end = segment in end or all(
            creation_epoch(other) >= epoch for other in end if known[other].overlaps(mine)
        )
        if after_start and before_end:
            out.append(segment)
    return out


def segments_before(history: Sequence[EpochRecord], cut: Mapping[int, int]) -> list[int]:
    """Segments that lie wholly before a cut."""
    known = ranges_of(history)
    return [
        segment
        for segment, mine in sorted(known.items())
        if segment not in cut
        and all(creation_epoch(other) > creation_epoch(segment) for other in cut if known[other].overlaps(mine))
    ]
