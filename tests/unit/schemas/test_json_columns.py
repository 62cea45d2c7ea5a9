"""JSON Schemas and columns, both ways; rows as documents, which the reader of JSON reads back."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import jsonschema_rs
import pyarrow as pa
import pytest

from sarit.core.errors import Invalid
from sarit.schemas.column_types import sql_name
from sarit.schemas.json_columns import json_columns, json_schema_of
from sarit.schemas.json_compatibility import incompatibilities
from sarit.schemas.json_definition import parse_json_schema
from sarit.schemas.json_reader import JsonReader
from sarit.schemas.json_writer import JsonWriter

NOON = datetime.datetime(2026, 7, 1, 12, 0, 0, 250_001, tzinfo=datetime.UTC)
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("ok", pa.bool_()),
        pa.field("half", pa.float64()), pa.field("paid", pa.decimal128(20, 2)), pa.field("raw", pa.binary()),
        pa.field("seen", pa.timestamp("us", tz="UTC")), pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()), pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("more", pa.map_(pa.string(), pa.int32())),
        pa.field("in", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)  # fmt: skip
FULL = {
    "id": 1, "name": 'ü"\n\\', "ok": False, "half": -0.5, "paid": Decimal("123456789012345678.25"), "raw": b"\xff\0",
    "seen": NOON, "local": NOON.replace(tzinfo=None), "day": NOON.date(), "tags": ["a", None],
    "more": [("k", 1), ("l", None)], "in": {"x": None, "y": "z"},
}  # fmt: skip
EMPTY = {**dict.fromkeys(FULL), "id": -(1 << 63)}


def written(rows, columns=COLUMNS):
    return JsonWriter(columns).write(pa.RecordBatch.from_pylist(rows, schema=columns), None)[0]


def shapes(schema):
    return {field.name: sql_name(field.type) for field in json_columns(json.dumps(schema))}


def test_rows_come_back_as_they_were():
    rows = JsonReader(COLUMNS).read(written([FULL, EMPTY]).cast(pa.binary()))
    assert not rows.bad.any()
    found = pa.RecordBatch.from_arrays(rows.columns, schema=COLUMNS).to_pylist()
    assert found == [FULL, EMPTY]


def test_documents_are_those_of_the_schema():
    schema = json.loads(json_schema_of(COLUMNS))
    check = jsonschema_rs.validator_for(schema)
    documents = [json.loads(one) for one in written([FULL, EMPTY]).to_pylist()]
    assert [list(check.iter_errors(one)) for one in documents] == [[], []]
    assert documents[1] == {"id": -(1 << 63)}
    assert not check.is_valid({"name": "x"})
    assert not check.is_valid({"id": 1, "other": 2})


def test_columns_of_the_schema_are_those_that_were_written():
    kinds = {field.name: sql_name(field.type) for field in COLUMNS}
    # JSON has one kind of integers and one of numbers, and its date-time has a zone.
    kinds |= {"paid": "double", "local": "string", "more": "map<string,bigint>"}
    found = json_columns(json_schema_of(COLUMNS))
    assert {field.name: sql_name(field.type) for field in found} == kinds
    assert all(field.nullable for field in found)


def test_column_that_is_added_is_compatible_both_ways():
    old, new = (parse_json_schema(json_schema_of(pa.schema(list(COLUMNS)[:count]))) for count in (3, 5))
    assert incompatibilities(new, old) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_number_that_json_does_not_have_is_named_with_its_row(value):
    with pytest.raises(Invalid, match=r"row 1 of a batch is no JSON document: JSON has no number (nan|inf)"):
        written([{"half": 1.0}, {"half": value}], pa.schema([("half", pa.float64())]))


def test_time_that_no_text_holds_is_named_with_its_row():
    columns = pa.schema([("t", pa.timestamp("us"))])
    batch = pa.RecordBatch.from_arrays([pa.array([1 << 62], pa.int64()).cast(pa.timestamp("us"))], schema=columns)
    with pytest.raises(Invalid, match="row 0 of a batch is no JSON document"):
        JsonWriter(columns).write(batch, None)


def test_what_has_no_single_type_is_a_string_with_its_json():
    found = shapes({"properties": {
        "a": {"type": ["integer", "string"]}, "b": True, "c": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "d": {"type": "array"}, "e": {"type": "object"}, "f": {"enum": ["x"]}, "g": {"type": ["integer", "number"]},
        "h": {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": {"type": "integer"}},
    }})  # fmt: skip
    assert found == dict.fromkeys("abcdefh", "string") | {"g": "double"}


def test_choices_with_null_and_definitions_are_followed():
    found = shapes({
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/A"}]}, "b": {"$ref": "#/$defs/b~1c"},
            "c": {"allOf": [{"$ref": "#/definitions/A"}]}, "d": {"type": ["null", "string"], "format": "date"},
        },
        "definitions": {"A": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "$defs": {"b/c": {"type": "array", "items": {"type": "boolean"}}},
    })  # fmt: skip
    assert found == {"a": "struct<x:bigint>", "b": "array<boolean>", "c": "struct<x:bigint>", "d": "date"}


A = {"$ref": "#/$defs/A"}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string"}, "is of no object with properties"),
        ({"properties": {}}, "is of no object with properties"),
        (True, "is of no object with properties"),
        ({"properties": {"a": A}, "$defs": {"A": {"type": "array", "items": A}}},
         "#/\\$defs/A contains itself"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}, "leads to itself"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}, "refers to #/properties/b, outside of"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "no reference has the name other.json"),
        ({"properties": {"a": {"$ref": "#/$defs/B"}}}, "leads to nothing: #/\\$defs/B"),
        ({"properties": {"a": {"$ref": 5}}}, "is 5, and must be a text"),
    ],
)  # fmt: skip
def test_schema_without_columns_is_refused(schema, named):
    with pytest.raises(Invalid, match=named):
        json_columns(json.dumps(schema))


def test_schema_whose_definitions_multiply_is_refused_before_it_fills_memory():
    definitions = {"L0": {"type": "integer"}}
    for level in range(1, 30):
        within = {"$ref": f"#/$defs/L{level - 1}"}
        definitions[f"L{level}"] = {"type": "object", "properties": {"a": within, "b": within}}
    with pytest.raises(Invalid, match="more than 10,000 properties"):
        json_columns(json.dumps({"properties": {"a": {"$ref": "#/$defs/L29"}}, "$defs": definitions}))


def test_map_whose_names_are_no_strings_is_refused():
    columns = pa.schema([("m", pa.map_(pa.int32(), pa.string()))])
    for make in (json_schema_of, JsonWriter):
        with pytest.raises(Invalid, match="the names of a JSON object are strings"):
            make(columns)
