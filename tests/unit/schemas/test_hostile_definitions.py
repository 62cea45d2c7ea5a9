"""Schemas of all kinds from outside, by the one interface: malformed, large and circular ones."""

import base64
import gc
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.definitions import Kind, incompatibilities, parse_definition
from sarit.schemas.limits import MAX_SCHEMA_BYTES
from tests.limits import examples, patient

# The most seconds of a processor that one schema may take, and one comparison.
SECONDS = 2
COMPARISON_SECONDS = 5
MOST_SHOWN = 1500  # characters of an error

AVRO = """
{"type": "record", "name": "Order", "namespace": "shop.v1", "doc": "An order", "fields": [
  {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null},
  {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"], "default": "NEW"}},
  {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "aliases": ["old.Line"],
    "fields": [{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
               {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 16}},
               {"name": "inner", "type": ["null", "Line"], "default": null}]}}},
  {"name": "more", "type": {"type": "map", "values": "double"}, "default": {"a": 1.5}}]}
"""
JSON = """
{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://shop/order.json", "type": "object",
 "required": ["id"], "additionalProperties": false, "$defs": {"line": {"type": "object", "properties": {
   "price": {"type": "number", "minimum": 0, "exclusiveMaximum": 1e6}, "inner": {"$ref": "#/$defs/line"}}}},
 "properties": {"id": {"type": "integer"}, "note": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 9}]},
   "state": {"enum": ["NEW", "PAID"]}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "minItems": 1},
   "kind": {"oneOf": [{"const": "a"}, {"const": "b"}]}, "at": {"$ref": "place"}},
 "patternProperties": {"^x_": {"not": {"type": "null"}}}, "if": {"required": ["at"]}, "then": {"minProperties": 2}}
"""
PROTOBUF = """
syntax = "proto3"; package shop.v1; import "place.proto"; option java_package = "shop";
message Order { reserved 9 to 11; int64 id = 1; optional string note = 2; repeated Line lines = 3 [deprecated = true];
  map<string, double> more = 4; oneof kind { State state = 5; q.Place at = 6; } message Line { bytes price = 1; } }
enum State { option allow_alias = true; NEW = 0; PAID = 1; DONE = 1; }
service Shop { rpc Get(Order) returns (stream Order); }
"""
PLACE_FILE = {"place.proto": 'syntax = "proto2"; package q; message Place { optional double x = 1 [default = 1.5]; }'}
PLACE = {"place": '{"properties": {"x": {"type": "number"}, "order": {"$ref": "http://shop/order.json"}}}'}
REAL = {
    Kind.AVRO: (AVRO, {}),
    Kind.JSON: (JSON, PLACE),
    Kind.PROTOBUF: (PROTOBUF, PLACE_FILE),
    Kind.OPAQUE: (base64.b64encode(bytes(range(99))).decode(), {}),
}
PIECES = ("", "{", "}", "[", "]", '"', ",", ":", "null", "true", "-1", "1e400", "\\ud800", "\ud800", "\0", "é", " ",
          "#", "$ref", "type", '"$ref":"#"', '{"$ref":"#/properties/id"}', '"a":1,"a":2', '"type":"record"', "9" * 5000,
          "[" * 200, "message", "//", "=", "/*", ";")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _own_objects_alone():
    """Leave what other tests of the process have made out of garbage collections, whose time is counted here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def check_time(before, most):
    took = time.process_time() - before
    assert took < most or took < patient(most)


def taken(kind, text, references):
    """Return the definition of a text, or None if it is refused, within the time for it."""
    before = time.process_time()
    try:
        return parse_definition(kind, text, references)
    except Invalid as error:
        if len(str(error)) > MOST_SHOWN:
            raise
        return None
    finally:
        check_time(before, SECONDS)


def check(found, references):
    """Check that a definition is the same when its text is parsed again, and reads what it writes."""
    again = parse_definition(found.kind, found.text, references)
    assert again == found
    found.text.encode("ascii")
    assert incompatibilities(found, again) == incompatibilities(again, found) == []


@st.composite
def mutated(draw, text):
    """Draw a text with some parts of it cut out, moved, or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        first, second = sorted(draw(st.integers(0, len(text))) for _ in range(2))
        if draw(st.booleans()):
            second = min(second, first + draw(st.integers(0, 8)))
        piece = draw(st.sampled_from((*PIECES, text[first:second] * 2, text[second : second + 20])))
        text = text[:first] + piece + text[second:]
    return text


@pytest.mark.parametrize("kind", REAL)
@settings(max_examples=examples(400))
@given(st.data())
def test_mutated_schema_is_a_schema_or_invalid(kind, data):
    text, references = REAL[kind]
    real = parse_definition(kind, text, references)
    check(real, references)
    found = taken(kind, data.draw(mutated(text)), references)
    if found is not None:
        check(found, references)
        incompatibilities(found, real)
        incompatibilities(real, found)


@pytest.mark.parametrize("kind", Kind)
@given(st.text(max_size=50) | st.binary(max_size=50).map(lambda data: data.decode("latin-1")))
def test_drawn_text_is_a_schema_or_invalid(kind, text):
    found = taken(kind, text, {})
    if found is not None:
        check(found, {})


KEYWORDS = (
    "$ref", "$id", "$schema", "$defs", "type", "enum", "const", "properties", "required", "additionalProperties",
    "patternProperties", "items", "prefixItems", "allOf", "oneOf", "not", "if", "minimum", "exclusiveMaximum",
    "minLength",
    "maxItems", "uniqueItems", "multipleOf", "dependencies", "unevaluatedProperties", "$dynamicRef", "contains",
)  # fmt: skip
WORDS = ("object", "string", "number", "#", "#/$defs/a", "#/properties/a", "a", "a#/$defs/b", "#a", "http://[",
         "\ud800", "http://json-schema.org/draft-07/schema#", 0, 1, -1, True, False, None, 1.5)  # fmt: skip
HOSTILE = st.recursive(
    st.sampled_from(WORDS) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from((*KEYWORDS, "a", "b")), inner, max_size=5)
    ),
    max_leaves=30,
)


@settings(max_examples=examples(1000))
@given(HOSTILE, HOSTILE, HOSTILE)
def test_drawn_json_is_a_json_schema_or_invalid(one, other, reference):
    references = {"a": json.dumps(reference)}
    found = [taken(Kind.JSON, json.dumps(text), references) for text in (one, other)]
    for definition in found:
        if definition is not None:
            check(definition, references)
    if None not in found:
        incompatibilities(*found)


def filled(begin, part, end, separator=","):
    """Return a text of parts, numbered in order, of nearly as many bytes as a schema may have."""
    size = len(begin) + len(end)
    parts = []
    while size < MAX_SCHEMA_BYTES - 500:
        parts.append(part.format(n=len(parts), before=max(0, len(parts) - 1)))
        size += len(parts[-1]) + len(separator)
    return begin + separator.join(parts) + end


# Made by the tests that need them: each of these texts is a tenth of a second of work.
LARGE = [
    (Kind.AVRO, lambda: filled(
        '{"type":"record","name":"R","fields":[', '{{"name":"f{n}","type":["null","int"]}}', "]}")),
    (Kind.AVRO, lambda: filled('["null",', '{{"type":"record","name":"R{n}","fields":[]}}', "]")),
    (Kind.AVRO, lambda: filled('{"type":"enum","name":"E","symbols":[', '"S{n}"', "]}")),
    (Kind.AVRO, lambda: "[" * MAX_SCHEMA_BYTES),
    (Kind.JSON, lambda: filled('{"properties":{', '"p{n}":{{"type":["null","string"]}}', "}}")),
    (Kind.JSON, lambda: filled('{"properties":{"p":{},', '"p{n}":{{"$ref":"#/properties/p"}}', "}}")),
    (Kind.JSON, lambda: filled(
        '{"$ref":"#/$defs/p9999","$defs":{', '"p{n}":{{"x{n}":0,"$ref":"#/$defs/p{before}"}}', "}}")
                .replace('"x0":0,"$ref"', '"x0"', 1)),
    (Kind.JSON, lambda: filled('{"anyOf":[', '{{"const":{n}}}', "]}")),
    (Kind.JSON, lambda: filled('{"oneOf":[', '{{"required":["a"],"properties":{{"a":{{"const":{n}}}}}}}', "]}")),
    (Kind.JSON, lambda: filled('{"allOf":[', '{{"anyOf":[{{"minimum":{n}}},{{"type":"null"}}]}}', "]}")),
    (Kind.JSON, lambda: filled('{"enum":[', "{n}", "]}")),
    (Kind.JSON, lambda: filled('{"$ref":"#', "/~1{n}", '"}', "")),
    (Kind.JSON, lambda: filled('{"required":[', '"{n}"', "]}")),
    # Messages, values and nested messages: test_protobuf_definition.py.
    (Kind.PROTOBUF, lambda: filled('syntax = "proto3"; message A {', " int32 f{n} = 1{n};", "}", "")),
    (Kind.OPAQUE, lambda: "A" * (MAX_SCHEMA_BYTES - 4)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "make"), LARGE)
def test_large_schema_is_parsed_or_refused_soon(kind, make):
    text = make()
    assert MAX_SCHEMA_BYTES - 600 <= len(text) <= MAX_SCHEMA_BYTES
    found = taken(kind, text, {})
    if found is None:
        return
    other = taken(kind, text.replace("9998", "77998"), {}) or found
    # In one direction: they differ in one place, so that the other one takes the same steps.
    before = time.process_time()
    try:
        incompatibilities(found, other)
    except Invalid as error:
        if "too large" not in str(error):
            raise
    check_time(before, COMPARISON_SECONDS)


def test_text_that_is_too_large_is_refused_at_once():
    for kind in Kind:
        for text, references in (("é" * (MAX_SCHEMA_BYTES // 2 + 1), {}), ("1", {"a": "1" * MAX_SCHEMA_BYTES})):
            before = time.process_time()
            with pytest.raises(Invalid, match=r"at most 1,048,576 bytes|no references"):
                parse_definition(kind, text, references)
            assert time.process_time() - before < patient(0.1)


@pytest.mark.parametrize(
    ("kind", "text", "references"),
    [
        (Kind.AVRO, '"a.A"', {"a.A": '{"type":"record","name":"a.A","fields":[{"name":"b","type":"a.B"}]}',
                              "a.B": '{"type":"record","name":"a.B","fields":[{"name":"a","type":"a.A"}]}'}),
        (Kind.PROTOBUF, 'import "a"; message M {}', {"a": 'import "b";', "b": 'import "a";'}),
        (Kind.JSON, '{"$ref":"a"}', {"a": '{"allOf":[{"$ref":"b"}]}', "b": '{"anyOf":[{"$ref":"a"}]}'}),
    ],
)  # fmt: skip
def test_circle_of_references_is_refused(kind, text, references):
    with pytest.raises(Invalid, match="circle|leads to itself"):
        parse_definition(kind, text, references)
