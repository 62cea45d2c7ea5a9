"""Chooses the decoder and the encoder of typed payloads by their format, and converts Spark's types to Arrow's.

What only a schema registry needs is imported when there is one: every call on Spark's driver imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns
from sarit.schemas.avro_writer import AvroWriter
from sarit.schemas.json_reader import JsonReader
from sarit.spark.formats.arrow import ArrowReader, ArrowWriter, arrow_fields
from sarit.spark.formats.avro_schema import load_schema, written_schema
from sarit.spark.formats.options import AVRO, JSON, PROTOBUF
from sarit.spark.formats.types import arrow_schema, spark_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sarit.schemas.payloads import PayloadReader, PayloadWriter
    from sarit.spark.formats.options import FormatOptions


def payload_reader(formats: FormatOptions, fields: StructType) -> PayloadReader:
    """Return a decoder of payloads with `fields`.  Raises Invalid for a field that the format cannot have."""
    schema = arrow_schema(fields)
    registered = formats.registered
    if formats.registry is not None and registered is not None and registered.has_ids:
        from sarit.serializers.registered_reader import RegisteredReader
        from sarit.spark.registry.access import TaskSchemas

        source = TaskSchemas(formats.registry.target, registered.header)
        return RegisteredReader(
            source, registered.schema, registered.subject, registered.header, schema, formats.time_zone
        )
    if registered is not None:
        from sarit.serializers.registered_reader import plain_reader

        return plain_reader(registered.schema, schema, formats.time_zone)
    if formats.format == JSON:
        return JsonReader(schema, formats.time_zone)
    if formats.format == AVRO:
        return AvroReader(schema, load_schema(formats.avro_schema))
    return ArrowReader(schema)


def payload_writer(
    formats: FormatOptions, fields: StructType, register: Callable[[StructType], bytes] | None = None
) -> PayloadWriter:
    """Return an encoder of payloads with `fields`.  Raises Invalid for a field that the format cannot have.

    `register`: registers the schema of the fields, and returns the header of payloads; it raises what that raises."""
    if formats.format == JSON and register is None:
        column = "payload" if formats.envelope else "event"
        raise Invalid(
            "format json is for reading. To write JSON, make the documents with Spark's to_json and leave the option "
            f'format away: df.select(to_json(struct("*")).alias("{column}")); or give option schemaRegistry'
        )
    if not formats.format:
        raise Invalid('which format? a write with option schemaRegistry needs .option("format", "avro") or "json"')
    inner = _writer(formats, arrow_schema(fields))
    if register is None:
        return inner
    from sarit.spark.registry.writer import RegisteredWriter

    return RegisteredWriter(inner, register(fields))


def _writer(formats: FormatOptions, schema: pa.Schema) -> PayloadWriter:
    if formats.format == JSON:
        from sarit.schemas.json_writer import JsonWriter

        return JsonWriter(schema)
    if formats.format == AVRO:
        registered = formats.registry is not None
        return AvroWriter(schema, written_schema(formats.avro_schema, schema, registered=registered))
    if formats.format == PROTOBUF:
        raise Invalid("the connector does not write Protobuf: give format avro or json")
    return ArrowWriter()


def payload_schema(formats: FormatOptions, first_payload: Callable[[], bytes | None]) -> StructType:
    """Return the fields of payloads for a query without `.schema(...)`.  Raises Invalid."""
    if formats.registered is not None:
        from sarit.serializers.registered_reader import columns_of_schema

        return spark_fields(columns_of_schema(formats.registered.schema))
    if formats.format == JSON:
        raise Invalid('format json needs the columns to read: .schema("id long, name string")')
    if formats.format == AVRO:
        return spark_fields(avro_columns(load_schema(formats.avro_schema)))
    return arrow_fields(first_payload())
