"""`sarit read --decode`: events by the schema that their header names."""

from __future__ import annotations

import base64
import io
import json
import struct

import click
import fastavro
import pytest
from google.protobuf import descriptor_pb2

from sarit.cli.event_decoder import ConfluentHeader, EventDecoder, PravegaHeader, header_of
from sarit.cli.read import _events_of
from sarit.core.cuts import StreamCut
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema, SchemaReference
from tests.unit.serializers.fake_registry import served

STREAM, SEGMENT = StreamName("shop", "orders"), SegmentId(0, 3)
ITEM = '{"type": "record", "name": "Item", "fields": [{"name": "n", "type": "long"}]}'
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}'
WRITTEN = fastavro.parse_schema(
    {"type": "record", "name": "Order", "fields": [{"name": "item", "type": json.loads(ITEM)}]}
)
CUT = StreamCut(STREAM, {SEGMENT: 100})


@pytest.fixture
def fake():
    with served() as fake:
        yield fake


def order(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, WRITTEN, {"item": {"n": number}})
    return out.getvalue()


def registered(fake) -> RegistryClient:
    client = RegistryClient(fake.url)
    client.register("item", Schema(ITEM))
    assert client.register("shop.orders", Schema(ORDER, references=(SchemaReference("Item", "item", 1),))) == 2
    assert client.register("notes", Schema("{}", "JSON")) == 3
    return client


def decoder(client, **options) -> EventDecoder:
    return EventDecoder(STREAM, ConfluentHeader(client), **options)


def lines(made: EventDecoder, *events: bytes):
    return list(made.lines(events, CUT, SEGMENT))


def test_each_event_is_shown_by_its_own_schema_which_is_asked_once(fake):
    made = decoder(registered(fake))
    asked = len(fake.requests)
    found = lines(made, confluent_header(2) + order(7), confluent_header(3) + b'{"a": "\xc3\xa4"}')
    assert found == [b'{"item": {"n": 7}}', '{"a": "ä"}'.encode()]
    once = len(fake.requests)
    assert once > asked
    lines(made, *[confluent_header(2) + order(n) for n in range(5)])
    assert len(fake.requests) == once


def test_line_has_id_place_and_key_in_json(fake):
    event = bytes(Envelope(confluent_header(2) + order(7), key="k"))
    (first, second) = lines(decoder(registered(fake), as_json=True), confluent_header(2) + order(7), event)
    assert json.loads(first) == {
        "event": {"item": {"n": 7}}, "schema_id": 2, "segment": str(SEGMENT), "offset": 100,
    }  # fmt: skip
    row = json.loads(second)
    assert (row["key"], row["offset"]) == ("k", 100 + 8 + 5 + len(order(7)))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"", "the event has 0 bytes, fewer than its header"),
        (b"\x01\x00\x00\x00\x02\x02", "begins with 01 00 00 00 02 02, not with 00"),
        (confluent_header(2) + b"\xff", "schema id 2: it is no datum of the Avro schema: byte 1"),
        (confluent_header(3) + b"{", "schema id 3: it is no JSON document"),
        (confluent_header(3) + b"\xff", "schema id 3: it is no JSON document"),
        (confluent_header(3) + b"NaN", "NaN is no number of JSON"),
        (confluent_header(9) + b"x", "schema id 9: the registry at"),
    ],
)
def test_event_that_does_not_fit_is_named_by_its_place(fake, capsys, event, why):
    client, good = registered(fake), confluent_header(2) + order(7)
    where = f"the event at {SEGMENT}, offset {100 + len(good) + 8} of shop/orders is not decoded: "
    found = []
    with pytest.raises(Invalid) as caught:
        found.extend(decoder(client).lines([good, event, good], CUT, SEGMENT))
    assert found == [b'{"item": {"n": 7}}']
    assert str(caught.value).startswith(where)
    assert why in str(caught.value)
    assert str(caught.value).endswith("--on-error skip goes on")
    made = decoder(client, skips=True)
    assert lines(made, good, event, good) == [found[0], None, found[0]]
    assert made.skipped == 1
    assert where in capsys.readouterr().err


def test_unknown_schema_is_asked_for_once(fake):
    made = decoder(registered(fake), skips=True)
    assert lines(made, *[confluent_header(99) + b"x"] * 3) == [None] * 3
    assert made.skipped == 3
    assert fake.requests.count(("GET", "/schemas/ids/99")) == 1


def test_registry_that_is_away_is_no_fault_of_an_event(fake):
    client = registered(fake)
    fake.raw = (500, b"")
    with pytest.raises(Unavailable):
        lines(decoder(client, skips=True), confluent_header(2) + order(7))


def test_encodings_of_pravegas_header_are_those_of_a_group(fake):
    registry = PravegaRegistry(fake.url)
    whole = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": json.loads(ITEM)}]})
    number = registry.register("shop.orders", Schema(whole), "Order")
    made = EventDecoder(STREAM, PravegaHeader(registry, "shop.orders"), as_json=True)
    (line,) = lines(made, pravega_header(number) + order(3))
    assert json.loads(line)["event"] == {"item": {"n": 3}}
    assert json.loads(line)["encoding_id"] == number
    fake.groups["", "shop.orders"]["encodings"].append((0, "application/x-gzip"))
    with pytest.raises(Invalid, match="compressed by the codec application/x-gzip"):
        lines(made, struct.pack(">Bi", 1, 1) + b"x")


def test_protobuf_of_both_headers_is_shown(fake):
    files = descriptor_pb2.FileDescriptorSet()
    base, shapes = (files.file.add(name=name, package="shapes", syntax="proto3") for name in ("base.proto", "s.proto"))
    base.message_type.add(name="Base").field.add(name="n", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    shapes.dependency.append("base.proto")
    shapes.message_type.add(name="First")
    field = shapes.message_type.add(name="Second").field.add(name="base", number=1, label="LABEL_OPTIONAL")
    field.type, field.type_name = field.TYPE_MESSAGE, ".shapes.Base"
    client = RegistryClient(fake.url)
    client.register("base", Schema(base64.b64encode(base.SerializeToString()).decode(), "PROTOBUF"))
    text = base64.b64encode(shapes.SerializeToString()).decode()
    number = client.register("s", Schema(text, "PROTOBUF", (SchemaReference("base.proto", "base", 1),)))
    assert lines(decoder(client), confluent_header(number, [1]) + b"\x0a\x02\x08\x07") == [b'{"base": {"n": 7}}']
    registry = PravegaRegistry(fake.url)
    whole = Schema(base64.b64encode(files.SerializeToString()).decode(), "PROTOBUF")
    number = registry.register("shop.orders", whole, "shapes.Second")
    made = EventDecoder(STREAM, PravegaHeader(registry, "shop.orders"))
    assert lines(made, pravega_header(number) + b"\x0a\x02\x08\x07") == [b'{"base": {"n": 7}}']


def test_stream_without_a_header_is_refused_with_what_to_do(fake):
    for properties in ({}, {"schema-header": "none"}):
        with pytest.raises(click.UsageError, match=r"sarit stream update shop/orders --property schema-header=conf"):
            header_of(STREAM, properties, fake.url, None)
    with pytest.raises(click.UsageError, match="--group is about Pravega's header"):
        header_of(STREAM, {"schema-header": "confluent"}, fake.url, "g")
    found = header_of(STREAM, {"schema-header": "pravega"}, fake.url, None)
    assert repr(found).startswith("<PravegaHeader, group shop.orders")


@pytest.mark.parametrize(
    ("lines", "whole", "events"),
    [([b"a", b"b"], 1, 1), ([None, b"a", None, b"b"], 0, 1), ([None, b"a", None, b"b"], 1, 3), ([None, None], 0, 2),
     ([b"a", None], 1, 2), ([], 0, 0)],
)  # fmt: skip
def test_skipped_events_are_done_with_the_line_before_them(lines, whole, events):
    assert _events_of(lines, whole) == events
