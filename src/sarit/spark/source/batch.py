"""Batch reads: everything between two cuts, one range per segment or more."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sarit.core.errors import Invalid
from sarit.spark.client import ConnectedStream
from sarit.spark.source.position import Position, split_budget
from sarit.spark.source.ranges import Range, TruncationGuard, remaining_ranges
from sarit.spark.source.task import RangePartition, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.core.names import SegmentId
    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.options import ReadOptions


class BatchReader(DataSourceReader):
    """Everything between two cuts."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    def partitions(self) -> Sequence[InputPartition]:
        """One range per segment, or more when `splits` asks for them; one empty range when there is nothing."""
        access = ConnectedStream(self._options.target, self._options.stream)
        try:
            return [RangePartition(part) for part in batch_ranges(self._options, access)]
        finally:
            access.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one partition; Spark gives None when there was nothing to plan."""
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, partition.part, self._projection)


def batch_ranges(options: ReadOptions, access: StreamAccess) -> list[Range]:
    """The ranges of a batch read: every segment between the two cuts, split further when asked to.

    Raises Invalid, NotFound, Truncated."""
    guarded = TruncationGuard(access, fail=options.fail_on_data_loss)
    wanted = _between(access.cut(options.start), access.cut(options.end), access)
    return _split(remaining_ranges(wanted, guarded, fail=options.fail_on_data_loss), options.splits, guarded)


def _between(start: Position, end: Position, access: StreamAccess) -> list[tuple[SegmentId, int, int | None]]:
    """Walk from the start cut along the successors to the end cut: (segment, start, end), None: to its end.

    Raises Invalid when the end cut is not reached."""
    found: list[tuple[SegmentId, int, int | None]] = []
    todo = dict(start)
    seen: set[SegmentId] = set()
    while todo:
        segment = min(todo)
        seen.add(segment)
        found.append((segment, todo.pop(segment), end.get(segment)))
        if segment not in end:
            todo.update({successor: 0 for successor in access.successors(segment) if successor not in seen})
    if not seen >= set(end):
        raise Invalid("the end lies before the start, or the cuts are of different streams")
    return found


def _split(parts: list[Range], splits: int, access: StreamAccess) -> list[Range]:
    """Cut ranges at event boundaries until there are about `splits`; the boundaries are found by reading."""
    if len(parts) >= splits:
        return parts
    allowances = split_budget({part.segment: part.end - part.start for part in parts}, splits)
    return [piece for part in parts for piece in _cut_range(part, allowances[part.segment], access)]


def _cut_range(part: Range, pieces: int, access: StreamAccess) -> list[Range]:
    """At most `pieces` ranges of about equal length."""
    length = part.end - part.start
    wanted = [part.start + length * piece // pieces for piece in range(1, pieces)]
    found = [part.start]
    for _, offsets in access.batches(part.segment, part.start, part.end) if wanted else ():
        begins = offsets.to_numpy(zero_copy_only=False)
        while wanted and len(begins) and begins[-1] >= wanted[0]:
            found.append(int(begins[np.searchsorted(begins, wanted.pop(0))]))
        if not wanted:
            break
    bounds = [*dict.fromkeys(found), part.end]
    return [Range(part.stream, part.segment, low, high) for low, high in pairwise(bounds)]
