"""Readers: the driver plans ranges, tasks read their range as Arrow batches directly from its segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from sarit.spark.client import ConnectedStream
from sarit.spark.source.planner import StreamPlanner, batch_ranges
from sarit.spark.source.ranges import Range, TruncationGuard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.access import StreamAccess
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


class StreamReader(DataSourceStreamReader):
    """A stream as an unbounded table.  Spark plans with one on the driver and pickles others to tasks."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._access: StreamAccess | None = None
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Connections belong to the driver: a task opens its own.
        return {**self.__dict__, "_access": None, "_planner": None}

    def initialOffset(self) -> dict[str, object]:
        """Where the query begins."""
        return self._plan().initial()

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]  # the form of Spark 4.1
        """The end of the next micro-batch."""
        return self._plan().latest()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The ranges between two offsets."""
        planner = self._plan()
        # Spark asks for partitions of an offset that it has stored; after a restart this is how the planner learns it.
        planner.planned(end)
        return [RangePartition(part) for part in planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one partition."""
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.part, self._projection)

    def stop(self) -> None:
        """Release the driver's connections."""
        if self._access is not None:
            self._access.close()
        self._access = self._planner = None

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._access = ConnectedStream(self._options.target, self._options.stream)
            self._planner = StreamPlanner(self._options, self._access)
        return self._planner
