"""Subjects that get new versions while a background job of a node decodes the stream: Avro, JSON, Protobuf.

Writers of the old version go on beside those of the new one, so chunks have events of both."""

from __future__ import annotations

import asyncio
import json

import pytest

from sarit.client import aio
from sarit.core.properties import CONFLUENT, SCHEMA_HEADER
from sarit.env.real import real_env
from sarit.process import worker_role
from sarit.process.job_kinds import KINDS
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.registry.registry import Registry
from sarit.registry.values import GroupName, NewSchema
from sarit.schemas.compatibility import Level, policy_of
from sarit.schemas.definitions import Kind
from sarit.serializers.headers import confluent_header
from tests.limits import HANG_SECONDS
from tests.unit.serializers.test_payload_columns import datum

STREAM, GROUP = "s/t", GroupName("", "s.t")
ROWS = 12  # of each version that writes


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setitem(KINDS, "columns", "tests.unit.process.columns_job")
    monkeypatch.setattr(worker_role, "JOBS_POLL_SECONDS", 0.05)
    monkeypatch.setattr(worker_role, "JOB_RETRY_SECONDS", 0.05)


def record(*fields):
    return {"type": "record", "name": "Order", "fields": [{"name": name, **kind} for name, kind in fields]}


def avro(schema, row):
    return datum(row, schema)


def document(_, row):
    return json.dumps(row).encode()


def message(_, row):
    """A message in Protobuf: field 1 a varint, field 2 a text, field 3 a message with a varint."""
    made = b"\x08" + varint(row["id"])
    if "city" in row:
        made += b"\x12" + bytes([len(row["city"])]) + row["city"].encode()
    if "place" in row:
        inner = b"\x08" + varint(row["place"]["x"])
        made += b"\x1a" + bytes([len(inner)]) + inner
    return b"\0" + made  # the first message of the file


def varint(value):
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


NULLABLE = {"type": ["null", "string"], "default": None}
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}
FAR = {**PLACE, "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": ["null", "double"], "default": None}]}
AVRO = [
    (record(("id", {"type": "int"})), lambda n: {"id": n}),
    (record(("id", {"type": "long"}), ("city", NULLABLE)), lambda n: {"id": 2**40 + n, "city": f"c{n}"}),
    (
        record(("id", {"type": "long"}), ("city", NULLABLE), ("place", {"type": ["null", PLACE], "default": None})),
        lambda n: {"id": n, "city": None, "place": {"x": n}},
    ),
    (
        record(("id", {"type": "long"}), ("place", {"type": ["null", FAR], "default": None}), ("city", NULLABLE)),
        lambda n: {"id": n, "city": "z", "place": {"x": 2**40, "y": 0.5}},
    ),
]
ID, CITY = {"id": {"type": "integer"}}, {"city": {"type": "string"}}
JSON = [
    ({"type": "object", "properties": ID}, lambda n: {"id": n}),
    ({"type": "object", "properties": {**ID, **CITY}}, lambda n: {"id": n, "city": f"c{n}"}),
    (
        {"type": "object", "properties": {**CITY, **ID, "place": {"type": "object", "properties": {"x": ID["id"]}}}},
        lambda n: {"id": 2**40, "place": {"x": n}},
    ),
]
PROTO = 'syntax = "proto3"; message Order { %s }'
PROTOBUF = [
    (PROTO % "int32 id = 1;", lambda n: {"id": n}),
    (PROTO % "int64 id = 1; optional string city = 2;", lambda n: {"id": 2**40 + n, "city": f"c{n}"}),
    (
        PROTO % "int64 id = 1; optional string city = 2; message Place { int32 x = 1; } Place place = 3;",
        lambda n: {"id": n, "place": {"x": n}},
    ),
]


async def on_node(path, work, **chosen):
    node = await open_node(
        NodeConfig(str(path), controller_port=0, store_port=0, jobs=True, **chosen).validated(), real_env()
    )
    await node.start()
    # The node reads the schemas of its installation whether or not it answers requests for them.
    registry = Registry(node.controller_role._stores.tables, real_env())
    try:
        async with asyncio.timeout(HANG_SECONDS), aio.connect(f"127.0.0.1:{node.controller_port}") as client:
            await client.create_scope("s")
            await client.create_stream(STREAM)
            await client.stream(STREAM).set_properties({SCHEMA_HEADER: CONFLUENT})
            return await work(client, registry)
    finally:
        await registry.close()
        await node.stop()


async def state_of(client):
    (job,) = await client.stream(STREAM).jobs()
    return json.loads(job.state["state"]) if job.state else {"rows": [], "bad": 0}, job.problem


async def rows_of_state(client):
    state, problem = await state_of(client)
    assert not problem
    return len(state["rows"])


async def evolve(client, registry, kind, versions, encode, job=("columns", b""), rows_so_far=rows_of_state):
    """Register the versions one after the other, and write each with the one before beside it; the expected rows."""
    await registry.set_policy(GROUP, policy_of(Level.NONE))
    writers, expected = [], []
    for at, (schema, make) in enumerate(versions):
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = (await registry.register(GROUP, NewSchema(kind, text))).id
        writers.append((number, schema, make))
        if at == 1:
            assert await client.stream(STREAM).create_job(*job)
        async with client.writer(STREAM) as writer:
            for n in range(ROWS):
                for number, schema, make in writers[-2:]:
                    writer.write(confluent_header(number) + encode(schema, make(n)))
                    expected.append(make(n))
        # From the second version on the job reads along: the next version finds rows of this one committed.
        while at and await rows_so_far(client) < len(expected):
            await asyncio.sleep(0.02)
    return expected


@pytest.mark.parametrize(
    ("kind", "versions", "encode", "columns"),
    [
        (Kind.AVRO, AVRO, avro, {"id": "bigint", "city": "string", "place": "struct<x:bigint,y:double>"}),
        (Kind.JSON, JSON, document, {"id": "bigint", "city": "string", "place": "struct<x:bigint>"}),
        (Kind.PROTOBUF, PROTOBUF, message, {"id": "bigint", "city": "string", "place": "struct<x:int>"}),
    ],
)
def test_rows_of_all_versions_are_in_the_columns_of_the_last(tmp_path, kind, versions, encode, columns):
    async def work(client, registry):
        expected = await evolve(client, registry, kind, versions, encode)
        state, problem = await state_of(client)
        assert (state["columns"], state["bad"], problem) == (columns, 0, "")
        assert state["most_versions"] > 1
        assert texts(state["rows"]) == texts(expected)

    asyncio.run(on_node(tmp_path / "node", work))


def texts(rows):
    return sorted(json.dumps(without_nulls(row), sort_keys=True) for row in rows)


def without_nulls(value):
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(one) for name, one in value.items() if one is not None}


def test_version_that_no_column_holds_is_a_problem_of_the_job(tmp_path):
    async def work(client, registry):
        expected = await evolve(client, registry, Kind.AVRO, AVRO[:2], avro)
        schema = record(("id", {"type": "string"}))
        number = (await registry.register(GROUP, NewSchema(Kind.AVRO, json.dumps(schema)))).id
        async with client.writer(STREAM) as writer:
            writer.write(confluent_header(number) + avro(schema, {"id": "x"}))
        while not (found := await state_of(client))[1]:
            await asyncio.sleep(0.02)
        assert found[1].startswith("column id is bigint, which cannot be widened to string")
        assert len(found[0]["rows"]) == len(expected)

    asyncio.run(on_node(tmp_path / "node", work))
