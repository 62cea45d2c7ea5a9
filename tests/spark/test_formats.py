"""Envelopes and typed payloads in a real Spark: batch and streaming, both ways, beside Spark's own `from_json`."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import sarit
from sarit import Envelope
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
ROWS = [(1, "a", 1.5, NOON, ["x", None], {"m": 1}), (2, None, None, None, [], {}), (3, 'ü"\n', -0.5, NOON, None, None)]
COLUMNS = "id bigint, name string, price double, seen timestamp, tags array<string>, more map<string,int>"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        yield client


@pytest.fixture
def stream(client):
    """A stream of its own for each run of a test."""
    client.delete_scope("s", recursive=True)
    client.create_scope("s")
    client.create_stream("s/t", segments=2)
    return "s/t"


def reading(spark, node, stream, **options):
    return spark.read.format("sarit").options(controller=node.controller, stream=stream, **options)


def save(frame, node, stream, **options):
    if options.get("format") == "json":  # Spark makes the documents
        form = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
        apart = [name for name in ("routing_key", "key") if name in frame.columns]
        document = f.to_json(f.struct(*(name for name in frame.columns if name not in apart)), form)
        column = "payload" if options.pop("envelope", "none") == "sarit" else "event"
        frame = frame.select(document.alias(column), *apart)
        options = {**options, "format": "bytes", "envelope": "sarit" if column == "payload" else "none"}
    frame.write.format("sarit").options(controller=node.controller, stream=stream, **options).mode("append").save()


def sorted_rows(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def events_of(client, stream):
    return list(client.reader(stream, end="tail"))


def test_envelopes_written_by_spark_are_read_by_clients_and_back(spark, node, client, stream):
    rows = [("k", NOON, [("h", bytearray(b"v"))], bytearray(b"one")), (None, None, None, bytearray(b"two"))]
    schema = "key string, event_time timestamp, headers array<struct<key:string,value:binary>>, payload binary"
    save(spark.createDataFrame(rows, schema), node, stream, envelope="sarit")
    found = {event.payload: event for event in map(Envelope.parse, events_of(client, stream))}
    assert found[b"one"] == Envelope(b"one", key="k", event_time=NOON, headers=[("h", b"v")])
    assert found[b"two"] == Envelope(b"two")
    frame = reading(spark, node, stream, envelope="sarit").load()
    assert frame.columns == ["key", "event_time", "headers", "payload", "scope", "stream", "segment_id", "offset"]
    back = frame.selectExpr("cast(payload as string) p", "key", "unix_micros(event_time) t", "get(headers, 0).value v")
    assert sorted_rows(back) == [("one", "k", 1_767_268_800_000_000, bytearray(b"v")), ("two", None, None, None)]


@pytest.mark.parametrize("form", ["json", "avro", "arrow"])
@pytest.mark.parametrize("envelope", ["none", "sarit"])
def test_rows_come_back_as_they_were_written(spark, node, stream, form, envelope):
    frame = spark.createDataFrame(ROWS, COLUMNS)
    options = {"format": form, "envelope": envelope}
    save(frame.withColumn("routing_key", f.expr("cast(id as string)")), node, stream, **options)
    if form == "avro":
        from sarit.spark import avro_schema

        options["avroSchema"] = avro_schema(frame.schema)
    back = reading(spark, node, stream, **options).schema(COLUMNS).load()
    assert sorted_rows(back) == sorted_rows(frame)
    if form != "json":
        load = reading(spark, node, stream, **options).load()
        assert load.columns[:6] == frame.columns
        assert sorted_rows(load.select(frame.columns)) == sorted_rows(frame)


def test_key_of_an_envelope_is_its_routing_key(spark, node, client, stream):
    frame = spark.range(300).selectExpr("cast(id % 5 as string) key", "id")
    save(frame.coalesce(1), node, stream, envelope="sarit", format="json")
    by_key = {}
    for envelope in map(Envelope.parse, events_of(client, stream)):
        by_key.setdefault(envelope.key, []).append(json.loads(envelope.payload)["id"])
    assert by_key == {str(key): list(range(key, 300, 5)) for key in range(5)}
    wanted = "key string, id bigint, segment_id bigint"
    rows = reading(spark, node, stream, envelope="sarit", format="json").schema(wanted).load().collect()
    segments = {key: {row.segment_id for row in rows if row.key == key} for key in by_key}
    assert all(len(found) == 1 for found in segments.values())
    assert len(rows) == 300


def test_streaming_reads_and_writes_typed_envelopes(spark, node, client, stream, tmp_path):
    client.create_stream("s/out")
    with client.writer(stream) as writer:
        for n in range(500):
            text = json.dumps({"n": n}) if n % 100 else "broken"
            writer.write(Envelope(text, key=str(n % 3), event_time=1_000_000 * n))
    query = (
        spark.readStream.format("sarit")
        .options(controller=node.controller, stream=stream, envelope="sarit", format="json", mode="DROPMALFORMED")
        .schema("key string, event_time timestamp, n int")
        .load()
        .writeStream.format("sarit")
        .options(controller=node.controller, stream="s/out", envelope="sarit", format="avro")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["int", "null"]}]}
    options = {"envelope": "sarit", "format": "avro", "avroSchema": json.dumps(schema)}
    back = reading(spark, node, "s/out", **options).load().selectExpr("n", "key", "unix_micros(event_time) t")
    expected = sorted(((n, str(n % 3), 1_000_000 * n) for n in range(500) if n % 100), key=repr)
    assert sorted_rows(back) == expected


def test_arrow_events_of_another_writer_become_rows(spark, node, client, stream):
    with client.writer(stream) as writer:
        for part in range(3):
            sink = pa.BufferOutputStream()
            table = pa.table({"id": range(part * 1000, part * 1000 + 1000), "half": pa.array([0.5] * 1000)})
            with pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)
            writer.write(sink.getvalue().to_pybytes())
    frame = reading(spark, node, stream, format="arrow").load()
    assert frame.selectExpr("count(*)", "sum(id)", "sum(half)").first()[:3] == (3000, 4_498_500, 1500.0)
    assert frame.select("segment_id", "offset").distinct().count() == 3


# -- beside Spark's own reader ------------------------------------------------------------------------

DOCUMENTS = [
    '{"l": 1, "d": 1.5, "s": "x", "b": true, "t": "2026-01-01T12:00:00Z", "y": "2026-01-01"}', "{}",
    '{"extra": [1], "l": 2}', '{"l": 9223372036854775807}', '{"l": 9223372036854775808, "s": "kept"}', '{"l": 1.0}',
    '{"l": "1"}', '{"l": true}', '{"l": null}', '{"d": 1}', '{"d": 1e400}', '{"d": "NaN"}', '{"d": NaN}',
    '{"d": "-INF"}',
    '{"d": "Infinity"}', '{"d": "1.5"}', '{"s": 1.50}', '{"s": {"a":[1,null]}}', '{"s": false}',
    r'{"s": "\u00fc\n\ud83d\ude00"}', '{"b": "true"}', '{"b": 1}', '{"c": 1.25}', '{"c": "1.25"}', '{"c": 1.255}',
    '{"c": 123456789}', '{"c": 12345678901}', '{"c": "x"}', '{"t": "2026-01-01 12:00:00.123456789+02:00"}',
    '{"t": "2026-01-01"}', '{"t": 5}', '{"t": "soon"}', '{"t": "2026-02-30T00:00:00Z"}', '{"y": "2026-1-1"}',
    '{"y": "soon"}', '{"y": "2026"}', '{"i": {"x": 1}}', '{"i": {"x": "q", "z": 1}, "l": 3}', '{"i": [1]}', '{"i": 5}',
    '{"a": [1, null, 3]}', '{"a": [1, "q", 3]}', '{"a": []}', '{"a": 1, "l": 4}', '{"m": {"k": 1, "n": null}}',
    '{"m": 1}', '{"n": "aGk="}', '{"l": 1, "l": 2}', "not json", "[1]", "1", '"x"', '{"l": 1', '{"l": 1,}', "{'l': 1}",
    '{"l": 1} x', '{"l": 1}{"l": 2}', '{"l": 01}', '{"s": "a\nb"}', "[]", "null", "", " ",
]  # fmt: skip
TYPES = (
    "l bigint, d double, s string, b boolean, c decimal(10,2), t timestamp, y date, i struct<x:int,z:int>, "
    "a array<int>, m map<string,int>, n binary, _corrupt_record string"
)
# Spark's reader and this one differ here, as docs/spark/formats.md says.
DIFFERENT = {"", " ", '{"s": 1.50}', "{'l': 1}", '{"l": 1} x', '{"l": 1}{"l": 2}'}


def test_json_is_read_as_spark_reads_it(spark, node, client, stream):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with client.writer(stream) as writer:
        writer.write_many(DOCUMENTS)
    columns = [one.split()[0] for one in TYPES.replace("int>", "").split(", ")]

    def by_event(frame):
        return {row.event: [row[column] for column in columns] for row in frame.collect()}

    ours = by_event(reading(spark, node, stream, format="json").schema(f"event string, {TYPES}").load())
    frame = spark.createDataFrame([(one,) for one in DOCUMENTS], "event string")
    parsed = f.from_json("event", TYPES, {"mode": "PERMISSIVE"}).alias("r")
    theirs = by_event(frame.select("event", parsed).select("event", "r.*"))
    differ = {one: (ours[one], theirs[one]) for one in DOCUMENTS if repr(ours[one]) != repr(theirs[one])}
    found = "\n".join(f"{one}\n  ours   {a}\n  theirs {b}" for one, (a, b) in differ.items())
    assert set(differ) == DIFFERENT, found


# -- what a user sees ---------------------------------------------------------------------------------


def failure(call):
    with pytest.raises(Exception) as raised:
        call()
    return str(raised.value)


def test_wrong_formats_are_named_where_the_user_sees_it(spark, node, client, stream):
    with client.writer(stream) as writer:
        writer.write("plain")
    load = reading(spark, node, stream, format="json").schema("id int, offset int").load
    assert "column offset int: reading gives" in failure(lambda: load().collect())
    assert "needs the columns to read" in failure(reading(spark, node, stream, format="json").load)
    assert "option format is 'xml': give bytes or json" in failure(reading(spark, node, stream, format="xml").load)
    typed = reading(spark, node, stream, format="json", mode="FAILFAST").schema("id int")
    assert "is malformed: it is not JSON: Expecting value" in failure(lambda: typed.load().collect())
    enveloped = reading(spark, node, stream, envelope="sarit")
    assert "is malformed: the event has no envelope" in failure(lambda: enveloped.load().collect())
    nulls = spark.createDataFrame([(None, "k")], "payload string, key string")
    assert "null" in failure(lambda: save(nulls, node, stream, envelope="sarit"))
    extra = spark.range(1)
    assert "column id bigint: writing takes event" in failure(lambda: save(extra, node, stream))
    write = extra.write.format("sarit").options(controller=node.controller, stream=stream, format="json").mode("append")
    assert 'to_json(struct("*")).alias("event")' in failure(write.save)
