"""Payloads of events as columns: left as they are, as JSON, by the schemas of a registry."""

from __future__ import annotations

import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid, NotFound
from sarit.serializers.headers import confluent_header
from sarit.serializers.payload_columns import binary_columns, json_columns, registered_columns
from tests.limits import examples
from tests.unit.serializers.memory_schemas import MemorySchemas

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"], "default": None},
]}  # fmt: skip


def datum(row, schema):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


def read(columns, payloads, kind=None):
    rows = columns.read(pa.array(payloads, kind or pa.binary()))
    assert [one.type for one in rows.columns] == columns.schema.types
    return [one.to_pylist() for one in rows.columns], rows.bad.tolist()


@pytest.fixture
def source():
    made = MemorySchemas()
    for schema in (V1, V2):
        made.add("s.t", json.dumps(schema))
    return made


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_payloads_that_are_left_as_they_are_are_one_column(kind):
    columns = pickle.loads(pickle.dumps(binary_columns()))
    assert columns.schema == pa.schema([("value", pa.binary())])
    assert read(columns, [b"a", None, b"\xff"], kind) == ([[b"a", None, b"\xff"]], [False, True, False])
    assert read(columns, [], kind) == ([[]], [])


def test_json_documents_have_the_columns_that_are_given():
    columns = json_columns(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), "Europe/Berlin")
    (ids, times), bad = read(columns, [b'{"id": 1, "at": "2026-01-01T12:00:00"}', b"{", None, b'{"id": "x"}'])
    assert (ids, bad) == ([1, None, None, None], [False, True, True, True])
    assert times[0].isoformat() == "2026-01-01T11:00:00+00:00"
    assert "JSON" in columns.problem(b"{")
    with pytest.raises(Invalid, match="column a uint8"):
        json_columns(pa.schema([("a", pa.uint8())]))


def test_payloads_of_all_versions_have_the_columns_of_the_latest(source):
    columns = pickle.loads(pickle.dumps(registered_columns(source, "s.t", "confluent")))
    assert columns.schema.names == ["id", "city"]
    payloads = [confluent_header(1) + datum({"id": 1}, V1), confluent_header(2) + datum({"id": 2, "city": "x"}, V2)]
    assert read(columns, [*payloads, b"", confluent_header(3)]) == (
        [[1, 2, None, None], [None, "x", None, None]],
        [False, False, True, True],
    )
    assert columns.problem(confluent_header(3)) == "schema 3: there is no schema 3"


def test_some_columns_of_a_version(source):
    columns = registered_columns(source, "s.t", "none", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert read(columns, [datum({"id": 5, "city": "x"}, V2)]) == ([[5]], [False])
    columns = registered_columns(source, "s.t", "none", version=1)
    assert read(columns, [datum({"id": 5}, V1), b""]) == ([[5, None]], [False, True])
    with pytest.raises(Invalid, match="ids"):
        registered_columns(source, "s.t", "confluent", pa.schema([("ids", pa.int64())]))
    with pytest.raises(NotFound):
        registered_columns(source, "none", "confluent")
    number = source.add("opaque", "eA==", "OPAQUE")
    with pytest.raises(Invalid, match="OPAQUE, whose data have no columns"):
        registered_columns(source, "opaque", "confluent")
    assert (
        registered_columns(source, "s.t", "confluent")
        .problem(confluent_header(number))
        .endswith("it is OPAQUE, and AVRO is read")
    )


PROTO = """
syntax = "proto3";
message Order { int32 id = 1; repeated string tags = 2; map<string, Inner> m = 3; }
message Inner { double x = 1; }
"""
SHAPES = pa.schema([
    ("id", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.float64())),
    ("o", pa.struct([("x", pa.string()), ("at", pa.timestamp("us", "UTC"))])), ("d", pa.decimal128(5, 2)),
])  # fmt: skip


def hostile_columns():
    source = MemorySchemas()
    for subject in ("a.b", "none"):
        for schema in (V1, V2):
            source.add(subject, json.dumps(schema))
    source.add("p", PROTO, "PROTOBUF")
    return [
        binary_columns(), json_columns(SHAPES), json_columns(pa.schema([("s", pa.string()), ("id", pa.int64())])),
        registered_columns(source, "a.b", "confluent"), registered_columns(source, "a.b", "pravega"),
        registered_columns(source, "none", "none", version=2), registered_columns(source, "p", "confluent"),
        registered_columns(source, "p", "none"),
    ]  # fmt: skip


HOSTILE = hostile_columns()
PIECES = st.sampled_from([
    b"\0\0\0\0\1", b"\0\0\0\0\2", b"\0\0\0\0\5", b"\1\0\0\0\1", b"\0", b"\2", b"\xff" * 9, b'{"id":', b'"s":',
    b'"o":{"x":', b"[" * 400, b'{"x":' * 600, b"1" * 5000, b"1e999", b"NaN", b'"\\ud800"', b"}", b"]", b",", b"\n",
    b"\x08\x01", b"\x12\xff",
])  # fmt: skip
PAYLOADS = st.none() | st.binary(max_size=40) | st.lists(PIECES, max_size=9).map(b"".join)


@given(st.lists(PAYLOADS, max_size=5))
@settings(max_examples=examples(300))
def test_no_payload_makes_a_read_raise(payloads):
    for columns in HOSTILE:
        found, bad = read(columns, payloads)
        assert all(len(one) == len(payloads) for one in found)
        for payload, wrong in zip(payloads, bad, strict=True):
            assert wrong or payload is not None
            if payload is not None:
                assert columns.problem(payload).endswith("nothing is wrong with it") != wrong


def test_documents_of_many_levels_are_bad_and_others_are_not():
    columns = json_columns(pa.schema([("s", pa.string()), ("id", pa.int64())]))
    for levels in (500, 900, 100_000):
        for begin, end in ((b"[", b"]"), (b'{"x":', b"}")):
            deep = begin * levels + b"1" + end * levels
            payloads = [b'{"s":' + deep + b"}", b"[" + deep + b"]", b'{"id":1}']
            assert read(columns, payloads) == ([[None] * 3, [None, None, 1]], [True, True, False])
            assert "levels" in columns.problem(payloads[0])
    many = b'{"s":[' + b"{}," * 1_000_000 + b"1]}"
    assert read(columns, [many])[1] == [True]
    assert "1,000,000 values" in columns.problem(many)
