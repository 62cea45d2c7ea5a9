"""Schemas of all kinds by one interface: their texts, names and comparisons."""

import base64
import json

import pytest

from sarit.core.errors import Invalid
from sarit.schemas.definitions import Kind, incompatibilities, parse_definition
from sarit.schemas.limits import MAX_SCHEMA_BYTES

INNER = '{"type": "enum", "name": "n.E", "symbols": ["A"]}'
OUTER = '{"name": "R", "type": "record", "doc": "é", "fields": [{"name": "e", "type": "n.E"}]}'


def test_avro_has_its_normal_text_and_the_name_of_the_type():
    found = parse_definition(Kind.AVRO, OUTER, {"n.E": INNER})
    assert found.text == '{"name":"R","type":"record","fields":[{"name":"e","type":"n.E"}],"doc":"\\u00e9"}'
    assert (found.kind, found.type_name) == (Kind.AVRO, "R")
    assert parse_definition(Kind.AVRO, INNER).type_name == "n.E"
    assert parse_definition(Kind.AVRO, '"int"').type_name == ""
    assert found == parse_definition(Kind.AVRO, found.text, {"n.E": INNER})


def test_json_schema_has_its_keys_in_order():
    found = parse_definition(Kind.JSON, '{"type": "object", "properties": {"é": {}, "a": {"type": "string"}}}')
    assert found.text == '{"properties":{"a":{"type":"string"},"\\u00e9":{}},"type":"object"}'
    assert found.type_name == ""


def test_protobuf_has_its_normal_text_and_the_name_of_the_first_message():
    text = 'syntax = "proto3"; package p; import "o.proto"; message M { O o = 1; } message N {}'
    found = parse_definition(Kind.PROTOBUF, text, {"o.proto": "package p; message O {}"})
    assert found.text.splitlines()[-4:] == ["  .p.O o = 1;", "}", "message N {", "}"]
    assert found.type_name == "p.M"
    assert found == parse_definition(Kind.PROTOBUF, found.text, {"o.proto": "package p; message O {}"})
    assert parse_definition(Kind.PROTOBUF, "enum E { A = 0; }").type_name == ""


def test_opaque_schema_is_bytes_that_nobody_checks():
    data = base64.b64encode(b"\0\xff any").decode()
    found = parse_definition(Kind.OPAQUE, data)
    assert (found.text, found.schema) == (data, b"\0\xff any")
    assert incompatibilities(found, parse_definition(Kind.OPAQUE, "")) == []
    for text in ("a", "a b=", "é===", data + "\n", "-_=="):
        with pytest.raises(Invalid, match="is no base64"):
            parse_definition(Kind.OPAQUE, text)
    with pytest.raises(Invalid, match="no references"):
        parse_definition(Kind.OPAQUE, data, {"a": data})
    with pytest.raises(Invalid, match="at most 1,048,576 bytes"):
        parse_definition(Kind.OPAQUE, "A" * (MAX_SCHEMA_BYTES + 4))


@pytest.mark.parametrize("kind", Kind)
def test_text_that_is_no_schema_is_refused(kind):
    with pytest.raises(Invalid):
        parse_definition(kind, "{")


def test_each_kind_is_compared_by_its_own_rules():
    avro = [parse_definition(Kind.AVRO, json.dumps(one)) for one in ("long", "int")]
    assert incompatibilities(*avro) == []
    assert incompatibilities(*reversed(avro)) == ["/: the reader has int, which does not read long"]
    schemas = [parse_definition(Kind.JSON, json.dumps({"type": one})) for one in ("number", "integer")]
    assert incompatibilities(*schemas) == []
    assert incompatibilities(*reversed(schemas)) == [
        "/type: the writer's schema allows number, and the reader's does not"
    ]
    files = [parse_definition(Kind.PROTOBUF, f"message M {{ optional {one} a = 1; }}") for one in ("int64", "int32")]
    assert incompatibilities(*files) == []
    assert incompatibilities(*reversed(files)) == ["M.a, field 1: the reader has int32, and the writer int64"]
    assert incompatibilities(avro[0], schemas[0]) == ["the reader's schema is of the kind AVRO, and the writer's JSON"]
