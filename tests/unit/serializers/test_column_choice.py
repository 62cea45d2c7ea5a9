"""Which columns the payloads of a stream have: by choice, by what its properties say, by what the registry has."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid, NotFound
from sarit.core.names import StreamName
from sarit.schemas.column_types import TIMESTAMP
from sarit.serializers.column_choice import choose_columns, columns_of_stream, open_columns
from sarit.serializers.headers import confluent_header, pravega_header
from sarit.serializers.http_schemas import PravegaSchemas
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.schema import Schema
from tests.limits import examples
from tests.unit.serializers.fake_registry import FakeRegistry, served
from tests.unit.serializers.memory_schemas import MemorySchemas
from tests.unit.serializers.test_payload_columns import V1, V2, datum, read

STREAM = StreamName("s", "t")
CONFLUENT = {"schema-header": "confluent"}
NONE = {"schema-header": "none"}
DOCUMENT = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "sarit": {"type": "string"}}})


@pytest.fixture
def source():
    made = MemorySchemas()
    made.add("s.t", json.dumps(V1))
    return made


@pytest.mark.parametrize(
    ("properties", "choice", "names"),
    [
        ({}, "binary", ["value"]),
        (CONFLUENT, "binary", ["value"]),
        ({}, "auto", ["value"]),
        (CONFLUENT, "auto", ["id"]),
        (CONFLUENT, "schema", ["id"]),
    ],
)
def test_columns_by_choice(source, properties, choice, names):
    assert columns_of_stream(properties, STREAM, source, choice).schema.names == names


def test_auto_leaves_payloads_as_they_are_without_a_subject(source):
    other = StreamName("s", "other")
    assert columns_of_stream(CONFLUENT, other, source, "auto").schema.names == ["value"]
    assert columns_of_stream(CONFLUENT, STREAM, None, "auto").schema.names == ["value"]
    with pytest.raises(NotFound):
        columns_of_stream(CONFLUENT, other, source, "schema")


@pytest.mark.parametrize(
    ("properties", "choice", "named"),
    [
        ({}, "schema", "does not say what its events begin with: set it with `sarit stream update s/t --property"),
        (NONE, "schema", "have no header .* choose binary"),
        (NONE, "auto", "have no header .* choose binary"),
        (CONFLUENT, "json", "begin with a header .* choose schema or auto"),
        ({}, "json", "inferred from events, and none were given"),
        ({}, "arrow", "values are one of auto, schema, json, binary, not arrow"),
    ],
)
def test_stream_that_does_not_fit_the_choice(source, properties, choice, named):
    with pytest.raises(Invalid, match=named):
        choose_columns(properties, STREAM, source, choice)


def test_schema_needs_a_registry(source):
    with pytest.raises(Invalid, match="need a schema registry"):
        choose_columns(CONFLUENT, STREAM, None, "schema")
    with pytest.raises(Invalid, match="not there any more"):
        open_columns(choose_columns(CONFLUENT, STREAM, source, "schema"), None)


def test_documents_without_a_header_have_the_columns_of_their_json_schema():
    made = MemorySchemas()
    made.add("s.t", DOCUMENT, "JSON")
    columns = columns_of_stream(NONE, STREAM, made, "auto")
    assert columns.schema.names == ["id", "sarit_"]
    assert read(columns, [b'{"id": 1, "sarit": "x"}']) == ([[1], ["x"]], [False])


def test_chosen_columns_stay_when_a_newer_version_comes(source):
    chosen = choose_columns(CONFLUENT, STREAM, source, "auto")
    number = source.add("s.t", json.dumps(V2))
    payloads = [
        confluent_header(1) + datum({"id": 1}, V1),
        confluent_header(number) + datum({"id": 2, "city": "x"}, V2),
    ]
    assert open_columns(chosen, source).schema.names == ["id"]
    later = open_columns(choose_columns(CONFLUENT, STREAM, source, "auto"), source)
    assert read(later, payloads) == ([[1, 2], [None, "x"]], [False, False])


def test_registry_that_names_no_versions_gives_the_latest_one():
    with served(FakeRegistry()) as fake:
        client = PravegaRegistry(fake.url)
        number = client.register("s.t", Schema(json.dumps(V2)), "Order")
        columns = columns_of_stream({"schema-header": "pravega"}, STREAM, PravegaSchemas(client), "auto")
        payload = pravega_header(number) + datum({"id": 2, "city": "x"}, V2)
        assert read(columns, [payload]) == ([[2], ["x"]], [False])


def documents(*given):
    return lambda: [json.dumps(one).encode() for one in given]


def test_columns_of_documents_grow_with_later_samples():
    first = choose_columns({}, STREAM, None, "json", documents({"id": 1, "at": "2026-01-01T00:00:00Z"}))
    known = open_columns(first, None).schema
    assert known == pa.schema([("id", pa.int64()), ("at", TIMESTAMP)])
    # A table that keeps times without their zone, and large texts.
    naive = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("s", pa.large_string())])
    sample = documents({"id": "x", "tags": [{"a": 1.5}], "s": "y"})
    second = choose_columns(NONE, STREAM, None, "json", sample, naive)
    assert open_columns(second, None).schema == pa.schema([
        ("id", pa.int64()), ("at", TIMESTAMP), ("s", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.struct([("a", pa.float64())])))),
    ])  # fmt: skip
    assert choose_columns({}, STREAM, None, "json", documents(), known) == first
    with pytest.raises(Invalid, match="no member of them has a value"):
        choose_columns({}, STREAM, None, "json", documents())


def test_member_with_the_name_of_the_position_gets_an_underscore():
    sample = documents({"Sarit": 1, "sarit_": 2, "a": 3})
    known = open_columns(choose_columns({}, STREAM, None, "json", sample), None)
    assert read(known, sample()) == ([[1], [3]], [False])
    for _ in range(3):
        assert known.schema.names == ["Sarit_", "a"]
        known = open_columns(choose_columns({}, STREAM, None, "json", sample, known.schema), None)


def test_text_of_the_columns_is_bounded():
    known = pa.schema([(f"{at:0200}", pa.int64()) for at in range(150)])
    sample = documents({f"x{at:0200}": at for at in range(70)})
    found = open_columns(choose_columns({}, STREAM, None, "json", sample, known), None)
    assert found.schema == known


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"value":"x"}', '{"value":"schema"}', '{"value":"json","columns":[["a"]]}',
             '{"value":"json","columns":[["a","x"]]}', '{"value":"json","columns":[["a",{"list":7}]]}', "[" * 100_000],
)  # fmt: skip
def test_damaged_text_is_named(source, text):
    with pytest.raises(Corrupt):
        open_columns(text, source)


LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["2026-01-01T00:00:00Z", "x"])
)
NAMES = st.sampled_from(["a", "b", "A", "sarit", "sarit_"])
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=2) | st.dictionaries(NAMES, one, max_size=2), max_leaves=6
)
SAMPLES = st.lists(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=3), min_size=1, max_size=4)


@given(SAMPLES)
@settings(max_examples=examples(150))
def test_columns_of_documents_only_grow(samples):
    known = None
    for sample in samples:
        try:
            chosen = choose_columns({}, STREAM, None, "json", documents(*sample), known)
        except Invalid:
            assert known is None
            continue
        found = open_columns(chosen, None)
        assert found.schema.names[: len(known or [])] == (known.names if known is not None else [])
        assert "sarit" not in found.schema.names
        found.read(pa.array(documents(*sample)(), pa.binary()))
        assert choose_columns({}, STREAM, None, "json", documents(*sample), found.schema) == chosen
        known = found.schema
