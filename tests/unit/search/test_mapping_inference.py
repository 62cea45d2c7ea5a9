"""Fields of events for which nobody gave a mapping."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid, NotFound
from sarit.core.limits import MIB
from sarit.core.names import StreamName
from sarit.env.real import RealClock
from sarit.schemas.definitions import Kind as SchemaKind
from sarit.schemas.documents import DocumentReader
from sarit.search.document_maker import OTHER_KIND, DocumentMaker
from sarit.search.limits import MAX_MAPPED_FIELDS, MAX_SAMPLED_BYTES, MAX_SAMPLED_EVENTS
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.mapping_inference import Sample, infer
from sarit.search.schema_documents import SchemaDocuments, stream_documents
from sarit.serializers.headers import confluent_header
from tests.unit.serializers.memory_schemas import MemorySchemas

NAME = StreamName("s", "t")
TIME = "2026-01-31T12:00:00Z"


def events(*documents):
    return [json.dumps(document).encode() for document in documents]


def kinds(*documents):
    return {field.path: field.kind for field in infer(events(*documents)).fields}


def test_fields_have_the_kinds_of_their_values() -> None:
    first = {"level": "ERROR", "message": "it is late", "took": 3, "ok": True, "at": TIME, "none": None, "list": []}
    second = {"level": "WARN", "items": [{"sku": "a"}, {"sku": "b", "n": 1.5}], "user": {"id": 7}}
    found = infer([b"text", *events(first, second)])
    assert found == Mapping(
        (
            Field("level", Kind.KEYWORD), Field("message", Kind.TEXT), Field("took", Kind.NUMBER),
            Field("ok", Kind.BOOLEAN), Field("at", Kind.TIME), Field("items.sku", Kind.KEYWORD),
            Field("items.n", Kind.NUMBER), Field("user.id", Kind.NUMBER),
        )
    )  # fmt: skip
    assert found.check() is found


def test_mixed_kinds_are_texts_or_keywords() -> None:
    assert kinds({"a": 1}, {"a": "x"}) == {"a": Kind.KEYWORD}
    assert kinds({"a": 1}, {"a": "x y"}, {"a": True}) == {"a": Kind.TEXT}
    assert kinds({"a": TIME}, {"a": "later"}) == {"a": Kind.KEYWORD}
    assert kinds({"a": True}, {"a": 1}) == {"a": Kind.KEYWORD}


def test_the_field_of_times_is_the_first_of_the_usual_ones() -> None:
    assert infer(events({"ts": TIME, "timestamp": TIME})).time_field == "timestamp"
    assert infer(events({"ts": TIME, "timestamp": "soon"})).time_field == "ts"
    assert infer(events({"time": 1_700_000_000_000}, {"time": 0})).time_field == "time"
    assert infer(events({"when": TIME, "a": {"ts": TIME}})).time_field == ""
    assert kinds({"other": 1_700_000_000_000}) == {"other": Kind.NUMBER}


def test_an_envelope_is_opened_and_a_schema_asked() -> None:
    assert infer([bytes(Envelope(b'{"a": 1}'))]).fields == (Field("a", Kind.NUMBER),)

    def decode(payload):
        if payload == b"bad":
            raise Invalid("no")
        return {"b": payload.decode()}

    assert infer([b"bad", b"x"], decode).fields == (Field("b", Kind.KEYWORD),)


def test_a_sample_is_bounded() -> None:
    many = {f"f{at}": at for at in range(50_000)}
    assert len(infer(events(many)).fields) == MAX_MAPPED_FIELDS
    long = {f"{'x' * 200}{at}": 1 for at in range(500)}
    infer(events(long)).check()
    assert len(infer(events(long)).fields) < 60
    late = [b"{}"] * MAX_SAMPLED_EVENTS + events({"late": 1})
    assert infer(late).fields == ()
    deep = b'{"name":' * 900 + b"1" + b"}" * 900
    began = time.monotonic()
    assert infer([deep] * 100 + [b"[" * MIB, b'{"' + b"k" * 500_000 + b'": 1}', b'{"a\\u0000b": 1}']).fields == ()
    assert time.monotonic() - began < 20


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(TIME)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=200)
@given(st.lists(_JSON, max_size=4))
def test_documents_of_a_sample_fit_what_is_inferred_of_it(documents) -> None:
    sample = events(*documents)
    found = infer(sample).check()
    maker = DocumentMaker(found)
    mixed = {field.path for field in found.fields if field.kind in (Kind.NUMBER, Kind.TIME)}
    for event in sample:
        made = maker.document(event)
        assert made.problem != OTHER_KIND or mixed  # a number that no double holds; a time that is no likely one


def test_a_stream_names_the_header_of_its_payloads() -> None:
    schemas = MemorySchemas()
    assert stream_documents(NAME, {}, schemas, RealClock()) is None
    assert stream_documents(NAME, {"schema-header": "none"}, schemas, RealClock()) is None
    decode = stream_documents(NAME, {"schema-header": "confluent"}, schemas, RealClock())
    assert schemas.add("s.t", '"string"') == 1
    assert decode(confluent_header(1) + b"\x04ab") == "ab"


def test_documents_of_schemas_are_read_with_the_reader_of_their_number() -> None:
    asked = []

    def reader(number):
        asked.append(number)
        if number == 3:
            raise NotFound("no such schema")
        return DocumentReader(SchemaKind.AVRO, '"long"', {})

    decode = SchemaDocuments("confluent", reader, RealClock())
    assert [decode(confluent_header(1) + payload) for payload in (b"\x0e", b"\x10")] == [7, 8]
    for payload, why in (
        (b"plain", "begins with"), (confluent_header(3) + b"x", "no such schema"), (confluent_header(1), "."),
    ):  # fmt: skip
        with pytest.raises(Invalid, match=why):
            decode(payload)
    with pytest.raises(Invalid, match="no such schema"):
        decode(confluent_header(3))
    assert asked == [1, 3], "a schema is asked for once"


def test_sample_takes_so_many_events_and_none_after_so_many_bytes() -> None:
    sample = Sample()
    assert sample.left == MAX_SAMPLED_EVENTS
    sample.add([b"a"] * (MAX_SAMPLED_EVENTS - 1))
    assert sample.left == 1
    sample.add([b"b", b"c"])
    assert (sample.left, len(sample.events), sample.events[-1]) == (0, MAX_SAMPLED_EVENTS, b"b")
    long = Sample()
    long.add(bytes(MAX_SAMPLED_BYTES // 2) for _ in range(10))
    assert (long.left, len(long.events)) == (0, 2)
    late = Sample()
    late.add([bytes(MAX_SAMPLED_BYTES - 1)])
    assert late.left == MAX_SAMPLED_EVENTS - 1
