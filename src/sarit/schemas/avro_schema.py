"""Avro schemas of records, as the columns that hold their data.

fastavro reads and writes the data.  Logical types are left to Arrow: fastavro would make an object of each date and
time, and could not hold all of them.

What has no single type is read as a text with its JSON: a union of several types, a type within itself, null alone, a
record without fields.  Such columns are not written.
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
DOCUMENT: Final = "document"  # of a resolved schema: a value of any type, as a text with its JSON
_NULL_TYPE: Final = {"type": "null"}
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


def avro_columns(schema: dict[str, Any], *, written: bool = False) -> pa.Schema:
    """Return the columns of a record schema.  `written`: of those that are written, none is a document.

    Raises Invalid naming a field that no column can hold."""
    whole = resolved(schema, written=written)
    _check_fields(whole, {})
    return pa.schema(list(_arrow_type(whole, schema.get("name", "record"))))


def resolved(schema: dict[str, Any], *, written: bool = False) -> Any:
    """Return the schema with each type's definition in place of its name, and every type as an object or a union.

    What is read as a text with its JSON has the type DOCUMENT.  `written`: such a type raises Invalid."""
    # fastavro makes each name full: a name without a namespace is in that of the record around it.
    made = _Expansion(written=written)
    return made.type(fastavro().parse_schema(copy.deepcopy(schema)), schema.get("name", "record"))


def contains_itself(schema: dict[str, Any]) -> bool:
    """Return whether data of a record schema may have any number of levels."""
    made = _Expansion(written=False)
    made.type(fastavro().parse_schema(copy.deepcopy(schema)), "")
    return made.recursive


class _Expansion:
    """The types of a schema that were met, by name; None: it is a part of itself.  Internal."""

    def __init__(self, *, written: bool) -> None:
        self._written = written
        self._named: dict[str, Any] = {}
        self.recursive = False

    def type(self, schema: Any, path: str) -> Any:
        """Return a type without names in it."""
        if isinstance(schema, list):
            return self._union([self.type(one, path) for one in schema])
        if isinstance(schema, str):
            return self._of_name(schema, path)
        kind = schema["type"]
        if kind == "record":
            self._named[schema["name"]] = None
            found = [self._field(one, f"{path}.{one['name']}") for one in schema["fields"]]
            made = {"type": "record", "fields": found}
        elif kind == "array":
            # Items without bytes stay what they are, which no column has: a datum may say that it has any number.
            made = {"type": "array", "items": self.type(schema["items"], f"{path}[]")}
        elif kind == "map":
            made = {"type": "map", "values": self._inner(schema["values"], f"{path}{{}}")}
        elif isinstance(kind, str) and kind in SIMPLE_TYPES:
            made = schema
        else:
            return self.type(kind, path)
        if kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = made
        return made

    def _of_name(self, name: str, path: str) -> Any:
        if name not in self._named:
            return {"type": name}
        if self._named[name] is not None:
            return self._named[name]
        self.recursive = True
        if self._written:
            raise Invalid(f"field {path}: {name} contains itself, which no column can hold")
        return {"type": DOCUMENT}

    def _union(self, branches: list[Any]) -> list[Any]:
        if self._written or _single(branches) is not None:
            return branches
        return [*(one for one in branches if one == _NULL_TYPE), {"type": DOCUMENT}]

    def _inner(self, schema: Any, path: str) -> Any:
        """Return the type of a field or of values."""
        found = self.type(schema, path)
        if self._written:
            return found
        if found == _NULL_TYPE:
            return [found, {"type": DOCUMENT}]
        return {"type": DOCUMENT} if found == {"type": "record", "fields": []} else found

    def _field(self, field: Any, path: str) -> dict[str, Any]:
        more = {name: field[name] for name in ("aliases", "default") if name in field}
        return {"name": field["name"], "type": self._inner(field["type"], path), **more}


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
    found = _LOGICAL.get((kind, logical)) or SIMPLE_TYPES.get(kind) or (pa.string() if kind == DOCUMENT else None)
    if found is None or found == _NULL:
        raise Invalid(f"field {path} {json.dumps(schema)}: no column has such a type"[:_SHOWN])
    return found


def nullable(schema: Any) -> bool:
    return isinstance(schema, list) and _NULL_TYPE in schema


def branch(schema: Any, path: str = "") -> Any:
    """Return the one type of a union other than null.  Raises Invalid for a union that no column can hold."""
    if not isinstance(schema, list):
        return schema
    found = _single(schema)
    if found is not None:
        return found
    names = ", ".join(one["type"] for one in schema if one != _NULL_TYPE)
    raise Invalid(
        f"field {path}, a union of {names}: a column holds null and one type, int and long, or float and double"
    )


def _single(union: list[Any]) -> Any:
    """Return the one type of a union other than null; None: there is none, or there are several."""
    others = [one for one in union if one != _NULL_TYPE]
    if len(others) == 1:
        return others[0]
    for kinds, wide in _WIDENED:
        if others and all(set(one) == {"type"} and one["type"] in kinds for one in others):
            return {"type": wide}
    return None


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
