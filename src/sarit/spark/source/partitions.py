"""Cut the ranges of a micro-batch further, so that at least so many tasks read it.

Boundaries come from the store, which reads nothing, or from one sample where the range is small.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sarit.core.limits import SPARK_SAMPLE_BYTES
from sarit.spark.source.position import split_budget

if TYPE_CHECKING:
    from sarit.spark.source.admission import Probe
    from sarit.spark.source.ranges import Range


def cut_further(parts: list[Range], least: int, probe: Probe) -> list[Range]:
    """About `least` ranges or more, in order, of the same bytes.  Raises NotFound, Truncated."""
    if len(parts) >= least:
        return parts
    pieces = split_budget({index: part.end - part.start for index, part in enumerate(parts)}, least)
    return [piece for index, part in enumerate(parts) for piece in _cut(part, pieces[index], probe)]


def _cut(part: Range, pieces: int, probe: Probe) -> list[Range]:
    if pieces <= 1:
        return [part]
    place, length = (part.stream, part.segment), part.end - part.start
    if length <= SPARK_SAMPLE_BYTES:
        ends = probe.sample(place, part.start, part.end).ends
        wanted = [part.start + length * piece // pieces for piece in range(1, pieces)]
        found = [ends[bisect_left(ends, at)] for at in wanted if ends and at <= ends[-1]]
    else:
        found = probe.boundaries(place, part.start, part.end, -(-length // pieces))
    bounds = [part.start, *sorted({at for at in found if part.start < at < part.end}), part.end]
    return [replace(part, start=low, end=high) for low, high in pairwise(bounds)]
