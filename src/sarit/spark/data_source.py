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
from sarit.spark.sink.at_least_once import BatchWriter, StreamWriter
from sarit.spark.sink.columns import check_write
from sarit.spark.sink.options import parse_write
from sarit.spark.source.batch import BatchReader
from sarit.spark.source.options import parse_read
from sarit.spark.source.streaming import stream_reader

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


versions.check(versions.version())


class SaritSource(DataSource):
    """A stream as a table: see docs/spark.md for the options."""

    # The default address is resolved here, on the driver: executors may run with another environment.

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "sarit"

    def schema(self) -> StructType:
        """The columns of a read that names none."""
        return read_schema(parse_formats(self.options), self._first_event)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return BatchReader(parse_read(self.options, default_address()), self._projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        return stream_reader(parse_read(self.options, default_address()), self._projection(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch append."""
        _refuse_overwrite(overwrite)
        return BatchWriter(parse_write(self.options, default_address()), keyed=check_write(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming append."""
        _refuse_overwrite(overwrite)
        return StreamWriter(parse_write(self.options, default_address()), keyed=check_write(schema))

    def _projection(self, schema: StructType) -> Projection:
        return Projection(schema, parse_formats(self.options))

    def _first_event(self) -> bytes | None:
        return first_event(parse_read(self.options, default_address()))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise Invalid('a stream is append-only: use .mode("append") or .outputMode("append")')
