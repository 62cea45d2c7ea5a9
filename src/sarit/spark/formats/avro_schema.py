"""The Avro schema of a DataFrame, for the readers of what it writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def avro_schema(schema: StructType) -> str:
    """The Avro schema (JSON text) that rows of `schema` are written with when option `avroSchema` gives none.

    Readers need it: give it to their option `avroSchema`.  Raises Invalid for a type that Avro does not have.
    """
    # Imported here: `sarit.spark` can be imported without PySpark.
    from sarit.spark.formats.avro import schema_of

    return json.dumps(schema_of(schema))
