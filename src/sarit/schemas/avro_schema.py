"""Avro schemas of records, as the columns that hold their data.

fastavro reads and writes the data.  Logical types are left to Arrow: fastavro would make an object of each date and
time, and could not hold all of them.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.schemas.column_types import LOCAL_TIMESTAMP, TIMESTAMP, sql_name
from sarit.schemas.limits import MAX_AVRO_FIELDS
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_NULL: Final = pa.null()
SIMPLE_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(), "fixed": pa.binary(), "enum": pa.string(), "null": _NULL,
}  # fmt: skip
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}
MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")
MICROS_PER_MILLI: Final = 1000
_MAX_DIGITS: Final = 38  # of decimals that columns hold
_SHOWN: Final = 400
_WIDENED: Final = (({"int", "long"}, "long"), ({"float", "double"}, "double"))


def fastavro() -> Any:
    """Return the package fastavro.  Raises MissingExtra."""
    require("registry", "Avro")
    import fastavro as package

    return package


def parse_avro_schema(text: str, what: str = "the schema") -> dict[str, Any]:
    """Return the record schema in a text.  `what`: its name in errors.  Raises Invalid."""
    try:
        schema: Any = parse_json(text)
    except ValueError as error:
        raise Invalid(f"{what} is no JSON: {error}") from None
    package = fastavro()
    try:
        package.parse_schema(copy.deepcopy(schema))
    except Exception as error:  # fastavro raises several kinds
        raise Invalid(f"{what} is no Avro schema: {shown(f'{type(error).__name__}: {error}')}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Invalid(f"{what} is not of a record: only a record has fields that can be columns")
    return schema


def avro_columns(schema: dict[str, Any]) -> pa.Schema:
    """Return the columns of a record schema.  Raises Invalid naming a field that no column can hold."""
    whole = resolved(schema)
    _check_fields(whole, {})
    return pa.schema(list(_arrow_type(whole, schema.get("name", "record"))))


def resolved(schema: dict[str, Any]) -> Any:
    """Return the schema with each type's definition in place of its name, and every type as an object or a union."""
    # fastavro makes each name full: a name without a namespace is in that of the record around it.
    return _expanded(fastavro().parse_schema(copy.deepcopy(schema)), {}, schema.get("name", "record"))


def _expanded(schema: Any, named: dict[str, Any], path: str) -> Any:
    if isinstance(schema, list):
        return [_expanded(one, named, path) for one in schema]
    if isinstance(schema, str):
        if schema not in named:
            return {"type": schema}
        if named[schema] is None:
            raise Invalid(f"field {path}: {schema} contains itself, which no column can hold")
        return named[schema]
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = None
        found = [_expanded_field(one, named, f"{path}.{one['name']}") for one in schema["fields"]]
        made = {"type": "record", "fields": found}
    elif kind == "array":
        made = {"type": "array", "items": _expanded(schema["items"], named, f"{path}[]")}
    elif kind == "map":
        made = {"type": "map", "values": _expanded(schema["values"], named, f"{path}{{}}")}
    elif isinstance(kind, str) and kind in SIMPLE_TYPES:
        made = schema
    else:
        return _expanded(kind, named, path)
    if kind in ("record", "enum", "fixed"):
        named[schema["name"]] = made
    return made


def _expanded_field(field: Any, named: dict[str, Any], path: str) -> dict[str, Any]:
    more = {name: field[name] for name in ("aliases", "default") if name in field}
    return {"name": field["name"], "type": _expanded(field["type"], named, path), **more}


def _check_fields(schema: Any, counted: dict[int, int]) -> int:
    """Return how many types columns would have, with those within.  Raises Invalid for too many.

    A named type is counted in each place, but walked once: a short schema can have more places than memory holds."""
    if id(schema) in counted:
        return counted[id(schema)]
    if isinstance(schema, list):
        inner = schema
    else:
        inner = [one["type"] for one in schema.get("fields", ())]
        inner += [schema[name] for name in ("items", "values") if name in schema]
    found = counted[id(schema)] = 1 + sum(_check_fields(one, counted) for one in inner)
    if found > MAX_AVRO_FIELDS:
        raise Invalid(f"the Avro schema has more than {MAX_AVRO_FIELDS:,} fields, with those within others")
    return found


def _arrow_type(schema: Any, path: str) -> pa.DataType:
    """Return the type of a resolved schema."""
    schema = branch(schema, path)
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind == "record":
        fields = [(one["name"], one["type"]) for one in schema["fields"]]
        return pa.struct([pa.field(name, _arrow_type(one, f"{path}.{name}"), nullable(one)) for name, one in fields])
    if kind == "array":
        items = schema["items"]
        return pa.list_(pa.field("element", _arrow_type(items, f"{path}[]"), nullable(items)))
    if kind == "map":
        values = schema["values"]
        value = pa.field("value", _arrow_type(values, f"{path}{{}}"), nullable(values))
        return pa.map_(pa.field("key", pa.string(), nullable=False), value)
    if logical == "decimal" and kind in ("bytes", "fixed") and fits(schema):
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    found = _LOGICAL.get((kind, logical)) or SIMPLE_TYPES.get(kind)
    if found is None or found == _NULL:
        raise Invalid(f"field {path} {json.dumps(schema)}: no column has such a type"[:_SHOWN])
    return found


def nullable(schema: Any) -> bool:
    return isinstance(schema, list) and {"type": "null"} in schema


def branch(schema: Any, path: str = "") -> Any:
    """Return the one type of a union other than null.  Raises Invalid for a union that no column can hold."""
    if not isinstance(schema, list):
        return schema
    others = [one for one in schema if one != {"type": "null"}]
    if len(others) == 1:
        return others[0]
    for kinds, wide in _WIDENED:
        if others and all(set(one) == {"type"} and one["type"] in kinds for one in others):
            return {"type": wide}
    names = ", ".join(one["type"] for one in others)
    raise Invalid(
        f"field {path}, a union of {names}: a column holds null and one type, int and long, or float and double"
    )


def fits(schema: dict[str, Any]) -> bool:
    """Return whether columns can hold a decimal of that precision; one of more digits is read as its bytes."""
    return int(schema.get("precision", 0)) <= _MAX_DIGITS


def without_logical(schema: Any) -> Any:
    """Return the schema without logical types, except those that fastavro converts: decimals that columns can hold."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: value if name in ("default", "symbols") else without_logical(value) for name, value in schema.items()}
    if "logicalType" in made and (made["logicalType"] != "decimal" or not fits(made)):
        del made["logicalType"]
    return made


def compare(wanted: pa.Schema, known: pa.Schema) -> None:
    """Check that the wanted columns are fields of the schema.  Raises Invalid."""
    kinds = {field.name: sql_name(field.type) for field in known}
    for field in wanted:
        kind = sql_name(field.type)
        if field.name not in kinds:
            raise Invalid(f"column {field.name}: the Avro schema has {', '.join(kinds)}")
        if kinds[field.name] != kind:
            raise Invalid(f"column {field.name} {kind}: the Avro schema has {kinds[field.name]}")
