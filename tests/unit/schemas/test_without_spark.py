"""Decoders of payloads by Arrow's types, where there is no PySpark."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import subprocess
import sys
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from sarit.core.errors import Invalid
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns, parse_avro_schema
from sarit.schemas.avro_writer import AvroWriter, avro_schema_of
from sarit.schemas.column_types import TIMESTAMP, sql_name
from sarit.schemas.json_reader import JsonReader

NOON = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
COLUMNS = pa.schema([
    pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("at", TIMESTAMP), ("day", pa.date32()),
    ("paid", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.float64())),
    ("place", pa.struct([("x", pa.int32()), ("y", pa.bool_())])), ("raw", pa.binary()),
])  # fmt: skip
ROW = {
    "id": 1, "name": "ä", "at": NOON, "day": NOON.date(), "paid": Decimal("1.50"), "tags": ["a", None],
    "more": [("k", 0.5)], "place": {"x": 3, "y": None}, "raw": b"\xff",
}  # fmt: skip
JSON = (
    '{"id":1,"name":"ä","at":"2026-07-01T12:00:00Z","day":"2026-07-01","paid":1.5,"tags":["a",null],"more":{"k":0.5},'
    '"place":{"x":3},"raw":"/w=="}'
).encode()


def rows(found):
    return pa.RecordBatch.from_arrays(found.columns, schema=COLUMNS).to_pylist(), found.bad.tolist()


def test_json_and_avro_become_the_columns_that_are_asked_for():
    assert rows(JsonReader(COLUMNS).read(pa.array([JSON]))) == ([ROW], [False])
    schema = avro_schema_of(COLUMNS)
    assert avro_columns(schema) == COLUMNS
    payloads, _ = AvroWriter(COLUMNS, None).write(pa.RecordBatch.from_pylist([ROW], schema=COLUMNS), None)
    for reader in (AvroReader(COLUMNS, schema), pickle.loads(pickle.dumps(AvroReader(COLUMNS, schema)))):
        assert rows(reader.read(payloads.cast(pa.binary()))) == ([ROW], [False])
    data = io.BytesIO(payloads[0].as_py())
    assert fastavro.schemaless_reader(data, fastavro.parse_schema(schema))["place"] == {"x": 3, "y": None}


def test_types_have_their_names_in_sql_and_others_are_refused():
    assert sql_name(pa.struct(list(COLUMNS))) == (
        "struct<id:bigint,name:string,at:timestamp,day:date,paid:decimal(9,2),tags:array<string>,"
        "more:map<string,double>,place:struct<x:int,y:boolean>,raw:binary>"
    )
    for kind in (pa.uint8(), pa.large_string(), pa.timestamp("ns"), pa.time64("us"), pa.null()):
        columns = pa.schema([("a", pa.list_(pa.struct([("b", kind)])))])
        for made in (JsonReader, avro_schema_of):
            with pytest.raises(Invalid, match=r"column a\[\]\.b .*: possible are boolean, "):
                made(columns)


def test_schema_that_is_refused_is_said_in_a_bounded_text():
    with pytest.raises(Invalid, match=r"^the schema is no Avro schema: UnknownType: ttt") as refused:
        parse_avro_schema('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "%s"}]}' % ("t" * 10_000))
    assert len(str(refused.value)) < 500


def test_decoders_are_imported_without_pyspark():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import sarit.schemas.avro_writer, sarit.schemas.avro_reader, sarit.schemas.json_reader\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


UNIONS = {"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "int"},
    {"name": "u", "type": ["null", "int", "string", "bytes", {"type": "map", "values": ["double", "boolean"]}]},
    {"name": "next", "type": ["null", "R"]},
    {"name": "none", "type": "null"},
    {"name": "empty", "type": {"type": "record", "name": "E", "fields": []}},
    {"name": "d", "type": ["string", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}]},
    {"name": "values", "type": {"type": "map", "values": ["long", "string"]}},
]}  # fmt: skip
UNION_COLUMNS = "id:int,u:string,next:string,none:string,empty:string,d:string,values:map<string,string>"


def union_datum(**row):
    whole = {"id": 1, "u": None, "next": None, "none": None, "empty": {}, "d": "x", "values": {}, **row}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(UNIONS), whole)
    return data.getvalue()


def test_avro_values_without_a_single_type_are_texts_with_their_json():
    columns = avro_columns(UNIONS)
    assert ",".join(f"{one.name}:{sql_name(one.type)}" for one in columns) == UNION_COLUMNS
    assert [one.name for one in columns if not one.nullable] == ["id", "empty", "d", "values"]
    inner = {"id": 2, "u": None, "next": None, "none": None, "empty": {}, "d": "y", "values": {}}
    payloads = [
        union_datum(u=5, next=inner, values={"a": 1, "b": "x"}), union_datum(u="5"), union_datum(u=b"\xff\0"),
        union_datum(u={"k": float("nan"), "ü": True}), union_datum(d=Decimal("1.50")), union_datum() + b"x",
    ]  # fmt: skip
    reader = pickle.loads(pickle.dumps(AvroReader(columns, UNIONS)))
    found = reader.read(pa.array(payloads))
    ids, texts, nexts, nones, empties, decimals, maps = (one.to_pylist() for one in found.columns)
    assert found.bad.tolist() == [False] * 5 + [True]
    assert texts[:5] == ["5", "5", '"/wA="', '{"k":"NaN","ü":true}', None]
    assert json.loads(nexts[0]) == inner
    assert (nexts[1:], nones) == ([None] * 5, [None] * 6)
    assert (ids[:5], empties[:5], decimals[3:5]) == ([1] * 5, ["{}"] * 5, ["x", '"1.50"'])
    assert maps[0] == [("a", "1"), ("b", "x")]


def test_avro_record_within_itself_of_any_depth_is_a_row_or_malformed():
    node = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "R"]}]}
    reader = AvroReader(avro_columns(node), node)
    payloads = [b"\2" * levels + b"\0" for levels in (1, 100, 150, 300, 1_000_000)]
    found = reader.read(pa.array(payloads))
    assert found.bad.tolist() == [False, False, False, True, True]
    assert found.columns[0].to_pylist()[0] == '{"n":null}'


def test_avro_columns_that_are_documents_are_not_written():
    for name in ("u", "next", "none", "values"):
        schema = {**UNIONS, "fields": [one for one in UNIONS["fields"] if one["name"] == name]}
        with pytest.raises(Invalid, match=f"field R.{name}"):
            AvroWriter(avro_columns(schema), schema)
