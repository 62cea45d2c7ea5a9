"""A schema registry in a real Spark: evolution within a query, malformed events, both sinks, both headers."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import functions as f

import sarit
from sarit import Envelope
from sarit.serializers import AvroDeserializer, AvroSerializer
from sarit.serializers.headers import confluent_header
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema
from tests.guides.pages import blocks
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark" / "registry.md"
SECRET = "hidden-secret"
V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {**V1, "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "none"}]}
V3 = {**V2, "fields": [*V2["fields"], {"name": "paid", "type": "double", "default": 0}]}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data", "--registry", "on", "--registry-port", "0") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        yield client


@pytest.fixture(scope="module")
def registry(node):
    return RegistryClient(f"http://{node.registry}")


@pytest.fixture(scope="module")
def names():
    return itertools.count()


@pytest.fixture
def stream(client, names):
    """A stream, and so a subject, of its own for each run of a test."""
    name = f"s/t{next(names)}"
    client.create_stream(name, segments=2)
    client.stream(name).set_properties({"schema-header": "confluent"})
    return name


def subject_of(stream):
    return stream.replace("/", ".")


def register(registry, stream, schema):
    return registry.register(subject_of(stream), Schema(json.dumps(schema)))


def event(number, row, schema):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return confluent_header(number) + data.getvalue()


def write(client, stream, events):
    with client.writer(stream) as writer:
        for at, one in enumerate(events):
            writer.write(one, key=str(at))


def options_of(node, registry, stream, **options):
    return {"controller": node.controller, "schemaRegistry": registry.url, "stream": stream, **options}


def reading(spark, node, registry, stream, **options):
    return spark.read.format("sarit").options(**options_of(node, registry, stream, **options))


def saving(frame, node, registry, stream, **options):
    return frame.write.format("sarit").options(**options_of(node, registry, stream, **options)).mode("append")


def rows_of(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_rows_of_all_versions_have_the_columns_of_the_latest(spark, node, client, registry, stream):
    one, two = register(registry, stream, V1), register(registry, stream, V2)
    write(
        client, stream, [event(one if n % 3 else two, {"id": n, "city": "x"}, V1 if n % 3 else V2) for n in range(3000)]
    )
    frame = reading(spark, node, registry, stream).load()
    assert frame.columns == ["id", "city", "scope", "stream", "segment_id", "offset"]
    assert rows_of(frame.groupBy("city").agg(f.count("*"), f.sum("id"))) == [
        ("none", 2000, sum(n for n in range(3000) if n % 3)), ("x", 1000, sum(range(0, 3000, 3))),
    ]  # fmt: skip
    register(registry, stream, V3)
    assert reading(spark, node, registry, stream).load().columns[:3] == ["id", "city", "paid"]
    older = reading(spark, node, registry, stream, schemaVersion="2").load()
    assert older.columns[:3] == ["id", "city", "scope"]
    assert older.agg(f.sum("id")).first()[0] == sum(range(3000))
    one_column = reading(spark, node, registry, stream).schema("city string").load()
    assert one_column.where("city = 'x'").count() == 1000


def test_schema_that_comes_within_a_query_is_fetched_by_its_tasks(spark, node, client, registry, stream, tmp_path):
    one, two = register(registry, stream, V1), register(registry, stream, V2)
    frame = spark.readStream.format("sarit").options(**options_of(node, registry, stream)).load()
    found = []
    query = (
        frame.select("id", "city")
        .writeStream.foreachBatch(lambda batch, number: found.extend(map(tuple, batch.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        write(client, stream, [event(two, {"id": 1, "city": "a"}, V2)])
        query.processAllAvailable()
        three = register(registry, stream, V3)
        mixed = [event(three, {"id": 2, "city": "b", "paid": 1.5}, V3), event(one, {"id": 3}, V1)]
        write(client, stream, [*mixed, event(two, {"id": 4, "city": "d"}, V2)])
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(found) == [(1, "a"), (2, "b"), (3, "none"), (4, "d")]


def test_event_that_does_not_decode_follows_the_mode(spark, node, client, registry, stream):
    one = register(registry, stream, V1)
    wrong = [b"plain", confluent_header(99) + b"\2", confluent_header(one), event(one, {"id": 1}, V1) + b"x"]
    write(client, stream, [*wrong, event(one, {"id": 5}, V1)])
    options = {"schema": "id int, _corrupt_record binary"}
    frame = reading(spark, node, registry, stream, mode="PERMISSIVE").schema(options["schema"]).load()
    assert rows_of(frame) == sorted([(None, bytearray(one)) for one in wrong] + [(5, None)], key=repr)
    frame = reading(spark, node, registry, stream, mode="DROPMALFORMED").load()
    assert frame.select("id").collect() == [(5,)]
    with pytest.raises(Exception, match="is malformed: (schema|the event)"):
        reading(spark, node, registry, stream).load().collect()


def test_json_and_envelopes_are_decoded_behind_their_headers(spark, node, client, registry, stream):
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "seen": {"type": "string", "format": "date-time"}},
    }
    number = registry.register(f"{stream}-docs", Schema(json.dumps(schema), "JSON"))
    documents = [b'{"id": 1, "seen": "2026-01-01T12:00:00Z"}', b'{"id": "x"}', b"{}"]
    write(client, stream, [bytes(Envelope(confluent_header(number) + one, key="k")) for one in documents])
    frame = reading(spark, node, registry, stream, subject=f"{stream}-docs", envelope="sarit").load()
    assert frame.columns[:3] == ["id", "seen", "key"]
    assert rows_of(frame.selectExpr("id", "unix_micros(seen)", "key")) == [
        (1, 1_767_268_800_000_000, "k"), (None, None, "k"), (None, None, "k"),
    ]  # fmt: skip


def test_python_and_spark_read_each_other(spark, node, client, registry, stream):
    with client.writer(stream, serializer=AvroSerializer(json.dumps(V2), registry=registry)) as writer:
        writer.write({"id": 1, "city": "x"}, key="k")
    frame = reading(spark, node, registry, stream).load().select("id", "city")
    assert rows_of(frame) == [(1, "x")]
    saving(
        frame.selectExpr("id + 1 id", "city"), node, registry, stream, format="avro", avroSchema=json.dumps(V2)
    ).save()
    assert registry.versions(subject_of(stream)) == [1]
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=registry)) as reader:
        assert sorted(reader, key=repr) == [{"id": 1, "city": "x"}, {"id": 2, "city": "x"}]


def test_messages_of_protobuf_are_columns(spark, node, client, registry, stream):
    fields = ("int32 id = 1;", "int32 id = 1; string name = 2;")
    texts = [f'syntax = "proto3"; message Order {{ {one} }}' for one in fields]
    one, two = (registry.register(subject_of(stream), Schema(text, "PROTOBUF")) for text in texts)
    write(client, stream, [confluent_header(one, [0]) + b"\x08\1", confluent_header(two, [0]) + b"\x08\2\x12\1n", b"x"])
    frame = reading(spark, node, registry, stream, mode="DROPMALFORMED").load()
    assert frame.columns[:3] == ["id", "name", "scope"]
    assert rows_of(frame.select("id", "name")) == [(1, ""), (2, "n")]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_rows_that_a_sink_writes_come_back(spark, node, client, registry, stream, form, guarantee):
    columns = "id bigint, name string, tags array<string>, seen timestamp, key string"
    new = f"{stream}-new"
    data = [(1, "ü", ["a", None], None, "k"), (2, None, None, None, None)]
    frame = spark.createDataFrame(data, columns).withColumn("seen", f.expr("timestamp_micros(1767268800000001)"))
    saving(frame.withColumn("routing_key", f.col("key")), node, registry, new, format=form, createStream="true",
           deliveryGuarantee=guarantee).save()  # fmt: skip
    assert client.stream(new).properties() == {"schema-header": "confluent"}
    version = registry.latest(subject_of(new))
    assert all(one[:5] == confluent_header(version.id) for one in client.reader(new, end="tail"))
    back = reading(spark, node, registry, new).load().select(frame.columns)
    assert rows_of(back) == rows_of(frame)


def test_streaming_sink_goes_on_with_a_new_column(spark, node, client, registry, stream, tmp_path):
    def run(select):
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().selectExpr(*select)
        query = (
            rate.writeStream.format("sarit")
            .options(**options_of(node, registry, stream, format="avro"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            while len([one for one in query.recentProgress if one["numInputRows"]]) < 2:
                assert not query.awaitTermination(0.05)
        finally:
            query.stop()

    run(["value"])
    run(["value", "value * 2 twice"])
    assert registry.versions(subject_of(stream)) == [1, 2]
    frame = reading(spark, node, registry, stream).load()
    counts = frame.selectExpr(
        "count(*) n", "count(distinct value) d", "count(twice) t", "count_if(twice = value * 2) r"
    )
    n, distinct, twice, right = counts.first()
    assert n == distinct
    assert 20 <= twice == right < n


def test_pravega_header_is_written_and_read(spark, node, client, registry, stream):
    client.stream(stream).set_properties({"schema-header": "pravega"})
    saving(spark.range(5), node, registry, stream, format="avro").save()
    encoding = PravegaRegistry(registry.url).encoding(subject_of(stream), 0)
    assert json.loads(encoding.schema.text)["fields"] == [{"name": "id", "type": "long"}]
    assert rows_of(reading(spark, node, registry, stream).load().select("id")) == [(n,) for n in range(5)]


def test_secrets_and_refusals_are_what_a_user_sees(spark, node, client, registry, stream, tmp_path):
    register(registry, stream, V1)
    (tmp_path / "secret").write_text(SECRET)
    login = {"schemaRegistryUser": "ann", "schemaRegistryPasswordFile": str(tmp_path / "secret")}
    frame = reading(spark, node, registry, stream, **login).load()
    assert SECRET not in frame._jdf.queryExecution().toString()
    assert frame.count() == 0

    def failure(call):
        with pytest.raises(Exception) as raised:
            call()
        assert SECRET not in str(raised.value)
        return str(raised.value)

    assert "subject s.x gives no columns" in failure(reading(spark, node, registry, stream, subject="s.x").load)
    client.stream(stream).set_properties({"schema-header": None})
    assert "--property schema-header=confluent" in failure(reading(spark, node, registry, stream).load)
    bad = spark.range(1).selectExpr("cast(id as string) id")
    refused = failure(saving(bad, node, registry, stream, format="avro").save)
    assert f"the columns are no next version of subject {subject_of(stream)}" in refused
    assert "the reader has the name topLevelRecord, and the writer Order" in refused
    assert list(client.reader(stream, end="tail")) == []


def test_example_of_the_page_runs_as_it_is_written(spark, node, client, registry, capsys):
    client.create_scope("shop")
    (example,) = [one.text for one in blocks(PAGE.read_text()) if one.kind == "python"]
    # Spark's driver was started before the node, so its environment cannot have the address.
    assert '"http://127.0.0.1:8081"' in example
    exec(example.replace('"http://127.0.0.1:8081"', f'"{registry.url}", "controller": "{node.controller}"'), {})
    shown = capsys.readouterr().out.splitlines()
    assert {"|  1|Oslo|", "|  2|NULL|"} <= set(shown), shown
