"""Typed payloads: which module has which format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.spark.formats.arrow import ArrowReader, ArrowWriter, arrow_fields
from sarit.spark.formats.avro import AvroReader, AvroWriter, avro_fields, load_schema
from sarit.spark.formats.json_reading import JsonReader
from sarit.spark.formats.options import AVRO, JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from sarit.spark.formats.options import FormatOptions
    from sarit.spark.formats.ports import PayloadReader, PayloadWriter


def payload_reader(formats: FormatOptions, fields: StructType) -> PayloadReader:
    """A decoder of `fields`.  Raises Invalid for fields that the format does not have."""
    if formats.format == JSON:
        return JsonReader(fields, formats.time_zone)
    if formats.format == AVRO:
        return AvroReader(fields, load_schema(formats.avro_schema))
    return ArrowReader(fields)


def payload_writer(formats: FormatOptions, fields: StructType) -> PayloadWriter:
    """An encoder of `fields`.  Raises Invalid for fields that the format does not have."""
    if formats.format == JSON:
        # Not at the top: its constants make pyarrow import pandas, and Spark starts a Python process for each call.
        from sarit.spark.formats.json_writing import JsonWriter

        return JsonWriter(fields)
    if formats.format == AVRO:
        return AvroWriter(fields, load_schema(formats.avro_schema) if formats.avro_schema is not None else None)
    return ArrowWriter(fields)


def payload_schema(formats: FormatOptions, first_payload: Callable[[], bytes | None]) -> StructType:
    """The fields of payloads when the query names none.  Raises Invalid."""
    if formats.format == JSON:
        raise Invalid('format json needs the columns to read: .schema("id long, name string")')
    if formats.format == AVRO:
        return avro_fields(load_schema(formats.avro_schema))
    return arrow_fields(first_payload())
