"""Protobuf messages behind Confluent's header: which message of the writer's file each is, and its columns.

A reader finds fields by their numbers, so the message of the reader's schema decodes those of all versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.protobuf_forms import message_at, message_names
from sarit.schemas.protobuf_reader import ProtobufReader, protobuf_columns
from sarit.serializers.headers import parse_message_indexes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.schemas.payloads import PayloadReader, Rows
    from sarit.schemas.protobuf_schema import ProtobufSchema
    from sarit.serializers.schema_source import WrittenSchema


class FileMessages:
    """The messages of a file, of which one gives the columns."""

    def __init__(self, schema: WrittenSchema) -> None:
        """Raises Invalid: it cannot be parsed."""
        self._schema: ProtobufSchema = parse_protobuf(schema.text, dict(schema.references))
        self._message = schema.message

    @property
    def main(self) -> str:
        """The full name of the message that payloads are which do not say it.  Raises Invalid: there is none."""
        names = message_names(self._schema)
        if not names:
            raise Invalid("the Protobuf schema has no message")
        return self._message or names[0]

    def at(self, indexes: Sequence[int]) -> str:
        """Return the full name of the message at a place.  Raises Invalid: there is none."""
        return message_at(self._schema, indexes)

    def columns(self) -> pa.Schema:
        """Return the columns of the main message.  Raises Invalid."""
        return protobuf_columns(self._schema, self.main)

    def reader(self, wanted: pa.Schema) -> ProtobufReader:
        """Return a decoder of some columns of the main message.  Raises Invalid for others."""
        return ProtobufReader(wanted, self._schema, self.main)


class MessageReader:
    """Decodes messages that come after their place in the writer's file."""

    def __init__(self, inner: PayloadReader, written: FileMessages, message: str) -> None:
        """`message`: the full name of those that `inner` decodes."""
        self._inner = inner
        self._written = written
        self._message = message
        self._names: dict[tuple[int, ...], str] = {}

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a payload."""
        try:
            return self._inner.problem(self._body(payload))
        except Invalid as error:
            return str(error)

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        bodies: list[bytes | None] = []
        for one in payloads.to_pylist():
            try:
                bodies.append(self._body(one))
            except Invalid:
                bodies.append(None)
        return self._inner.read(pa.array(bodies, pa.large_binary()))

    def _body(self, payload: bytes) -> bytes:
        indexes, at = parse_message_indexes(payload, 0)
        # Places that the file does not have raise, so no more names are kept than it has.
        name = self._names.get(indexes)
        if name is None:
            name = self._names[indexes] = self._written.at(indexes)
        if name != self._message:
            raise Invalid(f"it is a message {name}, and messages {self._message} are read")
        return payload[at:]
