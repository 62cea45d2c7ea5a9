"""Spark's readers for streaming reads.

There are two.  PySpark 4.2 and newer pass the start of a micro-batch, the limit and the trigger (`StreamReader`).
PySpark 4.1 only asks for the end of the next micro-batch, so the reader must remember where it begins
(`PlainStreamReader`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sarit.core.errors import Invalid
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
    """The connections and the planner of a query's driver, made on first use and never pickled."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source: SourceAccess | None = None
        self._planner: QueryPlanner | None = None
        self._group: GroupPosition | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # Pickle only the options: tasks open connections of their own.
        return DriverState, (self._options,)

    @property
    def planner(self) -> QueryPlanner:
        """The planner of the query.  Raises Unavailable (no controller replies)."""
        if self._planner is None:
            self._source = ConnectedSource(self._options.target)
            self._planner = QueryPlanner(self._options, self._source)
            group = self._options.streaming.reader_group
            self._group = None if group is None else GroupPosition(group, self._source)
        return self._planner

    def completed(self, offset: JsonOffset) -> None:
        """Record that all micro-batches up to `offset` are completed."""
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
    """The common part of both readers.  Spark plans with one on the driver, and pickles others for tasks."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._driver = DriverState(options)
        self._available_now = False

    def initialOffset(self) -> JsonOffset:
        """Return the offset at which a new query begins."""
        return self._driver.planner.initial()

    def partitions(self, start: JsonOffset, end: JsonOffset) -> Sequence[InputPartition]:
        """Return the ranges that each task reads between two offsets."""
        return [RangePartition(*parts) for parts in self._driver.planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one partition; none if there is no partition."""
        if isinstance(partition, RangePartition):
            yield from read_ranges(self._options, partition, self._projection)

    def commit(self, end: JsonOffset) -> None:
        """Record that all micro-batches up to `end` are completed.  Spark calls this when the next one begins."""
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
            # Warn here and not in the constructor: Spark makes two readers of a query, but asks only one of them.
            self._warned = True
            log.warning(versions.MISSING_IN_4_1.format(version=versions.version()))
        planner = self._driver.planner
        if self._position is None:
            self._position = planner.initial()
        return planner.latest(self._position, self._options.streaming.limits)

    def partitions(self, start: JsonOffset, end: JsonOffset) -> Sequence[InputPartition]:
        """Return the ranges that each task reads between two offsets."""
        # The next micro-batch begins at `end`, which Spark has stored.  After a restart the reader learns it here.
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
            """Return the one of the limits in the options that Spark shows; all limits are enforced."""
            limits = self._options.streaming.limits
            if limits.max_bytes is not None:
                return ReadMaxBytes(limits.max_bytes)
            if limits.max_events is not None:
                return ReadMaxRows(limits.max_events)
            return ReadAllAvailable() if limits.min_events is None else ReadMinRows(limits.min_events)

        def latestOffset(self, start: JsonOffset, limit: ReadLimit) -> JsonOffset:
            """Return the end of the micro-batch that begins at `start`, and note that all before it is completed."""
            self._driver.completed(start)
            limits = self._options.streaming.limits
            end = self._driver.planner.latest(
                start, unlimited(limits) if isinstance(limit, ReadAllAvailable) else limits
            )
            if end == start and self._available_now:
                # Publish now: the run ends here, and Spark may kill this process before `stop`.
                self._driver.publish()
            return end

        def reportLatestOffset(self) -> JsonOffset | None:
            """Return the tails of the streams, and the lag (`lag.py`), for the query's progress."""
            return self._driver.planner.tail()

        def prepareForTriggerAvailableNow(self) -> None:
            """Make the present tails the end of the query."""
            self._available_now = True
            self._driver.planner.prepare_available_now()


def stream_reader(options: ReadOptions, projection: Projection) -> DataSourceStreamReader:
    """Return the streaming reader for the installed PySpark.  Raises Invalid: an option is for batch reads alone."""
    if options.search is not None:
        raise Invalid("option search is for batch reads: register a continuous query, and read its output stream")
    if versions.has_admission_control(versions.version()):
        return StreamReader(options, projection)
    return PlainStreamReader(options, projection)
