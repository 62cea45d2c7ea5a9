"""Whether messages of one Protobuf schema can be read with another.

Fields are compared by their numbers, and messages by their full names without the package: a file may move to another
package, as in Confluent's registry.  All messages of the writer's file are compared, and those that their fields have,
each pair once, with the fields of extensions.  Nothing recurses.

The reader's schema may have:

- a wider type: int32 for a bool or an enum, int64 for these, int32 and uint32, uint32 and uint64 for a bool, uint64
  for uint32, sint64 for sint32, bytes for a string.  Confluent's takes int32, uint32, int64, uint64, bool and enums for
  each other, though numbers are lost;
- new fields unless they are required, and fewer fields; not fewer in a oneof that it has in common with the writer's,
  for then another choice was made than the reader sees.  Confluent's also refuses to drop a required field;
- one oneof around one field; not around two that the writer may set both;
- other names of fields and of an enum's values, but no name of a value that stood for another number.  A closed enum
  has all the numbers of the writer's: it reads others as if none was set.  Confluent's compares no enums;
- neither repeated fields for single ones nor the reverse, though strings and messages would be read: values become
  columns of another type.  Confluent's allows it for strings, bytes and messages.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf import descriptor_pb2

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_INCOMPATIBILITIES, MAX_SCHEMA_STEPS
from sarit.schemas.protobuf_option_values import BYTES_TYPE, ENUM_TYPE, GROUP_TYPE, MESSAGE_TYPE, STRING_TYPE
from sarit.schemas.protobuf_parser import LABELS, TYPES
from sarit.schemas.protobuf_schema import is_closed, messages_of
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

    from sarit.schemas.protobuf_schema import ProtobufSchema

_INT32, _INT64, _UINT32, _UINT64 = (TYPES[name] for name in ("int32", "int64", "uint32", "uint64"))
_INTEGERS: Final = frozenset((_INT32, _INT64, _UINT32, _UINT64))
# The writer's type -> types of readers that read it beside the same.
_WIDENED: Final[Mapping[int, frozenset[int]]] = {
    TYPES["bool"]: _INTEGERS,
    ENUM_TYPE: frozenset((_INT32, _INT64)),
    _INT32: frozenset((_INT64,)),
    _UINT32: frozenset((_UINT64, _INT64)),
    TYPES["sint32"]: frozenset((TYPES["sint64"],)),
    STRING_TYPE: frozenset((BYTES_TYPE,)),
}
_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}
_REPEATED, _REQUIRED = LABELS["repeated"], LABELS["required"]
_NAMES_SHOWN: Final = 10
_PAIR_STEPS: Final = 5  # for a pair is kept, and its fields are put in order


def incompatibilities(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    """Return why messages of the writer's schema cannot be read with the reader's: a place and a sentence each.

    At most `MAX_INCOMPATIBILITIES`; none if all can be read.  Raises Invalid for schemas that are too large together.
    """
    if reader == writer:
        return []
    comparison = _Comparison(_Types(reader), _Types(writer))
    comparison.compare()
    return comparison.reasons[:MAX_INCOMPATIBILITIES]


class _Message(NamedTuple):
    """A message with its file.  `name`: without the package.  Internal."""

    name: str
    descriptor: DescriptorProto
    file: FileDescriptorProto


class _Types:
    """The messages, enums and extensions of a schema's files, by their full names with a dot before.  Internal."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.messages: dict[str, _Message] = {}
        self.enums: dict[str, tuple[EnumDescriptorProto, bool]] = {}  # with whether each is closed
        self._extensions: dict[str, list[tuple[FieldDescriptorProto, FileDescriptorProto]]] = {}
        self.own: dict[str, _Message] = {}  # of the schema's own file, by name without the package
        files = schema.files()
        for file in files:
            prefix = f".{file.package}" if file.package else ""
            self._add(prefix, file, file)
            for name, message in messages_of(file):
                found = _Message(name.removeprefix(f"{file.package}.") if file.package else name, message, file)
                self.messages[f".{name}"] = found
                self._add(f".{name}", message, file)
                if file is files[-1] and not message.options.map_entry:
                    self.own[found.name] = found

    def _add(self, scope: str, owner: Any, file: FileDescriptorProto) -> None:
        for enum in owner.enum_type:
            self.enums[f"{scope}.{enum.name}"] = enum, is_closed(enum, file)
        for field in owner.extension:
            self._extensions.setdefault(field.extendee, []).append((field, file))

    def fields(self, message: _Message) -> dict[int, tuple[FieldDescriptorProto, FileDescriptorProto]]:
        """Return the fields of a message by number, each with its file: those of extensions, too."""
        package = f".{message.file.package}" if message.file.package else ""
        found = {one.number: (one, message.file) for one in message.descriptor.field}
        found |= {one.number: (one, file) for one, file in self._extensions.get(f"{package}.{message.name}", ())}
        return found

    def entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """Return the message of a map's entries; None for a field that is no map."""
        if field.type != MESSAGE_TYPE or field.label != _REPEATED:
            return None
        found = self.messages[field.type_name].descriptor
        return found if found.options.map_entry else None

    def name(self, field: FieldDescriptorProto) -> str:
        """Return the type of a field as reasons name it."""
        scalar = _TYPE_NAMES.get(field.type)
        if scalar:
            return scalar
        if field.type == ENUM_TYPE:
            return f"the enum {shown(field.type_name[1:])}"
        return f"the message {shown(self.messages[field.type_name].name)}"


class _Comparison:
    """The pairs of messages that two schemas lead to, and the reasons found.  Internal."""

    def __init__(self, reader: _Types, writer: _Types) -> None:
        self.reasons: list[str] = []
        self._reader, self._writer = reader, writer
        self._seen: set[tuple[int, int]] = set()
        self._left: list[tuple[_Message, _Message]] = []
        self._steps = 0

    def compare(self) -> None:
        """Compare all messages of the writer's file, and those that they lead to."""
        for name, message in self._writer.own.items():
            self._count(1)
            ours = self._reader.own.get(name)
            if ours is None:
                self._add(name, "the reader's schema has no such message")
            else:
                self._need(ours, message)
            while self._left and len(self.reasons) < MAX_INCOMPATIBILITIES:
                self._compare_messages(*self._left.pop())

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_SCHEMA_STEPS:
            raise Invalid("the schemas are too large to be compared: use fewer messages and fields")

    def _add(self, where: str, why: str) -> None:
        self.reasons.append(f"{shown(where)}: {why}")

    def _need(self, reader: _Message, writer: _Message) -> None:
        key = id(reader), id(writer)
        if key not in self._seen:
            self._count(_PAIR_STEPS)
            self._seen.add(key)
            self._left.append((reader, writer))

    def _compare_messages(self, reader: _Message, writer: _Message) -> None:
        ours, theirs = self._reader.fields(reader), self._writer.fields(writer)
        self._count(len(ours) + len(theirs))
        for number, (field, file) in sorted(ours.items(), key=lambda item: item[0]):
            where = f"{reader.name}.{field.name}, field {number}"
            found = theirs.get(number)
            if found is not None:
                self._compare_fields(where, (field, file), found)
            elif _is_required(field, file):
                self._add(where, "the reader requires a field that the writer does not have")
        self._compare_oneofs(reader, writer)

    def _compare_fields(
        self,
        where: str,
        reader: tuple[FieldDescriptorProto, FileDescriptorProto],
        writer: tuple[FieldDescriptorProto, FileDescriptorProto],
    ) -> None:
        ours, theirs = reader[0], writer[0]
        entries = self._reader.entry(ours), self._writer.entry(theirs)
        if (entries[0] is None) != (entries[1] is None):
            which = ("the reader", "the writer") if entries[0] else ("the writer", "the reader")
            self._add(where, f"{which[0]} has a map, and {which[1]} none")
        elif entries[0] and entries[1]:
            for index, role in enumerate(("key", "value")):
                pair = (entries[0].field[index], reader[1]), (entries[1].field[index], writer[1])
                self._compare_types(f"{where}, {role} of the map", *pair)
        elif (ours.label == _REPEATED) != (theirs.label == _REPEATED):
            which = ("the reader", "the writer") if ours.label == _REPEATED else ("the writer", "the reader")
            self._add(where, f"{which[0]} has a repeated field, and {which[1]} a single one")
        else:
            if _is_required(*reader) and not _is_required(*writer):
                self._add(where, "the reader requires a field that the writer need not set")
            self._compare_types(where, reader, writer)

    def _compare_types(
        self,
        where: str,
        reader: tuple[FieldDescriptorProto, FileDescriptorProto],
        writer: tuple[FieldDescriptorProto, FileDescriptorProto],
    ) -> None:
        ours, theirs = reader[0], writer[0]
        messages = (MESSAGE_TYPE, GROUP_TYPE)
        if ours.type in messages and theirs.type in messages:
            inner, other = self._reader.messages[ours.type_name], self._writer.messages[theirs.type_name]
            if _is_delimited(*reader) != _is_delimited(*writer):
                self._add(where, "one of reader and writer has a group, or delimited messages")
            elif inner.name != other.name:
                self._add(
                    where, f"the reader has {self._reader.name(ours)}, and the writer {self._writer.name(theirs)}"
                )
            else:
                self._need(inner, other)
        elif ours.type == theirs.type == ENUM_TYPE:
            self._compare_enums(where, ours.type_name, theirs.type_name)
        elif ours.type != theirs.type and ours.type not in _WIDENED.get(theirs.type, ()):
            self._add(where, f"the reader has {self._reader.name(ours)}, and the writer {self._writer.name(theirs)}")

    def _compare_enums(self, where: str, reader: str, writer: str) -> None:
        (ours, closed), (theirs, _) = self._reader.enums[reader], self._writer.enums[writer]
        self._count(len(ours.value) + len(theirs.value))
        numbers = {one.name: one.number for one in ours.value}
        moved = [one for one in theirs.value if numbers.get(one.name, one.number) != one.number]
        if moved:
            some = ", ".join(f"{shown(one.name)} ({one.number})" for one in moved[:_NAMES_SHOWN])
            self._add(where, f"names of the writer's enum stand for other numbers in the reader's: {some}")
        known = set(numbers.values())
        lacking = [one for one in theirs.value if one.number not in known]
        if closed and lacking:
            some = ", ".join(f"{shown(one.name)} ({one.number})" for one in lacking[:_NAMES_SHOWN])
            self._add(where, f"the reader's closed enum has no {some}")

    def _compare_oneofs(self, reader: _Message, writer: _Message) -> None:
        ours = {one.number: one for one in reader.descriptor.field}
        theirs = {one.number: one for one in writer.descriptor.field}
        choices: dict[int, list[FieldDescriptorProto]] = {}
        for one in reader.descriptor.field:
            if one.HasField("oneof_index") and not one.proto3_optional and one.number in theirs:
                choices.setdefault(one.oneof_index, []).append(theirs[one.number])
        members: dict[int, list[FieldDescriptorProto]] = {}
        for one in writer.descriptor.field:
            if one.HasField("oneof_index") and not one.proto3_optional:
                members.setdefault(one.oneof_index, []).append(one)
        for index, fields in choices.items():
            where = f"{reader.name}.{reader.descriptor.oneof_decl[index].name}"
            shared = {one.oneof_index if one.HasField("oneof_index") else -one.number for one in fields}
            if len(shared) > 1:
                some = ", ".join(shown(one.name) for one in fields[:_NAMES_SHOWN])
                self._add(where, f"the reader has one of {some}, and the writer may set several")
            for other in sorted(shared):
                lacking = [one for one in members.get(other, ()) if one.number not in ours]
                if lacking:
                    some = ", ".join(f"{shown(one.name)} ({one.number})" for one in lacking[:_NAMES_SHOWN])
                    self._add(where, f"the reader's oneof has no {some}, which the writer may choose")


def _is_required(field: FieldDescriptorProto, file: FileDescriptorProto) -> bool:
    if file.syntax != "editions":
        return field.label == _REQUIRED
    own = field.options.features.field_presence or file.options.features.field_presence
    return own == descriptor_pb2.FeatureSet.LEGACY_REQUIRED


def _is_delimited(field: FieldDescriptorProto, file: FileDescriptorProto) -> bool:
    if file.syntax != "editions":
        return field.type == GROUP_TYPE
    own = field.options.features.message_encoding or file.options.features.message_encoding
    return own == descriptor_pb2.FeatureSet.DELIMITED
