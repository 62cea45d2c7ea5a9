"""Pravega's Java client of schema registries and its serializers, unmodified, on the registry and streams of a node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

import sarit
from benchmarks.peers.maven import PeerMissing
from sarit.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    PravegaRegistry,
    ProtobufDeserializer,
    ProtobufSerializer,
    Undecodable,
)
from tests import secured
from tests.interop.java_peer import compiled
from tests.limits import patient
from tests.nodes import RunningNode

SOURCE = Path(__file__).parent / "java" / "RegistryPeer.java"
JAVA_SECONDS = patient(120.0)
COUNT = 3
# Java's own reader does not read what its Protobuf serializer compresses: its codecs compress the zeros behind the
# message, too.
WRITTEN_BY_JAVA = (
    "avro-none:avro:none", "avro-gzip:avro:gzip", "avro-snappy:avro:snappy",
    "json-none:json:none", "json-gzip:json:gzip",
    "protobuf-none:protobuf:none", "protobuf-gzip:protobuf:gzip",
)  # fmt: skip
READ_BY_PYTHON = (
    "avro-none:avro:none", "avro-gzip:avro:gzip", "json-none:json:none", "json-gzip:json:gzip",
    "protobuf-none:protobuf:none",
)  # fmt: skip
READ_BY_JAVA = (
    "avro-none:avro", "avro-none:any", "avro-none:wider", "avro-gzip:avro", "avro-snappy:any",
    "json-none:json", "json-none:any", "json-gzip:json",
    "protobuf-none:protobuf", "protobuf-none:any",
)  # fmt: skip
AVRO = {
    "type": "record",
    "name": "tests.registry.Person",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
JSON = {
    "type": "object",
    "title": "Person",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}


class Java:
    """The program on the registry of a node, in one namespace."""

    def __init__(self, classes: str, node: RunningNode, namespace: str) -> None:
        self._classes = classes
        self._node = node
        self._namespace = namespace
        self.url = f"http{'s' if secured.ON else ''}://{node.registry.replace('127.0.0.1', 'localhost')}"

    def run(self, *arguments: str) -> list[str]:
        """Run it to its end; the lines that it printed."""
        done = subprocess.run(
            ["java", "-Xmx256m", "-cp", self._classes, "RegistryPeer", self.url, self._namespace, *arguments],
            capture_output=True, text=True, timeout=JAVA_SECONDS, check=False,
            cwd=self._classes.rpartition(":")[2],
        )  # fmt: skip
        lines = done.stdout.splitlines()
        assert lines[-1:] == ["done"], done.stdout[-2000:] + done.stderr[-4000:]
        return lines[:-1]

    def write(self, scope: str, *streams: str) -> None:
        """Write COUNT events into each of some STREAM:FORMAT:CODEC."""
        self.run("write", self._node.controller, scope, str(COUNT), *streams)

    def read(self, scope: str, *streams: str) -> dict[str, list[dict]]:
        """Read COUNT events of each of some STREAM:FORMAT."""
        found: dict[str, list[dict]] = {each: [] for each in streams}
        for line in self.run("read", self._node.controller, scope, str(COUNT), *streams):
            stream, read_as, event = line.split(" ", 2)
            found[f"{stream}:{read_as}"].append(json.loads(event))
        return found

    def registry(self) -> PravegaRegistry:
        """Our own client of the same registry."""
        more = {"user": secured.USER, "password": secured.PASSWORD, "ca": secured.files()["ca"]} if secured.ON else {}
        return PravegaRegistry(self.url, namespace=self._namespace or None, **more)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    try:
        return compiled(tmp_path_factory.mktemp("classes"), SOURCE, "pravega-registry")
    except PeerMissing as error:
        pytest.skip(f"no Java client of a schema registry: {error}")


@pytest.fixture(scope="module")
def node(classes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("registry") / "data"
    with RunningNode(directory, "--registry", "on", "--registry-port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as made:
        made.create_scope("java")
        made.create_scope("python")
        yield made


def people(writer: str) -> list[dict]:
    return [{"name": f"{writer}{number}", "age": number} for number in range(COUNT)]


def expected(stream: str, person: dict) -> dict:
    """A person as Java prints what it reads from STREAM:FORMAT."""
    if stream.endswith(":wider"):
        return person | {"city": ""}
    if stream.startswith("protobuf") and not person["age"]:
        return {"name": person["name"]}  # the JSON of Protobuf leaves out zeros
    return person


def make_stream(client: sarit.Client, stream: str) -> None:
    client.create_stream(stream)
    client.stream(stream).set_properties({"schema-header": "pravega"})


def person_class() -> type[Any]:
    """The message class that protoc would make of Java's schema."""
    file = FileDescriptorProto(name="person.proto", package="tests.registry", syntax="proto3")
    message = file.message_type.add(name="Person")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="age", number=2, type=5, label=1)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("tests.registry.Person"))


def test_every_call_of_the_java_client(classes, node) -> None:
    said = dict(line.split(": ", 1) for line in Java(classes, node, "calls").run("client", "g"))

    def info(name: str, version: int, id: int) -> str:
        return f"VersionInfo(type=tests.registry.{name}, serializationFormatName=Avro, version={version}, id={id})"

    policies = {name.removeprefix("same "): found for name, found in said.items() if name.startswith("same ")}
    assert set(policies.values()) == {"yes"}
    assert len(policies) == 9
    changed = [found for name, found in said.items() if name.startswith("updateCompatibility ")]
    assert changed.count("true") == 10
    for name, found in {
        "addGroup": "true",
        "addGroup again": "false",
        "addGroup Json full": "BadArgumentException",
        "getGroupProperties": "Avro Backward true {owner=java}",
        "getGroupProperties absent": "ResourceNotFoundException",
        "addSchema": info("Person", 0, 0),
        "addSchema equal": info("Person", 0, 0),
        "addSchema more": info("Person", 1, 1),
        "addSchema incompatible": "SchemaValidationFailedException",
        "addSchema Json": "SerializationMismatchException",
        "addSchema malformed": "MalformedSchemaException",
        "addSchema absent": "ResourceNotFoundException",
        "addSchema Pet": info("Pet", 0, 2),
        "getSchemas": f"[{info('Person', 1, 1)}, {info('Pet', 0, 2)}]",
        "getLatestSchemaVersion": info("Pet", 0, 2),
        "getLatestSchemaVersion Person": info("Person", 1, 1),
        "getSchemaVersions Person": "2",
        "getSchemaVersions": "3",
        "getVersionForSchema": info("Person", 0, 0),
        "getVersionForSchema absent": "ResourceNotFoundException",
        "validateSchema": "true",
        "validateSchema incompatible": "false",
        "canReadUsing": "true",
        "canReadUsing incompatible": "false",
        "getEncodingId": "0",
        "getEncodingId codec": "CodecTypeNotRegisteredException",
        "getCodecTypes none": "[]",
        "getCodecTypes": "[CodecType(name=application/x-gzip, properties={level=9})]",
        "getEncodingId gzip": "1",
        "getEncodingId again": "0",
        "getEncodingInfo absent": "ResourceNotFoundException",
        "updateCompatibility wrong": "false",
        "updateCompatibility absent": "ResourceNotFoundException",
        "getGroupHistory": "[0 Full true, 1 Full true, 2 Full true]",
        "getSchemaReferences": f"{{g={info('Pet', 0, 2)}}}",
        "listGroups": "1 true",
        "deleteSchemaVersion": "2",
        "deleteSchemaVersion again": "fine",
        "getEncodingInfo deleted": info("Person", 0, 0),
        "removeGroup": "fine",
        "getGroupProperties removed": "ResourceNotFoundException",
    }.items():
        assert said[name] == found, name
    assert said["getEncodingInfo"].startswith(info("Person", 0, 0) + " CodecType(name=application/x-gzip")
    assert json.loads(said["getSchemaForVersion"])["name"] == "tests.registry.Person"


@pytest.fixture(scope="module")
def written_by_java(classes, node, client):
    """The program, after it has written its streams, in a namespace."""
    for each in WRITTEN_BY_JAVA:
        make_stream(client, f"java/{each.partition(':')[0]}")
    java = Java(classes, node, "ns")
    java.write("java", *WRITTEN_BY_JAVA)
    return java


def test_java_reads_what_java_wrote(written_by_java) -> None:
    for stream, events in written_by_java.read("java", *READ_BY_JAVA).items():
        assert events == [expected(stream, person) for person in people("java")], stream


@pytest.mark.parametrize("stream", READ_BY_PYTHON)
def test_python_reads_what_java_wrote(written_by_java, client, stream) -> None:
    name, read_as, _ = stream.split(":")
    registry = written_by_java.registry()
    if read_as == "protobuf":
        deserializer = ProtobufDeserializer(person_class(), registry=registry)
    else:
        deserializer = {"avro": AvroDeserializer, "json": JsonDeserializer}[read_as](registry=registry)
    with client.reader(f"java/{name}", deserializer=deserializer) as reader:
        events = [reader.read(10) for _ in range(COUNT)]
    if read_as == "protobuf":
        events = [{"name": event.name, "age": event.age} for event in events]
    assert events == people("java")


def test_nobody_reads_what_java_wrote_as_protobuf_with_a_codec(written_by_java, classes, node, client) -> None:
    with pytest.raises(AssertionError, match=r"failed .*invalid tag \(zero\)"):
        written_by_java.read("java", "protobuf-gzip:protobuf")
    deserializer = ProtobufDeserializer(person_class(), registry=written_by_java.registry())
    with client.reader("java/protobuf-gzip", deserializer=deserializer) as reader, pytest.raises(Undecodable):
        reader.read(10)


def test_java_reads_what_python_wrote(classes, node, client) -> None:
    java = Java(classes, node, "")
    registry = java.registry()
    message_class = person_class()
    serializers = {
        "avro": AvroSerializer(AVRO, registry=registry),
        "json": JsonSerializer(JSON, registry=registry),
        "protobuf": ProtobufSerializer(message_class, registry=registry),
    }
    for name, serializer in serializers.items():
        make_stream(client, f"python/{name}")
        with client.writer(f"python/{name}", serializer=serializer) as writer:
            for person in people("python"):
                writer.write(message_class(**person) if name == "protobuf" else person)
    read = ("avro:avro", "avro:wider", "avro:any", "json:json", "json:any", "protobuf:protobuf", "protobuf:any")
    for stream, events in java.read("python", *read).items():
        assert events == [expected(stream, person) for person in people("python")], stream
