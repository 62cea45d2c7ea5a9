"""The fields of the events of streams, for indexers (`search/indexer.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.properties import NO_HEADER, SCHEMA_HEADER
from sarit.schemas.documents import DocumentReader
from sarit.search.document_maker import DocumentMaker
from sarit.search.mapping_inference import infer
from sarit.search.schema_documents import SchemaDocuments
from sarit.serializers.event_documents import document_reader
from sarit.serializers.headers import default_subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.search.document_maker import Decode
    from sarit.search.mapping import Mapping as FieldMapping
    from sarit.serializers.schema_source import SchemaSource


class EventFields:
    """Makes documents of events, and finds out which fields they have."""

    def __init__(self, decode: Decode | None = None) -> None:
        """`decode`: makes documents of payloads; None: those that are JSON are documents."""
        self._decode = decode

    def __repr__(self) -> str:
        return f"<EventFields, {self._decode!r}>"

    def maker(self, mapping: FieldMapping) -> DocumentMaker:
        """Return what makes documents with the fields of a mapping."""
        return DocumentMaker(mapping, self._decode)

    def infer(self, events: Sequence[bytes]) -> FieldMapping:
        """Return the fields of some events.  Raises Unavailable."""
        return infer(events, self._decode)


def fields_of(
    properties: Mapping[str, str], stream: StreamName, schemas: SchemaSource, clock: Clock
) -> EventFields:  # fmt: skip
    """Return what makes documents of the events of a stream with these properties."""
    header, subject = properties.get(SCHEMA_HEADER, NO_HEADER), default_subject(stream)
    if header == NO_HEADER:
        return EventFields()

    def reader(number: int) -> DocumentReader:
        found = schemas.written(subject, number, header)
        made = document_reader(found.format, found.text, dict(found.references))
        return DocumentReader(made.kind, found.text, dict(found.references), found.message) if found.message else made

    return EventFields(SchemaDocuments(header, reader, clock))
