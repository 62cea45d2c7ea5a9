"""Documents of payloads by the schema that their header names.  Calls block: a registry is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid, NotFound
from sarit.core.properties import CONFLUENT, NO_HEADER, PRAVEGA, SCHEMA_HEADER
from sarit.schemas.definitions import Kind
from sarit.schemas.documents import DocumentReader
from sarit.serializers.event_documents import event_document
from sarit.serializers.headers import default_subject, header_number
from sarit.serializers.known_readers import KnownReaders, NoReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.serializers.schema_source import SchemaSource


class SchemaDocuments:
    """Makes documents of payloads; a `Decode` of `DocumentMaker`."""

    def __init__(self, header: str, reader: Callable[[int], DocumentReader], clock: Clock) -> None:
        """`header`: the kind of header that payloads have.  `reader`: returns a reader of the schema of a number, or
        raises NotFound, Invalid, Unavailable."""
        self._header = header
        self._reader = reader
        self._readers = KnownReaders[DocumentReader](clock)

    def __repr__(self) -> str:
        return f"<SchemaDocuments, header {self._header}, {self._readers!r}>"

    def __call__(self, payload: bytes) -> Any:
        """Return the document of a payload with its header.

        Raises Invalid: it has no header, no schema, or is not of it.  Raises Unavailable."""
        number = header_number(self._header, payload)
        found = self._readers.get(number)
        if found is None:
            try:
                found = self._readers.add(number, self._reader(number))
            except (NotFound, Invalid) as error:
                found = self._readers.add_missing(number, str(error))
        if isinstance(found, NoReader):
            raise Invalid(found.why)
        return event_document(self._header, found, payload)


def stream_documents(
    stream: StreamName, properties: Mapping[str, str], schemas: SchemaSource, clock: Clock
) -> SchemaDocuments | None:
    """Return what makes documents of the payloads of a stream; None: they name no schema, as its properties say."""
    header = properties.get(SCHEMA_HEADER, NO_HEADER)
    if header not in (CONFLUENT, PRAVEGA):
        return None
    group = default_subject(stream)

    def reader(number: int) -> DocumentReader:
        written = schemas.written(group, number, header)
        if written.codec:
            raise Invalid(f"its payload is compressed by the codec {written.codec}")
        kind = Kind(written.format) if written.format in Kind.__members__ else Kind.OPAQUE
        return DocumentReader(kind, written.text, dict(written.references), written.message)

    return SchemaDocuments(header, reader, clock)


__all__ = ["SchemaDocuments", "stream_documents"]
