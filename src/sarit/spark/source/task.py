"""Reads the ranges of a task as Arrow batches, directly from the segment stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sarit.core.errors import Unavailable
from sarit.spark.client import CLIENTS, shared_stream
from sarit.spark.source.ranges import Range, TruncationGuard
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from sarit.core.names import StreamName
    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.event_search import EventSearch
    from sarit.spark.source.options import ReadOptions


class RangePartition(InputPartition):
    """The ranges that one task reads, one after the other.  `searches`: the query for each stream."""

    def __init__(self, *parts: Range, searches: Mapping[StreamName, EventSearch] | None = None) -> None:
        super().__init__(parts)
        self.parts = parts
        self.searches = searches or {}


def read_ranges(options: ReadOptions, partition: RangePartition, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition; runs in a task.  Raises NotFound, Truncated."""
    try:
        for part in partition.parts:
            stream = shared_stream(options.target, part.stream)
            access = TruncationGuard(stream, fail=options.fail_on_data_loss)
            search = partition.searches.get(part.stream)
            for events, offsets in access.batches(part.segment, part.start, part.end):
                if search is None:
                    yield projection.batch(events, offsets, part)
                    continue
                found, where = search.found(events, offsets)
                if len(found):
                    yield projection.batch(found, where, part)
        freeze_once()
    except Unavailable:
        # Spark repeats the task, which then makes new connections.
        CLIENTS.forget(options.target)
        raise
