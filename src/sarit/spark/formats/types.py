"""Converts Spark's types to the Arrow types that Spark expects of a Python data source, and back.

PySpark has such functions, but their arguments differ from version to version.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sarit.core.errors import Invalid

_SIMPLE: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(kind: DataType, column: str) -> pa.DataType:
    """Return the Arrow type of a Spark type.  Raises Invalid, with the column, for a type that no format has."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType, column), kind.containsNull))
    if isinstance(kind, MapType):
        key = pa.field("key", arrow_type(kind.keyType, column), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(kind.valueType, column), kind.valueContainsNull))
    if isinstance(kind, StructType):
        return pa.struct([arrow_field(field, f"{column}.{field.name}") for field in kind.fields])
    found = _SIMPLE.get(type(kind))
    if found is None:
        names = "boolean, byte, short, int, long, float, double, decimal, string, binary, date, timestamp"
        raise Invalid(f"column {column} {kind.simpleString()}: possible are {names}, array, map and struct")
    return found


def arrow_field(field: StructField, column: str | None = None) -> pa.Field:
    """Return the Arrow field of a column.  Raises Invalid."""
    return pa.field(field.name, arrow_type(field.dataType, column or field.name), field.nullable)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a read.  Raises Invalid."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def spark_fields(schema: pa.Schema) -> StructType:
    """Return the columns of an Arrow schema, with its nullability.  Raises Invalid."""
    return StructType(
        [StructField(one.name, spark_type(one.type, one.name, strict=True), one.nullable) for one in schema]
    )


def spark_type(kind: pa.DataType, column: str, *, strict: bool = False) -> DataType:
    """Return the Spark type that holds all values of an Arrow type.  `strict`: NOT NULL fields of structs stay so.

    Raises Invalid, with the column."""
    types = pa.types
    for spark, arrow in _SIMPLE.items():
        if kind == arrow:
            return spark()
    if types.is_large_string(kind) or types.is_string_view(kind):
        return StringType()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return BinaryType()
    if types.is_unsigned_integer(kind) and kind.bit_width < 64:
        return LongType() if kind.bit_width == 32 else IntegerType()
    if types.is_float16(kind):
        return FloatType()
    if types.is_date64(kind):
        return DateType()
    if types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if types.is_dictionary(kind):
        return spark_type(kind.value_type, column, strict=strict)
    if types.is_map(kind):
        value = spark_type(kind.item_type, column, strict=strict)
        return MapType(spark_type(kind.key_type, column, strict=strict), value, kind.item_field.nullable)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return ArrayType(spark_type(kind.value_type, column, strict=strict), kind.value_field.nullable)
    if types.is_struct(kind):
        return StructType(
            [
                StructField(
                    one.name, spark_type(one.type, f"{column}.{one.name}", strict=strict), one.nullable or not strict
                )
                for one in kind
            ]
        )
    raise Invalid(f"column {column} {kind}: Spark has no such type; give the columns to read with .schema(...)")
