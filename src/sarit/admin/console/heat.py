"""The heat of a stream: how many bytes a second went to which keys, at which times.  Pure.

A *sample* says how long each segment was at one time.  Two of them make a *column* of the map: a rate for each range of
keys.  A segment that was not there in the earlier sample began at 0 in between.  What a segment that was sealed in
between got counts for its own keys, in the same column: ranges of a column may overlap where the stream has scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.names import SegmentId


class Part(NamedTuple):
    """A segment in a sample: its keys [low, high), and its end in bytes."""

    low: float
    high: float
    end: int


class Cell(NamedTuple):
    """Keys [low, high) with a rate in bytes per second; `segment`: NUMBER.EPOCH, "" where it stands for several."""

    segment: str
    low: float
    high: float
    rate: float


@dataclass(frozen=True, slots=True)
class Sample:
    """`parts`: the active segments, and those that were sealed since the sample before."""

    time_ms: int
    parts: Mapping[SegmentId, Part]
    active: frozenset[SegmentId]


@dataclass(frozen=True, slots=True)
class Change:
    """Segments that were replaced by others: `kind` is "split", "merge" or "scale"."""

    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Column:
    """The rates by key and the scalings of a stream from `start_ms` to `end_ms`."""

    start_ms: int
    end_ms: int
    cells: tuple[Cell, ...]
    changes: tuple[Change, ...]


def column(before: Sample, after: Sample, rows: int) -> Column | None:
    """Return the column between two samples, with about `rows` cells at most, or None if no time passed."""
    seconds = (after.time_ms - before.time_ms) / 1000
    if seconds <= 0:
        return None
    cells = []
    for segment in sorted(after.parts, key=lambda one: (after.parts[one].low, one)):
        part = after.parts[segment]
        known = before.parts.get(segment)
        grown = part.end - (known.end if known is not None else 0)
        if segment in after.active or grown > 0:
            cells.append(Cell(_name(segment), part.low, part.high, max(0, grown) / seconds))
    return Column(before.time_ms, after.time_ms, tuple(merged(cells, rows)), tuple(changes(before, after)))


def merged(cells: Sequence[Cell], rows: int) -> list[Cell]:
    """Return the cells, or if there are more than `rows`, the highest rate in each of `rows` equal ranges of keys."""
    if len(cells) <= rows:
        return list(cells)
    highest = [0.0] * rows
    for cell in cells:
        first, last = int(cell.low * rows), min(rows - 1, int(cell.high * rows - 1e-9))
        for row in range(first, last + 1):
            highest[row] = max(highest[row], cell.rate)
    return [Cell("", row / rows, (row + 1) / rows, rate) for row, rate in enumerate(highest)]


def changes(before: Sample, after: Sample) -> list[Change]:
    """Return which active segments were replaced by which, in the order of their keys."""
    ranges = {**{s: before.parts[s] for s in before.active}, **{s: after.parts[s] for s in after.active}}
    gone, new = before.active - after.active, after.active - before.active
    # Groups of ranges that overlap, or replace each other in several steps: sweep over the keys.
    found: list[Change] = []
    group: list[SegmentId] = []
    high = 0.0
    for segment in [*sorted(gone | new, key=lambda one: (ranges[one].low, ranges[one].high)), None]:
        if segment is None or (group and ranges[segment].low >= high):
            if group:
                found.append(_change(group, gone, ranges))
            group, high = [], 0.0
        if segment is not None:
            group.append(segment)
            high = max(high, ranges[segment].high)
    return found


def _change(group: Sequence[SegmentId], gone: frozenset[SegmentId], ranges: Mapping[SegmentId, Part]) -> Change:
    old, new = [s for s in group if s in gone], [s for s in group if s not in gone]
    kind = "split" if len(old) == 1 and len(new) > 1 else "merge" if len(new) == 1 and len(old) > 1 else "scale"
    low, high = min(ranges[s].low for s in group), max(ranges[s].high for s in group)
    return Change(kind, tuple(map(_name, old)), tuple(map(_name, new)), low, high)


def document(found: Column) -> dict[str, object]:
    """Return the document of a column.  Its many cells are lists, which are shorter than objects."""
    return {
        "start": found.start_ms,
        "end": found.end_ms,
        "cells": [[cell.segment, round(cell.low, 6), round(cell.high, 6), round(cell.rate, 1)] for cell in found.cells],
        "changes": [
            {"kind": one.kind, "before": one.before, "after": one.after, "low": one.low, "high": one.high}
            for one in found.changes
        ],
    }


def _name(segment: SegmentId) -> str:
    return f"{segment.number}.{segment.epoch}"
