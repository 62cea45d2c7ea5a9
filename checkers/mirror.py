"""Guarantees of a mirror: it is its source at an earlier moment, at equal offsets, and never goes back.  Pure.

A history holds what the source ever had, and the mirror as it was seen, time after time.

| kind | meaning |
|---|---|
| `bytes` | the mirror has other bytes than the source at the same offset |
| `beyond` | the mirror's segment is longer than the source's ever was |
| `epochs` | the mirror's epochs are not consecutive ones of the source |
| `order` | a segment has bytes, but one that it replaced is not complete or not sealed |
| `sealed` | a segment was sealed at another length than at the source |
| `torn` | between two rounds, the mirror's lengths are those of no clean moment of the source |
| `back` | a segment became shorter, unsealed or lost its epoch, or a start fell |
| `behind` | at the end, the mirror has less than the source |
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# (low, high, segment), in order: the segments of one epoch.
Segments = tuple[tuple[float, float, int], ...]
Lengths = dict[int, int]


@dataclass(slots=True)
class SourceHistory:
    """All that the source ever had.

    `epochs`: by number.  `data`: of all segments, from offset 0, also what was truncated.  `sealed`: lengths.
    `moments`: (number of the last epoch, lengths of its segments) of each clean moment; None: they are not known."""

    epochs: dict[int, Segments] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    sealed: Lengths = field(default_factory=dict)
    moments: Sequence[tuple[int, Mapping[int, int]]] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The mirror at one time.

    `epochs`: by number.  `starts`: where segments begin.  `data`: their bytes from there.  `quiet`: no round was being
    carried out."""

    epochs: Mapping[int, Segments]
    starts: Mapping[int, int]
    data: Mapping[int, bytes]
    sealed: frozenset[int]
    quiet: bool

    @property
    def lengths(self) -> Lengths:
        """The length of each segment."""
        return {s: self.starts[s] + len(data) for s, data in self.data.items()}


def check(source: SourceHistory, seen: Sequence[Seen], *, caught_up: bool = False) -> list[Violation]:
    """Everything that is wrong; empty when nothing is.  `caught_up`: the last mirror has to have all."""
    found = [one for each in seen for one in _prefix(source, each)]
    for before, after in itertools.pairwise(seen):
        found += _back(before, after)
    if caught_up and seen:
        found += _behind(source, seen[-1])
    return found


def _prefix(source: SourceHistory, seen: Seen) -> Iterator[Violation]:
    numbers = sorted(seen.epochs)
    expected = [n for n in sorted(source.epochs) if numbers and numbers[0] <= n <= numbers[-1]]
    if numbers != expected or any(seen.epochs[n] != source.epochs.get(n) for n in numbers):
        yield Violation("epochs", f"the mirror has epochs {numbers}, the source {expected} there, or others")
        return
    for segment, data in seen.data.items():
        start, whole = seen.starts[segment], source.data.get(segment, b"")
        end = start + len(data)
        if end > len(whole):
            yield Violation("beyond", f"segment {segment} has {end} bytes, and {len(whole)} at the source")
        elif data != whole[start:end]:
            yield Violation("bytes", f"segment {segment} differs from its source in {start}..{end}")
        if segment in seen.sealed and source.sealed.get(segment) != end:
            yield Violation("sealed", f"segment {segment} is sealed at {end}, not {source.sealed.get(segment)}")
    yield from _order(source, seen)
    if seen.quiet and numbers and source.moments is not None:
        last, lengths = numbers[-1], seen.lengths
        active = {s: lengths[s] for _, _, s in seen.epochs[last] if s in lengths}
        if not any(n == last and all(at.get(s) == v for s, v in active.items()) for n, at in source.moments):
            yield Violation("torn", f"epoch {last} at {active} was no clean moment of the source")


def _order(source: SourceHistory, seen: Seen) -> Iterator[Violation]:
    """Check that what an epoch replaced is complete and sealed, once there is the epoch."""
    numbers, lengths = sorted(seen.epochs), seen.lengths
    for before, after in itertools.pairwise(numbers):
        kept, earlier = ({s for _, _, s in seen.epochs[number]} for number in (after, before))
        for low, high, segment in seen.epochs[before]:
            if segment in kept or segment not in lengths:
                continue
            new = (s for lo, hi, s in seen.epochs[after] if lo < high and low < hi and s not in earlier)
            complete = segment in seen.sealed and source.sealed.get(segment) == lengths[segment]
            if not complete and any(seen.data.get(s) for s in new):
                yield Violation("order", f"a successor of segment {segment} has bytes before it is complete")


def _back(before: Seen, after: Seen) -> Iterator[Violation]:
    if gone := before.epochs.keys() - after.epochs.keys():
        yield Violation("back", f"the mirror lost its epochs {sorted(gone)}")
    old, new = before.lengths, after.lengths
    for segment in old.keys() & new.keys():
        if new[segment] < old[segment]:
            yield Violation("back", f"segment {segment} went from {old[segment]} to {new[segment]} bytes")
        if after.starts[segment] < before.starts[segment]:
            yield Violation("back", f"segment {segment} begins at {after.starts[segment]} again")
        if segment in before.sealed - after.sealed:
            yield Violation("back", f"segment {segment} is not sealed any more")


def _behind(source: SourceHistory, seen: Seen) -> Iterator[Violation]:
    if not seen.epochs or max(seen.epochs) != max(source.epochs):
        yield Violation("behind", f"the mirror ends with epoch {max(seen.epochs, default=None)}")
        return
    for segment, length in seen.lengths.items():
        if length != len(source.data[segment]):
            yield Violation("behind", f"segment {segment} has {length} of {len(source.data[segment])} bytes")


__all__ = ["Seen", "SourceHistory", "check"]
