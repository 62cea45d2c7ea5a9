"""JSON Schemas as the columns that hold their documents, and columns as a JSON Schema.

A schema says less than a column needs to know, and documents are not checked against it.  So every column may be null,
and what has no single type, as a union or an object without properties, is a string with its JSON.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.schemas.column_types import TIMESTAMP, check_columns, sql_name
from sarit.schemas.json_definition import parse_json_schema
from sarit.schemas.limits import MAX_JSON_FIELDS
from sarit.schemas.schema_text import plain_json, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string(),
}  # fmt: skip
_FORMATS: Final[Mapping[str, pa.DataType]] = {"date-time": TIMESTAMP, "date": pa.date32()}
_WITHIN: Final = ("#/$defs/", "#/definitions/")
_NULL: Final = "null"
_JSON: Final = pa.string()  # of a value without a single type


def json_columns(text: str) -> pa.Schema:
    """Return the columns of a schema of objects.  Raises Invalid: it has no properties, or too many."""
    schema = parse_json_schema(text).root
    found = _Columns(schema).type(schema, "")
    if not pa.types.is_struct(found) or not found.num_fields:
        raise Invalid(
            'the JSON Schema is of no object with properties, so it has no columns: give them with .schema("...")'
        )
    return pa.schema(list(found))


class _Columns:
    """The types of one schema.  Internal."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_JSON_FIELDS

    def type(self, schema: Any, path: str, within: tuple[str, ...] = ()) -> pa.DataType:
        """Return the type of a schema.  `within`: the definitions that it is a part of."""
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"the JSON Schema has more than {MAX_JSON_FIELDS:,} properties, with those within others")
        schema, within = self._followed(schema, path, within)
        if not isinstance(schema, dict):
            return _JSON
        match _kinds(schema):
            case ["object"]:
                return self._object(schema, path, within)
            case ["array"] if isinstance(schema.get("items"), dict):
                items = self.type(schema["items"], f"{path}[]", within)
                return pa.list_(pa.field("element", items))
            case ["string"]:
                if schema.get("contentEncoding") == "base64":
                    return pa.binary()
                return _FORMATS.get(str(schema.get("format")), pa.string())
            case [one] if one in _SIMPLE:
                return _SIMPLE[one]
            case found if found and set(found) == {"integer", "number"}:
                return pa.float64()
        return _JSON

    def _object(self, schema: dict[str, Any], path: str, within: tuple[str, ...]) -> pa.DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = [(name, self.type(one, f"{path}.{name}", within)) for name, one in properties.items()]
            return pa.struct([pa.field(name, kind) for name, kind in fields])
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and "patternProperties" not in schema:
            return pa.map_(pa.field("key", pa.string(), nullable=False), self.type(values, f"{path}{{}}", within))
        return _JSON

    def _followed(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """Return the schema that references within the document, or a choice between it and null, lead to."""
        while isinstance(schema, dict):
            if "$ref" in schema:
                name = schema["$ref"]
                if name in within:
                    raise Invalid(f"property {shown(path)}: {shown(name)} contains itself, which no column can hold")
                schema, within = self._defined(name), (*within, name)
            elif "type" not in schema and (choices := _choices(schema)) is not None:
                schema = choices
            else:
                break
        return schema, within

    def _defined(self, name: Any) -> Any:
        if not isinstance(name, str) or not name.startswith(_WITHIN):
            raise Invalid(
                f"the JSON Schema refers to {shown(name)}, outside of its $defs and definitions: give the columns with "
                '.schema("...")'
            )
        found = self._root
        for part in name.removeprefix("#/").split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None:
            raise Invalid(f"the JSON Schema refers to {shown(name)}, which it does not define")
        return found


def _choices(schema: dict[str, Any]) -> Any:
    """Return the only choice beside null; None: there is none, or there are several."""
    for name in ("oneOf", "anyOf", "allOf"):
        choices = schema.get(name)
        if isinstance(choices, list):
            others = [one for one in choices if one != {"type": _NULL}]
            return others[0] if len(others) == 1 else None
    return None


def _kinds(schema: dict[str, Any]) -> list[str]:
    """Return the types that a schema names, without null."""
    kind = schema.get("type")
    if kind is None and isinstance(schema.get("properties"), dict):
        return ["object"]
    found = kind if isinstance(kind, list) else [kind]
    return [one for one in found if isinstance(one, str) and one != _NULL]


def json_schema_of(columns: pa.Schema, title: str = "topLevelRecord") -> str:
    """Return the JSON Schema of the documents that `JsonWriter` makes of these columns.  Raises Invalid.

    Objects have no other properties, so that a column that is added later is compatible with readers and writers."""
    check_columns(columns)
    made = _schema_of(pa.struct(list(columns)), "")
    return plain_json({"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **made})


def _schema_of(kind: pa.DataType, path: str) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        properties = {one.name: _or_null(_schema_of(one.type, f"{path}.{one.name}"), one.nullable) for one in kind}
        made = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [one.name for one in kind if not one.nullable]
        return {**made, "required": required} if required else made
    if types.is_list(kind):
        return {"type": "array", "items": _or_null(_schema_of(kind.value_type, path), kind.value_field.nullable)}
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise Invalid(f"{sql_name(kind)}: the names of a JSON object are strings, map<string, ...>")
        values = _or_null(_schema_of(kind.item_type, path), kind.item_field.nullable)
        return {"type": "object", "additionalProperties": values}
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_integer(kind):
        return {"type": "integer"}
    if types.is_floating(kind) or types.is_decimal(kind):
        return {"type": "number"}
    if types.is_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if types.is_timestamp(kind) and kind.tz is not None:
        return {"type": "string", "format": "date-time"}
    return {"type": "string", "format": "date"} if types.is_date(kind) else {"type": "string"}


def _or_null(schema: dict[str, Any], has_nulls: bool) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], _NULL]} if has_nulls else schema
