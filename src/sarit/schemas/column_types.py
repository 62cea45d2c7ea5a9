"""The Arrow types that columns of payloads have, and their names in SQL."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sarit.core.errors import Invalid

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")

_NAMES: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    LOCAL_TIMESTAMP: "timestamp_ntz",
}


def sql_name(kind: pa.DataType) -> str:
    """Return the name of a type in SQL, or Arrow's name for a type that no payload has."""
    types = pa.types
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_name(field.type)}' for field in kind)}>"
    return _NAMES.get(kind) or str(kind)


def check_columns(schema: pa.Schema) -> None:
    """Check the types of columns.  Raises Invalid, with the name of the first column of a type that no payload has."""
    for field in schema:
        _check(field.type, field.name)


def _check(kind: pa.DataType, column: str) -> None:
    types = pa.types
    if types.is_list(kind):
        _check(kind.value_type, f"{column}[]")
    elif types.is_map(kind):
        _check(kind.key_type, column)
        _check(kind.item_type, f"{column}{{}}")
    elif types.is_struct(kind):
        for field in kind:
            _check(field.type, f"{column}.{field.name}")
    elif not types.is_decimal128(kind) and kind not in _NAMES:
        raise Invalid(f"column {column} {kind}: possible are {', '.join(_NAMES.values())}, decimal, array, map, struct")


def raw_values(values: pa.Array) -> pa.Array:
    """Return dates and times as integers, since Python's own types cannot hold all of them."""
    raw = _raw_type(values.type)
    return values if raw == values.type else values.cast(raw)


def _raw_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_date(kind):
        return pa.int32()
    if types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_raw_type(kind.item_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_raw_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_raw_type(field.type)) for field in kind])
    return kind
