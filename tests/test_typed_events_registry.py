"""Serializers with the registry of a node: both of its APIs, all formats, beside confluent-kafka's serializers."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJsonDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import sarit
from sarit.rpc.generated import controller_pb2, sarit_pb2
from sarit.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    PravegaRegistry,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
    Schema,
    SchemaReference,
    Undecodable,
)
from tests.nodes import RunningNode

FIELDS = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
SCHEMA = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
NEWER = {**SCHEMA, "fields": [*FIELDS, {"name": "count", "type": "int", "default": 1}]}
ROW = {"id": 1, "item": "tea"}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("typed") / "node", "--registry", "on", "--registry-port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def url(node):
    return f"http://{node.registry}"


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        yield client


@pytest.fixture
def stream(client, request):
    name = f"s/{request.node.name.replace('_', '-').replace('[', '-').rstrip(']')}"
    client.create_stream(name)
    return name


def subject(stream):
    return stream.replace("/", ".")


def read(client, stream, deserializer, **options):
    with client.reader(stream, end="tail", deserializer=deserializer, **options) as reader:
        return list(reader)


def events(client, stream):
    with client.reader(stream, end="tail") as reader:
        return list(reader)


def test_avro_goes_both_ways_between_clients(client, stream, url):
    theirs = SchemaRegistryClient({"url": url})
    options = {"subject.name.strategy": lambda *_: subject(stream)}
    context = SerializationContext("t", MessageField.VALUE)
    written = TheirAvroSerializer(theirs, json.dumps(SCHEMA), conf=options)(ROW, context)
    with client.writer(stream) as plain:
        plain.write(written, "k")
    with client.writer(stream, serializer=AvroSerializer(NEWER, registry=RegistryClient(url))) as writer:
        writer.write({**ROW, "count": 2}, "k")
    registry = RegistryClient(url)
    assert registry.versions(subject(stream)) == [1, 2]
    assert read(client, stream, AvroDeserializer(registry=registry)) == [ROW, {**ROW, "count": 2}]
    assert read(client, stream, AvroDeserializer(NEWER, registry=registry)) == [
        {**ROW, "count": 1},
        {**ROW, "count": 2},
    ]
    decode = TheirAvroDeserializer(theirs, conf=options)
    assert [decode(event, context) for event in events(client, stream)] == [ROW, {**ROW, "count": 2}]


def test_incompatible_schema_is_refused_with_its_reasons(client, stream, url):
    registry = RegistryClient(url)
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry)) as writer:
        writer.write(ROW)
    wrong = {**SCHEMA, "fields": [{"name": "id", "type": "string"}]}
    assert registry.check(subject(stream), Schema(json.dumps(wrong)))
    assert registry.check(subject(stream), Schema(json.dumps(NEWER)), "all") == []
    with pytest.raises(sarit.Conflict, match="incompatible"):
        client.writer(stream, serializer=AvroSerializer(wrong, registry=registry))
    registry.set_compatibility("NONE", subject(stream))
    assert registry.compatibility(subject(stream)) == "NONE"
    client.writer(stream, serializer=AvroSerializer(wrong, registry=registry)).close()
    with pytest.raises(sarit.NotFound):
        client.writer(stream, serializer=AvroSerializer(NEWER, registry=RegistryClient(url), auto_register=False))
    latest = AvroSerializer(None, registry=registry, use_latest=True)
    with client.writer(stream, serializer=latest) as writer:
        writer.write({"id": "text"})
    assert read(client, stream, AvroDeserializer(registry=registry))[-1] == {"id": "text"}


def test_references_and_deletion(client, stream, url):
    registry = RegistryClient(url)
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", Schema(json.dumps(money)))
    text = '{"type": "record", "name": "Sale", "namespace": "shop", "fields": [{"name": "price", "type": "Money"}]}'
    schema = Schema(text, "AVRO", (SchemaReference("shop.Money", "money", 1),))
    with client.writer(stream, serializer=AvroSerializer(schema, registry=registry)) as writer:
        writer.write({"price": {"cents": 5}})
    assert read(client, stream, AvroDeserializer(registry=RegistryClient(url))) == [{"price": {"cents": 5}}]
    assert registry.subjects("mon") == ["money"]
    assert registry.delete(subject(stream)) == [1]
    # Events of a deleted subject are still read by their ids.
    assert read(client, stream, AvroDeserializer(registry=RegistryClient(url))) == [{"price": {"cents": 5}}]
    with pytest.raises(sarit.NotFound):
        registry.latest(subject(stream))


def test_json_and_protobuf(client, stream, url):
    registry = RegistryClient(url)
    theirs = SchemaRegistryClient({"url": url})
    context = SerializationContext("t", MessageField.VALUE)
    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    with client.writer(stream, serializer=JsonSerializer(schema, registry=registry)) as writer:
        writer.write({"id": 1})
    assert read(client, stream, JsonDeserializer(registry=registry)) == [{"id": 1}]
    decode = TheirJsonDeserializer(json.dumps(schema), schema_registry_client=theirs)
    assert decode(events(client, stream)[0], context) == {"id": 1}

    messages = f"{stream}-messages"
    client.create_stream(messages)
    made = sarit_pb2.StreamPropertiesRequest(scope="a", stream="b")
    with client.writer(messages, serializer=ProtobufSerializer(type(made), registry=registry)) as writer:
        writer.write(made)
    options = {"subject.name.strategy": lambda *_: subject(messages)}
    with client.writer(messages) as plain:
        plain.write(TheirProtobufSerializer(type(made), theirs, options)(made, context))
    assert read(client, messages, ProtobufDeserializer(type(made), registry=RegistryClient(url))) == [made, made]
    decode = TheirProtobufDeserializer(type(made), {"use.deprecated.format": False}, theirs)
    assert [decode(event, context) for event in events(client, messages)] == [made, made]
    with pytest.raises(Undecodable, match="it is a message .*StreamPropertiesRequest, not .*ScopeInfo"):
        read(client, messages, ProtobufDeserializer(controller_pb2.ScopeInfo, registry=registry))


def test_pravegas_api_has_the_same_schemas(client, stream, url):
    client.stream(stream).set_properties({"schema-header": "pravega"})
    registry = PravegaRegistry(url)
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry)) as writer:
        writer.write(ROW, "k")
    with client.writer(stream, serializer=AvroSerializer(NEWER, registry=registry)) as writer:
        writer.write({**ROW, "count": 2}, "k")
    assert [event[:5] for event in events(client, stream)] == [b"\1\0\0\0\0", b"\1\0\0\0\1"]
    assert read(client, stream, AvroDeserializer(registry=PravegaRegistry(url))) == [ROW, {**ROW, "count": 2}]
    assert RegistryClient(url).versions(subject(stream)) == [1, 2]
    wrong = {**SCHEMA, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(sarit.Conflict):
        client.writer(stream, serializer=AvroSerializer(wrong, registry=registry))
    latest = AvroSerializer(NEWER, registry=PravegaRegistry(url), use_latest=True)
    client.writer(stream, serializer=latest).close()
    other = f"{stream}-json"
    client.create_stream(other)
    with client.writer(
        other, serializer=JsonSerializer({"title": "Order", "type": "object"}, registry=registry)
    ) as writer:
        writer.write({"a": 1})
    assert read(client, other, JsonDeserializer(registry=registry)) == [{"a": 1}]


def test_unknown_ids_are_events_that_do_not_fit(client, stream, url):
    with client.writer(stream) as plain:
        plain.write(b"\0\x7f\xff\xff\xffx", "k")
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=RegistryClient(url))) as writer:
        writer.write(ROW, "k")
    deserializer = AvroDeserializer(registry=RegistryClient(url))
    with pytest.raises(Undecodable, match=r"schema id 2147483647.*40403"):
        read(client, stream, deserializer)
    assert read(client, stream, deserializer, on_error="skip") == [ROW]
    group = PravegaRegistry(url)
    other = f"{stream}-pravega"
    client.create_stream(other)
    with client.writer(other) as plain:
        plain.write(b"\1\0\0\0\x63x", "k")
    with client.writer(other, serializer=AvroSerializer(SCHEMA, registry=group)) as writer:
        writer.write(ROW, "k")
    assert read(client, other, AvroDeserializer(registry=PravegaRegistry(url)), on_error="skip") == [ROW]
