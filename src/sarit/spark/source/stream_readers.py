"""Streaming reads: Spark's readers over the planner of micro-batches.

There are two, by what Spark passes to a Python source.  From PySpark 4.2 on it passes the start of a micro-batch, the
limit and the trigger (`StreamReader`); 4.1 asks for the end of the next micro-batch only (`PlainStreamReader`), which
then must remember where it begins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sarit.spark import versions
from sarit.spark.client import ConnectedSource
from sarit.spark.source.group_position import GroupPosition
from sarit.spark.source.planner import QueryPlanner, unlimited
from sarit.spark.source.task import RangePartition, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.access import SourceAccess
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.planner import JsonOffset

log = logging.getLogger(__name__)


class DriverState:
    """The state of a query's driver: connections and the planner, made on first use, and never pickled."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source: SourceAccess | None = None
        self._planner: QueryPlanner | None = None
        self._group: GroupPosition | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # Connections belong to the driver: a task opens its own.
        return DriverState, (self._options,)

    @property
    def planner(self) -> QueryPlanner:
        """The planner.  Raises Unavailable (no controller)."""
        if self._planner is None:
            self._source = ConnectedSource(self._options.target)
            self._planner = QueryPlanner(self._options, self._source)
            group = self._options.streaming.reader_group
            self._group = None if group is None else GroupPosition(group, self._source)
        return self._planner

    def completed(self, offset: JsonOffset) -> None:
        """All micro-batches up to `offset` are completed."""
        if self._options.streaming.reader_group is not None and self.planner and self._group is not None:
            self._group.reached(offset)

    def publish(self) -> None:
        """Publish the position of the query as its reader group's, if it has one."""
        if self._group is not None:
            self._group.publish()

    def close(self) -> None:
        """Release the connections."""
        self.publish()
        if self._source is not None:
            self._source.close()
        self._source = self._planner = self._group = None


class _Reader(DataSourceStreamReader):
    """The part that both readers share: Spark plans with one on the driver and pickles others to tasks."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._driver = DriverState(options)
        self._available_now = False

    def initialOffset(self) -> JsonOffset:
        """Return where the query begins."""
        return self._driver.planner.initial()

    def partitions(self, start: JsonOffset, end: JsonOffset) -> Sequence[InputPartition]:
        """Return what each task reads between two offsets."""
        return [RangePartition(*parts) for parts in self._driver.planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one partition; none when there was nothing to plan."""
        if isinstance(partition, RangePartition):
            yield from read_ranges(self._options, partition, self._projection)

    def commit(self, end: JsonOffset) -> None:
        """All up to `end` is completed.  Spark says so when the next micro-batch begins."""
        self._driver.completed(end)

    def stop(self) -> None:
        """Release the driver's connections."""
        self._driver.close()


class PlainStreamReader(_Reader):
    """A stream as an unbounded table, for PySpark 4.1."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        super().__init__(options, projection)
        self._position: JsonOffset | None = None
        self._warned = False

    def latestOffset(self) -> JsonOffset:  # type: ignore[override]  # the form of Spark 4.1
        """Return the end of the next micro-batch."""
        if not self._warned:
            # Not where it is made: Spark makes two of a query, and asks one of them alone where micro-batches end.
            self._warned = True
            log.warning(versions.MISSING_IN_4_1.format(version=versions.version()))
        planner = self._driver.planner
        if self._position is None:
            self._position = planner.initial()
        return planner.latest(self._position, self._options.streaming.limits)

    def partitions(self, start: JsonOffset, end: JsonOffset) -> Sequence[InputPartition]:
        """Return what each task reads between two offsets."""
        # Spark has stored `end`: the next micro-batch begins there.  After a restart this is how the reader learns it.
        self._position = end
        return super().partitions(start, end)


if versions.has_admission_control(versions.version()):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    class StreamReader(_Reader, SupportsTriggerAvailableNow):
        """A stream as an unbounded table, for PySpark 4.2 and newer."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return the limit of the options that Spark can name; all of them are kept to."""
            limits = self._options.streaming.limits
            if limits.max_bytes is not None:
                return ReadMaxBytes(limits.max_bytes)
            if limits.max_events is not None:
                return ReadMaxRows(limits.max_events)
            return ReadAllAvailable() if limits.min_events is None else ReadMinRows(limits.min_events)

        def latestOffset(self, start: JsonOffset, limit: ReadLimit) -> JsonOffset:
            """Return the end of the micro-batch that begins at `start`, up to which all is completed."""
            self._driver.completed(start)
            limits = self._options.streaming.limits
            end = self._driver.planner.latest(
                start, unlimited(limits) if isinstance(limit, ReadAllAvailable) else limits
            )
            if end == start and self._available_now:
                # The run ends here, and Spark may kill this process before `stop`.
                self._driver.publish()
            return end

        def reportLatestOffset(self) -> JsonOffset | None:
            """Return the tails of the streams, with what is unread (`lag.py`), for the query's progress."""
            return self._driver.planner.tail()

        def prepareForTriggerAvailableNow(self) -> None:
            """Read what is there now, and nothing beyond it."""
            self._available_now = True
            self._driver.planner.prepare_available_now()


def stream_reader(options: ReadOptions, projection: Projection) -> DataSourceStreamReader:
    """Return the reader for the PySpark that is installed."""
    if versions.has_admission_control(versions.version()):
        return StreamReader(options, projection)
    return PlainStreamReader(options, projection)
