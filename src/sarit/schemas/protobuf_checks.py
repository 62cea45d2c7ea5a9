"""What protoc demands of a file whose names are resolved, before Protobuf's library sees it.

Most of it the library would find as well, but not in all of its implementations, and in sentences that name no remedy.
Names are checked first: they stand in the text that is printed of a schema.  Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_PROTOBUF_MEMBERS
from sarit.schemas.protobuf_option_values import (
    BYTES_TYPE,
    DOUBLE_TYPE,
    ENUM_TYPE,
    FLOAT_TYPE,
    GROUP_TYPE,
    MESSAGE_TYPE,
    written_default,
)
from sarit.schemas.protobuf_parser import EDITION_2023, LABELS, MAX_FIELD_NUMBER
from sarit.schemas.protobuf_schema import described, messages_of
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_NUMBERS: Final = range(19_000, 20_000)  # for implementations of Protobuf
_REPEATED, _REQUIRED = LABELS["repeated"], LABELS["required"]
_NO_KEYS: Final = (BYTES_TYPE, DOUBLE_TYPE, ENUM_TYPE, FLOAT_TYPE, GROUP_TYPE, MESSAGE_TYPE)
_EXTENDED_BY_PROTO3: Final = re.compile(r"\.google\.protobuf\.\w+Options|\.google\.protobuf\.FeatureSet")


def check_names(file: FileDescriptorProto) -> None:
    """Check names that a file defines, and how many.  Raises Invalid."""
    what = described(file.name)
    if file.package:
        _check_names(file.package.split("."), what)
    members = 0
    left: list[Any] = [file]
    while left:
        owner = left.pop()
        fields = owner.field if owner is not file else ()
        members += len(fields) + len(owner.extension)
        _check_names((one.name for one in (*fields, *owner.extension)), what)
        _check_names((one.name for one in (() if owner is file else owner.oneof_decl)), what)
        for enum in owner.enum_type:
            members += len(enum.value)
            _check_names((enum.name, *(one.name for one in enum.value)), what)
        inner = owner.message_type if owner is file else owner.nested_type
        _check_names((one.name for one in inner), what)
        left += inner
    for service in file.service:
        members += len(service.method)
        _check_names((service.name, *(one.name for one in service.method)), what)
    if members > MAX_PROTOBUF_MEMBERS:
        raise Invalid(f"{what} has more than {MAX_PROTOBUF_MEMBERS:,} fields, values and methods")


def _check_names(names: Iterable[str], what: str) -> None:
    for one in names:
        if not _NAME.fullmatch(one):
            raise Invalid(f"{what}: {shown(one)} is no name: letters, digits and _")


def check_file(file: FileDescriptorProto, enums: Mapping[str, tuple[EnumDescriptorProto, bool]]) -> None:
    """Check a file whose names are resolved.

    `enums`: of all files, by full name with a dot before, each with whether it is closed.

    Raises Invalid, which names what is wrong in the file."""
    _Checker(file, enums).check()


class _Checker:
    """A file, and the enums that it may use.  Internal."""

    def __init__(self, file: FileDescriptorProto, enums: Mapping[str, tuple[EnumDescriptorProto, bool]]) -> None:
        self._file, self._enums = file, enums
        self._proto3 = file.syntax == "proto3"

    def check(self) -> None:
        file = self._file
        if file.syntax not in ("", "proto2", "proto3") and (file.syntax, file.edition) != ("editions", EDITION_2023):
            raise self._wrong(shown(file.syntax), "this syntax or edition is not known: use proto2, proto3 or 2023")
        if len(set(file.dependency)) < len(file.dependency):
            raise self._wrong(file.package, "imports a file twice")
        if any(message.options.map_entry for message in file.message_type):
            raise self._wrong(file.package, "the entry of a map is within the message that has the map")
        self._check_scope(file.package, file)
        for service in file.service:
            self._check_unique(f"{file.package}.{service.name}", (one.name for one in service.method))
        for name, message in messages_of(file):
            self._check_message(name, message)

    def _wrong(self, where: str, why: str) -> Invalid:
        return Invalid(f"{described(self._file.name)}: {shown(where.lstrip('.'))}: {why}")

    def _check_unique(self, where: str, names: Iterable[str]) -> None:
        seen = set()
        for one in names:
            if one in seen:
                raise self._wrong(f"{where}.{one}", "is defined twice")
            seen.add(one)

    def _check_scope(self, where: str, owner: Any) -> None:
        """Check what files and messages both have: enums and extensions."""
        inner = owner.message_type if owner is self._file else owner.nested_type
        members = (*owner.service,) if owner is self._file else (*owner.field, *owner.oneof_decl)
        values = [one for enum in owner.enum_type for one in enum.value]
        every = (*members, *inner, *owner.enum_type, *owner.extension, *values)
        self._check_unique(where, (one.name for one in every))
        for enum in owner.enum_type:
            self._check_enum(f"{where}.{enum.name}", enum)
        for one in owner.extension:
            name = f"{where}.{one.name}"
            self._check_field(name, one)
            if one.label == _REQUIRED:
                raise self._wrong(name, "an extension is not required")
            if self._proto3 and not _EXTENDED_BY_PROTO3.fullmatch(one.extendee):
                raise self._wrong(name, "proto3 extends options alone")

    def _check_enum(self, where: str, enum: EnumDescriptorProto) -> None:
        if not enum.value:
            raise self._wrong(where, "an enum has a value or more")
        if self._proto3 and enum.value[0].number != 0:
            raise self._wrong(where, "in proto3, the first value of an enum is 0")
        numbers = {one.number for one in enum.value}
        if not enum.options.allow_alias and len(numbers) < len(enum.value):
            raise self._wrong(where, "two values have one number: set the option allow_alias, if that is meant")
        if enum.options.allow_alias and len(numbers) == len(enum.value):
            raise self._wrong(where, "no two values have one number: remove the option allow_alias")
        ranges = [(one.start, one.end + 1) for one in enum.reserved_range]
        self._check_ranges(where, ranges)
        self._check_unique(where, enum.reserved_name)
        names = set(enum.reserved_name)
        for one in enum.value:
            if one.name in names:
                raise self._wrong(f"{where}.{one.name}", "this name is reserved")
        self._check_reserved(where, [(one.number, one.name) for one in enum.value], ranges, "reserved")

    # -- messages --------------------------------------------------------------------------------

    def _check_message(self, name: str, message: DescriptorProto) -> None:
        self._check_scope(name, message)
        if message.options.message_set_wire_format:
            raise self._wrong(name, "message sets are not supported: use extensions of an ordinary message")
        if self._proto3 and message.extension_range:
            raise self._wrong(name, "proto3 has no extension ranges: use an Any")
        fields = [(one.number, one.name) for one in message.field]
        seen: dict[int, str] = {}
        for number, field in fields:
            if number in seen:
                raise self._wrong(f"{name}.{field}", f"has the number {number}, as {shown(seen[number])} has")
            seen[number] = field
        reserved = [(one.start, one.end) for one in message.reserved_range]
        extended = [(one.start, one.end) for one in message.extension_range]
        self._check_ranges(name, reserved + extended)
        if any(start < 1 or end > MAX_FIELD_NUMBER + 1 for start, end in reserved + extended):
            raise self._wrong(name, f"ranges of numbers are within 1 to {MAX_FIELD_NUMBER}")
        self._check_reserved(name, fields, reserved, "reserved")
        self._check_reserved(name, fields, extended, "reserved for extensions")
        self._check_unique(name, message.reserved_name)
        names = set(message.reserved_name)
        uses = [0] * len(message.oneof_decl)
        for one in message.field:
            where = f"{name}.{one.name}"
            if one.name in names:
                raise self._wrong(where, "this name is reserved")
            self._check_field(where, one)
            if one.HasField("oneof_index"):
                if not 0 <= one.oneof_index < len(uses) or one.label != LABELS["optional"]:
                    raise self._wrong(where, "is in a oneof that is not there, or has a label that none there has")
                uses[one.oneof_index] += 1
        for oneof, count in zip(message.oneof_decl, uses, strict=True):
            if not count:
                raise self._wrong(f"{name}.{oneof.name}", "a oneof has a field or more")
        self._check_maps(name, message)
        if self._file.syntax and not message.options.deprecated_legacy_json_field_conflicts:
            self._check_json_names(name, message)

    def _check_ranges(self, where: str, ranges: list[tuple[int, int]]) -> None:
        last = None
        for start, end in sorted(ranges):
            if start >= end or (last is not None and start < last):
                raise self._wrong(where, f"the range {start} to {end - 1} is empty, or overlaps with another")
            last = end

    def _check_reserved(
        self, where: str, numbers: list[tuple[int, str]], ranges: list[tuple[int, int]], word: str
    ) -> None:
        left = sorted(ranges, reverse=True)
        for number, name in sorted(numbers):
            while left and left[-1][1] <= number:
                left.pop()
            if left and left[-1][0] <= number:
                raise self._wrong(f"{where}.{name}", f"the number {number} is {word}")

    def _check_field(self, where: str, field: FieldDescriptorProto) -> None:
        if not 1 <= field.number <= MAX_FIELD_NUMBER or field.number in _RESERVED_NUMBERS:
            raise self._wrong(where, f"the number of a field is 1 to {MAX_FIELD_NUMBER} without 19000 to 19999")
        if not field.HasField("type"):
            raise self._wrong(where, "has no type")
        if self._proto3 and field.label == _REQUIRED:
            raise self._wrong(where, "proto3 has no required fields")
        if field.type == GROUP_TYPE and self._file.syntax:
            raise self._wrong(where, "only proto2 has groups: use a message")
        if field.proto3_optional and (
            not self._proto3 or field.HasField("extendee") != (not field.HasField("oneof_index"))
        ):
            raise self._wrong(where, "proto3_optional is for fields of proto3, in a oneof each")
        if field.HasField("default_value"):
            self._check_default(where, field)
        if field.type == ENUM_TYPE and self._proto3 and not field.HasField("extendee"):
            _, closed = self._enums.get(field.type_name, (None, False))
            if closed:
                raise self._wrong(where, "a field of proto3 has no enum of proto2: it is closed")
        if "\0" in field.json_name:
            raise self._wrong(where, "a json_name has no NUL")
        if field.HasField("extendee") and field.json_name not in ("", default_json_name(field.name)):
            raise self._wrong(where, "an extension has no json_name")

    def _check_default(self, where: str, field: FieldDescriptorProto) -> None:
        if self._proto3:
            raise self._wrong(where, "proto3 has no defaults")
        if field.type in (GROUP_TYPE, MESSAGE_TYPE) or field.label == _REPEATED:
            raise self._wrong(where, "messages and repeated fields have no default")
        found = written_default(field.type, field.default_value)
        if field.type == ENUM_TYPE:
            enum, _ = self._enums.get(field.type_name, (None, False))
            found = found if enum and any(one.name == found for one in enum.value) else None
        if found is None:
            raise self._wrong(where, f"{shown(field.default_value)} is no default of such a field")
        field.default_value = found

    def _check_maps(self, name: str, message: DescriptorProto) -> None:
        maps = {one.type_name for one in message.field if one.label == _REPEATED}
        for entry in message.nested_type:
            if entry.options.map_entry:
                if [(one.name, one.number) for one in entry.field] != [("key", 1), ("value", 2)]:
                    raise self._wrong(f"{name}.{entry.name}", "the entry of a map has a key and a value")
                if f".{name}.{entry.name}" not in maps:
                    raise self._wrong(f"{name}.{entry.name}", "no field is the map that has such entries")
                key, value = entry.field
                if key.type in _NO_KEYS:
                    raise self._wrong(f"{name}.{entry.name}", "the keys of a map are integers, bools or strings")
                if value.type == GROUP_TYPE:
                    raise self._wrong(f"{name}.{entry.name}", "the values of a map are no groups")

    def _check_json_names(self, name: str, message: DescriptorProto) -> None:
        for every in (True, False):
            seen: dict[str, str] = {}
            for field in message.field:
                plain = default_json_name(field.name)
                json_name = field.json_name if every and field.HasField("json_name") else plain
                if json_name in seen:
                    both = f"{shown(seen[json_name])} and {shown(field.name)}"
                    raise self._wrong(name, f"{both} have one name in JSON, {shown(json_name)}: set a json_name")
                seen[json_name] = field.name


def default_json_name(field: str) -> str:
    """Return the name that a field has in JSON unless a `json_name` is set."""
    first, *others = field.split("_")
    return first + "".join(one[:1].upper() + one[1:] for one in others)
