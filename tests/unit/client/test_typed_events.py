"""Writers with serializers and readers with deserializers, on a node and a registry in memory."""

import asyncio
import dataclasses
import json
import pickle
import threading

import pytest

import sarit
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
    RegistryClient,
    Undecodable,
)
from tests.nodes import RunningNode
from tests.unit.serializers.fake_registry import served

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
NEWER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "count", "type": "int", "default": 1}]}
ORDERS = [{"id": number, "item": f"item {number}"} for number in range(700)]  # more than are decoded at once


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("typed") / "node") as running:
        yield running


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller, retry_timeout=5) as client:
        client.create_scope("s")
        yield client


@pytest.fixture
def fake():
    with served() as fake:
        yield fake


@pytest.fixture
def stream(client, request):
    name = f"s/{request.node.name.replace('_', '-').replace('[', '-').rstrip(']')}"
    client.create_stream(name)
    return name


def read(client, stream, deserializer, **options):
    with client.reader(stream, end="tail", deserializer=deserializer, **options) as reader:
        return list(reader)


def test_values_come_back_in_order(client, stream, fake):
    registry = RegistryClient(fake.url)
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry)) as writer:
        for order in ORDERS[:10]:
            writer.write(order, key="a")
        writer.write_many(ORDERS[10:], ["a"] * len(ORDERS[10:]))
    assert read(client, stream, AvroDeserializer(registry=registry)) == ORDERS
    assert list(fake.subjects) == [stream.replace("/", ".")]
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=registry)) as reader:
        assert reader.read() == ORDERS[0]
        assert reader.read_events(3) == ORDERS[1:4]
        position = reader.position()
        assert next(iter(reader.batches())) == ORDERS[4:256]
    assert read(client, stream, AvroDeserializer(registry=registry), start=position) == ORDERS[4:]
    # Without a deserializer the events are what was stored.
    with client.reader(stream, end="tail") as reader:
        assert reader.read()[:5] == b"\0\0\0\0\1"


def test_schema_that_changes_within_a_stream(client, stream, fake):
    registry = RegistryClient(fake.url)
    rows = []
    for schema, row in ((SCHEMA, {"id": 1, "item": "a"}), (NEWER, {"id": 2, "item": "b", "count": 5})) * 2:
        with client.writer(stream, serializer=AvroSerializer(schema, registry=registry)) as writer:
            writer.write(row, "key")
            rows.append(row)
    assert read(client, stream, AvroDeserializer(registry=RegistryClient(fake.url))) == rows
    newer = read(client, stream, AvroDeserializer(NEWER, registry=registry))
    assert [row["count"] for row in newer] == [1, 5, 1, 5]
    asked = [path for method, path in fake.requests if path.startswith("/schemas/ids")]
    assert sorted(asked) == sorted(["/schemas/ids/1", "/schemas/ids/2"] * 2)


@dataclasses.dataclass
class Order:
    id: int
    item: str


def test_asyncio_and_transactions(node, stream, fake):
    serializer = AvroSerializer(SCHEMA, to_dict=dataclasses.asdict, registry=RegistryClient(fake.url))
    deserializer = AvroDeserializer(from_dict=lambda row: Order(**row), registry=RegistryClient(fake.url))

    async def run() -> list[Order]:
        async with sarit.aio.connect(node.controller) as client:
            async with client.transactional_writer(stream, serializer=serializer) as writer:
                for number in range(2):
                    async with await writer.begin() as transaction:
                        transaction.write(Order(number, "a"), key="k")
                        with pytest.raises(sarit.Invalid, match="does not fit the Avro schema Order"):
                            transaction.write(Order("x", "a"))
            async with client.writer(stream, serializer=serializer) as plain:
                plain.write(Order(2, "b"))
            unopened = client.writer(stream, serializer=serializer)
            with pytest.raises(sarit.Invalid, match="open it first, as `async with` does"):
                unopened.write(Order(3, "c"))
            (await unopened.open()).write(Order(3, "c"))
            await unopened.close()
            reader = client.reader(stream, end="tail", deserializer=deserializer)
            return [order async for order in reader]

    assert asyncio.run(run()) == [Order(0, "a"), Order(1, "a"), Order(2, "b"), Order(3, "c")]
    registered = [path for method, path in fake.requests if method == "POST"]
    assert len(registered) == 1


def test_threads_share_a_writer(client, stream):
    with client.writer(stream, serializer=JsonSerializer()) as writer:
        threads = [
            threading.Thread(target=lambda: [writer.write({"n": number}) for number in range(200)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(client, stream, JsonDeserializer())
    assert sorted(one["n"] for one in found) == sorted(list(range(200)) * 4)


def test_groups_have_values_beside_the_bytes(client, stream, fake):
    registry = RegistryClient(fake.url)
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry)) as writer:
        writer.write_many(ORDERS)
    deserializer = AvroDeserializer(registry=registry)
    group = client.reader_groups.create(f"{stream}-group", stream, end="tail")
    with group.reader("one", deserializer=deserializer) as reader:
        first = reader.read(10)
        assert first.value == ORDERS[0]
        assert client.stream(stream).fetch_event(first.pointer) == first.event
        batch = reader.read_batch(300, 10)
        assert batch.values == ORDERS[1:256]
        assert [event[5:] for event in batch.events] == list(map(AvroSerializer(SCHEMA).serialize, batch.values))
        assert batch.offset == first.offset + 8 + len(first.event)
        with pytest.raises(sarit.Invalid, match="read record batches with one that has none"):
            reader.read_arrow(1)
        position = batch.position
        reader.close(position)
    with group.reader("two", deserializer=deserializer) as reader:
        found = []
        while not reader.at_end:
            if isinstance(event := reader.read(timeout=0.01), sarit.GroupEvent):
                found.append(event.value)
        assert found == ORDERS[256:]
        assert reader.skipped == 0
    with group.reader("three") as reader:
        assert reader.read(0.1) is None


BAD = [b"", b"{", b"\0\0\0\0\1", b"\0\0\0\0\x63xx", b"\0\0\0\0\1\2\x08ab"]


def write_with_bad(client, stream, fake):
    """Good events with every kind of bad one among them."""
    registry = RegistryClient(fake.url)
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry)) as typed:
        typed.write_many(ORDERS[:2], ["k"] * 2)
        typed.flush()
        with client.writer(stream) as plain:
            plain.write_many(BAD, ["k"] * len(BAD))
        typed.write_many(ORDERS[2:4], ["k"] * 2)
    return registry


def test_event_that_does_not_fit_is_an_error_with_its_place(client, stream, fake):
    registry = write_with_bad(client, stream, fake)
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=registry)) as reader:
        assert reader.read_events(5) == ORDERS[:2]
        before = reader.position()
        for _ in range(2):  # it is not consumed
            with pytest.raises(
                Undecodable, match=r"the event at offset \d+ of s/\S+/0.#epoch.0 cannot be decoded: "
            ) as at:
                reader.read()
            assert reader.position() == before
        error = at.value
        assert (error.event, str(error.stream), error.schema_id) == (b"", stream, None)
        assert error.offset == next(iter(before.positions.values()))
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.offset, again.event) == (str(error), error.offset, error.event)
        assert not reader.at_tail
        assert reader.skipped == 0


def test_events_that_do_not_fit_are_skipped_and_counted(client, stream, fake):
    registry = write_with_bad(client, stream, fake)
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=registry), on_error="skip") as reader:
        assert list(reader) == ORDERS[:4]
        assert reader.skipped == len(BAD)
        assert reader.position() == client.stream_cut_tail(stream)
    group = client.reader_groups.create(f"{stream}-group", stream, end="tail")
    with group.reader("one", deserializer=AvroDeserializer(registry=registry), on_error="skip") as reader:
        assert [event.value for event in reader] == ORDERS[:4]
        assert reader.skipped == len(BAD)


@pytest.mark.parametrize("way", ["reader", "group"])
def test_dead_letters_say_where_they_came_from(client, stream, fake, way):
    registry = write_with_bad(client, stream, fake)
    dead = f"{stream}-dead"
    client.create_stream(dead)
    deserializer = AvroDeserializer(registry=registry)
    if way == "reader":
        found = read(client, stream, deserializer, on_error=dead)
    else:
        group = client.reader_groups.create(f"{stream}-group", stream, end="tail")
        with group.reader("one", deserializer=deserializer, on_error=sarit.StreamName.parse(dead)) as reader:
            found = []
            while not reader.at_end:  # each call ends before the letters are durable, and none is written twice
                if isinstance(event := reader.read(timeout=0), sarit.GroupEvent):
                    found.append(event.value)
            assert reader.skipped == len(BAD)
    assert found == ORDERS[:4]
    with client.reader(dead, end="tail") as reader:
        letters = [sarit.Envelope.parse(event) for event in reader]
    assert [letter.payload for letter in letters] == BAD
    headers = [dict(letter.headers) for letter in letters]
    with client.reader(stream, end="tail") as reader:
        raw = list(reader)
    offsets = [sum(8 + len(event) for event in raw[:at]) for at in range(2, 2 + len(BAD))]
    assert [int(one["sarit.offset"]) for one in headers] == offsets
    assert {one["sarit.stream"] for one in headers} == {stream.encode()}
    assert {letter.key for letter in letters} == {f"{stream}/0.#epoch.0"}
    assert [one.get("sarit.schema-id") for one in headers] == [None, None, b"1", b"99", b"1"]
    assert b"40403" in headers[3]["sarit.error"]


def test_dead_letters_need_their_stream(client, stream, fake):
    registry = write_with_bad(client, stream, fake)
    with (
        client.reader(
            stream, end="tail", deserializer=AvroDeserializer(registry=registry), on_error=f"{stream}-none"
        ) as reader,
        pytest.raises(sarit.NotFound),
    ):
        list(reader)
    assert reader.skipped == 0
    for wrong in ("ignore", "", 5):
        with pytest.raises(sarit.Invalid, match="on_error"):
            client.reader(stream, deserializer=JsonDeserializer(), on_error=wrong)
    with pytest.raises(sarit.Invalid, match="give a deserializer, too"):
        client.reader(stream, on_error="skip")


def test_registry_that_comes_back_is_waited_for(client, stream, fake):
    registry = write_with_bad(client, stream, fake)
    fresh = RegistryClient(fake.url)
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=fresh), on_error="skip") as reader:
        fake.raw = 503, b""
        timer = threading.Timer(0.3, lambda: setattr(fake, "raw", None))
        timer.start()
        assert list(reader) == ORDERS[:4]
        assert reader.skipped == len(BAD)
    # A wrong answer is no unknown schema: nothing is passed over.
    fake.raw = 404, b"<html>"
    fresh = RegistryClient(fake.url)
    with client.reader(stream, end="tail", deserializer=AvroDeserializer(registry=fresh), on_error="skip") as reader:
        with pytest.raises(sarit.Invalid, match="is it the URL of a schema registry"):
            reader.read()
        assert reader.skipped == 0
    with pytest.raises(sarit.Invalid, match="is it the URL of a schema registry"):
        client.writer(stream, serializer=AvroSerializer(NEWER, registry=registry))


def test_header_is_the_streams(client, stream, fake):
    client.stream(stream).set_properties({"schema-header": "pravega"})
    confluent, pravega = RegistryClient(fake.url), PravegaRegistry(fake.url)
    for registry, message in ((confluent, "give the .* a PravegaRegistry"), (None, "give the .* a registry")):
        with pytest.raises(sarit.Invalid, match=f"schema-header of {stream} is pravega: .*{message}"):
            client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=registry))
        with pytest.raises(sarit.Invalid, match=f"schema-header of {stream} is pravega: .*{message}"):
            client.reader(stream, deserializer=AvroDeserializer(SCHEMA, registry=registry))
    with client.writer(stream, serializer=AvroSerializer(SCHEMA, registry=pravega)) as writer:
        writer.write(ORDERS[1])
    assert read(client, stream, AvroDeserializer(registry=pravega)) == ORDERS[1:2]
    assert read(client, stream, BytesDeserializer())[0][:5] == b"\1\0\0\0\0"


class Doubling:
    """A serializer of one's own: any object with the method."""

    def serialize(self, value: bytes) -> bytes:
        return value * 2

    def deserialize(self, payload: bytes) -> bytes:
        return payload[: len(payload) // 2]


def test_serializers_of_ones_own(client, stream):
    with client.writer(stream, serializer=Doubling()) as writer:
        writer.write(b"ab")  # bytes are values, too
        with pytest.raises(TypeError):
            writer.write_many([b"x", None])
    assert read(client, stream, BytesDeserializer()) == [b"abab"]
    assert read(client, stream, Doubling()) == [b"ab"]
    with client.writer(stream, serializer=BytesSerializer()) as writer, pytest.raises(sarit.Invalid):
        writer.write("text")
    for wrong in (json, "avro", 5):
        with pytest.raises(sarit.Invalid, match="give a serializer: an object with a method `serialize` or None"):
            client.writer(stream, serializer=wrong)
        with pytest.raises(sarit.Invalid, match="give a deserializer: an object with a method `deserialize` or None"):
            client.reader(stream, deserializer=wrong)


def test_tables_of_arrow_as_events(client, stream):
    import pyarrow as pa

    tables = [pa.table({"a": [number, number + 1]}) for number in range(3)]
    with client.writer(stream, serializer=ArrowSerializer()) as writer:
        writer.write_many(tables)
    with client.reader(stream, end="tail", deserializer=ArrowDeserializer()) as reader:
        assert list(reader) == tables
        with pytest.raises(sarit.Invalid, match="read record batches with one that has none"):
            reader.read_arrow()
        with pytest.raises(sarit.Invalid, match="read values with read"):
            reader.next_events()


def test_stream_that_is_not_there(client):
    with pytest.raises(sarit.NotFound):
        client.writer("s/none", serializer=AvroSerializer(SCHEMA))
    with pytest.raises(sarit.NotFound):
        client.reader("s/none", deserializer=AvroDeserializer(SCHEMA))
