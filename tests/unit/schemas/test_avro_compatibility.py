"""Whether data of one Avro schema are read with another: rule by rule, and as the package avro answers."""

import json

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker
from hypothesis import given, settings

from sarit.schemas.avro_compatibility import incompatibilities
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_types import PRIMITIVES
from sarit.schemas.limits import MAX_INCOMPATIBILITIES
from tests.limits import examples
from tests.unit.schemas.avro_drawings import pairs


def found(reader, writer):
    return incompatibilities(parse_avro(json.dumps(reader)), parse_avro(json.dumps(writer)))


def package_finds_compatible(reader, writer):
    parsed = [avro.schema.parse(json.dumps(one)) for one in (reader, writer)]
    return ReaderWriterCompatibilityChecker().get_compatibility(*parsed).compatibility.value == "compatible"


def record(name, *fields, **more):
    """Return a record of fields: (name, type) or (name, type, attributes)."""
    given = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": given, **more}


def fixed(name, size=4, **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def decimal(precision, scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


def test_primitive_types_are_read_as_themselves_and_as_what_they_are_promoted_to():
    for writer in PRIMITIVES:
        for reader in PRIMITIVES:
            allowed = reader == writer or (writer, reader) in PROMOTED
            assert (found(reader, writer) == []) == allowed, (reader, writer)


LIST = record("L", ("value", "int"), ("next", ["null", "L"]))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (["int", "string"], "bytes"),
        ("long", ["int", "long"]),
        (["null", "double"], ["float", "null"]),
        ([], []),
        (enum("A", "B"), enum("A")),
        (enum("A", default="A"), enum("A", "B")),
        (record("a.R"), record("b.R")),
        (record("a.R", aliases=["Q"]), record("a.Q")),
        ([record("a.P"), record("a.R", aliases=["b.Q"])], record("b.Q")),
        (fixed("a.F"), fixed("F")),
        (record("R", ("x", "int", {"default": 1})), record("R")),
        (record("R"), record("R", ("x", "int"))),
        (record("R", ("x", "long", {"aliases": ["old"]})), record("R", ("old", "int"))),
        # The field of the same name is read, and not the one of the alias.
        (record("R", ("x", "int", {"aliases": ["old"]})), record("R", ("old", "string"), ("x", "int"))),
        (LIST, LIST),
        (record("L", ("value", "long"), ("next", ["null", "L"])), LIST),
        # A union reads what any branch reads, not only the first of the name.
        ([record("a.R", ("x", "int")), record("b.R", ("y", "int"))], record("c.R", ("y", "int"))),
        (decimal(4, 2), decimal(4, 2)),
        (decimal(4, 2), "bytes"),
        # No decimal, for its scale is larger than its precision: bytes.
        (decimal(4, 2), decimal(2, 4)),
        (fixed("F", 1, logicalType="decimal", precision=3), fixed("F", 1, logicalType="decimal", precision=2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}),
    ],
)
def test_readable(reader, writer):
    assert found(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "reasons"),
    [
        ("int", "long", ["/: the reader has int, which does not read long"]),
        ("int", ["int", "null"], ["/: the reader has int, which does not read null"]),
        (["null"], ["null", "int"], ["/: the union of the reader has no branch that reads int"]),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            ["/items: the reader has int, which does not read string"],
        ),
        (
            {"type": "map", "values": {"type": "map", "values": "int"}},
            {"type": "map", "values": {"type": "map", "values": "null"}},
            ["/values/values: the reader has int, which does not read null"],
        ),
        (enum("A"), enum("A", "B", "C"), ["/symbols: the reader's enum has neither B, C nor a default"]),
        (
            record("a.R"),
            record("b.Q"),
            ["/name: the reader has the name a.R, and the writer b.Q: give the reader's an alias"],
        ),
        # An alias without dots is in the namespace of the type.
        (
            record("a.R", aliases=["Q"]),
            record("b.Q"),
            ["/name: the reader has the name a.R, and the writer b.Q: give the reader's an alias"],
        ),
        (fixed("F", 4), fixed("F", 5), ["/size: the reader has 4 bytes, and the writer 5"]),
        (fixed("F"), "bytes", ["/: the reader has fixed F, which does not read bytes"]),
        (
            record("R", ("x", "int"), ("y", "int")),
            record("R", ("x", "null")),
            [
                "/fields/1: the writer has no field y, and the reader has no default for it",
                "/fields/0/type: the reader has int, which does not read null",
            ],
        ),
        # The default of an enum is one for symbols, and none for the field.
        (
            record("R", ("x", enum("A", default="A"))),
            record("R"),
            ["/fields/0: the writer has no field x, and the reader has no default for it"],
        ),
        (
            record("L", ("value", "int"), ("next", ["null", "L"])),
            record("L", ("value", "string"), ("next", ["null", "L"])),
            ["/fields/0/type: the reader has int, which does not read string"],
        ),
        (
            ["null", record("R", ("x", "int"))],
            record("R", ("x", "string")),
            [
                "/: no branch of the reader's union reads record R",
                "/1/fields/0/type: the reader has int, which does not read string",
            ],
        ),
        (
            decimal(5, 2),
            decimal(4, 2),
            [
                "/: the reader has decimals of 5 digits with 2 of a fraction, and the writer of 4 digits with 2 of a "
                "fraction",
            ],
        ),
    ],
)
def test_unreadable_with_a_path_and_a_sentence(reader, writer, reasons):
    assert found(reader, writer) == reasons


def test_sentences_are_bounded_in_number_and_length():
    names = [f"x{number}" + "y" * 1000 for number in range(MAX_INCOMPATIBILITIES + 50)]
    reasons = found(record("R", *((name, "int") for name in names)), record("R"))
    assert len(reasons) == MAX_INCOMPATIBILITIES
    assert max(map(len, reasons)) < 300
    chain = {f"R{n}": json.dumps(record(f"R{n}", ("x", f"R{n - 1}"))) for n in range(1, 200)}
    first, other = (json.dumps(record("R0", ("x", kind))) for kind in ("int", "null"))
    (only,) = incompatibilities(
        parse_avro('"R199"', chain | {"R0": first}), parse_avro('"R199"', chain | {"R0": other})
    )
    assert only.endswith("/fields/0/type/fields/0/type: the reader has int, which does not read null")
    assert len(only) < 500


@settings(max_examples=examples(2000))
@given(pairs())
def test_drawn_pairs_are_compatible_as_the_package_avro_says(pair):
    """The differences that are meant have tests of their own below: the drawn schemas do not lead to them."""
    reader, writer = pair
    assert (found(reader, writer) == []) == package_finds_compatible(reader, writer)


def test_decimals_are_compared_where_the_package_avro_leaves_them_out():
    assert found(decimal(4, 2), decimal(4, 1))
    assert package_finds_compatible(decimal(4, 2), decimal(4, 1))


def test_alias_has_its_namespace_where_the_package_avro_takes_it_as_written():
    reader, writer = record("n.R", aliases=["Q"]), record("n.Q")
    assert found(reader, writer) == []
    assert not package_finds_compatible(reader, writer)


def test_what_was_assumed_of_a_type_within_itself_is_forgotten_where_the_package_avro_keeps_it():
    """The first branch reads x if it reads the whole, which it does not; the package has noted that x is read."""
    inner = record("n.B", ("back", "n.A"))
    reader = [record("n.A", ("x", inner), ("y", "string")), record("m.A", ("x", "n.B"), ("y", "int"))]
    writer = record("k.A", ("x", record("k.B", ("back", "k.A"))), ("y", "int"))
    assert found(reader, writer)
    assert package_finds_compatible(reader, writer)
