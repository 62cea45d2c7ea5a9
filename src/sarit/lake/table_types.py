"""Arrow types of a table's columns, and rows in the columns of a table (pure)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sarit.core.errors import Invalid


def small_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the large types, which batches do not need."""
    return pa.schema([field.with_type(small(field.type)) for field in schema], schema.metadata)


def small(kind: pa.DataType) -> pa.DataType:
    """Return a type without large types in it; metadata of fields inside stays."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(small(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(small(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(small(key.type)), item.with_type(small(item.type)))
    return kind


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the columns of a table, by name; columns that the rows do not have are null.  Raises Invalid."""
    columns = [_fitted_column(rows, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted_column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    place = rows.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(len(rows), field.type)
    try:
        return _fitted(rows.column(place), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid(f"column {field.name} does not fit into that of the table: {error}") from None


def _fitted(array: pa.Array, kind: pa.DataType) -> Any:
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        parts = [
            _fitted(array.field(names.index(field.name)), field.type)
            if field.name in names
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    return array.cast(kind)
