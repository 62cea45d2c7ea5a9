"""Events as JSON documents for people, by the schema that their header names."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.core.properties import CONFLUENT
from sarit.schemas.definitions import Kind
from sarit.schemas.documents import DocumentReader
from sarit.schemas.schema_text import shown
from sarit.serializers.headers import parse_message_indexes
from sarit.serializers.limits import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST_MESSAGE: Final[tuple[int, ...]] = (0,)


def event_document(header: str, reader: DocumentReader, payload: bytes) -> Any:
    """Return the document of a payload with its header.  Raises Invalid: the payload is not of the reader's schema."""
    indexes, at = _FIRST_MESSAGE, HEADER_BYTES
    if reader.kind is Kind.PROTOBUF and header == CONFLUENT:
        indexes, at = parse_message_indexes(payload)
    return reader.read(payload[at:], indexes)


def document_reader(format: str, text: str, references: Mapping[str, str]) -> DocumentReader:
    """Return a reader of a schema of a registry with Confluent's API.  `format`: as registries name it.

    Raises Invalid: the text is no schema of that format."""
    return DocumentReader(Kind(format) if format in Kind.__members__ else Kind.OPAQUE, text, references)


def files_reader(text: str, message: str) -> DocumentReader:
    """Return a reader of a message of Pravega's Protobuf schema, which is a FileDescriptorSet.  Raises Invalid."""
    main, others = descriptor_files(text, message)
    return DocumentReader(Kind.PROTOBUF, main, others, message)


def descriptor_files(text: str, message: str) -> tuple[str, dict[str, str]]:
    """Return the file of a FileDescriptorSet that has a message, and the other files by their paths, each in base64.

    `text`: the set in base64.  Raises Invalid."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file
    except (ValueError, DecodeError):
        raise Invalid("its schema is no set of Protobuf files") from None
    texts = {file.name: base64.b64encode(file.SerializeToString()).decode() for file in files}
    for file in files:
        prefix = f"{file.package}." if file.package else ""
        if any(f"{message}.".startswith(f"{prefix}{one.name}.") for one in file.message_type):
            return texts.pop(file.name), texts
    raise Invalid(f"its schema has no message {shown(message)}")


__all__ = ["descriptor_files", "document_reader", "event_document", "files_reader"]
