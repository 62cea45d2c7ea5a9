"""Avro schemas from outside: what is refused, by one kind of error and in bounded time, and what is not."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.avro_compatibility import incompatibilities
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import canonical_form, normal_text, whole_text
from sarit.schemas.limits import MAX_SCHEMA_BYTES, MAX_SCHEMA_LEVELS, MAX_SCHEMA_NAMES, MAX_SCHEMA_REFERENCES
from tests.limits import patient
from tests.unit.schemas.avro_drawings import schemas


def record(name, *fields, **more):
    given = [{"name": f"f{index}", "type": one} for index, one in enumerate(fields)]
    return {"type": "record", "name": name, "fields": given, **more}


def enum(**more):
    return {"type": "enum", "name": "E", "symbols": ["A", "B"], **more}


def defaulted(kind, default):
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, "default": default}]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (7, "/: 7 is no type"),
        (None, "null is no type"),
        ({}, "has an attribute `type`"),
        ("strin", "no type has the name strin"),
        ("a..b", "a..b is no name of a type"),
        ({"type": "array"}, "array has no attribute `items`"),
        ({"type": "map", "items": "int"}, "map has no attribute `values`"),
        ({"type": {"type": "int"}, "logicalType": "date"}, "has no attributes beside `type`"),
        (["int", "int"], "a union has int twice"),
        (["int", ["null"]], "a union stands directly in a union"),
        ([record("a.R"), "a.R"], "a union has a.R twice"),
        ([record("a.R"), record("R", namespace="a")], "a.R is defined twice"),
        (record("R", "S", record("S")), "/fields/0/type: S is used before it is defined"),
        ({"type": "record", "name": "R"}, "a record has an array `fields`"),
        ({"type": "record", "name": "R", "fields": [{"name": "x"}]}, "/fields/0: a field is an object with `name` and"),
        ({"type": "record", "name": "R", "fields": [{"name": "1", "type": "int"}]}, "no array of names"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}] * 2}, "the field x twice"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "order": "up"}]}, "order of a field"),
        ({"type": "record", "fields": []}, "null is no name"),
        (record("a-b"), "a-b is no name"),
        (record("a.int"), "no type has the name of a primitive type"),
        (record("R", namespace=["a"]), "is no namespace"),
        (record("R", aliases="S"), "is no array of names"),
        ({"type": "fixed", "name": "F", "size": True}, "the size of a fixed type is 0 to"),
        ({"type": "fixed", "name": "F", "size": 1 << 31}, "the size of a fixed type is 0 to"),
        ({"type": "enum", "name": "E"}, "is no array of names"),
        (enum(symbols=["A", "A"]), "one of its symbols twice"),
        (enum(default="C"), "the default C is no symbol"),
        (enum(default=["A"]), "is no symbol"),
        (defaulted("int", 1 << 31), "/fields/0: the default 2147483648 is no int"),
        (defaulted("boolean", 1), "is no boolean"),
        (defaulted("int", True), "is no int"),
        (defaulted("float", "1"), "is no float"),
        (defaulted("bytes", "\u0100"), "is no bytes"),
        (defaulted({"type": "fixed", "name": "F", "size": 2}, "a"), "is no F"),
        (defaulted(enum(), "C"), "is no E"),
        (defaulted({"type": "array", "items": "int"}, [1, "2"]), "is no array"),
        (defaulted({"type": "map", "values": "int"}, {"a": None}), "is no map"),
        (defaulted(record("S", "int"), {}), "is no S"),
        (defaulted(["null", "int"], "a"), "is no union"),
    ],
)
def test_what_is_no_schema_is_refused_where_it_is_wrong(schema, why):
    with pytest.raises(Invalid) as raised:
        parse_avro(json.dumps(schema))
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no JSON"),
        ('{"type":"int","type":"string"}', "an object has one of its keys twice"),
        ('{"type":"int","x":NaN}', "NaN is no number"),
        ('{"type":"int","x":1e999}', "is beyond a double"),
        ('{"type":"int","x":' + "1" * 5000 + "}", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"type":"array","items":' * 900 + '"int"' + "}" * 900, "levels of arrays and objects"),
        (
            '{"type":' * (MAX_SCHEMA_LEVELS + 1) + '"int"' + "}" * (MAX_SCHEMA_LEVELS + 1),
            "levels of arrays and objects",
        ),
        (json.dumps("x" * MAX_SCHEMA_BYTES), "at most 1,048,576 bytes"),
        (json.dumps("é" * (MAX_SCHEMA_BYTES // 2), ensure_ascii=False), "at most 1,048,576 bytes"),
        ('"\\ud800"', "is no name"),
    ],
)
def test_bad_text_is_refused_in_a_short_error(text, why):
    with pytest.raises(Invalid) as raised:
        parse_avro(text)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isascii()


def test_as_many_levels_as_allowed_are_read_and_printed():
    levels = MAX_SCHEMA_LEVELS
    text = '{"type":"array","items":' * levels + '"int"' + "}" * levels
    found = parse_avro(text)
    assert json.loads(normal_text(found)) == json.loads(text)
    assert incompatibilities(found, found) == []


def test_defaults_are_those_of_any_branch_of_a_union():
    for kind, default in (
        (["int", "null"], None), ("double", 1), ("long", -(1 << 63)), ("bytes", "\u00ff"),
        (record("S", "int"), {"f0": 1}),
        (defaulted("int", 1) | {"name": "S"}, {}), ({"type": "map", "values": ["null", "int"]}, {"a": None, "b": 1}),
    ):  # fmt: skip
        parse_avro(json.dumps(defaulted(kind, default)))


def test_name_without_dots_is_one_of_its_namespace_then_one_outside():
    both = [record("X"), record("n.X"), record("n.R", "X")]
    assert '"type":"n.X"' in normal_text(parse_avro(json.dumps(both)))
    alone = [record("X"), record("n.R", "X")]
    assert '"type":"X"' in normal_text(parse_avro(json.dumps(alone)))


def test_references_are_used_in_any_order():
    given = {"b.B": json.dumps(record("b.B", "c.C")), "c.C": json.dumps(record("c.C", "int"))}
    text = json.dumps(record("a.A", "b.B", "c.C"))
    found = parse_avro(text, given)
    assert json.loads(normal_text(found)) == {
        "type": "record", "name": "a.A", "fields": [{"name": "f0", "type": "b.B"}, {"name": "f1", "type": "c.C"}],
    }  # fmt: skip
    whole = parse_avro(whole_text(found))
    assert canonical_form(whole) == canonical_form(found)
    assert incompatibilities(whole, found) == incompatibilities(found, whole) == []
    assert parse_avro('"b.B"', given).root.name == "b.B"


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ('"a.A"', {"a.A": record("a.A", "b.B"), "b.B": record("b.B", "a.A")}, "refer to each other in a circle"),
        ('"a.A"', {"a.A": record("a.A", "x.X")}, "no type has the name x.X"),
        (json.dumps(record("x.X", "int")), {"a.A": record("a.A", "x.X")}, "no type has the name x.X"),
        ('"int"', {"a.A": record("b.B")}, "no reference defines a.A"),
        ('"int"', {"a.A": record("a.A"), "a.B": [record("a.A")]}, "a.A is defined twice"),
        ('"a.A"', {"a.A": record("a.A", ["b.B", record("a.C"), "b.B"]), "b.B": record("b.B")}, "a union has b.B twice"),
        ('"int"', {f"a.A{n}": record(f"a.A{n}") for n in range(MAX_SCHEMA_REFERENCES + 1)}, "at most 200 references"),
    ],
)
def test_references_that_do_not_fit_are_refused(text, references, why):
    with pytest.raises(Invalid, match=why):
        parse_avro(text, {name: json.dumps(one) for name, one in references.items()})


@pytest.mark.timeout(60)
def test_named_types_in_a_long_chain_need_no_stack():
    chain = [record("R0", "int")] + [record(f"R{n}", f"R{n - 1}") for n in range(1, 5000)]
    found = parse_avro(json.dumps(chain))
    other = parse_avro(json.dumps([record("R0", "string"), *chain[1:]]))
    assert incompatibilities(found, found) == []
    assert incompatibilities(found, other)
    references = {f"R{n}": json.dumps(record(f"R{n}", f"R{n + 1}")) for n in range(MAX_SCHEMA_REFERENCES - 1)}
    references[f"R{MAX_SCHEMA_REFERENCES - 1}"] = '{"type":"fixed","name":"R199","size":1}'
    assert whole_text(parse_avro('"R0"', references)).count('"name"') == 2 * MAX_SCHEMA_REFERENCES - 1
    deep = {f"R{n}": json.dumps(record(f"R{n}", _nested(f"R{n + 1}"))) for n in range(50)}
    deep["R50"] = '{"type":"fixed","name":"R50","size":1}'
    assert canonical_form(parse_avro('"R0"', deep)).count("items") == 50 * 100


def _nested(name):
    made = name
    for _ in range(100):
        made = {"type": "array", "items": made}
    return made


def test_names_are_bounded():
    with pytest.raises(Invalid, match="at most 10,000 named types"):
        parse_avro(json.dumps([record(f"R{n}") for n in range(MAX_SCHEMA_NAMES + 1)]))


def _time_of(call):
    before = time.process_time()
    with pytest.raises(Invalid, match="too (large|many)"):
        call()
    return time.process_time() - before


@pytest.mark.timeout(120)
def test_schemas_made_to_take_long_are_refused_soon():
    # Two circles of records of one short name, whose lengths have no divisor in common: a million pairs.
    circles = [parse_avro(json.dumps(_circle(size))) for size in (999, 1000)]
    assert _time_of(lambda: incompatibilities(*circles)) < patient(10)
    # One default of records in two branches of each other, as deep as allowed, wrong at its end.
    value = 1
    for _ in range(50):
        value = {"f0": value}
    union = [record("S", ["S", "null"]), record("T", ["S", "T", "null"])]
    before = time.process_time()
    with pytest.raises(Invalid, match="is no union"):
        parse_avro(json.dumps(defaulted(union, value)))
    assert time.process_time() - before < patient(1)
    # Many empty records of many fields that all have defaults.
    many = {
        "type": "record",
        "name": "M",
        "fields": [{"name": f"f{n}", "type": "int", "default": n} for n in range(9000)],
    }
    text = json.dumps(defaulted({"type": "array", "items": many}, [{}] * 50_000))
    assert _time_of(lambda: parse_avro(text)) < patient(10)


def _circle(size):
    """Return a record of records, each with a field `f` of the one before, and the first with one of the last."""
    made = record("n0.X", *(_followed(n) for n in range(1, size)))
    made["fields"].append({"name": "f", "type": f"n{size - 1}.X"})
    return made


def _followed(number):
    return {"type": "record", "name": f"n{number}.X", "fields": [{"name": "f", "type": f"n{number - 1}.X"}]}


@given(schemas(logical=True))
def test_drawn_schema_is_the_same_when_it_is_printed_and_parsed(schema):
    found = parse_avro(json.dumps(schema))
    again = parse_avro(normal_text(found))
    assert normal_text(again) == normal_text(found)
    assert canonical_form(again) == canonical_form(found)
    assert incompatibilities(again, found) == []


ATTRIBUTES = (
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases", "order",
    "logicalType", "precision", "scale",
)  # fmt: skip
WORDS = (
    "record",
    "enum",
    "fixed",
    "array",
    "map",
    "int",
    "null",
    "a",
    "b.A",
    "decimal",
    "",
    "\ud800",
    0,
    1,
    -1,
    True,
    None,
    1.5,
)
HOSTILE = st.recursive(
    st.sampled_from(WORDS) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(ATTRIBUTES), inner, max_size=6),
    max_leaves=30,
)


@given(HOSTILE, HOSTILE, st.text(max_size=20))
def test_drawn_json_is_a_schema_or_invalid(given_json, reference, text):
    for schema, references in (
        (json.dumps(given_json), {"b.A": json.dumps(reference)}),
        (json.dumps(given_json), {}),
        (text, {}),
    ):
        try:
            found = parse_avro(schema, references)
        except Invalid:
            continue
        assert incompatibilities(found, parse_avro(normal_text(found), references)) == []


def test_type_within_itself_is_shown_without_its_inside():
    assert "kind='record'" in repr(parse_avro(json.dumps(record("R", ["null", "R"]))))
