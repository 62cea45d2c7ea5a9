"""Pravega's registry API with schemas of Protobuf, which are FileDescriptorSets there."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from sarit.registry.values import GroupName
from sarit.schemas.definitions import Kind
from tests.unit.registry.pravega_peer import Peer, info

NO_MESSAGE = {"name": "Person", "field": [{}]}  # a field without name, number and type


@pytest.fixture
def peer():
    with Peer() as made:
        yield made


def descriptor_set(*files: FileDescriptorProto) -> bytes:
    made = FileDescriptorSet(file=files)
    return made.SerializeToString()


def proto(name: str, *imports: str, package: str = "p", message: str = "Person") -> FileDescriptorProto:
    """A file with a message that has a field for each import, whose messages are `p.Person`."""
    made = FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    of_file = made.message_type.add(name=message)
    of_file.field.add(name="age", number=1, type=5, label=1)
    for number, path in enumerate(imports, 2):
        kind = ".google.protobuf.Timestamp" if path.startswith("google") else ".p.Person"
        of_file.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=kind)
    return made


def test_protobuf_schema_is_a_descriptor_set(peer) -> None:
    peer.create("g", "Protobuf", "AllowAny")
    given = info("p.Person", descriptor_set(proto("person.proto", "google/protobuf/timestamp.proto")), "Protobuf")
    done = peer.add("g", given)
    assert done == {"type": "p.Person", "serializationFormat": "Protobuf", "version": 0, "id": 0}
    assert peer.add("g", given | {"type": "Person"}) == peer.add("g", given | {"type": ""}) == done
    shown = peer.get("/groups/g/schemas/schema/0")
    back, sent = (FileDescriptorSet.FromString(base64.b64decode(each["schemaData"])) for each in (shown, given))
    assert back.file[-1].message_type == sent.file[0].message_type
    assert shown["serializationFormat"]["serializationFormat"] == "Protobuf"
    assert "message Person" in peer.get("/groups/g/history")["history"][0]["schemaString"]
    version_of_group = peer.do(peer.registry.version, GroupName("", "g"), 1)
    assert version_of_group.schema.kind is Kind.PROTOBUF


@pytest.mark.parametrize("whole", [True, False])
def test_protobuf_schema_with_imports_is_kept_as_it_came(peer, whole) -> None:
    peer.create("g", "Protobuf", "AllowAny")
    club = proto("club.proto", "person.proto", package="q", message="Club")
    files = [proto("person.proto"), club] if whole else [club]
    given = info("q.Club", descriptor_set(*files), "Protobuf")
    done = peer.add("g", given)
    assert done == {"type": "q.Club", "serializationFormat": "Protobuf", "version": 0, "id": 0}
    assert peer.add("g", given) == done
    shown = peer.get("/groups/g/schemas/schema/0")
    assert shown["schemaData"] == given["schemaData"]
    assert shown["serializationFormat"] == {"serializationFormat": "Protobuf", "fullTypeName": "Protobuf"}
    assert peer.get("/groups/g/history")["history"][0]["schemaString"] == ""
    assert peer.send("POST", "/groups/g/schemas/versions/find", given) == done
    assert peer.send("POST", "/groups/g/schemas/versions/canRead", given) == {"compatible": True}
    assert peer.send("POST", "/groups/g/schemas/versions/validate", {"schemaInfo": given}) == {"valid": True}
    peer.add("g", info("p.Person", descriptor_set(proto("person.proto")), "Protobuf"))
    peer.create("j", "Json", "AllowAny")
    peer.add("j", given, 417)
    peer.send("POST", "/groups/j/schemas/versions/validate", {"schemaInfo": given}, 417)


@pytest.mark.parametrize(
    ("type_name", "data"),
    [
        ("p.Person", b""),
        ("p.Person", b"\xff"),
        ("p.Person", b"message Person {}"),
        ("", descriptor_set()),
        ("p.Human", descriptor_set(proto("person.proto"))),
        ("q.Person", descriptor_set(proto("person.proto"))),
        ("p.Person", descriptor_set(proto("person.proto"), proto("person.proto"))),
        (
            "p.Person",
            descriptor_set(FileDescriptorProto(package="p", message_type=[NO_MESSAGE])),
        ),
    ],
)
def test_malformed_descriptor_set_is_refused(peer, type_name, data) -> None:
    peer.create("g", "Protobuf", "AllowAny")
    peer.add("g", info(type_name, data, "Protobuf"), 400)
    assert peer.get("/groups/g/schemas/versions") == {"schemas": []}
