"""Whether documents of one JSON Schema are allowed by another: rule by rule, and by documents drawn at random."""

import itertools
import json
import time

import pytest
from hypothesis import assume, given, settings
from jsonschema_rs import validator_cls_for

from sarit.core.errors import Invalid
from sarit.schemas.json_compatibility import incompatibilities
from sarit.schemas.json_definition import parse_json_schema
from tests.limits import examples, patient
from tests.unit.schemas.json_drawings import pairs


def parsed(schema, **references):
    return parse_json_schema(json.dumps(schema), {name: json.dumps(one) for name, one in references.items()})


def compare(reader, writer):
    return incompatibilities(parsed(reader), parsed(writer))


def closed(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def one_of(*those):
    return {"oneOf": list(those)}


def named(kind, **properties):
    return closed(["kind"], kind={"const": kind}, **properties)


INT, TEXT, NUMBER, NULL = {"type": "integer"}, {"type": "string"}, {"type": "number"}, {"type": "null"}
TREE = {"$ref": "#/$defs/t", "$defs": {"t": closed(value=INT, left={"$ref": "#/$defs/t"})}}
OLD, NEW = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


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
        # References
        (closed(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": {}}}, closed() | {"$defs": {"x": {}}}),
        (closed(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": NUMBER}}, closed(a=INT)),
        (closed(a=NUMBER), closed(a={"$ref": "#/definitions/x~1y%20z"}) | {"definitions": {"x/y z": INT}}),
        (TREE, TREE | {"$comment": "new"}),
        ({"$ref": "#/$defs/t", "$defs": {"t": closed(value=NUMBER, left={"$ref": "#/$defs/t"})}}, TREE),
        (closed(a={"$ref": "#"}), closed(a=closed(a=closed()))),
        # What stands beside a reference is no part of the schema in old drafts.
        ({"$schema": OLD, "$ref": "#/definitions/x", "type": "null", "definitions": {"x": INT}}, INT),
        (INT, {"$schema": NEW, "$ref": "#/$defs/x", "type": "integer", "$defs": {"x": {}}}),
        # Bounds
        ({"minimum": 1}, INT | {"exclusiveMinimum": 0}),
        ({"maximum": 3, "exclusiveMinimum": 0}, NUMBER | {"exclusiveMaximum": 3, "minimum": 0.5}),
        ({"minimum": 1, "maximum": 2}, {"enum": [1, 2, "a"]}),
        ({"$schema": OLD.replace("7", "4"), "minimum": 1, "exclusiveMinimum": True}, NUMBER | {"exclusiveMinimum": 1}),
        (TEXT | {"minLength": 2, "maxLength": 4}, TEXT | {"minLength": 3, "maxLength": 3}),
        (TEXT | {"minLength": 2}, {"const": "ab"}),
        ({"minProperties": 1, "maxProperties": 2}, closed(["a"], a={}, b={})),
        ({"maxItems": 2}, {"type": "array", "prefixItems": [INT], "items": False}),
        ({"multipleOf": 2}, NUMBER | {"multipleOf": 6}),
        ({"uniqueItems": True}, {"type": "array", "maxItems": 1}),
        # Items
        ({"items": NUMBER}, {"type": "array", "items": INT}),
        ({"items": NUMBER}, {"type": "array", "prefixItems": [INT], "items": INT}),
        ({"prefixItems": [NUMBER, TEXT]}, {"type": "array", "prefixItems": [INT], "items": False}),
        ({"prefixItems": [NUMBER], "items": TEXT}, {"type": "array", "items": INT, "maxItems": 1}),
        (
            {"items": [NUMBER], "additionalItems": TEXT},
            {"type": "array", "items": [INT, TEXT], "additionalItems": False},
        ),
        # Alternatives
        ({"anyOf": [TEXT, NULL]}, TEXT),
        ({"anyOf": [TEXT, NULL]}, {"type": ["null", "string"]}),
        (one_of(TEXT, NULL), {"type": ["null", "string"]}),
        ({"type": ["null", "string"]}, one_of(TEXT, NULL)),
        (one_of(TEXT, NUMBER, NULL), one_of(INT, TEXT)),
        (one_of({"const": "a"}, {"const": "b"}, {"const": "c"}), {"enum": ["a", "b"]}),
        (one_of(named("x", a=NUMBER), named("y")), one_of(named("x", a=INT))),
        (one_of(closed(["a"], a=named("x")), closed(["a"], a=named("y"))), closed(["a"], a=named("y"))),
        (closed(a=one_of(INT, NUMBER), b={}), closed(a=one_of(INT, NUMBER))),  # not compared, for it has not changed
        ({"allOf": [closed(a=NUMBER, b={}), {"required": ["a"]}]}, {"allOf": [closed(["a"], a=INT)]}),
        ({"not": NULL}, TEXT),
        ({"not": {"required": ["a"]}}, {"not": {"required": ["a"]}, "type": "object"}),
        ({"type": ["null", "boolean"], "enum": [True, False, None]}, {"type": ["null", "boolean"]}),
        # Properties
        ({"patternProperties": {"^x": NUMBER}}, {"type": "object", "patternProperties": {"^x": INT}}),
        ({"patternProperties": {"^x": NUMBER}}, closed(xa=INT)),
        (
            {"patternProperties": {"^x": INT}, "additionalProperties": TEXT},
            {"type": "object", "patternProperties": {"^x": INT}, "additionalProperties": TEXT},
        ),
        ({"propertyNames": {"maxLength": 2}}, {"type": "object", "propertyNames": {"maxLength": 1}}),
        ({"propertyNames": {"maxLength": 2}}, closed(ab={})),
        (
            {"type": "object", "properties": {"a": INT, "b": TEXT}, "unevaluatedProperties": False},
            {"type": "object", "properties": {"a": INT}, "unevaluatedProperties": False},
        ),
        # Keywords outside of the subset
        ({"type": ["string", "number"], "pattern": "a", "$defs": {}}, TEXT | {"pattern": "a"}),
        ({"pattern": "a"}, INT),
        ({"dependentRequired": {"a": ["b"]}}, {"dependentRequired": {"a": ["b"], "c": []}, "$comment": ""}),
        (INT | {"x-origin": 1, "connect.index": 2}, INT | {"x-origin": 2}),
        ({"then": INT}, TEXT),
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
        (TEXT | {"minLength": 3}, TEXT | {"minLength": 2}, ["/minLength: the writer's schema allows less than 3"]),
        (TEXT | {"maxLength": 3}, TEXT, ["/maxLength: the writer's schema allows more than 3"]),
        ({"exclusiveMinimum": 0}, NUMBER | {"minimum": 0},
         ["/exclusiveMinimum: the writer's schema allows numbers below 0"]),
        (INT | {"maximum": 3}, INT | {"exclusiveMaximum": 5}, ["/maximum: the writer's schema allows numbers above 3"]),
        ({"multipleOf": 4}, NUMBER | {"multipleOf": 6},
         ["/multipleOf: the writer's schema allows numbers that are no multiples of 4"]),
        ({"const": 1}, INT, ["/const: the writer's schema has no const, and allows other values"]),
        ({"items": INT}, {"type": "array", "items": NUMBER},
         ["/items/type: the writer's schema allows number, and the reader's does not"]),
        ({"prefixItems": [{}, INT]}, {"type": "array"},
         ["/prefixItems/1/type: the writer's schema allows array, boolean, null, number, object, string, and the "
          "reader's does not"]),
        ({"items": INT}, {"type": "array", "prefixItems": [TEXT], "items": False},
         ["/items, for 0/type: the writer's schema allows string, and the reader's does not"]),
        ({"uniqueItems": True}, {"type": "array"}, ["/uniqueItems: the writer's schema allows an item twice"]),
        ({"anyOf": [TEXT, NULL]}, INT,
         ["/anyOf: no alternative of the reader's schema allows all that the writer's does",
          "/anyOf/0/type: the writer's schema allows integer, and the reader's does not",
          "/anyOf/1/type: the writer's schema allows integer, and the reader's does not"]),
        (TEXT, one_of(TEXT, NULL), ["/type: the writer's schema allows null, and the reader's does not"]),
        (one_of(INT, NUMBER, TEXT), INT,
         ["/oneOf: more than one alternative of the reader's schema may allow what the writer's does"]),
        ({"not": {"required": ["a"]}}, {"type": "object"},
         ["/not: the writer's schema may allow what the reader's does not"]),
        ({"patternProperties": {"^x": INT}}, {"type": "object", "patternProperties": {"^y": INT}},
         ["/patternProperties/^x/type: the writer's schema allows array, boolean, null, number, object, string, and "
          "the reader's does not"]),
        (TEXT | {"pattern": "b"}, TEXT | {"pattern": "a"},
         ["/pattern: this keyword is compared by its value alone, and the writer's schema does not have the same"]),
        ({"if": {"$ref": "#/$defs/x"}, "$defs": {"x": INT}}, {"if": {"$ref": "#/$defs/x"}, "$defs": {"x": TEXT}},
         ["/if: this keyword is compared by its value alone, and the writer's schema does not have the same"]),
        ({"minimum": 1, "minItems": 2}, {"$ref": "#/definitions/a", "minimum": 1, "definitions": {"a": NUMBER}},
         # What the writer's has beside a reference counts only if its draft says so.
         ["/minimum: the writer's schema allows numbers below 1"]),
        (
            {"properties": {"a": INT}, "additionalProperties": False, "patternProperties": {"a": {}}, "type": "object"},
            {"additionalProperties": False, "patternProperties": {"a": {}}, "type": "object"},
            ["/properties/a/type: the writer's schema allows array, boolean, null, number, object, string, and the "
             "reader's does not"],
        ),
        (
            {"allOf": [{}], "unevaluatedProperties": False},
            {"type": "object", "unevaluatedProperties": False, "properties": {"a": INT}},
            ["/: a schema with unevaluatedProperties or unevaluatedItems is compatible with itself alone"],
        ),
        (
            closed(a={"$ref": "#/properties/b"}, b=INT),
            closed(a={"$ref": "#/properties/b"}, b={"type": "number"}),
            ["/properties/b/type: the writer's schema allows number, and the reader's does not",
             "/properties/a/type: the writer's schema allows number, and the reader's does not"],
        ),
    ],
)  # fmt: skip
def test_not_allowed_with_a_path_and_a_sentence(reader, writer, reasons):
    assert compare(reader, writer) == reasons


def test_property_added_to_open_objects_may_have_had_another_value():
    assert compare({"properties": {"a": INT}}, {"type": "object"})
    assert compare({"properties": {"a": INT}}, {"type": "object", "additionalProperties": INT}) == []


def test_sentences_are_short_and_in_ascii_whatever_the_names():
    number = int("9" * 4000)
    reader = {"properties": {"é\ud800" + "x" * 5000: {"minimum": number, "maxItems": number, "multipleOf": number}}}
    reasons = compare(reader | {"required": ["é" * 5000]}, {"properties": {}, "type": "object"})
    assert len(reasons) == 4
    assert all(one.isascii() and len(one) < 1000 for one in reasons)


def test_required_property_with_a_default_is_not_optional_as_it_is_for_confluent():
    assert compare(closed(["b"], a=INT, b=INT | {"default": 0}), closed(a=INT))


def test_schemas_of_references_are_compared():
    reader = {"type": "object", "properties": {"at": {"$ref": "place.json#/$defs/x"}}}
    old, new = ({"$defs": {"x": kind}} for kind in (INT, NUMBER))
    name = "place.json"
    assert incompatibilities(parsed(reader, **{name: new}), parsed(reader, **{name: old})) == []
    assert incompatibilities(parsed(reader, **{name: old}), parsed(reader, **{name: new})) == [
        "/properties/at/type: the writer's schema allows number, and the reader's does not"
    ]
    # A text is known by its $id, too, and a name is relative to the $id of the text that gives it.
    whole = {"$id": "http://h/d/main.json", "items": {"$ref": "place.json#/$defs/x"}}
    assert (
        incompatibilities(parsed({"items": NUMBER}), parsed(whole, other=old | {"$id": "http://h/d/place.json"})) == []
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/x", "$defs": {"x": {"$anchor": "x", "items": {"$ref": "#x"}}}},
        {"items": {"$dynamicRef": "#x"}},
        {"$defs": {"x": {"$id": "http://h/x"}}, "items": {"$ref": "http://h/x"}},
    ],
)
def test_schema_with_references_that_are_not_resolved_is_compatible_with_itself_alone(schema):
    assert compare(schema, schema) == []
    assert compare(schema | {"title": "t"}, schema) == [
        "/: a schema with anchors, dynamic references or an $id inside is compatible with itself alone"
    ]


def test_schemas_made_to_take_long_are_refused_soon():
    names = {f"p{number}": {"properties": {"a": {}}} for number in range(7000)}
    many = {"additionalProperties": {"type": "object", "properties": {f"q{n}": INT for n in range(7000)}}}
    before = time.process_time()
    with pytest.raises(Invalid, match="too large"):
        compare(many, closed(**{name: closed(x=INT) for name in names}))
    assert time.process_time() - before < patient(10)


SCALARS = (None, True, False, -1, 0, 1, 1.5, 2, 3, 1.0, "", "a", "b", "bb", "abc")
INNER = (None, 0, 1, 1.5, "a", "bb", [1], {}, {"a": 1})
ABSENT = object()
DOCUMENTS = [
    *SCALARS, [], *([one] for one in INNER), *(list(two) for two in itertools.product(INNER, repeat=2)),
    [1, 1, 1], [1, 2, 3], ["a", "b", 1], [1, 2, 3, 4], {"c": 1}, {"a": True, "c": 1}, {"a": 1, "b": 2, "c": 3},
    *(
        {name: one for name, one in zip("ab", values, strict=True) if one is not ABSENT}
        for values in itertools.product((ABSENT, *INNER), repeat=2)
    ),
]  # fmt: skip


def validator(texts):
    """Return a validator of a schema, which refers to another text, by the drafts that they name."""
    schema, other = texts
    return validator_cls_for(schema)(schema, retriever=lambda _: other)


@settings(max_examples=examples(800))
@given(pairs())
def test_no_document_of_the_writer_is_refused_by_a_compatible_reader(pair):
    try:
        reader, writer = (parsed(schema, other=other) for schema, other in pair)
    except Invalid as error:
        assume("leads to itself" not in str(error))
        raise
    if incompatibilities(reader, writer) == []:
        ours, theirs = map(validator, pair)
        assert [one for one in DOCUMENTS if theirs.is_valid(one) and not ours.is_valid(one)] == []
