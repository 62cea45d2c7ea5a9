"""Protobuf schemas as descriptors of files, in pools of their own.

A schema is what protoc makes of a file: a FileDescriptorProto, in one form for all texts that mean the same.  Its names
of types are full and begin with a dot; names of JSON stand only where they are not the usual ones; places in the
source and comments are left out; options are interpreted.  It is kept as bytes: descriptors can be changed, bytes not.

The classes of descriptors are of a pool that holds `descriptor.proto` alone: those of Protobuf's default pool would
read options of others as whatever extensions the process happened to import.  Pure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_PROTOBUF_MEMBERS
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

DESCRIPTOR_FILE: Final = "google/protobuf/descriptor.proto"
MAIN_FILE: Final = "default"  # the name of a schema's own file, as Confluent's registry gives it
_MAX_PARTS: Final = 2 * MAX_PROTOBUF_MEMBERS  # with their options
_WELL_KNOWN: Final = frozenset(
    ("any", "api", "compiler/plugin", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
     "timestamp", "type", "wrappers")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A schema.  `file`: its descriptor, serialized, without a name.

    `dependencies`: descriptors of the files that it imports, and those import, each after all that it imports itself;
    their names are the paths of imports.  Equal schemas mean the same."""

    file: bytes
    dependencies: tuple[bytes, ...] = ()

    def descriptor(self) -> FileDescriptorProto:
        """Return a copy of the schema's own descriptor, which has the name `MAIN_FILE`."""
        made = new_file(self.file)
        made.name = MAIN_FILE
        return made

    def files(self) -> list[FileDescriptorProto]:
        """Return a copy of each descriptor, the schema's own last."""
        return [*map(new_file, self.dependencies), self.descriptor()]


@functools.cache
def _file_class() -> Any:
    return message_factory.GetMessageClass(new_pool().FindMessageTypeByName("google.protobuf.FileDescriptorProto"))


def new_file(data: bytes = b"") -> FileDescriptorProto:
    """Return the descriptor of a file from its bytes.  Raises DecodeError."""
    made: FileDescriptorProto = _file_class().FromString(data)
    return made


def given_file(data: bytes) -> FileDescriptorProto:
    """Return the descriptor of a file from bytes of others.

    Raises DecodeError, and ValueError for too many parts, and for a string that is no UTF-8: the library takes it for
    bytes."""
    made = new_file(data)
    left: list[Any] = [made]
    count = 1
    while left:
        for field, value in left.pop().ListFields():
            values = value if field.is_repeated else (value,)
            if field.type == field.TYPE_MESSAGE:
                count += len(values)
                if count > _MAX_PARTS:
                    raise ValueError("the descriptor has too many parts")
                left += values
            elif field.type == field.TYPE_STRING and not all(isinstance(one, str) for one in values):
                raise ValueError("a string is no UTF-8")
    return made


def well_known_file(name: str) -> FileDescriptorProto | None:
    """Return the descriptor of a file that Protobuf brings, by its path of import; None for others."""
    inner = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if inner not in _WELL_KNOWN or name != f"google/protobuf/{inner}.proto":
        return None
    return new_file(_well_known_module(inner).DESCRIPTOR.serialized_pb)


def _well_known_module(inner: str) -> Any:
    from importlib import import_module

    return import_module(f"google.protobuf.{inner.replace('/', '.')}_pb2")


def new_pool() -> DescriptorPool:
    """Return a pool that holds `descriptor.proto` alone."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    return pool


def add_to_pool(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    """Add a file to a pool that holds all that it imports.

    Raises Invalid with what Protobuf's library finds wrong with it."""
    if file.name == DESCRIPTOR_FILE:
        return
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except Exception as error:  # the library raises TypeError, and for large ones others
        why = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise Invalid(f"{described(file.name)}: {shown(why)}") from None


def pool_of(schema: ProtobufSchema) -> DescriptorPool:
    """Return a new pool that holds the files of a schema."""
    pool = new_pool()
    for one in schema.files():
        add_to_pool(pool, one)
    return pool


def described(name: str) -> str:
    """Return how errors name a file."""
    return "the Protobuf schema" if name == MAIN_FILE else f"the imported {shown(name)}"


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Yield each message of a file with its full name: one before those within it, entries of maps included."""
    prefix = f"{file.package}." if file.package else ""
    left = [(f"{prefix}{one.name}", one) for one in reversed(file.message_type)]
    while left:
        name, message = left.pop()
        yield name, message
        left += [(f"{name}.{one.name}", one) for one in reversed(message.nested_type)]


def is_closed(enum: EnumDescriptorProto, file: FileDescriptorProto) -> bool:
    """Return whether an enum of a file takes its own values alone."""
    closed = descriptor_pb2.FeatureSet.CLOSED
    if file.syntax != "editions":
        return file.syntax != "proto3"
    own = enum.options.features.enum_type or file.options.features.enum_type
    return own == closed
