"""Readers of events over the registry of their own process: both headers, all formats, rights, deletions."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from sarit.core.errors import Forbidden, Invalid, NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.process.registry_schemas import RegistrySchemas
from sarit.registry.access import Guard
from sarit.registry.values import GroupName, NewSchema, Reference
from sarit.schemas.definitions import Kind
from sarit.security.permissions import Caller, Permission
from sarit.serializers.column_choice import choose_columns, columns_of_stream, open_columns
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.payload_columns import registered_columns
from tests.unit.registry.pravega_peer import Peer, info
from tests.unit.registry.test_pravega_protobuf import descriptor_set, proto
from tests.unit.serializers.test_payload_columns import V1, V2, datum

GROUP = GroupName("", "s.t")
STREAM = StreamName("s", "t")
CONFLUENT, PRAVEGA = {"schema-header": "confluent"}, {"schema-header": "pravega"}
PERSON_OF_30 = b"\x08\x1e"


@pytest.fixture
def peer():
    with Peer() as made:
        yield made


def schemas(peer, guard=None, caller=None):
    async def made():
        return RegistrySchemas(peer.registry, guard, caller)

    return peer.do(made)


def register(peer, text, kind=Kind.AVRO, group=GROUP, references=()):
    schema = text if isinstance(text, str) else json.dumps(text)
    return peer.do(peer.registry.register, group, NewSchema(kind, schema, references)).id


def rows(columns, payloads):
    found = columns.read(pa.array(payloads, pa.binary()))
    return [one.to_pylist() for one in found.columns], found.bad.tolist()


def test_versions_of_one_batch_behind_confluents_header(peer):
    one = register(peer, V1)
    source = schemas(peer)
    chosen = choose_columns(CONFLUENT, STREAM, source, "auto")
    two = register(peer, V2)
    payloads = [
        confluent_header(one) + datum({"id": 1}, V1),
        confluent_header(two) + datum({"id": 2**40, "city": "x"}, V2),
        confluent_header(99),
    ]
    assert rows(columns_of_stream(CONFLUENT, STREAM, source, "auto"), payloads) == (
        [[1, 2**40, None], [None, "x", None]],
        [False, False, True],
    )
    assert open_columns(chosen, source).schema.names == ["id"]
    # The version that was chosen is deleted softly: what was begun with it is finished with it.
    peer.do(peer.registry.delete_version, GROUP, 1)
    assert open_columns(chosen, source).schema.names == ["id"]


def test_encodings_behind_pravegas_header(peer):
    for schema in (V1, V2):
        register(peer, schema)
    peer.do(peer.registry.encodings.add_codec, GROUP, "application/x-gzip", {})
    numbers = [
        peer.do(peer.registry.encodings.encode, GROUP, *one) for one in ((2, ""), (1, ""), (1, "application/x-gzip"))
    ]
    payloads = [
        pravega_header(numbers[0]) + datum({"id": 2, "city": "x"}, V2),
        pravega_header(numbers[1]) + datum({"id": 1}, V1),
        pravega_header(numbers[2]) + b"no gzip",
        pravega_header(9),
    ]
    columns = columns_of_stream(PRAVEGA, STREAM, schemas(peer), "schema")
    assert rows(columns, payloads) == ([[2, 1, None, None], ["x", None, None, None]], [False, False, True, True])
    assert "not compressed as its codec says" in columns.problem(payloads[2])


@pytest.mark.parametrize("imports", [(), ("google/protobuf/timestamp.proto",)])
def test_messages_behind_pravegas_header(peer, imports):
    peer.create("s.t", "Protobuf", "AllowAny")
    given = info("p.Person", descriptor_set(proto("person.proto", *imports)), "Protobuf")
    peer.add("s.t", given)
    number = peer.do(peer.registry.encodings.encode, GROUP, 1, "")
    columns = columns_of_stream(PRAVEGA, STREAM, schemas(peer), "auto")
    found, bad = rows(columns, [pravega_header(number) + PERSON_OF_30, pravega_header(number) + b"\x08"])
    assert (columns.schema.names[0], found[0], bad) == ("age", [30, None], [False, True])


def test_messages_with_imports_and_of_another_type(peer):
    peer.create("s.t", "Protobuf", "AllowAny")
    club = proto("club.proto", "person.proto", package="q", message="Club")
    peer.add("s.t", info("p.Person", descriptor_set(proto("person.proto")), "Protobuf"))
    peer.add("s.t", info("q.Club", descriptor_set(proto("person.proto"), club), "Protobuf"))
    numbers = [peer.do(peer.registry.encodings.encode, GROUP, version, "") for version in (1, 2)]
    columns = columns_of_stream(PRAVEGA, STREAM, schemas(peer), "auto")
    payloads = [
        pravega_header(numbers[1]) + b"\x08\x05\x12\x02" + PERSON_OF_30,
        pravega_header(numbers[0]) + PERSON_OF_30,
    ]
    assert rows(columns, payloads) == ([[5, None], [{"age": 30}, None]], [False, True])
    assert "it is of messages p.Person, and messages q.Club are read" in columns.problem(payloads[1])


def test_references_of_messages_behind_confluents_header(peer):
    base, order = (
        GroupName("", "base"),
        'syntax = "proto3"; import "base.proto"; message Order { Home home = 1; int64 id = 2; }',
    )
    register(peer, 'syntax = "proto3"; message Home { string city = 1; }', Kind.PROTOBUF, base)
    number = register(peer, order, Kind.PROTOBUF, references=(Reference("base.proto", "base", 1),))
    columns = columns_of_stream(CONFLUENT, STREAM, schemas(peer), "auto")
    payload = confluent_header(number, [0]) + b"\x0a\x03\x0a\x01x\x10\x07"
    assert rows(columns, [payload]) == ([[{"city": "x"}], [7]], [False])


def test_rights_of_a_caller_hold(peer):
    number = register(peer, V1)
    guard = Guard(lambda caller, resource: Permission.READ if caller.name == "ann" else Permission.NONE)
    ann, bob = (schemas(peer, guard, Caller(name)) for name in ("ann", "bob"))
    assert columns_of_stream(CONFLUENT, STREAM, ann, "auto").schema.names == ["id"]
    with pytest.raises(Forbidden):
        columns_of_stream(CONFLUENT, STREAM, bob, "auto")
    with pytest.raises(Forbidden):
        bob.written("s.t", 0, "pravega")
    with pytest.raises(NotFound, match="or you may not read it"):
        bob.written("s.t", number, "confluent")


def test_opaque_schema_has_no_columns(peer):
    register(peer, "eA==", Kind.OPAQUE)
    with pytest.raises(Invalid, match="OPAQUE, whose data have no columns"):
        registered_columns(schemas(peer), "s.t", "confluent")


def test_loop_that_does_not_answer(peer, monkeypatch):
    source = schemas(peer)

    async def asked():
        with pytest.raises(AssertionError, match="thread of its own event loop"):
            source.version("s.t", None)

    peer.do(asked)
    monkeypatch.setattr("sarit.process.registry_schemas.OWN_REGISTRY_SECONDS", 0.01)

    async def slow(*_, **__):
        import asyncio

        await asyncio.Event().wait()

    monkeypatch.setattr(peer.registry, "version", slow)
    with pytest.raises(Unavailable, match="has not answered for 0.01 s"):
        source.version("s.t", None)


def test_loop_that_is_closed():
    with Peer() as peer:
        source = schemas(peer)
    with pytest.raises(Unavailable, match="the process is stopping"):
        source.version("s.t", None)
