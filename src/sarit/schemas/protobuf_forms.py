"""The texts of a Protobuf schema, its bytes for registries, and the places of its messages.

`normal_text` is what a registry keeps: two texts that mean the same, comments, spaces, order of options and ways to
name a type apart, have the same.  Messages, fields and values stay in their order: events of Confluent's serializers
name a message by its place.  Pure.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2

from sarit.core.errors import Invalid
from sarit.schemas.protobuf_option_values import BYTES_TYPE, GROUP_TYPE, MESSAGE_TYPE, STRING_TYPE
from sarit.schemas.protobuf_options import OptionWriter
from sarit.schemas.protobuf_parser import LABELS, MAX_FIELD_NUMBER, TYPES, map_entry_name
from sarit.schemas.protobuf_schema import messages_of, pool_of
from sarit.schemas.protobuf_tokens import quoted
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )

    from sarit.schemas.protobuf_schema import ProtobufSchema

_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}
_LABEL_NAMES: Final = {number: name for name, number in LABELS.items()}
_MAX_INT32: Final = (1 << 31) - 1


def normal_text(schema: ProtobufSchema) -> str:
    """Return the schema as .proto source without what has no meaning: a parse of it gives an equal schema."""
    return printed(schema.descriptor(), OptionWriter(pool_of(schema)))


def serialized(schema: ProtobufSchema) -> str:
    """Return the schema's own descriptor in base64, as Confluent's registry answers `format=serialized`."""
    return base64.b64encode(schema.descriptor().SerializeToString()).decode()


def descriptor_set(schema: ProtobufSchema) -> bytes:
    """Return a FileDescriptorSet of all descriptors, each after those it imports, as Pravega's registry keeps them."""
    made = descriptor_pb2.FileDescriptorSet()
    for one in schema.files():
        made.file.add().MergeFromString(one.SerializeToString())
    return made.SerializeToString(deterministic=True)


def message_names(schema: ProtobufSchema) -> list[str]:
    """Return the full names of the schema's messages, as they are declared: each before those within it."""
    return [name for name, message in messages_of(schema.descriptor()) if not message.options.map_entry]


def message_indexes(schema: ProtobufSchema, full_name: str) -> list[int]:
    """Return the place of a message: its index in the file, then in each message around it.

    Entries of maps count, as in descriptors and in Confluent's serializers for Python and Go.
    Raises Invalid for a name that no message has."""
    file = schema.descriptor()
    prefix = f"{file.package}." if file.package else ""
    found: list[int] = []
    messages: Sequence[DescriptorProto] = file.message_type
    for part in full_name.removeprefix(prefix).split(".") if full_name.startswith(prefix) else ("",):
        index = next((index for index, one in enumerate(messages) if one.name == part), None)
        if index is None:
            raise Invalid(f"the Protobuf schema has no message {shown(full_name)}")
        found.append(index)
        messages = messages[index].nested_type
    return found


def message_at(schema: ProtobufSchema, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a place, as `message_indexes` gives it.  Raises Invalid if none is."""
    file = schema.descriptor()
    parts = [file.package] if file.package else []
    messages: Sequence[DescriptorProto] = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise Invalid(f"the Protobuf schema has no message at {shown(', '.join(map(str, indexes)))}")
        parts.append(messages[index].name)
        messages = messages[index].nested_type
    if not indexes:
        raise Invalid("the place of a message in a Protobuf schema has an index or more")
    return ".".join(parts)


def printed(file: FileDescriptorProto, options: OptionWriter) -> str:
    """Return a file whose names are resolved as .proto source.

    Raises Invalid for options that are not known, and for what no source can mean."""
    return _Printer(file, options).printed()


class _Printer:
    """The lines of a file, as far as they are printed.  Internal."""

    def __init__(self, file: FileDescriptorProto, options: OptionWriter) -> None:
        self._file, self._options = file, options
        self._lines: list[str] = []
        self._indent = ""
        self._levels = 0

    def printed(self) -> str:
        file = self._file
        self._add('edition = "2023";' if file.syntax == "editions" else f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._add(f"package {file.package};")
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        for index, name in enumerate(file.dependency):
            kind = "public " if index in public else "weak " if index in weak else ""
            self._add(f"import {kind}{quoted(name.encode())};")
        self._add_options(file)
        self._print_inside(file, [], file.message_type)
        for service in file.service:
            self._print_service(service)
        return "".join(self._lines)

    def _add(self, line: str) -> None:
        self._lines.append(f"{self._indent}{line}\n")

    def _open(self, line: str) -> None:
        self._add(f"{line} {{")
        self._indent += "  "

    def _close(self) -> None:
        self._indent = self._indent[:-2]
        self._add("}")

    def _add_options(self, holder: Any) -> None:
        for text in self._options.texts(holder):
            self._add(f"option {text};")

    def _in_brackets(self, holder: Any, *before: str) -> str:
        texts = (*before, *self._options.texts(holder))
        return f" [{', '.join(texts)}]" if texts else ""

    # -- messages --------------------------------------------------------------------------------

    def _print_message(self, message: DescriptorProto) -> None:
        self._open(f"message {message.name}")
        self._print_body(message)
        self._close()

    def _print_body(self, message: DescriptorProto) -> None:
        self._add_options(message)
        for one in message.reserved_range:
            self._add(f"reserved {_range(one.start, one.end - 1, MAX_FIELD_NUMBER)};")
        self._print_reserved_names(message)
        for each in message.extension_range:
            numbers = _range(each.start, each.end - 1, MAX_FIELD_NUMBER)
            self._add(f"extensions {numbers}{self._in_brackets(each)};")
        self._print_inside(message, _units(message), message.nested_type)

    def _print_inside(self, owner: Any, units: list[_Unit], messages: Sequence[DescriptorProto]) -> None:
        """Print what stands in a message, or in a file: so that messages and fields are parsed in their order.

        Entries of maps, and groups, are messages whose place is that of their field."""
        made = {one.name: one for one in messages}
        units = [*units, *(_Unit([one], made) for one in owner.extension)]
        makers = {name: index for index, unit in enumerate(units) for name in unit.makes}
        done = 0
        for message in messages:
            maker = makers.get(message.name)
            if maker is None and not message.options.map_entry:
                self._print_message(message)
            while maker is not None and done <= maker:
                self._print_unit(owner, units[done], made)
                done += 1
        for unit in units[done:]:
            self._print_unit(owner, unit, made)
        for enum in owner.enum_type:
            self._print_enum(enum)

    def _print_unit(self, owner: Any, unit: _Unit, made: dict[str, DescriptorProto]) -> None:
        first = unit.fields[0]
        if first.HasField("extendee"):
            self._open(f"extend {first.extendee}")
            self._print_field(first, made)
            self._close()
        elif first.HasField("oneof_index") and not first.proto3_optional:
            oneof = owner.oneof_decl[first.oneof_index]
            self._open(f"oneof {oneof.name}")
            self._add_options(oneof)
            for one in unit.fields:
                self._print_field(one, made)
            self._close()
        else:
            self._print_field(first, made)

    def _print_field(self, field: FieldDescriptorProto, made: dict[str, DescriptorProto]) -> None:
        before = []
        if field.HasField("default_value"):
            before.append(f"default = {_default(field)}")
        if field.HasField("json_name"):
            before.append(f"json_name = {quoted(field.json_name.encode())}")
        rest = f"{field.number}{self._in_brackets(field, *before)}"
        entry = _entry_of(field, made)
        if entry is not None:
            key, value = (_type(one) for one in entry.field)
            self._add(f"map<{key}, {value}> {field.name} = {rest};")
            return
        label = _LABEL_NAMES[field.label]
        implied = self._file.syntax and field.label == LABELS["optional"] and not field.proto3_optional
        unlabelled = implied or (field.HasField("oneof_index") and not field.proto3_optional)
        start = "" if unlabelled else f"{label} "
        if field.type == GROUP_TYPE:
            group = made[field.type_name.rpartition(".")[2]]
            self._open(f"{start}group {group.name} = {rest}")
            self._print_body(group)
            self._close()
        else:
            self._add(f"{start}{_type(field)} {field.name} = {rest};")

    # -- enums and services ----------------------------------------------------------------------

    def _print_reserved_names(self, owner: DescriptorProto | EnumDescriptorProto) -> None:
        if owner.reserved_name:
            plain = self._file.syntax == "editions"
            names = (one if plain else quoted(one.encode()) for one in owner.reserved_name)
            self._add(f"reserved {', '.join(names)};")

    def _print_enum(self, enum: EnumDescriptorProto) -> None:
        self._open(f"enum {enum.name}")
        self._add_options(enum)
        for one in enum.reserved_range:
            self._add(f"reserved {_range(one.start, one.end, _MAX_INT32)};")
        self._print_reserved_names(enum)
        for value in enum.value:
            self._add(f"{value.name} = {value.number}{self._in_brackets(value)};")
        self._close()

    def _print_service(self, service: ServiceDescriptorProto) -> None:
        self._open(f"service {service.name}")
        self._add_options(service)
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            answer = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            line = f"rpc {method.name} ({given}) returns ({answer})"
            if self._options.texts(method):
                self._open(line)
                self._add_options(method)
                self._close()
            else:
                self._add(f"{line};")
        self._close()


class _Unit:
    """Fields that are printed together: those of one oneof, or one field.  `makes`: messages that they bring along."""

    __slots__ = ("fields", "makes")

    def __init__(self, fields: list[FieldDescriptorProto], made: dict[str, DescriptorProto]) -> None:
        self.fields = fields
        self.makes = {
            one.type_name.rpartition(".")[2]
            for one in fields
            if one.type == GROUP_TYPE or _entry_of(one, made) is not None
        }


def _units(message: DescriptorProto) -> list[_Unit]:
    made = {one.name: one for one in message.nested_type}
    found: list[list[FieldDescriptorProto]] = []
    for field in message.field:
        before = found[-1][0] if found else None
        together = (
            before is not None
            and field.HasField("oneof_index")
            and before.HasField("oneof_index")
            and field.oneof_index == before.oneof_index
        )
        if together:
            found[-1].append(field)
        else:
            found.append([field])
    return [_Unit(one, made) for one in found]


def _entry_of(field: FieldDescriptorProto, made: dict[str, DescriptorProto]) -> DescriptorProto | None:
    """Return the entry of a map field, a message beside it; None for other fields."""
    if field.type != MESSAGE_TYPE or field.label != LABELS["repeated"] or field.HasField("extendee"):
        return None
    found = made.get(field.type_name.rpartition(".")[2])
    return found if found and found.options.map_entry and found.name == map_entry_name(field.name) else None


def _type(field: FieldDescriptorProto) -> str:
    return _TYPE_NAMES.get(field.type) or field.type_name


def _default(field: FieldDescriptorProto) -> str:
    if field.type == STRING_TYPE:
        return quoted(field.default_value.encode())
    return f'"{field.default_value}"' if field.type == BYTES_TYPE else field.default_value


def _range(first: int, last: int, most: int) -> str:
    return f"{first}" if first == last else f"{first} to {'max' if last == most else last}"
