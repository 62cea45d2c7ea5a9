"""Streaming reads: Spark's reader over the planner of micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sarit.spark.client import ConnectedStream
from sarit.spark.source.planner import StreamPlanner
from sarit.spark.source.task import RangePartition, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.options import ReadOptions


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
