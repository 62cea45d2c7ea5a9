"""Arrow types of a table's columns, and rows in the columns of a table (pure)."""

from __future__ import annotations

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.lake.limits import MAX_LAKE_ERROR_CHARACTERS
from sarit.lake.problems import SCHEMA, TableProblem
from sarit.serializers.widening import widened, wider


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


def table_type(kind: pa.DataType, *, naive_times: bool = False) -> pa.DataType:
    """Return the type that values of a type have in a table: one that every reader of Iceberg has.

    Integers have 32 bits at least, times of day are texts, since some readers have no such type, or a wrong one, and
    fixed bytes are bytes.  `naive_times`: timestamps in UTC without a zone."""
    types = pa.types
    kind = small(kind)
    if types.is_int8(kind) or types.is_int16(kind) or types.is_uint8(kind) or types.is_uint16(kind):
        return pa.int32()
    if types.is_uint32(kind):
        return pa.int64()
    if types.is_time(kind):
        return pa.string()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if naive_times or kind.tz is None else "UTC")
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, table_type(field.type, naive_times=naive_times)) for field in kind])
    if types.is_list(kind):
        return pa.list_(table_type(kind.value_type, naive_times=naive_times))
    if types.is_map(kind):
        key, item = (table_type(each, naive_times=naive_times) for each in (kind.key_type, kind.item_type))
        return pa.map_(key, item)
    return kind


def covers(table: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether a table has all columns that are wanted, of types that hold their values.  Raises TableProblem: it
    has one of a type that cannot be widened to the wanted one."""
    try:
        return bool(wider(table, wanted).equals(wider(table, table)))
    except Invalid as error:
        raise TableProblem(SCHEMA, f"{error}: give the stream another table, or its values another choice") from None


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the columns of a table, by name; columns that the rows do not have are null.  Raises Invalid."""
    try:
        columns = widened(rows.columns, rows.schema, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid(f"rows do not fit into the columns of the table: {error}"[:MAX_LAKE_ERROR_CHARACTERS]) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)
