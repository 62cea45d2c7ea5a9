"""Guarantees of located offsets: a store that is asked for an event boundary near an offset answers one.  Pure.

| kind | meaning |
|---|---|
| `located-below` | the answer is below the target, and below the end that the segment had before |
| `located-inside` | the answer is within an event: some scan of the segment has no event that begins or ends there |
| `located-far` | the answer is further from the target than the distance that was allowed |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from checkers.log import LogHistory

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Located:
    """An answer: all in bytes.  `end`: of the segment, before it was asked.  `reach`: the distance that is allowed."""

    segment: int
    target: int
    answer: int
    end: int
    reach: int


def check(history: LogHistory, located: Sequence[Located]) -> list[Violation]:
    """Everything that is wrong with the answers, by the scans of the history."""
    return list(_violations(history, located))


def _violations(history: LogHistory, located: Sequence[Located]) -> Iterator[Violation]:
    shown = 0
    for one in located:
        wrong = ""
        if one.answer < min(one.target, one.end):
            wrong = "located-below"
        elif one.answer > one.target + one.reach and one.target < one.end:
            wrong = "located-far"
        if wrong:
            yield Violation(wrong, f"{one}")
    reader, segment, offset, _, _, length = history.reads.columns()[:6]
    for scan, extents in history.scans.items():
        mine = reader == scan
        for number, (start, end) in extents.items():
            of_segment = mine & (segment == number)
            boundaries = {start, end, *offset[of_segment].tolist(), *(offset + length)[of_segment].tolist()}
            for one in located:
                if one.segment == number and start <= one.answer <= end and one.answer not in boundaries:
                    shown += 1
                    if shown <= _SHOWN:
                        yield Violation("located-inside", f"scan {scan}: {one}")


__all__ = ["Located", "check"]
