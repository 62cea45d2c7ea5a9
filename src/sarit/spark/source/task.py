"""A task: it reads its range of a segment as Arrow batches, directly from the segment store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sarit.spark.client import ConnectedStream
from sarit.spark.source.ranges import Range, TruncationGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.options import ReadOptions


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


def read_range(options: ReadOptions, part: Range, projection: Projection) -> Iterator[pa.RecordBatch]:
    """The events of one range; runs in a task.  Raises NotFound, Truncated."""
    access = TruncationGuard(ConnectedStream(options.target, part.stream), fail=options.fail_on_data_loss)
    try:
        for events, offsets in access.batches(part.segment, part.start, part.end):
            yield projection.batch(events, offsets, part)
    finally:
        access.close()
