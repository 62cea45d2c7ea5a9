"""Data of one schema read with another: columns by Avro's schema resolution, beside the reference package."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal

import avro.io
import avro.schema
import fastavro
import pyarrow as pa
import pytest

from sarit.core.errors import Invalid
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns

UTC = datetime.UTC
NOON = datetime.datetime(2026, 7, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


def datum(row, schema):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


def read(reader, writer, *rows, wanted=None):
    columns = avro_columns(reader)
    columns = pa.schema([one for one in columns if wanted is None or one.name in wanted])
    found = AvroReader(columns, reader, writer).read(pa.array([datum(row, writer) for row in rows], pa.binary()))
    assert not found.bad.any()
    lists = [column.to_pylist() for column in found.columns]
    return [dict(zip(columns.names, values, strict=True)) for values in zip(*lists, strict=True)]


def reference(reader, writer, row):
    """What the reference package reads, without logical types."""
    decoder = avro.io.BinaryDecoder(io.BytesIO(datum(row, writer)))
    schemas = [avro.schema.parse(json.dumps(one)) for one in (writer, reader)]
    return avro.io.DatumReader(*schemas).read(decoder)


INNER = record(field("x", "int"), field("y", "string", default="why"), name="Inner")
PAIRS = [
    (record(field("a", "long"), field("b", "string", default="new")), record(field("a", "int")), {"a": 7}),
    (record(field("a", "double")), record(field("a", "int")), {"a": 7}),
    (record(field("a", "float")), record(field("a", "long")), {"a": 7}),
    (record(field("b", "int")), record(field("a", "string"), field("b", "int"), field("c", "bytes")),
     {"a": "x", "b": 1, "c": b"y"}),
    (record(field("b", "int"), field("a", "string")), record(field("a", "string"), field("b", "int")),
     {"a": "x", "b": 1}),
    (record(field("a", ["null", "long"], default=None)), record(field("a", "int")), {"a": 7}),
    (record(field("i", INNER)), record(field("i", record(field("x", "int"), name="Inner"))), {"i": {"x": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "row"), PAIRS)
def test_data_are_read_as_the_reference_package_reads_them(reader, writer, row):
    assert read(reader, writer, row) == [reference(reader, writer, row)]


def test_fields_and_records_are_found_by_alias():
    writer = record(field("old", "int"), name="Before")
    reader = record(field("new", "long", aliases=["old"]), name="After", aliases=["Before"])
    assert read(reader, writer, {"old": 5}) == [{"new": 5}]


def test_promotions_that_the_reference_package_refuses():
    writer, reader = record(field("a", ["null", "int"])), record(field("a", "long"))
    assert read(reader, writer, {"a": 7}) == [{"a": 7}]
    writer, reader = (record(field("l", {"type": "array", "items": one})) for one in ("int", "double"))
    assert read(reader, writer, {"l": [1, 2]}) == [{"l": [1.0, 2.0]}]


def test_symbol_that_the_reader_lacks_is_its_default():
    writer = record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    reader = record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"}))
    assert read(reader, writer, {"e": "A"}, {"e": "B"}) == [{"e": "A"}, {"e": "Z"}]


def test_bytes_and_strings_are_read_as_each_other():
    assert read(record(field("a", "bytes")), record(field("a", "string")), {"a": "ü"}) == [{"a": "ü".encode()}]
    assert read(record(field("a", "string")), record(field("a", "bytes")), {"a": b"x"}) == [{"a": "x"}]


def test_defaults_of_every_type_fill_columns():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fixed = {"type": "fixed", "name": "F", "size": 2}
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    outer = record(
        field("x", "int"), field("y", ["null", "string"], default=None), field("z", "long", default=9), name="O"
    )
    reader = record(
        field("a", "int"), field("raw", "bytes", default="\u00ff\u0000"), field("f", fixed, default="\u00fe1"),
        field("d", decimal, default="\u00ff\u0038"), field("t", millis, default=1_782_907_200_250),
        field("m", {"type": "map", "values": "int"}, default={"k": 1}), field("o", outer, default={"x": 1}),
    )  # fmt: skip
    (found,) = read(reader, record(field("a", "int")), {"a": 1})
    assert found == {
        "a": 1, "raw": b"\xff\x00", "f": b"\xfe1", "d": Decimal("-2.00"), "t": NOON, "m": [("k", 1)],
        "o": {"x": 1, "y": None, "z": 9},
    }  # fmt: skip


@pytest.mark.parametrize("ours", ["timestamp-millis", "timestamp-micros"])
@pytest.mark.parametrize("theirs", ["timestamp-millis", "timestamp-micros"])
def test_time_is_the_one_that_the_writer_meant(ours, theirs):
    def schema(unit, wrap):
        return record(field("t", wrap({"type": "long", "logicalType": unit})), field("n", "int"))

    for wrap in (
        lambda kind: kind, lambda kind: ["null", kind], lambda kind: {"type": "array", "items": ["null", kind]},
        lambda kind: {"type": "map", "values": kind}, lambda kind: record(field("u", kind), name="In"),
    ):  # fmt: skip
        example = wrap("x")
        kind = example["type"] if isinstance(example, dict) else ""
        value = {"array": [NOON], "map": {"k": NOON}, "record": {"u": NOON}}.get(kind, NOON)
        (found,) = read(schema(ours, wrap), schema(theirs, wrap), {"t": value, "n": 1})
        assert found["t"] == ([("k", NOON)] if kind == "map" else value)
    nanos = record(field("t", {"type": "long", "logicalType": "timestamp-nanos"}))
    with pytest.raises(Invalid, match="timestamp-nanos, which is not read as a"):
        read(record(field("t", {"type": "long", "logicalType": ours})), nanos, {"t": 1})


def test_only_wanted_fields_are_resolved():
    writer = record(field("a", "int"), field("next", ["null", "R"]), field("gone", "string"))
    reader = record(field("a", "long"), field("lacking", "string"))
    assert read(reader, writer, {"a": 1, "next": {"a": 2, "next": None, "gone": "y"}, "gone": "x"}, wanted=["a"]) == [
        {"a": 1}
    ]


def test_row_that_the_reader_cannot_have_is_bad_and_the_others_are_not():
    writer = record(field("a", ["int", "string"]))
    reader = record(field("a", "long"))
    found = AvroReader(avro_columns(reader), reader, writer)
    rows = found.read(pa.array([datum({"a": one}, writer) for one in (1, "x", 3)], pa.binary()))
    assert rows.bad.tolist() == [False, True, False]
    assert rows.columns[0].to_pylist() == [1, None, 3]
    assert "no datum of the Avro schema" in found.problem(datum({"a": "x"}, writer))


def test_schema_whose_names_multiply_is_refused_before_it_fills_memory():
    kinds = record(field("x", "int"), name="L0")
    for level in range(1, 30):
        inner = [field("a", kinds), field("b", f"L{level - 1}")]
        kinds = record(*inner, name=f"L{level}")
    with pytest.raises(Invalid, match="more than 10,000 fields"):
        avro_columns(kinds)
