"""Protobuf messages to columns: their types, values of every kind, what is damaged, and bounds."""

import datetime
import pickle
import time
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.column_types import TIMESTAMP, check_columns, sql_name
from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.protobuf_reader import ProtobufReader, protobuf_columns
from sarit.schemas.protobuf_schema import pool_of
from tests.limits import examples, patient

TEXT = """
syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M {
  int32 i = 1; sint64 l = 2; uint32 u = 3; fixed64 x = 4; double d = 5; float f = 6; bool b = 7; string s = 8;
  bytes raw = 9; Color color = 10; repeated Color colors = 11; Inner inner = 12; map<string, Inner> named = 13;
  map<int32, bool> flags = 14; google.protobuf.Timestamp at = 15; repeated google.protobuf.Timestamp times = 16;
  google.protobuf.Int64Value wrapped = 17; optional int32 maybe = 18; oneof choice { string one = 19; int32 two = 20; }
  message Inner { int32 a = 1; repeated string names = 2; }
  int32 HasField = 21;
}
enum Color { RED = 0; BLUE = 7; }
"""
SQL = {
    "i": "int", "l": "bigint", "u": "bigint", "x": "decimal(20,0)", "d": "double", "f": "float", "b": "boolean",
    "s": "string", "raw": "binary", "color": "string", "colors": "array<string>",
    "inner": "struct<a:int,names:array<string>>", "named": "map<string,struct<a:int,names:array<string>>>",
    "flags": "map<int,boolean>", "at": "timestamp", "times": "array<timestamp>", "wrapped": "struct<value:bigint>",
    "maybe": "int", "one": "string", "two": "int", "HasField": "int",
}  # fmt: skip


def made(schema, name, **values):
    return message_factory.GetMessageClass(pool_of(schema).FindMessageTypeByName(name))(**values)


def read(schema, name, payloads, columns=None):
    known = protobuf_columns(schema, name)
    reader = ProtobufReader(pa.schema([known.field(one) for one in columns]) if columns else known, schema, name)
    return reader.read(pa.array(payloads, pa.binary()))


def rows_of(found, columns):
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*(one.to_pylist() for one in found.columns), strict=True)
    ]


def test_columns_have_the_types_of_fields():
    columns = protobuf_columns(parse_protobuf(TEXT), "p.M")
    assert {field.name: sql_name(field.type) for field in columns} == SQL
    check_columns(columns)
    assert columns.field("at").type == TIMESTAMP


def test_values_of_every_kind_are_read():
    schema = parse_protobuf(TEXT)
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
    values = {
        "i": -5, "l": -(1 << 63), "u": (1 << 32) - 1, "x": (1 << 64) - 1, "d": 0.5, "f": 1.5, "b": True, "s": "é",
        "raw": b"\xff", "color": "BLUE", "colors": ["RED", "BLUE"], "inner": {"a": 1, "names": ["x"]}, "maybe": 0,
        "flags": {1: True}, "two": 0, "HasField": 3,
    }  # fmt: skip
    message = made(schema, "p.M", **values)
    message.named["k"].a = 2
    message.at.FromDatetime(when)
    message.times.add().seconds = -1
    message.wrapped.value = 9
    found = read(schema, "p.M", [message.SerializeToString(), b""])
    whole, empty = rows_of(found, SQL)
    assert not found.bad.any()
    assert whole == values | {
        "x": Decimal((1 << 64) - 1), "at": when, "wrapped": {"value": 9}, "one": None, "flags": [(1, True)],
        "named": [("k", {"a": 2, "names": []})],
        "times": [datetime.datetime(1969, 12, 31, 23, 59, 59, 0, datetime.UTC)],
    }  # fmt: skip
    # What a message does not set is null where its bytes show that.
    assert {name for name, value in empty.items() if value is None} == {"inner", "at", "wrapped", "maybe", "one", "two"}
    assert (empty["color"], empty["i"], empty["s"], empty["colors"]) == ("RED", 0, "", [])


def test_wanted_columns_alone_are_read_in_their_order():
    schema = parse_protobuf(TEXT)
    found = read(schema, "p.M", [made(schema, "p.M", i=1, s="x").SerializeToString()], ["s", "i"])
    assert [one.to_pylist() for one in found.columns] == [["x"], [1]]
    with pytest.raises(Invalid, match="column z: the message has i, l, u"):
        ProtobufReader(pa.schema([("z", pa.int32())]), schema, "p.M")
    with pytest.raises(Invalid, match="column i bigint: the message has int"):
        ProtobufReader(pa.schema([("i", pa.int64())]), schema, "p.M")


def test_number_without_a_name_is_its_digits():
    schema = parse_protobuf(TEXT)
    found = read(schema, "p.M", [bytes([10 << 3, 5])], ["color"])
    assert found.columns[0].to_pylist() == ["5"]


def test_groups_and_closed_enums_of_proto2_are_read():
    schema = parse_protobuf(
        "message M { optional group G = 1 { optional int32 a = 1; } repeated E e = 2; } enum E { A = 1; B = 2; }"
    )
    message = made(schema, "M", g={"a": 4}, e=["B", "A"])
    assert rows_of(read(schema, "M", [message.SerializeToString()]), ["g", "e"]) == [{"g": {"a": 4}, "e": ["B", "A"]}]


def test_damaged_payloads_are_marked_and_explained():
    schema = parse_protobuf(
        'import "google/protobuf/timestamp.proto"; message M { required string s = 1; '
        "optional google.protobuf.Timestamp at = 2; }"
    )
    reader = ProtobufReader(protobuf_columns(schema, "M"), schema, "M")
    far = b"\x0a\x00\x12\x09\x08" + b"\xff" * 7 + b"\x7f"
    payloads = [b"\x0a\x01x", b"\x0a\x05x", None, b"", b"\x0a\x01\xff", far, b"\x0a\x01y"]
    found = reader.read(pa.array(payloads, pa.binary()))
    assert found.bad.tolist() == [False, True, True, True, True, True, False]
    assert found.columns[0].to_pylist() == ["x", None, None, None, None, None, "y"]
    for payload, why in zip(
        payloads[1:6], ("is no message M", "no payload", "lacks s", "UTF-8", "beyond"), strict=True
    ):
        assert why in reader.problem(payload)
    assert reader.problem(payloads[0]) == "nothing is wrong with it"


def test_reader_is_pickled_to_tasks():
    schema = parse_protobuf(TEXT)
    reader = ProtobufReader(protobuf_columns(schema, "p.M"), schema, "p.M")
    payloads = pa.array([made(schema, "p.M", i=3).SerializeToString()])
    before = reader.read(payloads).columns
    assert pickle.loads(pickle.dumps(reader)).read(payloads).columns == before


DOCUMENTS = """
syntax = "proto3"; import "google/protobuf/struct.proto";
message M {
  int32 id = 1; M next = 2; repeated N nodes = 3; google.protobuf.Struct more = 4; google.protobuf.Value one = 5;
  map<string, google.protobuf.ListValue> lists = 6;
}
message N { string the_name = 1; map<int32, N> inner = 2; }
"""


def test_message_within_itself_is_a_text_with_its_json():
    schema = parse_protobuf(DOCUMENTS)
    assert {one.name: sql_name(one.type) for one in protobuf_columns(schema, "M")} == {
        "id": "int", "next": "string", "nodes": "array<struct<the_name:string,inner:map<int,string>>>",
        "more": "string", "one": "string", "lists": "map<string,string>",
    }  # fmt: skip
    message = made(schema, "M", id=1)
    message.next.next.id = 7
    message.nodes.add(the_name="ü").inner[3].inner[4].the_name = "x"
    message.more.update({"a": [1.5, None, {"b": "c"}]})
    message.one.string_value = "text"
    message.lists["l"].extend([1, "x"])
    (row,) = rows_of(read(schema, "M", [message.SerializeToString()]), protobuf_columns(schema, "M").names)
    assert row == {
        "id": 1, "next": '{"next":{"id":7}}', "more": '{"a":[1.5,null,{"b":"c"}]}', "one": '"text"',
        "nodes": [{"the_name": "ü", "inner": [(3, '{"inner":{"4":{"the_name":"x"}}}')]}],
        "lists": [("l", '[1.0,"x"]')],
    }  # fmt: skip


def test_message_of_any_depth_is_a_row_or_malformed():
    schema = parse_protobuf(DOCUMENTS)
    for levels in (50, 99, 200, 100_000):
        payload = b""
        for _ in range(min(levels, 200)):
            payload = b"\x12" + varint(len(payload)) + payload
        found = read(schema, "M", [payload * (levels // 200 or 1), b"\x08\x07"])
        assert found.columns[0].to_pylist()[1] == 7
        assert found.bad.tolist() in ([False, False], [True, False])


def varint(value):
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def test_names_that_no_message_has_are_refused():
    for name in ("", "N", "M.", "\ud800"):
        with pytest.raises(Invalid, match="has no message"):
            protobuf_columns(parse_protobuf("message M {}"), name)


@pytest.mark.timeout(120)
def test_messages_that_would_be_columns_without_end_are_refused_soon():
    doubling = "".join(f"message M{n} {{ optional M{n + 1} a = 1; optional M{n + 1} b = 2; }}" for n in range(40))
    chain = "".join(f"message M{n} {{ optional M{n + 1} a = 1; }}" for n in range(5000))
    for text in (doubling + "message M40 {}", chain + "message M5000 {}"):
        schema = parse_protobuf(text)
        before = time.process_time()
        with pytest.raises(Invalid, match="more than 10,000 columns, or 31 within each other"):
            protobuf_columns(schema, "M0")
        assert time.process_time() - before < patient(4)


@settings(max_examples=examples(1000))
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_drawn_bytes_are_rows_or_bad(first, second):
    schema = parse_protobuf(TEXT)
    found = read(schema, "p.M", [first, made(schema, "p.M", raw=second).SerializeToString()])
    assert not found.bad[1]
    assert found.columns[8].to_pylist()[1] == second
