"""Divides the ranges of a micro-batch into tasks: cuts ranges if more tasks are wanted, and joins small ranges.

A task costs some 10 ms before it reads a byte, in Spark and in its Python process, and a micro-batch at the tail has
some kilobytes in each segment.  So one task reads several small ranges, one after the other.  A large range has a task
of its own, so that parallelism follows the load.  Joining never divides a segment among tasks, so its events stay in
order.

Ranges are cut at event boundaries from the store, which reads nothing for them, or from one sample of a small range.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sarit.spark.limits import SPARK_SAMPLE_BYTES, SPARK_TASK_BYTES
from sarit.spark.source.position import split_budget

if TYPE_CHECKING:
    from sarit.spark.source.admission import Probe
    from sarit.spark.source.ranges import Range


def cut_further(parts: list[Range], least: int, probe: Probe) -> list[Range]:
    """Cut ranges, in order, into about `least` ranges or more.  Raises NotFound, Truncated."""
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


def put_together(parts: list[Range], least: int) -> list[tuple[Range, ...]]:
    """Return the ranges of each task.  Small ranges are joined up to about `SPARK_TASK_BYTES`, but to `least` tasks or
    more if there are so many ranges.  Ranges stay in order in a task, and tasks in the order of their first range."""
    small = [index for index, part in enumerate(parts) if part.end - part.start < SPARK_TASK_BYTES]
    total = sum(parts[index].end - parts[index].start for index in small)
    count = max(-(-total // SPARK_TASK_BYTES), least - (len(parts) - len(small)), 1)
    if count >= len(small):
        return [(part,) for part in parts]
    tasks: list[list[int]] = [[] for _ in range(count)]
    # Assign the largest ranges first, each to the task with the least bytes.
    loads = [(0, task) for task in range(count)]
    for index in sorted(small, key=lambda index: (parts[index].start - parts[index].end, index)):
        load, task = heapq.heappop(loads)
        tasks[task].append(index)
        heapq.heappush(loads, (load + parts[index].end - parts[index].start, task))
    alone = [[index] for index, part in enumerate(parts) if part.end - part.start >= SPARK_TASK_BYTES]
    return [tuple(parts[index] for index in task) for task in sorted(alone + [sorted(task) for task in tasks])]
