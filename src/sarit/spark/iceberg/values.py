"""How the payloads of a stream's tail become the value columns that its Iceberg table has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.core.properties import NO_HEADER, SCHEMA_HEADER
from sarit.lake.layout import SARIT
from sarit.serializers.headers import default_subject
from sarit.serializers.payload_columns import PayloadColumns, binary_columns, json_columns, registered_columns
from sarit.spark.registry.access import TaskSchemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import StreamName
    from sarit.spark.registry.options import RegistryOptions


def tail_columns(
    name: str,
    values: pa.Schema,
    stream: StreamName,
    properties: Mapping[str, str],
    registry: RegistryOptions | None,
) -> PayloadColumns:
    """Return the columns of a tail.  Blocks.  `name`: of the table, for errors; `values`: its value columns;
    `properties`: of the stream.

    Raises Invalid: there is no way to decode the tail; NotFound, Unavailable, UnusableSchema of the registry."""
    plain = binary_columns()
    if values.equals(plain.schema):
        return plain
    header = properties.get(SCHEMA_HEADER)
    if registry is not None:
        header = registry.header or header or NO_HEADER
        subject = registry.subject or default_subject(stream)
        return registered_columns(TaskSchemas(registry.target, header), subject, header, version=registry.version)
    if header not in (None, NO_HEADER):
        raise Invalid(
            f"the values in table {name} are those of registered schemas ({SCHEMA_HEADER} of {stream} is {header}), "
            'and the tail is decoded by them, too: give .option("schemaRegistry", "http://HOST:8081")'
        )
    return json_columns(widest(values))


def value_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table without that of the events' positions."""
    return pa.schema([field for field in schema if field.name != SARIT])


def widest(schema: pa.Schema) -> pa.Schema:
    """Return columns that hold all values which those of a table may be widened to, with times in UTC.

    A value that the table's columns do not hold yet is decoded, and the read says that it does not fit; it is not left
    out as if it were damaged."""
    return pa.schema([field.with_type(_widest(field.type)) for field in schema])


def _widest(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_widest(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_widest(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_widest(kind.item_type)))
    return kind
