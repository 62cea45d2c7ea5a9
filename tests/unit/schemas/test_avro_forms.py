"""Texts of Avro schemas: the canonical form of the specification by public vectors, and what a registry keeps."""

import json

import pytest
from fastavro.schema import fingerprint as package_fingerprint
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given

from sarit.core.errors import Invalid
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import canonical_form, fingerprint, normal_text
from tests.unit.schemas.avro_drawings import PRIMITIVES, schemas

# What Apache Avro's languages all test: share/test/data/schema-tests.txt of its repository.
VECTORS = [
    *((f'{{"type":"{name}"}}', f'"{name}"') for name in PRIMITIVES),
    *((f'"{name}"', f'"{name}"') for name in PRIMITIVES),
    ("[  ]", "[]"),
    ('[ "int"  ]', '["int"]'),
    ('[ "int" , {"type":"boolean"} ]', '["int","boolean"]'),
    ('{"fields":[], "type":"record", "name":"foo"}', '{"name":"foo","type":"record","fields":[]}'),
    (
        '{"fields":[], "type":"record", "name":"foo", "namespace":"x.y"}',
        '{"name":"x.y.foo","type":"record","fields":[]}',
    ),
    (
        '{"fields":[], "type":"record", "name":"a.b.foo", "namespace":"x.y"}',
        '{"name":"a.b.foo","type":"record","fields":[]}',
    ),
    (
        '{"fields":[], "type":"record", "name":"foo", "doc":"foo", "aliases":["foo","bar"]}',
        '{"name":"foo","type":"record","fields":[]}',
    ),
    (
        '{"fields":[{"type":{"type":"boolean"}, "name":"f1"}], "type":"record", "name":"foo"}',
        '{"name":"foo","type":"record","fields":[{"name":"f1","type":"boolean"}]}',
    ),
    # The vector has the default "true", which is no boolean: it is refused here.
    (
        """{ "fields":[{"type":"boolean", "aliases":[], "name":"f1", "default":true},
            {"order":"descending","name":"f2","doc":"Hello","type":"int"}],
            "type":"record", "name":"foo" }""",
        '{"name":"foo","type":"record","fields":[{"name":"f1","type":"boolean"},{"name":"f2","type":"int"}]}',
    ),
    ('{"type":"enum", "name":"foo", "symbols":["A1"]}', '{"name":"foo","type":"enum","symbols":["A1"]}'),
    (
        '{"namespace":"x.y.z", "type":"enum", "name":"foo", "doc":"foo bar", "symbols":["A1", "A2"]}',
        '{"name":"x.y.z.foo","type":"enum","symbols":["A1","A2"]}',
    ),
    ('{"name":"foo","type":"fixed","size":15}', '{"name":"foo","type":"fixed","size":15}'),
    (
        '{"namespace":"x.y.z", "type":"fixed", "name":"foo", "doc":"foo bar", "size":32}',
        '{"name":"x.y.z.foo","type":"fixed","size":32}',
    ),
    ('{ "items":{"type":"null"}, "type":"array"}', '{"type":"array","items":"null"}'),
    ('{ "values":"string", "type":"map"}', '{"type":"map","values":"string"}'),
    (
        """{"name":"PigValue","type":"record",
            "fields":[{"name":"value", "type":["null", "int", "long", "PigValue"]}]}""",
        '{"name":"PigValue","type":"record","fields":[{"name":"value","type":["null","int","long","PigValue"]}]}',
    ),
]


@pytest.mark.parametrize(("text", "canonical"), VECTORS)
def test_canonical_form_is_that_of_the_vectors(text, canonical):
    assert canonical_form(parse_avro(text)) == canonical


def test_fingerprint_is_that_of_the_vectors():
    # Of Apache Avro's tests for Ruby, where the numbers are decimal.
    found = int.from_bytes(fingerprint(parse_avro('{"type": "int"}')))
    assert found == 28572620203319713300323544804233350633246234624932075150020181448463213378117


@given(schemas(logical=True))
def test_canonical_form_and_fingerprint_are_those_of_fastavro(schema):
    """The package avro defines a type in a union twice, and then refuses what it has printed."""
    ours = parse_avro(json.dumps(schema))
    theirs = to_parsing_canonical_form(schema)
    assert canonical_form(ours) == theirs
    assert fingerprint(ours).hex() == package_fingerprint(theirs, "SHA-256")


def test_normal_text_keeps_what_has_a_meaning_and_nothing_else():
    given = """{ "fields": [ {"default": null, "name": "x", "aliases": ["y"], "doc": "A \\u00e9.",
        "type": ["null", {"logicalType": "date", "type": "int"}]}, {"name": "z", "type": {"type": "R"}} ],
        "type": "record", "namespace": "a.b", "name": "R", "aliases": ["Q", "c.Q"], "pegasus": {"b": 1, "a": 2.0} }"""
    assert normal_text(parse_avro(given)) == (
        '{"name":"a.b.R","type":"record","aliases":["a.b.Q","c.Q"],"fields":[{"name":"x","type":["null",'
        '{"type":"int","logicalType":"date"}],"aliases":["y"],"default":null,"doc":"A \\u00e9."},'
        '{"name":"z","type":"a.b.R"}],"pegasus":{"a":2.0,"b":1}}'
    )


def test_type_outside_of_all_namespaces_stays_there():
    given = """{"type": "record", "name": "a.R", "fields": [
        {"name": "x", "type": {"type": "fixed", "name": "F", "namespace": "", "size": 2}},
        {"name": "y", "type": "F"}]}"""
    text = normal_text(parse_avro(given))
    assert '"name":"F","namespace":""' in text
    assert normal_text(parse_avro(text)) == text
    assert parse_avro(text).root.children[0].name == "F"


def test_default_that_a_vector_has_wrong_is_refused():
    text = '{"type":"record","name":"foo","fields":[{"type":"boolean","name":"f1","default":"true"}]}'
    with pytest.raises(Invalid, match="the default true is no boolean"):
        parse_avro(text)
