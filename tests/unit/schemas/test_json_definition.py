"""JSON Schemas from outside: their normal text, their references, and what is refused."""

import json

import pytest

from sarit.core.errors import Invalid
from sarit.schemas.json_definition import normal_json_text, parse_json_schema
from sarit.schemas.limits import MAX_SCHEMA_LEVELS, MAX_SCHEMA_REFERENCES

OLD = "http://json-schema.org/draft-07/schema#"


def parsed(schema, **references):
    return parse_json_schema(json.dumps(schema), {name: json.dumps(one) for name, one in references.items()})


def test_normal_text_has_the_keys_in_order_and_nothing_else_changed():
    text = '{ "b": [1.0, 1, "é"],\n "a": {"d": null, "c": true} }'
    assert normal_json_text(parse_json_schema(text)) == '{"a":{"c":true,"d":null},"b":[1.0,1,"\\u00e9"]}'
    assert normal_json_text(parse_json_schema("true")) == "true"


@pytest.mark.parametrize(
    "schema",
    [1, None, [], {"type": 1}, {"type": "int"}, {"type": []}, {"type": [["string"]]}, {"enum": "a"}, {"properties": []},
     {"required": "a"}, {"required": [1]}, {"properties": {"a": 1}}, {"additionalProperties": []}, {"$ref": 1},
     {"items": 1}, {"items": [1]}, {"anyOf": []}, {"oneOf": {}}, {"not": 1}, {"minimum": "1"}, {"maxLength": -1},
     {"minItems": 1.5}, {"minItems": True}, {"multipleOf": 0}, {"uniqueItems": 1}, {"pattern": 1}, {"$defs": {"a": 1}},
     {"patternProperties": {"a": 1}}, {"dependentSchemas": {"a": 1}}, {"dependencies": {"a": 1}}, {"if": 1}],
)  # fmt: skip
def test_malformed_schema_is_refused(schema):
    with pytest.raises(Invalid, match="the JSON Schema, /"):
        parsed(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}, "enum": {}, "properties": {}}},
        {"enum": [{"$ref": 1, "type": 1}], "default": {"type": 1}, "examples": 1, "x-type": {"type": 1}},
        {"$schema": OLD, "$ref": "#/definitions/a", "minimum": "x", "definitions": {"a": {}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"maxLength": 3.0, "dependencies": {"a": ["b"]}},
    ],
)
def test_what_is_no_keyword_or_not_of_its_draft_is_not_checked(schema):
    parsed(schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "#/$defs/a"}, r"the JSON Schema, /: \$ref leads to nothing: #/\$defs/a"),
        ({"items": {"$ref": "#/items/1"}}, r"the JSON Schema, /items: \$ref leads to nothing"),
        ({"$ref": "#/enum/7", "enum": []}, "leads to nothing"),
        ({"$ref": "#/enum/" + "1" * 5000, "enum": [1]}, "leads to nothing"),
        ({"$ref": "#/type/x", "type": "null"}, "leads to nothing"),
        ({"$ref": "#/enum/0", "enum": [1]}, "1 is no schema"),
        ({"$ref": "x.json"}, r"no reference has the name x.json, which \$ref gives"),
        ({"$ref": "http://[x"}, "no reference has the name"),
        ({"$ref": "#"}, "leads to itself with no property or item between"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/allOf/0"}}}}, "leads to itself"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "leads to itself"),
    ],
)
def test_reference_to_nothing_or_to_itself_is_refused(schema, why):
    with pytest.raises(Invalid, match=why):
        parsed(schema)


def test_circles_through_properties_and_items_are_schemas():
    assert not parsed({"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#/items"}}).alone
    first = {"properties": {"b": {"$ref": "b"}}}
    second = {"anyOf": [{"type": "null"}, {"items": {"$ref": "a"}}]}
    assert parsed({"$ref": "a"}, a=first, b=second).texts == {
        "": '{"$ref":"a"}',
        "a": '{"properties":{"b":{"$ref":"b"}}}',
        "b": '{"anyOf":[{"type":"null"},{"items":{"$ref":"a"}}]}',
    }
    with pytest.raises(Invalid, match="leads to itself"):
        parsed({"$ref": "a"}, a={"$ref": "b"}, b={"$ref": "a"})


def test_faults_of_references_name_them():
    with pytest.raises(Invalid, match="^reference 2, b, /type: leads|^reference 2, b, /: type is"):
        parsed({"items": [{"$ref": "a"}, {"$ref": "b"}]}, a={}, b={"type": 1})
    with pytest.raises(Invalid, match="^reference 1, a is no JSON"):
        parse_json_schema("{}", {"a": "{"})
    with pytest.raises(Invalid, match="^reference 1 has no name"):
        parse_json_schema("{}", {"": "{}"})


def test_bounds_of_levels_and_references():
    deep = '{"not":' * MAX_SCHEMA_LEVELS + "{}" + "}" * MAX_SCHEMA_LEVELS
    parse_json_schema(deep)
    with pytest.raises(Invalid, match="levels"):
        parse_json_schema('{"not":' + deep + "}")
    with pytest.raises(Invalid, match=f"at most {MAX_SCHEMA_REFERENCES} references"):
        parse_json_schema("{}", {f"r{number}": "{}" for number in range(MAX_SCHEMA_REFERENCES + 1)})
