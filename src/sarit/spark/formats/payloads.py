"""Chooses the decoder and the encoder of typed payloads by their format, and converts Spark's types to Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns
from sarit.schemas.avro_writer import AvroWriter
from sarit.schemas.json_reader import JsonReader
from sarit.spark.formats.arrow import ArrowReader, ArrowWriter, arrow_fields
from sarit.spark.formats.avro_schema import load_schema
from sarit.spark.formats.options import AVRO, JSON
from sarit.spark.formats.types import arrow_schema, spark_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from sarit.schemas.payloads import PayloadReader, PayloadWriter
    from sarit.spark.formats.options import FormatOptions


def payload_reader(formats: FormatOptions, fields: StructType) -> PayloadReader:
    """Return a decoder of payloads with `fields`.  Raises Invalid for a field that the format cannot have."""
    schema = arrow_schema(fields)
    if formats.format == JSON:
        return JsonReader(schema, formats.time_zone)
    if formats.format == AVRO:
        return AvroReader(schema, load_schema(formats.avro_schema))
    return ArrowReader(schema)


def payload_writer(formats: FormatOptions, fields: StructType) -> PayloadWriter:
    """Return an encoder of payloads with `fields`.  Raises Invalid for a field that the format cannot have."""
    if formats.format == JSON:
        column = "payload" if formats.envelope else "event"
        raise Invalid(
            "format json is for reading. To write JSON, make the documents with Spark's to_json and leave the option "
            f'format away: df.select(to_json(struct("*")).alias("{column}"))'
        )
    schema = arrow_schema(fields)
    if formats.format == AVRO:
        return AvroWriter(schema, load_schema(formats.avro_schema) if formats.avro_schema is not None else None)
    return ArrowWriter()


def payload_schema(formats: FormatOptions, first_payload: Callable[[], bytes | None]) -> StructType:
    """Return the fields of payloads for a query without `.schema(...)`.  Raises Invalid."""
    if formats.format == JSON:
        raise Invalid('format json needs the columns to read: .schema("id long, name string")')
    if formats.format == AVRO:
        return spark_fields(avro_columns(load_schema(formats.avro_schema)))
    return arrow_fields(first_payload())
