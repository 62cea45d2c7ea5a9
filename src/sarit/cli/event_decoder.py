"""`sarit read --decode`: events as JSON, by the schema that the header of each names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import click

from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid, NotFound
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.properties import CONFLUENT, NO_HEADER, PRAVEGA, SCHEMA_HEADER
from sarit.env.real import RealClock
from sarit.serializers.event_documents import document_reader, event_document, files_reader
from sarit.serializers.headers import default_subject, header_number
from sarit.serializers.known_readers import KnownReaders, NoReader
from sarit.serializers.schema import PROTOBUF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId, StreamName
    from sarit.schemas.documents import DocumentReader
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.registry_client import RegistryClient


class Header(Protocol):
    """A kind of header, with the registry that knows the numbers in it."""

    header: str
    name: str  # of the number, for messages

    def reader(self, number: int) -> DocumentReader:
        """Return a reader of the schema that a number stands for.  Raises NotFound, Invalid."""


class ConfluentHeader:
    """Confluent's header: the id of a schema."""

    header = CONFLUENT
    name = "schema id"

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry

    def __repr__(self) -> str:
        return f"<ConfluentHeader, {self._registry!r}>"

    def reader(self, number: int) -> DocumentReader:
        """Return a reader of the schema of an id."""
        schema = self._registry.schema_by_id(number)
        others = self._registry.referenced(schema)
        return document_reader(schema.format, schema.text, {name: one.text for name, one in others.items()})


class PravegaHeader:
    """Pravega's header: the id of an encoding in a group."""

    header = PRAVEGA
    name = "encoding id"

    def __init__(self, registry: PravegaRegistry, group: str) -> None:
        self._registry = registry
        self._group = group

    def __repr__(self) -> str:
        return f"<PravegaHeader, group {self._group}, {self._registry!r}>"

    def reader(self, number: int) -> DocumentReader:
        """Return a reader of the schema of an encoding."""
        found = self._registry.encoding(self._group, number)
        if found.codec:
            raise Invalid(f"its payload is compressed by the codec {found.codec}, which --decode does not know")
        if found.schema.format == PROTOBUF:
            return files_reader(found.schema.text, found.type)
        return document_reader(found.schema.format, found.schema.text, {})


def header_of(
    stream: StreamName, properties: Mapping[str, str], url: str, group: str | None
) -> ConfluentHeader | PravegaHeader:
    """Return the header that the events of a stream have.  Raises UsageError: its properties name none."""
    header = properties.get(SCHEMA_HEADER, NO_HEADER)
    if header == CONFLUENT:
        from sarit.cli.schema.registry import open_registry

        if group is not None:
            raise click.UsageError("--group is about Pravega's header: an id of Confluent's means one schema in all")
        return ConfluentHeader(open_registry(url))
    if header == PRAVEGA:
        from sarit.cli.schema.registry import open_pravega_registry

        return PravegaHeader(open_pravega_registry(url), group or default_subject(stream))
    raise click.UsageError(
        f"events of {stream} name no schema, as far as its properties say: if their writers put a header before them, "
        f"say which with `sarit stream update {stream} --property {SCHEMA_HEADER}={CONFLUENT}` (or {PRAVEGA})"
    )


class EventDecoder:
    """Makes a JSON document of each event; of one that does not fit an error, or with `skips` a message."""

    def __init__(self, stream: StreamName, header: Header, *, skips: bool = False, as_json: bool = False) -> None:
        """`as_json`: a line has the place of the event, its schema and its key, too."""
        self._stream = stream
        self._header = header
        self._skips = skips
        self._as_json = as_json
        self._readers: KnownReaders[DocumentReader] = KnownReaders(RealClock())
        self.skipped = 0

    def __repr__(self) -> str:
        return f"<EventDecoder of {self._stream}, {self._readers!r}>"

    def lines(self, events: Sequence[bytes], cut: StreamCut, segment: SegmentId) -> Iterator[bytes | None]:
        """Yield the line of each event of a batch, which begins at `cut`; None: it is skipped.

        Raises Invalid: an event does not fit; the text names its segment and offset."""
        offset = cut.positions[segment]
        for event in events:
            try:
                yield self._line(event, segment, offset)
            except (Invalid, Corrupt, NotFound) as error:
                why = f"the event at {segment}, offset {offset} of {self._stream} is not decoded: {error}"
                if not self._skips:
                    raise Invalid(f"{why}; --on-error skip goes on") from None
                self.skipped += 1
                click.echo(f"sarit: {why}", err=True)
                yield None
            offset += EVENT_HEADER_BYTES + len(event)

    def _line(self, event: bytes, segment: SegmentId, offset: int) -> bytes:
        envelope = Envelope.parse(event) if Envelope.is_envelope(event) else None
        number, document = self._decoded(event if envelope is None else envelope.payload)
        if self._as_json:
            row: dict[str, Any] = {"event": document, self._header.name.replace(" ", "_"): number,
                                   "segment": str(segment), "offset": offset}  # fmt: skip
            if envelope is not None and envelope.key is not None:
                row["key"] = envelope.key
            document = row
        return json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace")

    def _decoded(self, payload: bytes) -> tuple[int, Any]:
        number = header_number(self._header.header, payload)
        try:
            return number, event_document(self._header.header, self._reader(number), payload)
        except (Invalid, NotFound) as error:
            raise Invalid(f"{self._header.name} {number}: {error}") from None

    def _reader(self, number: int) -> DocumentReader:
        """Return the reader of a number.  Raises NotFound, Invalid."""
        found = self._readers.get(number)
        if isinstance(found, NoReader):
            raise Invalid(found.why)
        if found is not None:
            return found
        try:
            return self._readers.add(number, self._header.reader(number))
        except NotFound as error:
            self._readers.add_missing(number, str(error))
            raise
