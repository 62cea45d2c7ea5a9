"""FileDescriptorSets of Pravega's serializers: which message they are about, and which files they need.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2

from sarit.registry.errors import BadSchema
from sarit.registry.pravega.fields import shown
from sarit.schemas.limits import MAX_SCHEMA_BYTES
from sarit.schemas.protobuf_schema import well_known_file

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet


def message_in(data: bytes, given: str) -> str:
    """Return the full name of the message that a type means: it may lack the package; empty: the first message.

    Raises BadSchema: there is no such message, or the data are no FileDescriptorSet."""
    names = [
        f"{file.package}.{message.name}" if file.package else message.name
        for file in _parsed(data).file
        for message in file.message_type
    ]
    for name in names:
        if given in ("", name, name.rpartition(".")[2]):
            return name
    defined = shown(", ".join(names)) if names else "none"
    raise BadSchema(
        f"the type is {shown(given)}, and the FileDescriptorSet has the messages {defined}: give a full name"
    )


def imports_others(data: bytes) -> bool:
    """Return whether a file of a FileDescriptorSet imports one that Protobuf does not bring.  Raises BadSchema."""
    return any(well_known_file(name) is None for file in _parsed(data).file for name in file.dependency)


def _parsed(data: bytes) -> FileDescriptorSet:
    if len(data) > MAX_SCHEMA_BYTES:
        raise BadSchema(f"a schema has at most {MAX_SCHEMA_BYTES:,} bytes")
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(data)
    except Exception:  # DecodeError, UnicodeDecodeError
        raise BadSchema("schemaData is no FileDescriptorSet") from None
    return found
