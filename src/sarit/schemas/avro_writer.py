"""Columns to Avro payloads, as Spark's `to_avro` has them."""

from __future__ import annotations

import copy
import io
from typing import Any

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.schemas.avro_schema import (
    MICROS_PER_MILLI,
    MILLIS,
    SIMPLE_TYPES,
    avro_columns,
    branch,
    compare,
    fastavro,
    nullable,
    resolved,
    without_logical,
)
from sarit.schemas.column_types import check_columns, raw_values, sql_name


def avro_schema_of(columns: pa.Schema, name: str = "topLevelRecord", *, defaults: bool = False) -> dict[str, Any]:
    """Return the record schema with which these columns are written when no schema is given.  Raises Invalid.

    `defaults`: fields that may be null have null as their default, so that readers of a schema with one more field read
    older data."""
    check_columns(columns)
    made = _avro_type(pa.struct(list(columns)), name, defaults=defaults)
    assert isinstance(made, dict)
    return made


def _avro_type(kind: pa.DataType, name: str, *, defaults: bool) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return {"type": "record", "name": name, "fields": [_avro_field(one, name, defaults=defaults) for one in kind]}
    if types.is_list(kind):
        items = _avro_type(kind.value_type, name, defaults=defaults)
        return {"type": "array", "items": _or_null(items, kind.value_field.nullable)}
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise Invalid(f"{sql_name(kind)}: the keys of an Avro map are strings")
        values = _avro_type(kind.item_type, name, defaults=defaults)
        return {"type": "map", "values": _or_null(values, kind.item_field.nullable)}
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'local-' if kind.tz is None else ''}timestamp-micros"}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if kind in (pa.int8(), pa.int16()):
        return "int"
    return next(avro for avro, arrow in SIMPLE_TYPES.items() if kind == arrow)


def _avro_field(field: pa.Field, name: str, *, defaults: bool) -> dict[str, Any]:
    kind = _avro_type(field.type, f"{name}.{field.name}", defaults=defaults)
    if defaults and field.nullable:
        return {"name": field.name, "type": ["null", kind], "default": None}
    return {"name": field.name, "type": _or_null(kind, field.nullable)}


def _or_null(schema: Any, has_nulls: bool) -> Any:
    return [schema, "null"] if has_nulls else schema


class AvroWriter:
    """An encoder of rows as data of a record schema."""

    def __init__(self, columns: pa.Schema, schema: dict[str, Any] | None) -> None:
        """`schema`: None: the one made of the columns.  Raises Invalid for columns that do not fit it."""
        used = schema or avro_schema_of(columns)
        self._schema = without_logical(used)
        self._types = {one["name"]: one["type"] for one in resolved(used, written=True)["fields"]}
        if schema is not None:
            compare(columns, avro_columns(schema, written=True))
            lacking = [one for one in schema["fields"] if one["name"] not in columns.names and "default" not in one]
            missing = [one["name"] for one in lacking if not nullable(self._types[one["name"]])]
            if missing:
                raise Invalid(f"there is no column {', '.join(missing)}, which the Avro schema needs")
        self._parsed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Return the payload of each row.  Raises Invalid naming the row that does not fit the schema."""
        if self._parsed is None:
            self._parsed = fastavro().parse_schema(copy.deepcopy(self._schema))
        encode = fastavro().schemaless_writer
        columns = {name: raw_values(rows.column(name)).to_pylist() for name in rows.schema.names}
        payloads = []
        for at in range(len(rows)):
            row = {name: _written_value(values[at], self._types[name]) for name, values in columns.items()}
            data = io.BytesIO()
            try:
                encode(data, self._parsed, row)
            except Exception as error:  # fastavro raises several kinds
                raise Invalid(f"row {at} of a batch does not fit the Avro schema: {error!r}"[:400]) from None
            payloads.append(data.getvalue())
        return pa.array(payloads, pa.large_binary()), keys


def _written_value(value: Any, schema: Any) -> Any:
    """Return a value of Arrow as fastavro takes it."""
    if value is None:
        return None
    schema = branch(schema)
    kind = schema["type"]
    if schema.get("logicalType") in MILLIS:
        return value // MICROS_PER_MILLI
    if kind == "array":
        return [_written_value(one, schema["items"]) for one in value]
    if kind == "map":
        return {name: _written_value(one, schema["values"]) for name, one in value}
    if kind == "record":
        return {one["name"]: _written_value(value.get(one["name"]), one["type"]) for one in schema["fields"]}
    return value
