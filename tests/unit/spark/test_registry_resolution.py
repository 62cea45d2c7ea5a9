"""What a driver finds before a query: headers of streams, columns of subjects, schemas that are registered."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

import sarit
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.spark.data_source import SaritSource
from sarit.spark.registry.access import REGISTRIES
from tests.nodes import RunningNode
from tests.unit.serializers.fake_registry import served
from tests.unit.spark.schemas import schema_of
from tests.unit.spark.test_formats import PART

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "city", "type": ["null", "string"], "default": None}]}
DOCUMENT = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        yield client


@pytest.fixture
def registry():
    with served() as fake:
        yield fake
    REGISTRIES._made.clear()


@pytest.fixture(autouse=True)
def _scope(client):
    client.create_scope("s")
    yield
    client.delete_scope("s", recursive=True)


@pytest.fixture
def query(node, registry):
    def make(**options):
        return SaritSource(
            {"controller": node.controller, "schemaRegistry": registry.url, "waitSeconds": "5", **options}
        )

    return make


def stream(client, name="t", header="confluent"):
    client.create_stream(f"s/{name}")
    if header is not None:
        client.stream(f"s/{name}").set_properties({"schema-header": header})
    return f"s/{name}"


def register(registry, schema, subject="s.t", kind="AVRO"):
    return registry.register(subject, {"schema": json.dumps(schema), "schemaType": kind})


def columns(source):
    return [f"{field.name} {field.dataType.simpleString()}" for field in source.schema().fields][:-4]


# -- reading ------------------------------------------------------------------------------------------


def test_columns_are_those_of_the_latest_version_when_the_frame_is_loaded(client, registry, query):
    stream(client)
    register(registry, V1)
    source = query(stream="s/t")
    assert columns(source) == ["id int"]
    register(registry, V2)
    # Spark pickles the source with its columns, and plans the read in another process.
    asked = len(registry.requests)
    made = pickle.loads(pickle.dumps(source))
    made.reader(made.schema())
    assert len(registry.requests) == asked
    assert columns(query(stream="s/t")) == ["id int", "city string"]
    assert columns(query(stream="s/t", schemaVersion="1")) == ["id int"]
    assert columns(query(stream="s/t", avroSchema=json.dumps(V2))) == ["id int", "city string"]
    register(registry, DOCUMENT, "docs", "JSON")
    found = columns(query(stream="s/t", subject="docs"))
    assert found == ["id bigint", "tags array<string>"]


def test_stream_that_does_not_say_its_header_is_one_error_that_says_how_to_set_it(client, registry, query):
    stream(client, header=None)
    register(registry, V1)
    with pytest.raises(Invalid, match=r"`sarit stream update s/t --property schema-header=confluent`.*schemaHeader"):
        query(stream="s/t").schema()
    assert columns(query(stream="s/t", schemaHeader="confluent")) == ["id int"]
    client.stream("s/t").set_properties({"schema-header": "pravega"})
    with pytest.raises(Invalid, match="option schemaHeader is confluent, and stream s/t says pravega"):
        query(stream="s/t", schemaHeader="confluent").schema()


def test_several_streams_need_one_header_and_a_subject(client, registry, query):
    stream(client, "a")
    stream(client, "b")
    register(registry, V1)
    with pytest.raises(Invalid, match="several streams: name the subject"):
        query(streams="s/a,s/b").schema()
    assert columns(query(streams="s/a,s/b", subject="s.t")) == ["id int"]
    stream(client, "c", "none")
    with pytest.raises(Invalid, match="different headers.*s/a confluent, s/c none"):
        query(streams="s/a,s/c", subject="s.t").schema()
    with pytest.raises(Invalid, match='with streamPattern.*"schemaHeader"'):
        query(streamPattern="s/.*", subject="s.t").schema()
    with pytest.raises(Invalid, match="several streams: name the subject"):
        query(streamPattern="s/.*", schemaHeader="confluent").schema()
    assert columns(query(streamPattern="s/.*", schemaHeader="confluent", subject="s.t")) == ["id int"]


def test_events_without_headers_are_of_the_version_that_is_named(client, registry, query):
    stream(client, header="none")
    register(registry, V1)
    with pytest.raises(Invalid, match='do not say which version.*"schemaVersion"'):
        query(stream="s/t").schema()
    source = query(stream="s/t", schemaVersion="1")
    assert columns(source) == ["id int"]
    projection = source.reader(schema_of("id int"))._projection
    found = projection.batch(pa.array([b"\2", b"\4"], pa.binary()), pa.array([0, 8], pa.int64()), PART)
    assert found.to_pylist() == [{"id": 1}, {"id": 2}]


def test_schema_whose_data_could_do_harm_gives_no_columns(client, registry, query):
    stream(client)
    register(registry, {**V1, "fields": [*V1["fields"], {"name": "n", "type": {"type": "array", "items": "null"}}]})
    with pytest.raises(Invalid, match="an array whose items take no bytes"):
        query(stream="s/t").schema()


def test_subject_that_is_not_there_is_named(client, query):
    stream(client)
    with pytest.raises(NotFound, match=r"subject s\.t gives no columns: .*not found.*option subject"):
        query(stream="s/t").schema()


def test_format_that_is_not_the_subjects_is_named(client, registry, query):
    stream(client)
    register(registry, V1)
    with pytest.raises(Invalid, match=r"option format is json, and subject s\.t has schemas of AVRO"):
        query(stream="s/t", format="json").schema()
    registry.register("thrift", {"schema": "struct", "schemaType": "THRIFT"})
    with pytest.raises(Invalid, match="subject thrift has schemas of THRIFT, which are not read"):
        query(stream="s/t", subject="thrift").schema()


def test_columns_of_protobuf_are_those_of_the_first_message(client, registry, query):
    stream(client)
    tags = 'syntax = "proto3"; message Tags { repeated string of = 1; }'
    registry.register("tags", {"schema": tags, "schemaType": "PROTOBUF"})
    text = (
        'syntax = "proto3"; import "t.proto"; message Order { int32 id = 1; Tags tags = 2; } message M { int32 x = 1; }'
    )
    refers = [{"name": "t.proto", "subject": "tags", "version": 1}]
    assert registry.register("s.t", {"schema": text, "schemaType": "PROTOBUF", "references": refers}) == 2
    source = query(stream="s/t")
    assert columns(source) == ["id int", "tags struct<of:array<string>>"]
    projection = pickle.loads(pickle.dumps(source.reader(schema_of("id int"))._projection))
    events = [b"\0\0\0\0\2\0\x08\7", b"\0\0\0\0\2\0"]
    found = projection.batch(pa.array(events, pa.binary()), pa.array([0, 8], pa.int64()), PART)
    assert found.to_pylist() == [{"id": 7}, {"id": 0}]
    client.stream("s/t").set_properties({"schema-header": "none"})
    with pytest.raises(Invalid, match="do not say which version"):
        query(stream="s/t").schema()
    projection = query(stream="s/t", schemaVersion="1").reader(schema_of("id int"))._projection
    found = projection.batch(pa.array([b"\x08\7"], pa.binary()), pa.array([0], pa.int64()), PART)
    assert found.to_pylist() == [{"id": 7}]


def test_wanted_columns_are_checked_by_the_schema(client, registry, query):
    stream(client)
    register(registry, V2)
    query(stream="s/t").reader(schema_of("city string, offset bigint"))
    with pytest.raises(Invalid, match="column town: the Avro schema has id, city"):
        query(stream="s/t").reader(schema_of("town string"))


# -- writing ------------------------------------------------------------------------------------------


def events(rows, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    (part,) = rows.parts(batch, 0, 0)
    return part.events.to_pylist()


def written(source, ddl, **columns):
    return events(source.writer(schema_of(ddl), overwrite=False)._sink.rows, **columns)


def test_write_registers_its_columns_and_marks_a_new_stream(client, registry, query):
    found = written(query(stream="s/t", format="avro", createStream="true"), "id int", id=pa.array([1], pa.int32()))
    assert found == [b"\0\0\0\0\1\2\2"]
    assert client.stream("s/t").properties() == {"schema-header": "confluent"}
    (field,) = json.loads(json.loads(registry.schemas[1])["schema"])["fields"]
    assert field == {"name": "id", "type": ["null", "int"], "default": None}
    again = written(query(stream="s/t", format="avro"), "id int, routing_key string", id=pa.array([1], pa.int32()),
                    routing_key=pa.array(["k"]))  # fmt: skip
    assert again == found
    assert list(registry.subjects) == ["s.t"]


def test_write_of_json_has_documents_behind_the_header(client, registry, query):
    stream(client)
    found = written(query(stream="s/t", format="json", subject="docs"), "id bigint, key string", id=[1], key=["x"])
    assert found == [b'\0\0\0\0\1{"id":1,"key":"x"}']
    assert json.loads(registry.schemas[1])["schemaType"] == "JSON"
    assert columns(query(stream="s/t", subject="docs", payloadColumn="d")) == ["d struct<id:bigint,key:string>"]


def test_write_takes_the_header_of_the_stream(client, registry, query):
    stream(client, header="pravega")
    found = written(query(stream="s/t", format="avro"), "id int not null", id=pa.array([1], pa.int32()))
    assert found == [b"\1\0\0\0\0\2"]
    client.stream("s/t").set_properties({"schema-header": "none"})
    assert written(query(stream="s/t", format="avro"), "id int not null", id=pa.array([1], pa.int32())) == [b"\2"]
    with pytest.raises(Invalid, match="option schemaHeader is confluent, and stream s/t says none"):
        query(stream="s/t", format="avro", schemaHeader="confluent").writer(schema_of("id int"), overwrite=False)


def test_stream_with_events_and_without_a_header_is_not_written_by_guess(client, registry, query):
    name = stream(client, header=None)
    with client.writer(name) as writer:
        writer.write(b"plain")
    with pytest.raises(Invalid, match="does not say what its events begin with"):
        query(stream=name, format="avro").writer(schema_of("id int"), overwrite=False)
    assert registry.requests == []
    query(stream=name, format="avro", schemaHeader="confluent").writer(schema_of("id int"), overwrite=False)
    assert client.stream(name).properties() == {}


def test_refusal_of_the_registry_has_its_reasons(client, registry, query):
    stream(client)
    with pytest.raises(
        Conflict, match=r"the columns are no next version of subject s\.t: .*field a was removed.*field b"
    ):
        query(stream="s/t", format="avro").writer(schema_of("incompatible int"), overwrite=False)


def test_schema_must_be_there_where_it_is_not_registered(client, registry, query):
    stream(client)
    options = {"stream": "s/t", "format": "avro", "registerSchemas": "false", "avroSchema": json.dumps(V1)}
    with pytest.raises(
        NotFound, match=r"subject s\.t does not have the schema of these columns .*registerSchemas away"
    ):
        query(**options).writer(schema_of("id int"), overwrite=False)
    number = register(registry, V1)
    registry.schemas[number] = json.dumps({"schema": json.dumps(V1)})
    query(**options).writer(schema_of("id int"), overwrite=False)
    assert list(registry.subjects["s.t"].values()) == [number]


def test_write_to_several_streams_is_refused(client, query):
    stream(client)
    for options in ({"stream": "s/t"}, {"scope": "s"}):
        with pytest.raises(Invalid, match="writes to one stream"):
            query(**options, format="avro").writer(schema_of("id int, stream string"), overwrite=False)


def test_columns_are_checked_before_anything_is_registered(client, registry, query):
    stream(client)
    with pytest.raises(Invalid, match="routing key"):
        query(stream="s/t", format="avro").writer(schema_of("id int, routing_key int"), overwrite=False)
    with pytest.raises(Invalid, match="does not write Protobuf"):
        query(stream="s/t", format="protobuf").writer(schema_of("id int"), overwrite=False)
    assert registry.requests == []
