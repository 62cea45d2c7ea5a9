"""Avro and Arrow payloads, both ways: types, projections, malformed payloads, schemas that do not fit."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns
from sarit.schemas.avro_writer import AvroWriter, avro_schema_of
from sarit.spark.formats.arrow import ArrowReader, ArrowWriter
from sarit.spark.formats.columns import Projection, read_schema
from sarit.spark.formats.encoders import encoder
from sarit.spark.formats.options import parse_formats
from sarit.spark.formats.types import arrow_schema, spark_fields
from tests.limits import examples
from tests.unit.spark.schemas import schema_of
from tests.unit.spark.test_formats import encoded, projected, rows

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime.datetime(2026, 7, 1, 12, tzinfo=UTC)
USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "home", "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "work", "type": ["null", "Address"], "default": None},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "size", "type": ["int", "long", "null"]},
        {"name": "times", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
    ],
}
ANN = {
    "id": 1, "name": "ann", "home": {"city": "x"}, "work": {"city": "y"}, "seen": NOON, "born": NOON.date(),
    "paid": Decimal("1.50"), "tags": {"a": 1}, "kind": "B", "size": 1 << 40, "times": [NOON], "raw": b"1234",
}  # fmt: skip
TEXT = json.dumps(USER)


def spark_avro(schema):
    return spark_fields(avro_columns(schema))


def datum(row, schema=USER):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


# -- Avro -------------------------------------------------------------------------------------------


def test_avro_schema_gives_the_columns():
    found = read_schema(parse_formats({"format": "avro", "avroSchema": TEXT, "envelope": "sarit"}))
    assert found.simpleString().startswith(
        "struct<id:bigint,name:string,home:struct<city:string>,work:struct<city:string>,seen:timestamp,born:date,"
        "paid:decimal(9,2),tags:map<string,int>,kind:string,size:bigint,times:array<timestamp>,raw:binary,key:string,"
    )
    assert [field.nullable for field in spark_avro(USER).fields[:4]] == [False, True, False, True]


def test_avro_data_become_rows():
    wanted = {**ANN, "tags": [("a", 1)]}
    found = projected_all([datum(ANN), datum({**ANN, "name": None, "work": None, "size": None})])
    assert found == [wanted, {**wanted, "name": None, "work": None, "size": None}]


def projected_all(events, **options):
    schema = spark_avro(USER)
    for field in schema.fields:
        field.nullable = True
    projection = Projection(schema, parse_formats({"format": "avro", "avroSchema": TEXT, **options}))
    from tests.unit.spark.test_formats import PART

    return projection.batch(pa.array(events), pa.array(range(len(events)), pa.int64()), PART).to_pylist()


def test_avro_types_are_found_by_their_names_in_namespaces():
    inner = {"type": "record", "name": "other.In", "fields": [
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}}, {"name": "g", "type": "F"},
    ]}  # fmt: skip
    schema = {"type": "record", "name": "Outer", "namespace": "a.b", "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "full", "type": "a.b.Kind"}, {"name": "short", "type": ["null", "Kind"]},
        {"name": "in", "type": inner}, {"name": "again", "type": "other.In"}, {"name": "four", "type": "other.F"},
    ]}  # fmt: skip
    row = {"kind": "A", "full": "B", "short": "A", "in": {"f": b"12", "g": b"34"}, "again": {"f": b"5_", "g": b"67"},
           "four": b"89"}  # fmt: skip
    found = spark_avro(schema)
    assert found.simpleString() == (
        "struct<kind:string,full:string,short:string,in:struct<f:binary,g:binary>,again:struct<f:binary,g:binary>,"
        "four:binary>"
    )
    for wanted in ([*found], [found["full"], found["four"]], [found["again"]]):
        read = AvroReader(arrow_schema(StructType(list(wanted))), schema).read(pa.array([datum(row, schema)]))
        assert not read.bad.any()
        assert [column[0].as_py() for column in read.columns] == [row[field.name] for field in wanted]
    written, _ = AvroWriter(arrow_schema(found), schema).write(
        pa.RecordBatch.from_pylist([row], schema=arrow_schema(found)), None
    )
    assert written.to_pylist() == [datum(row, schema)]


def test_avro_decimals_of_more_digits_than_spark_has_are_their_bytes():
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "far", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}},
        {"name": "near", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
    ]}  # fmt: skip
    far, near = Decimal("9" * 47 + ".99"), Decimal("-1.25")
    assert spark_avro(schema).simpleString() == "struct<far:binary,near:decimal(38,2)>"
    read = AvroReader(avro_columns(schema), schema).read(pa.array([datum({"far": far, "near": near}, schema)]))
    assert not read.bad.any()
    assert int.from_bytes(read.columns[0][0].as_py(), signed=True) == 10**49 - 1
    assert read.columns[1][0].as_py() == near


def test_avro_schema_may_be_a_file(tmp_path):
    path = tmp_path / "user.avsc"
    path.write_text(TEXT)
    assert rows("id bigint", [datum(ANN)], format="avro", avroSchema=str(path)) == [(1,)]


def test_avro_columns_that_are_not_wanted_are_passed_over():
    # `work` names a type that `home` defines.
    for wanted in ("id bigint, offset bigint", "work struct<city:string>, offset bigint"):
        (row,) = rows(wanted, [datum(ANN)], format="avro", avroSchema=TEXT)
        assert row == (1 if wanted.startswith("id") else {"city": "y"}, 0)


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_avro_payload_that_is_no_datum_follows_the_mode(mode):
    good = datum(ANN)
    for bad in (b"", good[:-1], good + b"\0", b"\xff" * 40, b"\x02\x04"):
        options = {"format": "avro", "avroSchema": TEXT, "mode": mode}
        if mode == "FAILFAST":
            with pytest.raises(Invalid, match="the event at offset 8 .* is malformed: .* the Avro schema"):
                rows("offset bigint, id bigint", [good, bad], **options)
        else:
            kept = [(0, 1), (8, None)] if mode == "PERMISSIVE" else [(0, 1)]
            assert rows("offset bigint, id bigint", [good, bad], **options) == kept


def test_avro_values_that_arrow_cannot_hold_are_malformed():
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}},
    ]}  # fmt: skip
    plain = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "long"}, {"name": "d", "type": "bytes"}]}
    made = [{"t": 1 << 62, "d": b"\1"}, {"t": 0, "d": b"\x7f\xff"}, {"t": 0, "d": b"\1"}]
    events = [datum(one, plain) for one in made]
    options = {"format": "avro", "avroSchema": json.dumps(schema), "mode": "PERMISSIVE"}
    found = rows("t timestamp, d decimal(2,0), _corrupt_record binary", events, **options)
    assert found == [(None, Decimal(1), events[0]), (EPOCH, None, events[1]), (EPOCH, Decimal(1), None)]


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (None, "format avro needs a schema"),
        ("/no/such/file", "no JSON and no file to read"),
        ("{", "option avroSchema is no JSON"),
        ('{"type": "recrd"}', "option avroSchema is no Avro schema"),
        ('"string"', "not of a record"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":{"type":"array","items":"null"}}]}', "such a type"),
        ('{"type":"record","name":"R","fields":[{"name":"offset","type":"int"}]}', 'field offset.*"payloadColumn"'),
    ],
)  # fmt: skip
def test_avro_schema_that_does_not_fit_is_refused(schema, named):
    options = {"format": "avro"} | ({"avroSchema": schema} if schema else {})
    with pytest.raises(Invalid, match=named):
        read_schema(parse_formats(options))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("nam string", "column nam: the Avro schema has id, name"),
        ("id int", "column id int: the Avro schema has bigint"),
    ],
)
def test_avro_columns_that_the_schema_does_not_have_are_refused(columns, named):
    with pytest.raises(Invalid, match=named):
        Projection(schema_of(columns), parse_formats({"format": "avro", "avroSchema": TEXT}))
    with pytest.raises(Invalid, match=named):
        encoder(schema_of(columns), parse_formats({"format": "avro", "avroSchema": TEXT}))


def test_avro_is_written_by_the_given_schema():
    schema = spark_avro(USER)
    row = {**ANN, "tags": [("a", 1)]}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(schema))
    events, _ = AvroWriter(arrow_schema(schema), USER).write(batch, None)
    assert events.to_pylist() == [datum(ANN)]
    with pytest.raises(Invalid, match="there is no column home, seen, born"):
        AvroWriter(arrow_schema(schema_of("id bigint")), USER)
    with pytest.raises(Invalid, match="row 1 of a batch does not fit the Avro schema"):
        one = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
        AvroWriter(arrow_schema(schema_of("id bigint")), one).write(pa.RecordBatch.from_pydict({"id": [1, None]}), None)


moments = st.datetimes(timezones=st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def pairs(found):
    return list(found.items())


cells = {
    "a bigint": st.integers(-(1 << 63), (1 << 63) - 1), "b string": texts, "c double": st.floats(allow_nan=False),
    "d boolean": st.booleans(), "f date": st.dates(), "i binary": st.binary(max_size=5), "e timestamp": moments,
    "n timestamp_ntz": st.datetimes(), "g array<int>": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "h struct<x:int,y:timestamp>": st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": moments}),
    "j decimal(20,5)": st.decimals(-10**9, 10**9, places=5), "l smallint": st.integers(-9, 9),
    "k map<string,double>": st.dictionaries(st.text("ab"), st.floats(-9, 9), max_size=2).map(pairs),
}  # fmt: skip


@given(st.lists(st.tuples(*(st.none() | cell for cell in cells.values())), min_size=1, max_size=4))
@settings(max_examples=examples(60))
def test_what_is_written_is_read_back(made):
    schema = schema_of(", ".join(cells))
    columns = [pa.array([row[at] for row in made], field.type) for at, field in enumerate(arrow_schema(schema))]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
    read_as = schema_of(", ".join(cells).replace("smallint", "int"))
    arrow = arrow_schema(schema)
    avro = AvroWriter(arrow, None), AvroReader(arrow_schema(read_as), avro_schema_of(arrow))
    for writer, reader in (avro, (ArrowWriter(), ArrowReader(arrow))):
        events, _ = writer.write(batch, None)
        found = reader.read(events.cast(pa.binary()))
        assert not found.bad.any()
        for one, other in zip(found.columns, columns, strict=True):
            assert one.cast(other.type).equals(other), (one, other)


# -- Arrow ------------------------------------------------------------------------------------------


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        for batch in table.to_batches(max_chunksize=2):
            out.write_batch(batch)
    return sink.getvalue().to_pybytes()


TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": pa.array(["a", None, "c"]).dictionary_encode()})


def test_arrow_event_becomes_its_rows_with_its_offset():
    events = [stream(TABLE), stream(TABLE[:0]), stream(TABLE[1:])]
    found = rows("offset bigint, name string, id bigint, scope string", events, format="arrow")
    assert found == [(0, "a", 1, "s"), (0, None, 2, "s"), (0, "c", 3, "s"), (16, None, 2, "s"), (16, "c", 3, "s")]
    inside = [bytes(Envelope(event, key=str(at))) for at, event in enumerate(events)]
    wanted = "key string, id int, missing double"
    assert rows(wanted, inside, format="arrow", envelope="sarit")[-2:] == [("2", 2, None), ("2", 3, None)]


def test_arrow_columns_come_from_the_first_event():
    options = parse_formats({"format": "arrow"})
    found = read_schema(options, lambda: stream(TABLE))
    assert found.simpleString().startswith("struct<id:int,name:string,scope:string")
    with pytest.raises(Invalid, match="the stream is empty: give .schema"):
        read_schema(options)
    with pytest.raises(Invalid, match="the first event is no Arrow IPC stream"):
        read_schema(options, lambda: b"hello")


@pytest.mark.parametrize("bad", [b"", b"hello", stream(TABLE)[:-40], stream(pa.table({"id": ["x"]}))])
def test_arrow_payload_that_is_none_follows_the_mode(bad):
    events = [stream(TABLE[:1]), bad, stream(TABLE[2:])]
    wanted = "offset bigint, id int, _corrupt_record binary"
    with pytest.raises(Invalid, match="the event at offset 8 of .* is malformed"):
        rows(wanted, events, format="arrow")
    permissive = rows(wanted, events, format="arrow", mode="PERMISSIVE")
    assert permissive == [(0, 1, None), (8, None, bad), (16, 3, None)]
    assert rows(wanted, events, format="arrow", mode="DROPMALFORMED") == [(0, 1, None), (16, 3, None)]


def test_arrow_rows_become_one_event_for_each_key(monkeypatch):
    data = {"id": [1, 2, 3, 4], "routing_key": ["a", "b", "a", None]}
    events, keys = encoded("id int, routing_key string", data, format="arrow")
    ids = [pa.ipc.open_stream(event).read_all().to_pydict() for event in events]
    assert (ids, keys) == ([{"id": [1, 3]}, {"id": [2]}, {"id": [4]}], ["a", "b", None])
    events, keys = encoded("id int, key string", {"id": [1], "key": ["k"]}, format="arrow", envelope="sarit")
    assert (Envelope.parse(events[0]).key, keys) == ("k", ["k"])
    monkeypatch.setattr("sarit.spark.formats.arrow.ARROW_EVENT_BYTES", 3000)
    events, keys = encoded("id bigint", {"id": list(range(1000))}, format="arrow")
    assert len(events) == 4
    assert [id for event in events for id in pa.ipc.open_stream(event).read_all()["id"].to_pylist()] == list(
        range(1000)
    )


def test_arrow_event_has_no_time_of_a_row():
    with pytest.raises(Invalid, match="column event_time: an event of format arrow has many rows"):
        encoder(schema_of("id int, event_time timestamp"), parse_formats({"format": "arrow", "envelope": "sarit"}))


def test_batch_of_no_events_gives_no_rows():
    for options in ({"format": "arrow"}, {"format": "avro", "avroSchema": TEXT}, {"format": "json"}, {}):
        wanted = "offset bigint, id bigint" if options else "offset bigint"
        assert projected(wanted, [], **options).num_rows == 0
