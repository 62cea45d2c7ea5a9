"""Confluent's Python client of schema registries and its serializers, unmodified, on the registry of a node."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import ConfigCompatibilityLevel, ServerConfig
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc import error_details_pb2, status_pb2

from tests import secured
from tests.nodes import RunningNode

RECORD = {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "a", "type": "int"}]}
WIDER = {**RECORD, "fields": [*RECORD["fields"], {"name": "b", "type": "string", "default": "x"}]}
NARROW = {**RECORD, "fields": [*RECORD["fields"], {"name": "c", "type": "string"}]}
USER = {"type": "record", "name": "User", "namespace": "n", "fields": [{"name": "r", "type": "n.R"}]}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("registry") / "data", "--registry", "on", "--registry-port", "0") as node:
        scheme, more = "http", {}
        if secured.ON:
            scheme = "https"
            more = {
                "basic.auth.user.info": f"{secured.USER}:{secured.PASSWORD}",
                "ssl.ca.location": secured.files()["ca"],
            }
        yield SchemaRegistryClient({"url": f"{scheme}://{node.registry.replace('127.0.0.1', 'localhost')}", **more})


def avro(schema: object, references: list[SchemaReference] | None = None) -> Schema:
    return Schema(json.dumps(schema), "AVRO", references or [])


def code_of(call, *arguments) -> int:
    with pytest.raises(SchemaRegistryError) as raised:
        call(*arguments)
    assert raised.value.http_status_code == int(str(raised.value.error_code)[:3])
    return raised.value.error_code


def test_schemas_and_versions(client) -> None:
    id = client.register_schema("s/1 ä", avro(RECORD))
    assert client.register_schema("s/1 ä", avro(RECORD), normalize_schemas=True) == id
    assert json.loads(client.get_schema(id).schema_str)["name"] in ("R", "n.R")
    assert client.register_schema("other", avro(RECORD)) == id
    full = client.register_schema_full_response("s/1 ä", avro(WIDER))
    assert full.schema_id == id + 1
    latest = client.get_latest_version("s/1 ä")
    assert (latest.version, latest.schema_id, latest.subject) == (2, id + 1, "s/1 ä")
    assert client.get_version("s/1 ä", 1).schema_id == id
    assert client.get_versions("s/1 ä") == [1, 2]
    assert client.lookup_schema("s/1 ä", avro(WIDER)).version == 2
    assert sorted(client.get_subjects_by_schema_id(id)) == ["other", "s/1 ä"]
    found = {(each.subject, each.version) for each in client.get_schema_versions(id)}
    assert found == {("other", 1), ("s/1 ä", 1)}
    assert {"s/1 ä", "other"} <= set(client.get_subjects())
    assert client.get_subjects(subject_prefix="oth") == ["other"]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    guid = client.get_latest_version("other").guid
    assert json.loads(client.get_schema_by_guid(guid).schema_str) == json.loads(client.get_schema(id).schema_str)
    assert client.get_latest_with_metadata("other", {}).schema_id == id


def test_errors_have_their_codes(client) -> None:
    client.register_schema("errors", avro(RECORD))
    assert code_of(client.get_schema, 1_000_000) == 40403
    assert code_of(client.get_version, "errors", 9) == 40402
    assert code_of(client.get_version, "errors", "x") == 42202
    assert code_of(client.get_latest_version, "nothing") == 40401
    assert code_of(client.register_schema, "errors", avro(NARROW)) == 409
    assert code_of(client.register_schema, "errors", Schema("{", "AVRO")) == 42201
    assert code_of(client.lookup_schema, "errors", avro("long")) == 40403
    assert code_of(client.register_schema, "bad\nname", avro(RECORD)) == 42208


def test_deletion(client) -> None:
    id = client.register_schema("gone", avro("bytes"))
    assert code_of(client.delete_subject, "gone", True) in (40405, 40404)
    assert client.delete_subject("gone") == [1]
    assert "gone" not in client.get_subjects()
    assert "gone" in client.get_subjects(deleted=True)
    client.clear_caches()
    assert client.register_schema("gone", avro("bytes")) == id
    assert client.delete_version("gone", 2) == 2
    assert client.delete_version("gone", 2, permanent=True) == 2
    assert client.delete_subject("gone", permanent=True) == [1]
    assert "gone" not in client.get_subjects(deleted=True)


def test_references(client) -> None:
    client.register_schema("r", avro(RECORD))
    id = client.register_schema("u", avro(USER, [SchemaReference("n.R", "r", 1)]))
    (reference,) = client.get_schema(id).references
    assert (reference.name, reference.subject, reference.version) == ("n.R", "r", 1)
    assert client.get_referenced_by("r", 1) == [id]
    assert code_of(client.delete_subject, "r") == 42206


def test_settings(client) -> None:
    client.register_schema("set", avro(RECORD))
    assert client.get_compatibility() == "BACKWARD"
    assert client.test_compatibility("set", avro(WIDER))
    assert not client.test_compatibility("set", avro(NARROW), 1)
    assert not client.test_compatibility_all_versions("set", avro(NARROW))
    client.set_compatibility("set", "none")
    assert client.get_compatibility("set") == "NONE"
    assert client.test_compatibility("set", avro(NARROW))
    client.set_config("set", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("set").compatibility_level == ConfigCompatibilityLevel.FULL
    client.delete_config("set")
    assert code_of(client.get_config, "set") == 40408
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("set", "READONLY") == "READONLY"
    assert client.get_mode("set") == "READONLY"
    assert code_of(client.register_schema, "set", avro(WIDER)) == 42205
    assert client.delete_mode("set") == "READONLY"
    assert client.register_schema("set", avro(WIDER))


def test_contexts(client) -> None:
    client.register_schema(":.team:s", avro("double"))
    assert client.get_contexts() == [".", ".team"]
    assert client.get_subjects(subject_prefix=":.team:") == [":.team:s"]
    assert client.get_latest_version(":.team:s").version == 1


def test_avro_serializers(client) -> None:
    context = SerializationContext("avro-topic", MessageField.VALUE)
    write = AvroSerializer(client, json.dumps(WIDER))
    data = write({"a": 1, "b": "ü"}, context)
    assert data[0] == 0
    assert int.from_bytes(data[1:5], "big") == client.get_latest_version("avro-topic-value").schema_id
    assert AvroDeserializer(client)(data, context) == {"a": 1, "b": "ü"}
    assert AvroDeserializer(client, json.dumps(RECORD))(data, context) == {"a": 1}


def test_avro_serializers_with_references(client) -> None:
    client.register_schema("avro-r", avro(RECORD))
    context = SerializationContext("avro-u", MessageField.VALUE)
    write = AvroSerializer(client, avro(USER, [SchemaReference("n.R", "avro-r", 1)]))
    data = write({"r": {"a": 5}}, context)
    assert AvroDeserializer(client)(data, context) == {"r": {"a": 5}}


def test_json_serializers(client) -> None:
    context = SerializationContext("json-topic", MessageField.VALUE)
    schema = json.dumps({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "T", "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"],
    })  # fmt: skip
    data = JSONSerializer(schema, client)({"a": 1, "b": "ü"}, context)
    assert JSONDeserializer(None, schema_registry_client=client)(data, context) == {"a": 1, "b": "ü"}
    assert client.get_latest_version("json-topic-value").schema.schema_type == "JSON"


def test_protobuf_serializers(client) -> None:
    context = SerializationContext("protobuf-topic", MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(error_details_pb2.RequestInfo, client, settings)(
        error_details_pb2.RequestInfo(request_id="r"), context
    )
    read = ProtobufDeserializer(error_details_pb2.RequestInfo, settings, client)
    assert read(data, context).request_id == "r"
    assert client.get_latest_version("protobuf-topic-value").schema.schema_type == "PROTOBUF"


def test_protobuf_serializers_with_references(client) -> None:
    context = SerializationContext("status", MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(status_pb2.Status, client, settings)(status_pb2.Status(code=7, message="m"), context)
    assert ProtobufDeserializer(status_pb2.Status, settings, client)(data, context).code == 7
