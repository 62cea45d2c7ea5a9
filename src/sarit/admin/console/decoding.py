"""Events on the screen by the schema that their header names: for one page that asked for it.

The registry is asked once for each id.  Decoding takes processor time that appends need, too: it is done on a thread,
of few and small events at a time, and a page that nobody asked to decode has none of this.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.admin.console.limits import (
    CONSOLE_DECODED_EVENT_BYTES,
    CONSOLE_DECODED_TEXT_CHARS,
    CONSOLE_DECODER_SCHEMAS,
)
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid, NotFound, SaritError
from sarit.core.properties import CONFLUENT, PRAVEGA, SCHEMA_HEADER
from sarit.schemas.documents import DocumentReader
from sarit.serializers.event_documents import event_document
from sarit.serializers.headers import default_subject, header_number
from sarit.serializers.known_readers import KnownReaders, NoReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.admin.console.schema_view import SchemaSource, SchemasView
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.security.permissions import Caller


class EventDecoder:
    """Adds to documents of events what their schemas make of them."""

    def __init__(
        self, schemas: SchemasView, caller: Caller | None, stream: StreamName, properties: Mapping[str, str], env: Env
    ) -> None:  # fmt: skip
        """Raises Invalid: the properties of the stream name no header."""
        self._header = properties.get(SCHEMA_HEADER, "")
        if self._header not in (CONFLUENT, PRAVEGA):
            raise Invalid(f"events of {stream} name no schema: the stream has no property {SCHEMA_HEADER}")
        self._schemas = schemas
        self._caller = caller
        self._group = default_subject(stream)
        self._readers = KnownReaders[DocumentReader](env.clock, CONSOLE_DECODER_SCHEMAS)
        self._worker = env.threads.worker("decode")

    def __repr__(self) -> str:
        return f"<EventDecoder, header {self._header}, {self._readers!r}>"

    async def close(self) -> None:
        """End the worker."""
        await self._worker.close()

    async def decode(self, events: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return for each event {"schema_id", "decoded": text of JSON}, or {"not_decoded": why}."""
        numbers = [self._number(event) for event in events]
        for number in dict.fromkeys(found for found in numbers if isinstance(found, int)):
            await self._add_reader(number)
        return await self._worker.run(partial(self._shown, events, numbers))

    def _number(self, event: bytes) -> int | str:
        """Return the id that an event names, or why it names none."""
        try:
            payload = _payload(event)
            if len(payload) > CONSOLE_DECODED_EVENT_BYTES:
                return f"it has more than {CONSOLE_DECODED_EVENT_BYTES:,} bytes"
            return header_number(self._header, payload)
        except (Invalid, Corrupt) as error:
            return str(error)

    async def _add_reader(self, number: int) -> None:
        if self._readers.get(number) is not None:
            return
        try:
            source = await self._source(number)
            # Parsing takes time, too.
            self._readers.add(number, await self._worker.run(partial(_reader, source)))
        except NotFound:
            self._readers.add_missing(number, "the registry has no such schema, or none that you may read")
        except SaritError as error:
            self._readers.add_missing(number, str(error))

    async def _source(self, number: int) -> SchemaSource:
        if self._header == CONFLUENT:
            return await self._schemas.schema(self._caller, number)
        found = await self._schemas.encoding(self._caller, "", self._group, number)
        if found.codec:
            raise Invalid(f"its payload is compressed by the codec {found.codec}")
        return found

    def _shown(self, events: Sequence[bytes], numbers: Sequence[int | str]) -> list[dict[str, Any]]:
        return [self._one(event, number) for event, number in zip(events, numbers, strict=True)]

    def _one(self, event: bytes, number: int | str) -> dict[str, Any]:
        if isinstance(number, str):
            return {"not_decoded": number}
        reader = self._readers.get(number) or NoReader("its schema was dropped: too many schemas at once")
        if isinstance(reader, NoReader):
            return {"schema_id": number, "not_decoded": reader.why}
        payload = _payload(event)
        try:
            text = json.dumps(event_document(self._header, reader, payload), ensure_ascii=False)
        except Invalid as error:
            return {"schema_id": number, "not_decoded": str(error)}
        if len(text) > CONSOLE_DECODED_TEXT_CHARS:
            return {"schema_id": number, "not_decoded": f"as JSON it has {len(text):,} characters"}
        return {"schema_id": number, "decoded": text}


def _payload(event: bytes) -> bytes:
    return Envelope.parse(event).payload if Envelope.is_envelope(event) else event


def _reader(source: SchemaSource) -> DocumentReader:
    return DocumentReader(source.kind, source.text, source.references, source.message)


__all__ = ["EventDecoder"]
