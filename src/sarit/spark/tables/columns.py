"""The schema of rows that tasks make themselves, for Arrow and for Spark, and the selection of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyspark.sql.types import StructType

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.string())

_SPARK = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    TIMESTAMP: "timestamp",
    STRINGS: "array<string>",
}


def ddl(schema: pa.Schema) -> str:
    """Return a schema as DDL text for Spark."""
    return ", ".join(f"{field.name} {_SPARK[field.type]}" for field in schema)


def chosen(schema: pa.Schema, wanted: StructType) -> list[str]:
    """Return the names of the wanted columns.  Raises Invalid for a column that is unknown or of another type."""
    for field in wanted.fields:
        at = schema.get_field_index(field.name)
        if at < 0 or field.dataType.simpleString() != _SPARK[schema.field(at).type]:
            raise Invalid(f"there is no column {field.name} {field.dataType.simpleString()}; there are {ddl(schema)}")
    return [field.name for field in wanted.fields]


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows as one batch with only `columns`.  Times in `rows`: ms since 1970."""
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = {field.name: _array(field.type, found) for field, found in zip(schema, values, strict=True)}
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))


def _array(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if type_ == TIMESTAMP:
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    return pa.array(values, type_)
