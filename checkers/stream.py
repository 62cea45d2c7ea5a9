"""Guarantees of a stream of several segments, beyond those of each segment (`log.py`).  Pure.

A *sequence* is one writer's events of one routing key, numbered from 1 in the order they were written.  Readers get
them in that order, also across scaling, after which a sequence continues in another segment.

| kind | meaning |
|---|---|
| `key-order` | a reader got events of a sequence out of order, or one of them twice |
| `key-gap` | a reader that began at the head skipped an event of a sequence |
| `early` | a reader got an event of a segment before the last event of a predecessor |
| `untiled` | segments that were active together do not cover the key space exactly once |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers.log import Table, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN: Final = 5


class StreamHistory:
    """The events delivered to each reader, in order, and the predecessors of each segment."""

    def __init__(self) -> None:
        self._delivered = Table(4)
        self.predecessors: dict[int, set[int]] = {}
        self._active: list[list[tuple[float, float]]] = []

    def delivered(self, reader: int, segment: int, sequence: int, number: int) -> None:
        """A reader that began at the head got the next event."""
        self._delivered.add(reader, segment, sequence, number)

    def delivered_many(self, reader: int, segments: Any, sequences: Any, numbers: Any) -> None:
        """The same for many, as arrays in the order they came."""
        self._delivered.extend(np.full(len(sequences), reader), segments, sequences, numbers)

    def follows(self, segment: int, predecessors: Sequence[int]) -> None:
        """A segment and all that it follows."""
        self.predecessors.setdefault(segment, set()).update(predecessors)

    def active(self, ranges: Sequence[tuple[float, float]]) -> None:
        """The key ranges (low, high) of the segments that were active at one moment."""
        self._active.append(sorted(ranges))

    def check(self) -> list[Violation]:
        """Everything that is wrong; empty when nothing is."""
        reader, segment, sequence, number = self._delivered.columns()
        return [
            *_sequences(reader, sequence, number),
            *_early(reader, segment, self.predecessors),
            *_untiled(self._active),
        ]


def _sequences(reader: Any, sequence: Any, number: Any) -> Iterator[Violation]:
    order = np.lexsort((np.arange(len(reader)), sequence, reader))
    reader, sequence, number = reader[order], sequence[order], number[order]
    if not len(reader):
        return
    same = (reader[1:] == reader[:-1]) & (sequence[1:] == sequence[:-1])
    for at in np.flatnonzero(same & (number[1:] <= number[:-1]))[:_SHOWN]:
        yield Violation(
            "key-order", f"reader {reader[at]}: sequence {sequence[at]} event {number[at + 1]} after {number[at]}"
        )
    gaps = same & (number[1:] > number[:-1] + 1)
    for at in np.flatnonzero(gaps)[:_SHOWN]:
        yield Violation(
            "key-gap", f"reader {reader[at]}: sequence {sequence[at]} event {number[at + 1]} after {number[at]}"
        )
    first = np.concatenate(([True], ~same)) & (number != 1)
    for at in np.flatnonzero(first)[:_SHOWN]:
        yield Violation("key-gap", f"reader {reader[at]}: sequence {sequence[at]} began with event {number[at]}")


def _early(reader: Any, segment: Any, predecessors: Mapping[int, set[int]]) -> Iterator[Violation]:
    """The last of each predecessor comes before the first of its successor."""
    when = np.arange(len(reader))
    for one in np.unique(reader):
        mine = reader == one
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for found in np.unique(segment[mine]):
            places = when[mine & (segment == found)]
            first[int(found)], last[int(found)] = int(places[0]), int(places[-1])
        for later, begun in first.items():
            for earlier in sorted(predecessors.get(later, ())):
                if last.get(earlier, -1) > begun:
                    yield Violation(
                        "early", f"reader {one} got segment {later} before the end of its predecessor {earlier}"
                    )


def _untiled(active: Sequence[Sequence[tuple[float, float]]]) -> Iterator[Violation]:
    shown = 0
    for ranges in active:
        bounds = [0.0, *(bound for pair in ranges for bound in pair), 1.0]
        if shown < _SHOWN and any(bounds[at] != bounds[at + 1] for at in range(0, len(bounds), 2)):
            shown += 1
            yield Violation("untiled", f"these ranges were active together: {list(ranges)}")
