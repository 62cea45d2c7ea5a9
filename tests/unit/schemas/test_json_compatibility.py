"""Whether documents of one JSON Schema are allowed by another: rule by rule, and by documents drawn at random."""

import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from sarit.core.errors import Invalid
from sarit.schemas.json_compatibility import incompatibilities, parse_json_schema
from tests.limits import examples, patient


def compare(reader, writer):
    return incompatibilities(*(parse_json_schema(json.dumps(one)) for one in (reader, writer)))


def closed(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (True, False),
        ({}, {"type": "string", "minLength": 3}),
        ({"title": "a", "default": 1}, {"maximum": 3}),
        (INT | {"description": "new", "$id": "b", "format": "x"}, INT | {"description": "old", "examples": [1]}),
        ({"type": "number"}, INT),
        ({"type": ["string", "null"]}, TEXT),
        ({"type": "integer"}, {"enum": [1, 2]}),
        ({"enum": ["a", "b"]}, {"enum": ["b"]}),
        (closed(a=INT, b=TEXT), closed(a=INT)),
        ({"properties": {"a": INT}}, {"properties": {"a": INT, "b": TEXT}}),
        (closed(["a"], a=INT), closed(["a"], a=INT)),
        (closed(a=INT), closed(["a"], a=INT)),
        ({"additionalProperties": {"type": "number"}}, {"type": "object", "additionalProperties": INT}),
        ({"properties": {"a": {}}}, {"type": "object"}),
        (TEXT | {"minLength": 3}, TEXT | {"minLength": 3}),
        (closed(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": {}}}, closed() | {"$defs": {"x": {}}}),
        ({"type": ["string", "integer"], "properties": {"a": INT}}, TEXT),
    ],
)
def test_allowed(reader, writer):
    assert compare(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "reasons"),
    [
        (False, INT, ["/: the reader's schema allows nothing here, and the writer's something"]),
        (INT, {"type": "number"}, ["/type: the writer's schema allows number, and the reader's does not"]),
        (INT, {"enum": [1, 1.5]}, ["/type: the writer's schema allows number, and the reader's does not"]),
        (TEXT | {"enum": ["a"]}, TEXT, ["/enum: the writer's schema has no enum, and allows other values"]),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ['/enum: the reader\'s schema does not allow "b"']),
        # One is no true, and no 1.0 either: a value is compared as it is written.
        ({"enum": [True, 1.0]}, {"enum": [True, 1]}, ["/enum: the reader's schema does not allow 1"]),
        (closed(["a"], a=INT), closed(a=INT), ["/required: the writer's schema does not require a"]),
        (
            closed(["a"], a=INT | {"default": 1}),
            closed(a=INT),
            ["/required: the writer's schema does not require a"],
        ),
        (
            closed(),
            {"type": "object"},
            ["/additionalProperties: the reader's schema allows nothing here, and the writer's something"],
        ),
        (
            closed(a=INT),
            closed(a=INT, b=TEXT),
            ["/additionalProperties, for b: the reader's schema allows nothing here, and the writer's something"],
        ),
        (
            closed(a=closed(b=INT)),
            closed(a=closed(b=TEXT)),
            ["/properties/a/properties/b/type: the writer's schema allows string, and the reader's does not"],
        ),
        (
            TEXT | {"minLength": 2},
            TEXT | {"minLength": 3},
            ["/minLength: this keyword is compared by its value alone, which changed"],
        ),
        (
            {"properties": {"a": INT}, "additionalProperties": False, "patternProperties": {"a": {}}, "type": "object"},
            {"additionalProperties": False, "patternProperties": {"a": {}}, "type": "object"},
            ["/properties/a/type: the writer's schema allows array, boolean, null, number, object, string, and the "
             "reader's does not"],
        ),
        (
            {"type": "object", "unevaluatedProperties": False},
            {"type": "object", "unevaluatedProperties": False, "properties": {"a": INT}},
            ["/: a schema with unevaluatedProperties is compatible with itself alone"],
        ),
        (
            closed(a={"$ref": "#/properties/b"}, b=INT),
            closed(a={"$ref": "#/properties/b"}, b={"type": "number"}),
            ["/: a schema with references outside of $defs and definitions is compatible with itself alone"],
        ),
    ],
)  # fmt: skip
def test_not_allowed_with_a_path_and_a_sentence(reader, writer, reasons):
    assert compare(reader, writer) == reasons


def test_property_added_to_open_objects_may_have_had_another_value():
    assert compare({"properties": {"a": INT}}, {"type": "object"})
    assert compare({"properties": {"a": INT}}, {"type": "object", "additionalProperties": INT}) == []


@pytest.mark.parametrize(
    "schema",
    [1, None, [], {"type": 1}, {"type": "int"}, {"type": []}, {"type": [["string"]]}, {"enum": "a"}, {"properties": []},
     {"required": "a"}, {"required": [1]}, {"properties": {"a": 1}}, {"additionalProperties": []}],
)  # fmt: skip
def test_malformed_schema_is_refused(schema):
    with pytest.raises(Invalid, match="the JSON Schema, /"):
        parse_json_schema(json.dumps(schema))


def test_schemas_made_to_take_long_are_refused_soon():
    names = {f"p{number}": {"properties": {"a": {}}} for number in range(7000)}
    many = {"additionalProperties": {"type": "object", "properties": {f"q{n}": INT for n in range(7000)}}}
    before = time.process_time()
    with pytest.raises(Invalid, match="too large"):
        compare(many, closed(**{name: closed(x=INT) for name in names}))
    assert time.process_time() - before < patient(10)


NAMES = ("a", "b")
TYPES = ("null", "boolean", "object", "number", "integer", "string")
LEAVES = (None, True, 0, 1.5, "a", "bb", {}, {"a": 1})
ABSENT = object()
DOCUMENTS = [
    *LEAVES[:6],
    *(
        {name: one for name, one in zip(NAMES, values, strict=True) if one is not ABSENT}
        for values in itertools.product((ABSENT, *LEAVES), repeat=2)
    ),
]
SCHEMAS = st.recursive(
    st.booleans(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "enum": st.lists(st.sampled_from((None, True, 0, 1, "a")), min_size=1, max_size=2),
            "properties": st.dictionaries(st.sampled_from(NAMES), inner),
            "required": st.lists(st.sampled_from(NAMES), unique=True),
            "additionalProperties": inner,
            "minLength": st.integers(1, 2),
            "patternProperties": st.fixed_dictionaries({}, optional={"a": inner}),
            "title": st.just("t"),
        },
    ),
    max_leaves=4,
)


@st.composite
def pairs(draw):
    """Draw two schemas: apart, or the second with some keywords of the first."""
    first, second = draw(SCHEMAS), draw(SCHEMAS)
    if isinstance(first, dict) and isinstance(second, dict):
        second |= {key: one for key, one in first.items() if draw(st.booleans())}
    return first, second


@settings(max_examples=examples(2000))
@given(pairs())
def test_no_document_of_the_writer_is_refused_by_a_compatible_reader(pair):
    reader, writer = pair
    if compare(reader, writer) == []:
        ours, theirs = map(Draft202012Validator, pair)
        assert [one for one in DOCUMENTS if theirs.is_valid(one) and not ours.is_valid(one)] == []
