"""Documents of events for an index: by the header that the property of their stream names."""

from __future__ import annotations

import pytest

from sarit.core.errors import NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.process.jobs.event_fields import EventFields
from sarit.search.document_maker import NOT_DECODED
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.query import ALL_TEXT
from sarit.search.schema_documents import stream_documents
from sarit.serializers.schema_source import WrittenSchema

NAME = StreamName("shop", "orders")
SCHEMA = '{"type": "object", "properties": {"id": {"type": "string"}}}'


def fields_of(properties, stream, schemas, clock) -> EventFields:
    return EventFields(stream_documents(stream, properties, schemas, clock))


class Schemas:
    """A registry with one schema, of number 7."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []
        self.is_away = False

    def written(self, subject, number, header):
        self.asked.append((subject, number, header))
        if self.is_away:
            raise Unavailable("away")
        if number != 7:
            raise NotFound("no such schema")
        return WrittenSchema("JSON", SCHEMA)


def event(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + b'{"id": "abc", "note": "payment failed"}'


def test_payloads_are_decoded_by_the_header_that_the_stream_names():
    schemas = Schemas()
    fields = fields_of({"schema-header": "confluent"}, NAME, schemas, real_env().clock)
    mapping = fields.infer([event(7)])
    assert mapping == Mapping((Field("id", Kind.KEYWORD), Field("note", Kind.TEXT)))
    maker = fields.maker(mapping)
    found = maker.document(event(7))
    assert (found.keywords, found.texts["note"], found.problem) == ({"id": ["abc"]}, [["payment", "failed"]], "")
    # What cannot be decoded is searched as a text, and counted.
    unknown = maker.document(event(8))
    assert unknown.problem == NOT_DECODED
    assert "payment" in unknown.texts[ALL_TEXT][0]
    maker.document(event(8))
    assert schemas.asked == [("shop.orders", 7, "confluent"), ("shop.orders", 8, "confluent")]


def test_registry_that_does_not_answer_ends_the_run():
    schemas = Schemas()
    schemas.is_away = True
    fields = fields_of({"schema-header": "confluent"}, NAME, schemas, real_env().clock)
    with pytest.raises(Unavailable):
        fields.maker(Mapping()).document(event(7))


@pytest.mark.parametrize("properties", [{}, {"schema-header": "none"}])
def test_payloads_without_a_header_are_documents_if_they_are_json(properties):
    fields = fields_of(properties, NAME, Schemas(), real_env().clock)
    assert fields.infer([b'{"paid": true}']) == Mapping((Field("paid", Kind.BOOLEAN),))
    assert fields.maker(Mapping()).document(b"plain words").texts == {ALL_TEXT: [["plain", "words"]]}
