"""Reads and changes key-value tables: `.option("table", "SCOPE/TABLE")`.

A task that Spark repeats changes the same keys to the same values, so repeated upserts and removals change nothing.  An
insert of a key that has the same value already counts as success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, LongType, StringType

from sarit.core.errors import Conflict, Invalid
from sarit.core.limits import NOT_EXISTS
from sarit.spark.client import CLIENTS, connect
from sarit.spark.formats.columns import typed_columns
from sarit.spark.tables.options import DELETE, INSERT
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import DataType, StructType

    from sarit.client.blocking.tables import Table
    from sarit.client.tables.layout import Entry, Key
    from sarit.core.names import SegmentId
    from sarit.spark.tables.options import TableOptions, TableWriteOptions

PAGE_ENTRIES: Final = 2_000

_TEXT: Final[tuple[type[DataType], ...]] = (BinaryType, StringType)
_READABLE: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT, "secondary_key": _TEXT, "value": _TEXT, "version": (LongType,)
}  # fmt: skip
_FIELDS: Final = {"key": "primary", "secondary_key": "secondary", "value": "value", "version": "version"}
_WRITABLE: Final[dict[str, tuple[type[DataType], ...]]] = {"key": _TEXT, "secondary_key": _TEXT, "value": _TEXT}


# -- reading ----------------------------------------------------------------------------------------


def table_schema(options: TableOptions) -> str:
    """Return the columns of a table, with `secondary_key` if it has secondary keys.  Raises NotFound."""
    with connect(options.target) as client:
        config = client.table(options.table).config()
    secondary = "secondary_key binary, " if config.secondary_key_bytes else ""
    return f"key binary, {secondary}value binary, version bigint"


class TablePartition(InputPartition):
    """The partition of the table that one task reads."""

    def __init__(self, partition: SegmentId) -> None:
        super().__init__(partition)
        self.partition = partition


class TableReader(DataSourceReader):
    """Reads a table, by one task for each of its partitions.  The read is not a snapshot."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        """Raises Invalid for columns that a table does not have."""
        rule = "a table has key, secondary_key, value (each binary or string) and version bigint"
        self._options = options
        self._columns = typed_columns(schema, _READABLE, rule)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the table.  Raises NotFound."""
        with connect(self._options.target) as client:
            return [TablePartition(one) for one in client.table(self._options.table).partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one partition in the order of their keys.  Raises NotFound."""
        assert isinstance(partition, TablePartition)
        with connect(self._options.target) as client:
            table = client.table(self._options.table)
            for page in table.scan_pages(partition=partition.partition, page_entries=PAGE_ENTRIES):
                yield self._batch(page)

    def _batch(self, page: Sequence[Entry]) -> pa.RecordBatch:
        arrays = []
        for name, text in self._columns:
            found = pa.array(
                [getattr(entry, _FIELDS[name]) for entry in page], pa.int64() if name == "version" else pa.binary()
            )
            arrays.append(found.cast(pa.string()) if text else found)
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self._columns])


# -- writing ----------------------------------------------------------------------------------------


@dataclass
class Changed(WriterCommitMessage):
    """The message of a task whose changes are durable."""

    keys: int


def check_table_write(options: TableWriteOptions, schema: StructType) -> None:
    """Check the columns of a write on the driver, and create the table if asked to.  Raises Invalid, NotFound."""
    removes = options.mode == DELETE
    rule = "a write to a table takes key, value and, if it has one, secondary_key (each binary or string)"
    names = {name for name, _ in typed_columns(schema, _WRITABLE, rule)}
    missing = [name for name in ("key", "value") if name not in names and not (removes and name == "value")]
    if missing:
        raise Invalid(f"there is no column {', '.join(missing)}: {rule}")
    with connect(options.target) as client:
        if options.create is not None:
            new = options.create
            client.tables.create(
                options.table,
                primary_key_bytes=new.primary_key_bytes,
                secondary_key_bytes=new.secondary_key_bytes,
                partitions=new.partitions,
            )
        config = client.table(options.table).config()
    if config.secondary_key_bytes and "secondary_key" not in names:
        raise Invalid(f"table {options.table} has secondary keys: give the column secondary_key")
    if not config.secondary_key_bytes and "secondary_key" in names:
        raise Invalid(f"table {options.table} has no secondary keys: leave out the column secondary_key")


class TableWriter(DataSourceArrowWriter):
    """`df.write.format("sarit").option("table", ...).mode("append")`."""

    def __init__(self, options: TableWriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Change the keys of one task's rows."""
        return change(self._options, iterator)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("sarit").option("table", ...)`."""

    def __init__(self, options: TableWriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Change the keys of one task's rows of one micro-batch."""
        return change(self._options, iterator)


def change(options: TableWriteOptions, batches: Iterator[pa.RecordBatch]) -> Changed:
    """Apply the rows of a task in order.  All changes are durable when this returns.

    Raises Invalid (a null, a key of the wrong length), Conflict (insert: a key has another value)."""
    rows = 0
    with CLIENTS.sharing(options.target) as client:
        table = client.table(options.table)
        for batch in batches:
            keys = _keys(batch)
            if options.mode == DELETE:
                table.remove_many(keys)
            elif options.mode == INSERT:
                _insert(table, keys, _values(batch, "value"))
            else:
                table.put_many(zip(keys, _values(batch, "value"), strict=True))
            rows += batch.num_rows
    freeze_once()
    return Changed(rows)


def _insert(table: Table, keys: Sequence[Key], values: Sequence[bytes]) -> None:
    versions = table.insert_many(zip(keys, values, strict=True))
    present = [at for at, version in enumerate(versions) if version == NOT_EXISTS]
    for at, entry in zip(present, table.get_many([keys[at] for at in present]), strict=True):
        # A key with the same value was inserted by an earlier attempt of this task.
        if entry is None or entry.value != values[at]:
            raise Conflict(
                f"table {table.name}: key {str(keys[at])[:200]} exists with another value; writeMode is insert"
            )


def _keys(batch: pa.RecordBatch) -> Sequence[Key]:
    keys = _values(batch, "key")
    if "secondary_key" not in batch.schema.names:
        return keys
    return list(zip(keys, _values(batch, "secondary_key"), strict=True))


def _values(batch: pa.RecordBatch, name: str) -> list[bytes]:
    column = batch.column(name)
    if column.null_count:
        raise Invalid(f"a row has no {name}: a table holds no nulls; to remove keys, use writeMode delete")
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values
