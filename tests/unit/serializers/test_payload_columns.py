"""Payloads of events as columns: left as they are, as JSON, by the schemas of a registry."""

from __future__ import annotations

import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest

from sarit.core.errors import Invalid, NotFound
from sarit.serializers.headers import confluent_header
from sarit.serializers.payload_columns import binary_columns, json_columns, registered_columns
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
