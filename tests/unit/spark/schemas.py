"""Schemas of Spark without Spark: its own parser of DDL needs a JVM."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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

SIMPLE = {
    "binary": BinaryType(), "boolean": BooleanType(), "tinyint": ByteType(), "date": DateType(), "double": DoubleType(),
    "float": FloatType(), "int": IntegerType(), "bigint": LongType(), "smallint": ShortType(), "string": StringType(),
    "timestamp": TimestampType(), "timestamp_ntz": TimestampNTZType(),
}  # fmt: skip


def _parts(text):
    """Split at commas outside of brackets."""
    depth, start = 0, 0
    for at, one in enumerate(text):
        depth += (one in "<(") - (one in ">)")
        if one == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def kind_of(text):
    """A type as Spark's `simpleString` writes it."""
    name, bracket, inner = text.strip().partition("<" if "<" in text else "(")
    if not bracket:
        return SIMPLE[name]
    parts = list(_parts(inner[:-1]))
    if name == "decimal":
        return DecimalType(*map(int, parts))
    if name == "array":
        return ArrayType(kind_of(parts[0]))
    if name == "map":
        return MapType(*map(kind_of, parts))
    return StructType([StructField(part.partition(":")[0], kind_of(part.partition(":")[2])) for part in parts])


def schema_of(text):
    """Columns as "a bigint, b struct<x:int> not null"."""
    fields = []
    for part in _parts(text):
        name, _, kind = part.partition(" ")
        plain = kind.removesuffix(" not null")
        fields.append(StructField(name, kind_of(plain), plain == kind))
    return StructType(fields)
