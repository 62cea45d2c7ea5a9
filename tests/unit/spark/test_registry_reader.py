"""Payloads that name their schemas, in mixed batches: columns, malformed rows, and how often the registry is asked."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sarit.core.errors import Forbidden, Invalid, Unavailable
from sarit.schemas.avro_schema import avro_columns
from sarit.schemas.json_columns import json_columns
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.limits import MAX_DECOMPRESSED_EVENT_BYTES
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.protobuf_messages import FileMessages
from sarit.serializers.registered_reader import RegisteredReader
from sarit.serializers.schema import PROTOBUF, Schema
from sarit.serializers.schema_source import WrittenSchema
from sarit.spark.registry.access import REGISTRIES, TaskSchemas
from sarit.spark.registry.options import RegistryTarget
from sarit.spark.registry.writer import RegisteredWriter
from tests.limits import examples
from tests.unit.serializers.fake_registry import FakeRegistry, served

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "none"},
]}  # fmt: skip
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": {"type": "array", "items": "int"}}]}


@pytest.fixture
def registry():
    with served() as fake:
        for schema in (V1, V2, OTHER):
            fake.register("s.t", {"schema": json.dumps(schema)})
        yield fake
    REGISTRIES._made.clear()


def datum(row, schema):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


def v1(number):
    return confluent_header(1) + datum({"id": number}, V1)


def v2(number):
    return confluent_header(2) + datum({"id": number, "city": f"c{number}"}, V2)


def reader(fake, schema=V2, header="confluent", wait_seconds=60):
    own = WrittenSchema("AVRO", json.dumps(schema))
    source = TaskSchemas(RegistryTarget(fake.url, wait_seconds=wait_seconds), header)
    return pickle.loads(pickle.dumps(RegisteredReader(source, own, "s.t", header, avro_columns(schema))))


def read(made, payloads, kind=None):
    rows = made.read(pa.array(payloads, kind or pa.binary()))
    return [column.to_pylist() for column in rows.columns], rows.bad.tolist()


def test_rows_of_one_schema_are_decoded_as_with_a_given_one(registry):
    assert read(reader(registry), [v2(1), v2(2)]) == ([[1, 2], ["c1", "c2"]], [False, False])
    assert read(reader(registry), [v1(7)]) == ([[7], ["none"]], [False])
    assert read(reader(registry), []) == ([[], []], [])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_rows_of_a_mixed_batch_keep_their_order(registry, kind):
    draw = random.Random(5)
    payloads, expected, bad = [], [], []
    for number in range(500):
        match draw.randrange(4):
            case 0:
                payloads.append(v1(number))
                expected.append((number, "none"))
            case 1:
                payloads.append(v2(number))
                expected.append((number, f"c{number}"))
            case 2:
                payloads.append(
                    draw.choice([None, b"", b"\0\0\0\0", b"\1" + v1(1)[1:], confluent_header(99), b"\0\0\0\0\1"])
                )
                expected.append((None, None))
            case _:
                payloads.append(confluent_header(3) + datum({"id": [1]}, OTHER))
                expected.append((None, None))
        bad.append(expected[-1] == (None, None))
    (ids, cities), found = read(reader(registry), payloads, kind)
    assert list(zip(ids, cities, strict=True)) == expected
    assert found == bad


def test_rows_of_a_slice_are_its_own(registry):
    payloads = pa.array([v1(n) if n % 2 else v2(n) for n in range(9)], pa.binary())
    rows = reader(registry).read(payloads[3:6])
    assert rows.columns[0].to_pylist() == [3, 4, 5]


def test_each_schema_is_asked_for_once_in_a_process(registry):
    for _ in range(3):
        read(reader(registry), [v1(1), v2(2), v1(3)])
    assert registry.requests == [("GET", "/schemas/ids/1"), ("GET", "/schemas/ids/2")]


def test_unknown_schema_is_asked_for_once_by_a_task(registry):
    made = reader(registry)
    for _ in range(3):
        assert read(made, [confluent_header(99) + b"x", v2(1)])[1] == [True, False]
    assert registry.requests.count(("GET", "/schemas/ids/99")) == 1


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"\0\0", "fewer than its header"),
        (b"\1\0\0\0\1x", "begins with 01"),
        (confluent_header(99), "schema 99: .*Schema not found"),
        (confluent_header(3) + datum({"id": [1]}, OTHER), "schema 3: it is no datum"),
        (v2(1) + b"x", "schema 2: 1 bytes are left over"),
    ],
)
def test_what_is_wrong_is_said(registry, payload, named):
    made = reader(registry)
    assert read(made, [payload])[1] == [True]
    with pytest.raises(Invalid, match=named):
        raise Invalid(made.problem(payload))


def test_schema_of_another_format_is_no_datum(registry):
    number = registry.register("x", {"schema": "syntax = 'proto3';", "schemaType": PROTOBUF})
    made = reader(registry)
    assert read(made, [confluent_header(number) + b"x"])[1] == [True]
    assert made.problem(confluent_header(number)).endswith("it is PROTOBUF, and AVRO is read")


def test_references_are_part_of_the_schema(registry):
    home = {"type": "record", "name": "Home", "fields": [{"name": "x", "type": "int"}]}
    registry.register("homes", {"schema": json.dumps(home)})
    text = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "h", "type": "Home"}]}
    )
    refers = [{"name": "Home", "subject": "homes", "version": 1}]
    number = registry.register("s.t", {"schema": text, "references": refers})
    schema = {**V2, "fields": [*V2["fields"], {"name": "h", "type": home}]}
    written = {**V1, "fields": [*V1["fields"], {"name": "h", "type": home}]}
    payload = confluent_header(number) + datum({"id": 1, "h": {"x": 5}}, written)
    for _ in range(2):
        assert read(reader(registry, schema), [payload]) == ([[1], ["none"], [{"x": 5}]], [False])
    assert registry.requests == [("GET", f"/schemas/ids/{number}"), ("GET", "/subjects/homes/versions/1")]


def test_registry_that_does_not_reply_fails_the_task_and_no_row(registry):
    registry.raw = (503, b"")
    with pytest.raises(Unavailable, match="the query has waited for 1 s: check option schemaRegistry"):
        read(reader(registry, wait_seconds=1), [v1(1)])
    registry.raw = (403, b"")
    with pytest.raises(Forbidden):
        read(reader(registry), [v1(1)])
    registry.raw = None
    assert read(reader(registry), [v1(1)])[1] == [False]


def test_pravega_header_names_encodings_of_the_group():
    with served(FakeRegistry()) as fake:
        client = PravegaRegistry(fake.url)
        numbers = [client.register("s.t", Schema(json.dumps(one)), "Order") for one in (V1, V2)]
        payloads = [
            pravega_header(numbers[1]) + datum({"id": 2, "city": "x"}, V2),
            pravega_header(numbers[0]) + datum({"id": 1}, V1),
            b"\1\xff\xff\xff\xffx", v1(1), pravega_header(9),
        ]  # fmt: skip
        made = reader(fake, header="pravega")
        assert read(made, payloads) == (
            [[2, 1, None, None, None], ["x", "none", None, None, None]],
            [False] * 2 + [True] * 3,
        )
        assert "the encoding id -1 of the event is negative" in made.problem(payloads[2])
        assert not [path for _, path in fake.requests if str(0xFFFFFFFF) in path]


@pytest.mark.parametrize("text", [False, True])
def test_compressed_payloads_may_end_with_zeros(text):
    with served(FakeRegistry()) as fake:
        client = PravegaRegistry(fake.url)
        document = Schema(json.dumps({"title": "Order", "properties": {"id": {"type": "integer"}}}), "JSON")
        schema = document if text else Schema(json.dumps(V2))
        client.register("s.t", schema, "Order")
        fake.groups["", "s.t"]["encodings"] += [(0, "application/x-gzip"), (0, "application/x-snappy-framed")]
        own = WrittenSchema(schema.format, schema.text)
        columns = json_columns(schema.text) if text else avro_columns(V2)
        source = TaskSchemas(RegistryTarget(fake.url), "pravega")
        made = RegisteredReader(source, own, "s.t", "pravega", columns)
        plain = [b'{"id": %d}' % n if text else datum({"id": n, "city": "x"}, V2) for n in range(3)]
        payloads = [pravega_header(1) + gzip.compress(one + bytes(n)) for n, one in enumerate(plain)]
        wrong = [
            (pravega_header(1) + plain[0], "is not compressed as its codec says"),
            (payloads[0][:-9], "its payload is cut"),
            (pravega_header(1) + gzip.compress(bytes(MAX_DECOMPRESSED_EVENT_BYTES + 1)), "67,108,864 bytes"),
            (pravega_header(2) + plain[0], "the codec application/x-snappy-framed is not supported"),
        ]  # fmt: skip
        if not text:
            wrong.append((pravega_header(1) + gzip.compress(plain[0] + b"x"), "1 bytes are left over"))
        found, bad = read(made, [*payloads, *(one for one, _ in wrong), pravega_header(0) + plain[0]])
        assert found[0] == [0, 1, 2, *(None for _ in wrong), 0]
        assert bad == [False] * 3 + [True] * len(wrong) + [False]
        for payload, named in wrong:
            assert named in made.problem(payload)


def test_call_that_is_wrong_fails_the_task_and_no_row(registry):
    registry.raw = (400, b"")
    with pytest.raises(Invalid, match="refuses the request"):
        read(reader(registry), [v1(1)])


NODE = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Order"]},
]}  # fmt: skip


def test_data_of_any_depth_do_not_end_the_process(registry):
    number = registry.register("s.t", {"schema": json.dumps(NODE)})
    made = reader(registry)
    good = confluent_header(number) + datum({"id": 7, "next": {"id": 8, "next": None}}, NODE)
    deep = confluent_header(number) + b"\2\2" * 1_000_000 + b"\2\0"
    assert read(made, [deep, good]) == ([[None, 7], [None, "none"]], [True, False])
    assert "RecursionError" in made.problem(deep)


def chain(levels):
    """Types within each other, without JSON that is as deep."""
    fields = [{"name": "id", "type": "int"}]
    for level in range(levels):
        inner = f"L{level - 1}" if level else "int"
        kind = {"type": "record", "name": f"L{level}", "fields": [{"name": "x", "type": inner}]}
        fields.append({"name": f"f{level}", "type": ["null", kind]})
    return fields


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ([{"name": "n", "type": {"type": "array", "items": "null"}}], "an array whose items take no bytes"),
        (chain(201), "more than 200 types within each other"),
    ],
)
def test_schema_whose_data_could_do_harm_is_not_used(registry, fields, named):
    number = registry.register("s.t", {"schema": json.dumps({"type": "record", "name": "Order", "fields": fields})})
    made = reader(registry)
    payload = confluent_header(number) + b"\2" * 300
    assert read(made, [payload])[1] == [True]
    assert named in made.problem(payload)


@given(
    st.lists(
        st.one_of(st.none(), st.binary(max_size=30), st.binary(max_size=9).map(lambda one: v2(1)[:7] + one)), max_size=9
    )
)
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_bytes_are_rows_or_malformed(registry, payloads):
    made = reader(registry)
    (ids, _), bad = read(made, payloads)
    for one, number, wrong in zip(payloads, ids, bad, strict=True):
        assert (number is None) == wrong
        if one is not None:
            assert made.problem(one).endswith("nothing is wrong with it") != wrong


BASE = 'syntax = "proto3"; package p; message Home { string city = 1; }'
PROTO1 = 'syntax = "proto3"; package p; message Other { int32 x = 1; } message Order { int32 id = 1; }'
PROTO2 = """
syntax = "proto3"; package p; import "base.proto";
message Order { int64 id = 1; Home home = 2; optional string name = 3; }
"""


def test_messages_of_all_versions_have_the_columns_of_the_readers(registry):
    registry.register("base", {"schema": BASE, "schemaType": PROTOBUF})
    refers = [{"name": "base.proto", "subject": "base", "version": 1}]
    one = registry.register("proto", {"schema": PROTO1, "schemaType": PROTOBUF})
    two = registry.register("proto", {"schema": PROTO2, "schemaType": PROTOBUF, "references": refers})
    references = (("base.proto", BASE),)
    own = WrittenSchema(PROTOBUF, PROTO2, references=references)
    columns = FileMessages(own).columns()
    source = TaskSchemas(RegistryTarget(registry.url), "confluent")
    made = pickle.loads(pickle.dumps(RegisteredReader(source, own, "proto", "confluent", columns)))
    new = confluent_header(two, [0]) + b"\x08\7\x12\3\x0a\1x\x1a\1n"
    payloads = [new, confluent_header(one, [1]) + b"\x08\5", confluent_header(two, [0])]
    wrong = [
        (confluent_header(one, [0]) + b"\x08\5", "it is a message p.Other, and messages p.Order are read"),
        (confluent_header(one, [7]) + b"\x08\5", "no message at"),
        (confluent_header(two), "ends within the message indexes"),
        (new[:-1], "it is no message p.Order"),
        (v2(1), "it is AVRO, and PROTOBUF is read"),
    ]
    (ids, homes, names), bad = read(made, [*payloads, *(payload for payload, _ in wrong)])
    assert ids == [7, 5, 0, *[None] * len(wrong)]
    assert homes[:3] == [{"city": "x"}, None, None]
    assert names[:3] == ["n", None, None]
    assert bad == [False] * 3 + [True] * len(wrong)
    for payload, named in wrong:
        assert named in made.problem(payload)


def test_writer_puts_the_header_before_each_payload():
    class Inner:
        def write(self, rows, keys):
            return pa.array([b"a", None, b""], pa.large_binary()), keys

    found, keys = RegisteredWriter(Inner(), confluent_header(7)).write(None, "keys")
    assert found.to_pylist() == [b"\0\0\0\0\7a", None, b"\0\0\0\0\7"]
    assert keys == "keys"
