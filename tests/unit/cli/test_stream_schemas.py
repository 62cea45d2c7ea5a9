"""The schemas beside an exported stream: those that its events name, once each, and back with their ids."""

from __future__ import annotations

import pytest

from sarit.cli.schema.transfer import read_file
from sarit.cli.transfer.stream_schemas import SchemaCollector, path_of, register, wanted
from sarit.core.envelope import Envelope
from sarit.core.errors import Conflict, Invalid, Unavailable
from sarit.core.names import StreamName
from sarit.serializers.headers import confluent_header
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema, SchemaReference
from tests.unit.serializers.fake_registry import served

STREAM = StreamName("shop", "orders")


@pytest.fixture
def fake():
    with served() as fake:
        client = RegistryClient(fake.url)
        client.register("base", Schema('"int"'))
        client.register("shop.orders", Schema("{}", "JSON", (SchemaReference("b", "base", 1),)))
        client.register("other", Schema('"long"'))
        client.register("another", Schema('"long"'))
        client.register("unused", Schema('"string"'))
        client.delete("shop.orders")
        yield fake


def collector(fake, file, *, goes_on=False) -> SchemaCollector:
    return SchemaCollector(str(file), STREAM, RegistryClient(fake.url), goes_on=goes_on)


def keys(file) -> list[tuple[str, int, int]]:
    return [(*one.key, one.held.id) for one in read_file(str(path_of(str(file))))]


def test_schemas_that_events_name_are_written_once_with_what_they_refer_to(fake, tmp_path, capsys):
    file = tmp_path / "out.jsonl"
    made = collector(fake, file)
    made.add([confluent_header(2) + b"{}", confluent_header(2), b"", b"\x01plain", confluent_header(9)])
    made.add([bytes(Envelope(confluent_header(3) + b"\x02", key="k")), confluent_header(9), b"\xf5SE\x01 damaged"])
    assert keys(file) == [("base", 1, 1), ("shop.orders", 1, 2), ("other", 1, 3)]
    assert capsys.readouterr().err.count("the schema of id 9") == 1
    asked = len(fake.requests)
    made.add([confluent_header(3)] * 5)
    assert len(fake.requests) == asked


def test_export_that_goes_on_keeps_what_it_has(fake, tmp_path):
    file = tmp_path / "out.parquet"
    collector(fake, file).add([confluent_header(2)])
    with path_of(str(file)).open("ab") as out:
        out.write(b'{"subject": "half')
    made = collector(fake, f"{file}/", goes_on=True)
    asked = len(fake.requests)
    made.add([confluent_header(2), confluent_header(1)])
    assert len(fake.requests) == asked
    made.add([confluent_header(3)])
    assert [key[2] for key in keys(file)] == [1, 2, 3]
    collector(fake, file).add([confluent_header(1)])  # a new export
    assert keys(file) == [("base", 1, 1)]


def test_schemas_are_registered_with_their_ids(fake, tmp_path):
    file = tmp_path / "out.raw"
    collector(fake, file).add([confluent_header(2), confluent_header(3)])
    assert register(str(file), RegistryClient(fake.url)) == 0
    with served() as other:
        client = RegistryClient(other.url)
        client.register("base", Schema('"int"'))  # with the same id; one more version is no obstacle
        client.register("base", Schema('"double"'))
        other.schemas[7], other.subjects["base"][2] = other.schemas.pop(2), 7
        assert register(str(file), client) == 2
        assert {number: other.schemas[number] for number in (1, 2, 3)} == {
            number: fake.schemas[number] for number in (1, 2, 3)
        }
        assert other.modes == {}
    with served() as taken:
        client = RegistryClient(taken.url)
        client.register("mine", Schema('"bytes"'))
        with pytest.raises(Conflict, match="give another --registry; --no-schemas imports the events without"):
            register(str(file), client)
        taken.modes[None] = "READONLY"
        with pytest.raises(Invalid, match="takes no ids of another one for base.*--no-schemas imports the events"):
            register(str(file), client)
        taken.raw = (500, b"")
        with pytest.raises(Unavailable, match="cannot be registered.*--no-schemas imports the events without"):
            register(str(file), client)


@pytest.mark.parametrize(
    ("file", "header", "without", "said"),
    [
        ("f", "confluent", False, None),
        ("f", "confluent", True, ""),
        ("f", "none", False, ""),
        ("f", "", False, ""),
        ("-", "confluent", False, "there is no file beside standard output; `sarit schema export` has all"),
        ("f", "pravega", False, "by numbers that this registry alone gives; `sarit schema export` has all"),
    ],
)
def test_export_says_when_it_cannot_have_schemas(file, header, without, said, capsys):
    assert wanted(file, {"schema-header": header}, without=without) is (said is None)
    assert capsys.readouterr().err.rstrip().endswith(said or "")
