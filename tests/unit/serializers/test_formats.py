"""Serializers of each format: what comes back, what fits, and the bytes that confluent-kafka's serializers write."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import io
import json

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.names import StreamName
from sarit.rpc.generated import controller_pb2, sarit_pb2
from sarit.serializers import (
    ArrowDeserializer,
    ArrowSerializer,
    AvroDeserializer,
    AvroSerializer,
    BytesDeserializer,
    BytesSerializer,
    JsonDeserializer,
    JsonSerializer,
    PravegaRegistry,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
    Schema,
    SchemaReference,
)
from sarit.serializers.limits import UNKNOWN_SCHEMA_SECONDS
from sarit.serializers.protobuf_format import _indexes_of, _name_at
from sarit.serializers.protocols import SchemaNeeded
from sarit.serializers.registration import StreamDecoder, bound_encoder
from tests.unit.serializers.fake_registry import served

STREAM = StreamName.parse("shop/orders")
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ROW = {"id": 7, "count": 3, "item": "ü", "amount": 0.5, "paid": True, "note": None}
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "count": st.integers(-(2**31), 2**31 - 1),
        "item": st.text(max_size=20),
        "amount": st.floats(allow_nan=False),
        "paid": st.booleans(),
        "note": st.none() | st.text(max_size=20),
    }
)


@pytest.fixture(scope="module")
def url():
    with served() as fake:
        yield fake.url


@pytest.fixture
def fake():
    with served() as fake:
        yield fake


class SetClock:
    """A clock that stands until it is set."""

    seconds = 0.0

    def monotonic(self):
        return self.seconds


CLOCK = SetClock()


def decoded(deserializer, event, properties=None):
    """Decode an event as a reader does, fetching the schema when the decoder asks for it."""
    decoder = StreamDecoder(deserializer, STREAM, properties or {}, CLOCK)
    try:
        return decoder.decode(event)
    except SchemaNeeded as needed:
        decoder.fetch(needed.schema_id)
    return decoder.decode(event)


# -- Avro -----------------------------------------------------------------------------------------


def test_avro_without_a_registry():
    serializer = AvroSerializer(ORDER)
    payload = serializer.serialize(ROW)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(ORDER), ROW)
    assert payload == buffer.getvalue()
    assert AvroDeserializer(json.dumps(ORDER)).deserialize(payload) == ROW
    assert bound_encoder(serializer, STREAM, {})(ROW) == payload


@given(ROWS)
def test_avro_bytes_are_confluents(url, row):
    ours = bound_encoder(AvroSerializer(ORDER, registry=RegistryClient(url)), STREAM, {})(row)
    context = SerializationContext("shop.orders", MessageField.VALUE)
    registry = SchemaRegistryClient({"url": url})
    options = {"subject.name.strategy": lambda *_: "shop.orders"}
    theirs = TheirAvroSerializer(registry, json.dumps(ORDER), conf=options)(row, context)
    assert ours == theirs
    assert TheirAvroDeserializer(registry, conf=options)(ours, context) == row
    assert decoded(AvroDeserializer(registry=RegistryClient(url)), theirs) == row


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 1.5}, "shop.Order.count is <1.5>"),
        ({"count": 2**31}, "shop.Order.count"),
        ({"count": True}, "shop.Order.count"),
        ({"id": 2**63}, "shop.Order.id"),
        ({"id": None}, "shop.Order.id"),
        ({"item": 5}, "shop.Order.item is <5>"),
        ({"amount": "x"}, "shop.Order.amount is <x>"),
        ({"note": 5}, "shop.Order.note is <5>"),
        ({"colour": "red"}, "more fields than the schema specifies: colour"),
    ],
)
def test_value_that_does_not_fit_is_named(change, message):
    with pytest.raises(Invalid, match=f"does not fit the Avro schema shop.Order: .*{message}") as found:
        AvroSerializer(ORDER).serialize({**ROW, **change})
    assert len(str(found.value)) < 500


@pytest.mark.parametrize("value", [None, 5, [], {}, {"id": 1}])
def test_value_that_is_no_record_is_refused(value):
    with pytest.raises(Invalid, match="does not fit the Avro schema"):
        AvroSerializer(ORDER).serialize(value)


def test_integers_inside_are_checked_too():
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}
    with pytest.raises(Invalid, match="R.a"):
        AvroSerializer(schema).serialize({"a": [1, 2.5]})
    assert AvroDeserializer(schema).deserialize(AvroSerializer(schema).serialize({"a": [1, 2]})) == {"a": [1, 2]}


def test_logical_types_come_back():
    fields = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    row = {"day": datetime.date(2026, 1, 2), "at": at, "price": decimal.Decimal("12.34")}
    assert AvroDeserializer(schema).deserialize(AvroSerializer(schema).serialize(row)) == row


@dataclasses.dataclass
class Order:
    id: int
    item: str


def test_dataclasses_through_hooks():
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    payload = AvroSerializer(schema, to_dict=dataclasses.asdict).serialize(Order(1, "a"))
    assert AvroDeserializer(schema, from_dict=lambda found: Order(**found)).deserialize(payload) == Order(1, "a")
    with pytest.raises(Invalid, match="from_dict fails: TypeError"):
        AvroDeserializer(schema, from_dict=lambda found: Order(found)).deserialize(payload)
    text = JsonSerializer(to_dict=dataclasses.asdict).serialize(Order(1, "a"))
    assert JsonDeserializer(from_dict=lambda found: Order(**found)).deserialize(text) == Order(1, "a")


def test_data_of_an_older_schema_is_read_as_a_newer_one(fake):
    registry = RegistryClient(fake.url)
    old = {"type": "record", "name": "Order", "namespace": "shop", "fields": ORDER["fields"][:2]}
    event = bound_encoder(AvroSerializer(old, registry=registry), STREAM, {})({"id": 1, "count": 2})
    newer = {**old, "fields": [ORDER["fields"][0], {"name": "item", "type": "string", "default": "none"}]}
    assert decoded(AvroDeserializer(newer, registry=registry), event) == {"id": 1, "item": "none"}
    assert decoded(AvroDeserializer(registry=registry), event) == {"id": 1, "count": 2}


def test_schema_with_references(fake):
    registry = RegistryClient(fake.url)
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", Schema(json.dumps(money)))
    text = '{"type": "record", "name": "Sale", "namespace": "shop", "fields": [{"name": "price", "type": "Money"}]}'
    schema = Schema(text, "AVRO", (SchemaReference("shop.Money", "money", 1),))
    serializer = AvroSerializer(schema, registry=registry)
    row = {"price": {"cents": 5}}
    assert decoded(AvroDeserializer(registry=registry), bound_encoder(serializer, STREAM, {})(row)) == row
    with pytest.raises(Invalid, match="give the serializer to a writer"):
        serializer.serialize(row)
    event = bound_encoder(serializer, STREAM, {})(row)
    assert decoded(AvroDeserializer(schema, registry=registry), event) == row
    with pytest.raises(Invalid, match="refers to others: give a RegistryClient"):
        AvroDeserializer(schema)


def test_options_of_the_registry(fake):
    registry = RegistryClient(fake.url)
    strict = AvroSerializer(ORDER, registry=registry, auto_register=False)
    with pytest.raises(NotFound):
        bound_encoder(strict, STREAM, {})
    named = AvroSerializer(ORDER, registry=registry, subject=lambda stream: f"{stream.stream}-value")
    bound_encoder(named, STREAM, {})
    bound_encoder(AvroSerializer(ORDER, registry=registry, subject="fixed", normalize=True), STREAM, {})
    assert list(fake.subjects) == ["orders-value", "fixed"]
    assert ("POST", "/subjects/fixed/versions?normalize=true") in fake.requests
    latest = AvroSerializer(None, registry=registry, subject="fixed", use_latest=True)
    before = len(fake.requests)
    event = bound_encoder(latest, STREAM, {})(ROW)
    assert [method for method, _ in fake.requests[before:]] == ["GET"]
    assert decoded(AvroDeserializer(registry=registry), event) == ROW
    with pytest.raises(Invalid, match="no schema to register"):
        bound_encoder(AvroSerializer(None, registry=registry), STREAM, {})
    bad = {"type": "record", "name": "incompatible", "fields": []}
    with pytest.raises(Conflict, match="field a was removed"):
        bound_encoder(AvroSerializer(bad, registry=registry), STREAM, {})


@pytest.mark.parametrize("options", [{"subject": "s"}, {"use_latest": True}, {"normalize": True}])
def test_options_without_a_registry_are_refused(options):
    with pytest.raises(Invalid, match="give one"):
        AvroSerializer(ORDER, **options)


def test_wrong_schemas_are_refused(url):
    for wrong in ("{", '"nothing"', {"type": "record"}, 5, Schema("{}", "JSON")):
        with pytest.raises(Invalid):
            AvroSerializer(wrong)
    with pytest.raises(Invalid, match="has a schema, or a registry"):
        AvroDeserializer()
    with pytest.raises(Invalid, match="registry is a"):
        AvroSerializer(ORDER, registry=url)


# -- headers --------------------------------------------------------------------------------------


def test_property_and_registry_must_agree(url):
    confluent, pravega = RegistryClient(url), PravegaRegistry(url)
    for registry, stated, message in (
        (None, "confluent", "give the .* a registry"),
        (None, "pravega", "give the .* a registry"),
        (confluent, "none", "leave the registry out, or change the property with --property schema-header=confluent"),
        (confluent, "pravega", "give the .* a PravegaRegistry"),
        (pravega, "confluent", "give the .* a RegistryClient"),
    ):
        properties = {"schema-header": stated}
        given = {"registry": registry}
        for bind in (
            lambda given=given, properties=properties: bound_encoder(
                AvroSerializer(ORDER, **given), STREAM, properties
            ),
            lambda given=given, properties=properties: StreamDecoder(
                AvroDeserializer(ORDER, **given), STREAM, properties, CLOCK
            ),
        ):
            with pytest.raises(Invalid, match=f"the property schema-header of shop/orders is {stated}: .*{message}"):
                bind()
    # Serializers that know no header handle whole events, as copies need.
    assert bound_encoder(BytesSerializer(), STREAM, {"schema-header": "confluent"})(b"\0x") == b"\0x"
    assert decoded(BytesDeserializer(), b"\0x", {"schema-header": "confluent"}) == b"\0x"


def test_pravegas_header(fake):
    registry = PravegaRegistry(fake.url)
    event = bound_encoder(AvroSerializer(ORDER, registry=registry), STREAM, {"schema-header": "pravega"})(ROW)
    assert event == b"\1\0\0\0\0" + AvroSerializer(ORDER).serialize(ROW)
    assert list(fake.groups) == [("", "shop.orders")]
    assert decoded(AvroDeserializer(registry=registry), event) == ROW
    latest = AvroSerializer(ORDER, registry=registry, use_latest=True)
    assert bound_encoder(latest, STREAM, {})(ROW) == event
    text = bound_encoder(JsonSerializer({"title": "T"}, registry=registry, subject="json"), STREAM, {})({"a": 1})
    assert decoded(JsonDeserializer(registry=registry, subject="json"), text) == {"a": 1}
    scope = controller_pb2.ScopeInfo(scope="s")
    message = bound_encoder(
        ProtobufSerializer(controller_pb2.ScopeInfo, registry=registry, subject="proto"), STREAM, {}
    )(scope)
    assert message == b"\1\0\0\0\0" + scope.SerializeToString()
    reader = ProtobufDeserializer(controller_pb2.ScopeInfo, registry=registry, subject="proto")
    assert decoded(reader, message) == scope
    other = ProtobufDeserializer(controller_pb2.NodeUri, registry=registry, subject="proto")
    with pytest.raises(Invalid, match="it is a message .*ScopeInfo, not .*NodeUri"):
        decoded(other, message)


def test_compressed_events_of_pravega(fake):
    import gzip

    registry = PravegaRegistry(fake.url)
    bound_encoder(AvroSerializer(ORDER, registry=registry), STREAM, {})
    group = fake.groups["", "shop.orders"]
    group["encodings"] += [(0, "application/x-gzip"), (0, "application/x-snappy-framed")]
    payload = AvroSerializer(ORDER).serialize(ROW)
    reader = AvroDeserializer(registry=registry)
    # Java compresses its whole buffer.
    assert decoded(reader, b"\1\0\0\0\1" + gzip.compress(payload + bytes(20))) == ROW
    for wrong, message in (
        (gzip.compress(payload + b"x"), "left over"),
        (gzip.compress(payload)[:-9], "is cut"),
        (b"abc", "not compressed as its codec says"),
        (gzip.compress(bytes(65 * 1024 * 1024)), "more than 67,108,864 bytes"),
    ):
        with pytest.raises(Invalid, match=message):
            decoded(reader, b"\1\0\0\0\1" + wrong)
    with pytest.raises(Invalid, match="codec application/x-snappy-framed is not supported"):
        decoded(reader, b"\1\0\0\0\2" + payload)


def test_unknown_id_is_asked_for_once_in_a_while(fake):
    clock = SetClock()
    decoder = StreamDecoder(AvroDeserializer(registry=RegistryClient(fake.url)), STREAM, {}, clock)
    event = b"\0\0\0\0\x63x"
    with pytest.raises(SchemaNeeded):
        decoder.decode(event)
    decoder.fetch(0x63)
    for _ in range(3):
        with pytest.raises(Invalid, match="40403"):
            decoder.decode(event)
    assert len(fake.requests) == 1
    clock.seconds += UNKNOWN_SCHEMA_SECONDS
    with pytest.raises(SchemaNeeded):
        decoder.decode(event)
    # Another server's answer is no unknown id: a reader that skips must not pass over the event.
    fake.raw = 404, b"<html>"
    with pytest.raises(SchemaNeeded):
        decoder.decode(b"\0\0\0\0\x64x")
    with pytest.raises(Invalid, match="is it the URL of a schema registry"):
        decoder.fetch(0x64)
    with pytest.raises(SchemaNeeded):
        decoder.decode(b"\0\0\0\0\x64x")
    assert decoder.schema_id(event) == 0x63
    assert decoder.schema_id(b"x") is None


# -- payloads from outside ------------------------------------------------------------------------

LIST = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(payload):
    nested = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
    ]}  # fmt: skip
    readers = [AvroDeserializer(ORDER), AvroDeserializer(nested), AvroDeserializer(LIST), JsonDeserializer()]
    for reader in (*readers, ProtobufDeserializer(sarit_pb2.StreamPropertiesRequest), ArrowDeserializer()):
        try:
            reader.deserialize(payload)
        except Invalid as error:
            assert len(str(error)) < 500  # noqa: PT017


@given(st.sampled_from([0, 1, 2]), st.integers(0, 3), st.binary(max_size=30))
def test_any_event_is_decoded_or_refused(url, magic, number, rest):
    event = bytes([magic, 0, 0, 0, number]) + rest
    deserializers = [
        AvroDeserializer(registry=RegistryClient(url)),
        JsonDeserializer(registry=PravegaRegistry(url), subject="json"),
        ProtobufDeserializer(controller_pb2.ScopeInfo, registry=RegistryClient(url)),
    ]
    for deserializer in deserializers:
        try:
            decoded(deserializer, event)
        except Invalid as error:
            assert len(str(error)) < 700  # noqa: PT017


def test_levels_of_a_recursive_schema_do_not_end_the_process():
    reader = AvroDeserializer(LIST)
    assert reader.deserialize(b"\2\2\0") == {"next": {"next": {"next": None}}}
    with pytest.raises(Invalid, match="RecursionError"):
        reader.deserialize(b"\2" * 1_000_000 + b"\0")
    assert AvroSerializer(LIST).serialize({"next": {"next": None}}) == b"\2\0"


def test_hostile_schemas_are_refused():
    nothing = {"type": "record", "name": "Nothing", "fields": []}
    for items in ("null", nothing, {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(Invalid, match="items take no bytes"):
            AvroDeserializer({"type": "array", "items": items})
    deep = "int"
    for number in range(60):
        deep = {
            "type": "record",
            "name": f"R{number}",
            "fields": [{"name": "a", "type": {"type": "array", "items": deep}}],
        }
    with pytest.raises(Invalid, match="levels|types within each other"):
        AvroDeserializer(deep)
    chain = {
        f"R{n}": {"type": "record", "name": f"R{n}", "fields": [{"name": "a", "type": f"R{n + 1}"}]} for n in range(150)
    }
    chain["R150"] = {"type": "record", "name": "R150", "fields": []}
    from sarit.schemas.avro_definition import parse_avro
    from sarit.schemas.avro_shapes import shape_of

    found = parse_avro('{"type": "array", "items": "R0"}', {name: json.dumps(one) for name, one in chain.items()})
    assert shape_of(found.root) == (152, False, True)


def test_short_and_long_data_are_refused():
    payload = AvroSerializer(ORDER).serialize(ROW)
    reader = AvroDeserializer(ORDER)
    for end in range(len(payload)):
        with pytest.raises(Invalid, match="Avro schema shop.Order"):
            reader.deserialize(payload[:end])
    with pytest.raises(Invalid, match="1 bytes are left over"):
        reader.deserialize(payload + b"\0")


# -- JSON -----------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_json_comes_back(value):
    try:
        payload = JsonSerializer().serialize(value)
    except Invalid:
        return  # a surrogate alone has no UTF-8
    assert JsonDeserializer().deserialize(payload) == value


def test_json_with_a_registry(url):
    registry = RegistryClient(url)
    schema = {"title": "Order", "type": "object"}
    event = bound_encoder(JsonSerializer(schema, registry=registry, subject="json"), STREAM, {})({"a": "ü"})
    assert event[5:] == '{"a":"ü"}'.encode()
    assert decoded(JsonDeserializer(registry=registry), event) == {"a": "ü"}
    with pytest.raises(Invalid, match="format JSON, not AVRO"):
        decoded(AvroDeserializer(registry=registry), event)


def test_json_that_does_not_fit(url):
    def no_negatives(value):
        if value < 0:
            raise ValueError("it is negative")

    for wrong in (float("nan"), object(), {1: 2, (1, 2): 3}, -1):
        with pytest.raises(Invalid, match="cannot be written as JSON"):
            JsonSerializer(validate=no_negatives if wrong == -1 else None).serialize(wrong)
    for wrong in (b"", b"{", b"\xff", b"[" * 100_000, b"-1"):
        with pytest.raises(Invalid, match="no JSON that fits"):
            JsonDeserializer(validate=no_negatives).deserialize(wrong)
    assert repr(JsonSerializer("{")) == "JsonSerializer(object)"


# -- Protobuf -------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [descriptor_pb2.DESCRIPTOR, controller_pb2.DESCRIPTOR], ids=lambda file: file.name)
def test_places_of_messages_are_confluents(file):
    kinds = list(file.message_types_by_name.values())
    assert kinds
    while kinds:
        kind = kinds.pop()
        assert list(_indexes_of(kind)) == _create_index_array(kind)
        assert _name_at(FileDescriptorProto.FromString(file.serialized_pb), _indexes_of(kind)) == kind.full_name
        kinds.extend(kind.nested_types)


@pytest.mark.parametrize(
    "message",
    [
        controller_pb2.ServerRequest(),
        controller_pb2.ScopeInfo(scope="s"),
        controller_pb2.StreamConfig(rolloverSizeBytes=5),
    ],
)
def test_protobuf_bytes_are_confluents(url, message):
    kind = type(message)
    ours = bound_encoder(ProtobufSerializer(kind, registry=RegistryClient(url), subject="pb"), STREAM, {})(message)
    registry = SchemaRegistryClient({"url": url})
    options = {"subject.name.strategy": lambda *_: "pb"}
    context = SerializationContext("t", MessageField.VALUE)
    theirs = TheirProtobufSerializer(kind, registry, options)(message, context)
    assert ours == theirs
    assert TheirProtobufDeserializer(kind, {"use.deprecated.format": False})(ours, context) == message
    assert decoded(ProtobufDeserializer(kind, registry=RegistryClient(url)), theirs) == message


def test_message_of_another_kind_is_named(url):
    registry = RegistryClient(url)
    event = bound_encoder(ProtobufSerializer(controller_pb2.ScopeInfo, registry=registry, subject="pb"), STREAM, {})(
        controller_pb2.ScopeInfo(scope="s")
    )
    with pytest.raises(Invalid, match="it is a message .*ScopeInfo, not .*NodeUri"):
        decoded(ProtobufDeserializer(controller_pb2.NodeUri, registry=registry), event)
    far = event[:5] + b"\2\xfe\1" + event[6:]
    with pytest.raises(Invalid, match=r"no message at \[127\]"):
        decoded(ProtobufDeserializer(controller_pb2.ScopeInfo, registry=registry), far)


def test_imports_are_registered_under_their_names(fake):
    registry = RegistryClient(fake.url)
    encode = bound_encoder(ProtobufSerializer(sarit_pb2.StreamPropertiesRequest, registry=registry), STREAM, {})
    imported = [one.name for one in sarit_pb2.DESCRIPTOR.dependencies if not one.name.startswith("google/")]
    assert list(fake.subjects) == [*imported, "shop.orders"]
    made = sarit_pb2.StreamPropertiesRequest(scope="a", stream="b")
    assert decoded(ProtobufDeserializer(type(made), registry=registry), encode(made)) == made


def test_wrong_messages_are_refused():
    serializer = ProtobufSerializer(controller_pb2.ScopeInfo)
    with pytest.raises(Invalid, match="the value is a dict, not a message .*ScopeInfo"):
        serializer.serialize({"scope": "s"})
    with pytest.raises(Invalid, match="not a message"):
        serializer.serialize(timestamp_pb2.Timestamp())
    with pytest.raises(Invalid, match="no message .*ScopeInfo"):
        ProtobufDeserializer(controller_pb2.ScopeInfo).deserialize(b"\x0a\xff")
    for wrong in (dict, 5, controller_pb2.ScopeInfo()):
        with pytest.raises(Invalid, match="give the class of a Protobuf message"):
            ProtobufSerializer(wrong)


# -- Arrow and bytes ------------------------------------------------------------------------------


def test_tables_come_back():
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    serializer, deserializer = ArrowSerializer(), ArrowDeserializer()
    assert deserializer.deserialize(serializer.serialize(table)) == table
    batch = table.to_batches()[0]
    assert deserializer.deserialize(serializer.serialize(batch)) == table
    with pytest.raises(Invalid, match="not a record batch"):
        serializer.serialize([1])
    whole = serializer.serialize(table)
    for end in range(0, len(whole) - 9, 7):
        with pytest.raises(Invalid, match="no stream of Arrow"):
            deserializer.deserialize(whole[:end])


def test_bytes_stay():
    assert BytesSerializer().serialize(bytearray(b"x")) == b"x"
    assert BytesDeserializer().deserialize(b"x") == b"x"
    with pytest.raises(Invalid, match="is a str, not bytes"):
        BytesSerializer().serialize("x")
