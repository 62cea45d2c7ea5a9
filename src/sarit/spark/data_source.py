"""`format("sarit")`: the entry point that Spark finds (module `pyspark_sarit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sarit.client.core.addresses import default_address
from sarit.core.errors import Invalid
from sarit.spark import versions
from sarit.spark.client import first_event
from sarit.spark.formats.columns import Projection, read_schema
from sarit.spark.formats.options import parse_formats
from sarit.spark.iceberg.options import is_view, parse_view, refuse_view
from sarit.spark.sink import at_least_once, exactly_once
from sarit.spark.sink.columns import RowsToEvents
from sarit.spark.sink.options import parse_write
from sarit.spark.source.batch import BatchReader
from sarit.spark.source.options import parse_read
from sarit.spark.source.stream_readers import stream_reader
from sarit.spark.tables.key_value import TableReader, TableStreamWriter, TableWriter, check_table_write, table_schema
from sarit.spark.tables.metadata import MetadataReader, schema_of
from sarit.spark.tables.options import is_metadata, is_table, parse_metadata, parse_table_read, parse_table_write
from sarit.spark.worker_process import freeze_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from sarit.spark.formats.options import FormatOptions
    from sarit.spark.sink.options import WriteOptions
    from sarit.spark.tables.options import TableWriteOptions


versions.check(versions.version())


class SaritSource(DataSource):
    """A stream, or a table, or metadata, as a table of Spark.  docs/spark.md describes the options."""

    # `freeze_once` is called because a process of the driver serves many queries (`worker_process.py`).  The default
    # address is resolved here, on the driver, because executors may run with another environment.

    _resolved: FormatOptions | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "sarit"

    def schema(self) -> StructType | str:
        """Return the columns of a read without `.schema(...)`."""
        if is_metadata(self.options):
            return schema_of(parse_metadata(self.options, default_address()).kind)
        if is_table(self.options):
            return table_schema(parse_table_read(self.options, default_address()))
        if is_view(self.options):
            from sarit.spark.iceberg.reader import view_schema

            return view_schema(parse_view(self.options, default_address()))
        return read_schema(self._formats(), self._first_event)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read."""
        freeze_once()
        if is_metadata(self.options):
            return MetadataReader(parse_metadata(self.options, default_address()), schema)
        if is_table(self.options):
            return TableReader(parse_table_read(self.options, default_address()), schema)
        if is_view(self.options):
            from sarit.spark.iceberg.reader import ViewReader

            return ViewReader(parse_view(self.options, default_address()), schema)
        options, formats = parse_read(self.options, default_address()), self._formats()
        if formats.noted_time:
            raise Invalid("option notedTime is for streaming reads: a batch read has no column noted_time")
        return BatchReader(options, self._projection(schema), with_cut=formats.include_cut)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a streaming read."""
        _refuse_tables(self.options, "is read in batches, by spark.read", written=False)
        refuse_view(self.options)
        return stream_reader(parse_read(self.options, default_address()), self._projection(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch append, or changes of a table."""
        freeze_once()
        _refuse_tables(self.options, "cannot be written", written=True)
        if is_table(self.options):
            return TableWriter(self._table_write(schema, overwrite))
        _refuse_overwrite(overwrite)
        options = parse_write(self.options, default_address())
        rows = self._rows(schema, options)
        if options.exactly_once:
            return exactly_once.BatchWriter(options, rows)
        return at_least_once.BatchWriter(options, rows)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a streaming append, or changes of a table."""
        freeze_once()
        _refuse_tables(self.options, "cannot be written", written=True)
        if is_table(self.options):
            # With outputMode("complete") each micro-batch has all rows, and sets all their keys again.
            return TableStreamWriter(self._table_write(schema, overwrite=False))
        _refuse_overwrite(overwrite)
        options = parse_write(self.options, default_address())
        rows = self._rows(schema, options)
        if options.exactly_once:
            return exactly_once.StreamWriter(options, rows)
        return at_least_once.StreamWriter(options, rows)

    def _projection(self, schema: StructType) -> Projection:
        return Projection(schema, self._formats())

    def _rows(self, schema: StructType, options: WriteOptions) -> RowsToEvents:
        formats = parse_formats(self.options)
        if formats.registry is None:
            return RowsToEvents(schema, options, formats)
        from sarit.spark.registry.resolution import registration

        return RowsToEvents(schema, options, formats, registration(options, formats.registry, formats))

    def _formats(self) -> FormatOptions:
        """Return the formats of a read.  A registry is asked once: Spark pickles this object with the columns."""
        if self._resolved is None:
            formats = parse_formats(self.options)
            if formats.registry is not None:
                from sarit.spark.registry.resolution import resolve_read

                formats = resolve_read(parse_read(self.options, default_address()), formats)
            self._resolved = formats
        return self._resolved

    def _first_event(self) -> bytes | None:
        return first_event(parse_read(self.options, default_address()))

    def _table_write(self, schema: StructType, overwrite: bool) -> TableWriteOptions:
        if overwrite:
            raise Invalid('a table is changed key by key: use .mode("append"), which replaces the values of its keys')
        options = parse_table_write(self.options, default_address())
        check_table_write(options, schema)
        return options


def _refuse_tables(options: Mapping[str, str], rule: str, *, written: bool) -> None:
    if is_metadata(options):
        raise Invalid(f"metadata {rule}")
    if is_table(options) and not written:
        raise Invalid(f"a table {rule}")


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise Invalid('a stream is append-only: use .mode("append") or .outputMode("append")')
