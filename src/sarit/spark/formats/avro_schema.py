"""Avro schemas and the columns of Spark.

PySpark and fastavro are imported only when needed, so that `sarit.spark` can be imported without them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def avro_schema(schema: StructType) -> str:
    """Return the Avro schema (JSON text) by which rows of `schema` are written without option `avroSchema`.

    Readers need it: give it to their option `avroSchema`.  Raises Invalid for a type that Avro does not have.
    """
    from sarit.schemas.avro_writer import avro_schema_of
    from sarit.spark.formats.types import arrow_schema

    return json.dumps(avro_schema_of(arrow_schema(schema)))


def load_schema(text: str | None) -> dict[str, Any]:
    """Return the schema of option `avroSchema`: JSON text, or the path of a file with it.  Raises Invalid."""
    from sarit.schemas.avro_schema import parse_avro_schema

    if not text:
        raise Invalid('format avro needs a schema: .option("avroSchema", TEXT_OR_PATH)')
    written = text
    if not text.lstrip().startswith(("{", "[", '"')):
        try:
            with open(text, encoding="utf-8") as file:
                written = file.read()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise Invalid(f"option avroSchema is {text[:60]!r}, no JSON and no file to read: {error}") from None
    return parse_avro_schema(written, "option avroSchema")


def written_schema(text: str | None, columns: pa.Schema, *, registered: bool) -> dict[str, Any]:
    """Return the schema by which columns are written: that of option `avroSchema`, else one made of them.

    `registered`: it is a version of a subject, and later ones may have more columns.  Raises Invalid."""
    from sarit.schemas.avro_writer import avro_schema_of

    return load_schema(text) if text is not None else avro_schema_of(columns, defaults=registered)
