"""Spark's reader of a stream's Iceberg table with the tail of the stream.

The driver plans once (`planning.py`): some tasks read data files of one snapshot by PyIceberg, others read ranges of
segments.  Both make the same columns, those of the table.  What is committed while tasks run changes neither part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.lake.layout import SARIT, rows
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.table_types import fitted, small_schema
from sarit.spark.client import CLIENTS, ConnectedStream, connect, shared_stream
from sarit.spark.formats.types import arrow_schema, spark_fields
from sarit.spark.iceberg.planning import ViewPlan, planned
from sarit.spark.iceberg.values import tail_columns, value_columns
from sarit.spark.source.ranges import Range, TruncationGuard
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from sarit.lake.ports import TableView
    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.spark.iceberg.options import ViewOptions


def view_schema(options: ViewOptions) -> StructType:
    """Return the columns of a table.  Raises NotFound, Invalid, Unavailable."""
    return spark_fields(small_schema(_load(options).schema))


def _load(options: ViewOptions) -> TableView:
    found = PyIcebergTables(options.catalogs, options.catalog).load(options.identifier)
    if found is None:
        raise NotFound(f"there is no table {options.table}: the catalog does not have it")
    return found


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Data files of a snapshot, as PyIceberg's scan tasks, with what reading them needs.  Its repr has no secrets."""

    metadata: Any
    io: Any
    tasks: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"<TableFiles {len(self.tasks)}>"


@dataclass(frozen=True, slots=True)
class TailRanges:
    """Ranges of a stream's tail.  `naive_times`: the table has times without a zone."""

    ranges: tuple[Range, ...]
    columns: PayloadColumns
    ingested_us: int
    naive_times: bool


class ViewPartition(InputPartition):
    """The part of a read that one task reads."""

    def __init__(self, part: TableFiles | TailRanges) -> None:
        super().__init__(type(part).__name__)
        self.part = part


class ViewReader(DataSourceReader):
    """Reads a table at its newest snapshot, and the stream above it."""

    def __init__(self, options: ViewOptions, schema: StructType) -> None:
        self._options = options
        self._target = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads: data files first.  Raises TableProblem, NotFound, Truncated, Invalid,
        Unavailable."""
        options, read = self._options, self._options.read
        with connect(read.target) as client:
            access = ConnectedStream(read.target, read.stream, client)
            plan = planned(options.table, read, lambda: _load(options), access)
            self._check(plan.table)
            parts: list[TableFiles | TailRanges] = [*self._files(plan), *self._tail(plan, access)]
            return [ViewPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition.  Raises Truncated, NotFound, Invalid, Unavailable."""
        if not isinstance(partition, ViewPartition):
            return
        if isinstance(partition.part, TableFiles):
            yield from _read_files(partition.part, self._target)
        else:
            yield from _read_tail(self._options, partition.part, self._target)
        freeze_once()

    def _check(self, table: TableView) -> None:
        missing = [name for name in self._target.names if name not in table.schema.names]
        if missing:
            raise Invalid(
                f"table {self._options.table} has no column {', '.join(missing)}: it has "
                f"{', '.join(table.schema.names)}"
            )

    def _files(self, plan: ViewPlan) -> list[TableFiles]:
        """Divide the data files of the snapshot among tasks."""
        table = plan.table.handle
        # Tasks need schemas, partition specs and properties, and not the history.
        metadata = table.metadata.model_copy(
            update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
        )
        tasks = sorted(table.scan(snapshot_id=plan.table.head).plan_files(), key=lambda task: task.file.file_path)
        total = sum(task.file.file_size_in_bytes for task in tasks)
        most = self._options.read.max_bytes_per_partition
        least_tasks = self._options.read.min_partitions
        if least_tasks:
            most = min(most, -(-total // least_tasks))
        groups: list[list[Any]] = []
        left = 0
        for task in tasks:
            if not groups or left < task.file.file_size_in_bytes:
                groups.append([])
                left = most
            groups[-1].append(task)
            left -= task.file.file_size_in_bytes
        return [TableFiles(metadata, table.io, tuple(group)) for group in groups]

    def _tail(self, plan: ViewPlan, access: ConnectedStream) -> list[TailRanges]:
        if not plan.tail:
            return []
        options, schema = self._options, small_schema(plan.table.schema)
        values = value_columns(schema)
        columns = tail_columns(options.table, values, access.stream, access.properties(), options.registry)
        naive = schema.field(SARIT).type.field("ingested").type.tz is None
        return [TailRanges(group, columns, plan.ingested_ms * 1000, naive) for group in plan.tail]


def _read_files(part: TableFiles, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    projected = part.metadata.schema().select(*target.names)
    scan = ArrowScan(part.metadata, part.io, projected, AlwaysTrue())
    for task in part.tasks:  # one after the other: PyIceberg holds the rows of all that it is given
        for batch in scan.to_record_batches([task]):
            small = pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
            yield fitted(small, target)


def _read_tail(options: ViewOptions, part: TailRanges, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    read = options.read
    try:
        for piece in part.ranges:
            stream = shared_stream(read.target, piece.stream)
            access = TruncationGuard(stream, fail=read.fail_on_data_loss)
            for events, offsets in access.batches(piece.segment, piece.start, piece.end):
                segments = pa.repeat(pa.scalar(piece.segment.packed, pa.int64()), len(events))
                batch = pa.RecordBatch.from_arrays([events, segments, offsets], names=["event", "segment", "offset"])
                found = rows(batch, part.columns, part.ingested_us, naive_times=part.naive_times).good
                if found is not None:
                    yield fitted_tail(options.table, found, target)
    except Unavailable:
        # Spark repeats the task, which then makes new connections.
        CLIENTS.forget(read.target)
        raise


def fitted_tail(table: str, found: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return rows of the tail in the columns of the read.  Raises Invalid: a value needs wider columns."""
    try:
        return fitted(found, target)
    except Invalid as error:
        raise Invalid(
            f"{error}: values above what table {table} has need wider columns, which it gets with its next commit; "
            "load the frame again then"
        ) from None
