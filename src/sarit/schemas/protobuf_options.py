"""Options of Protobuf, interpreted and printed: standard ones, and extensions that a schema's files define.

An option is a field of a message, as `google.protobuf.FieldOptions`, and a custom one an extension of that message.
The classes here are those of a pool that holds the schema's files, so that custom options are known.  Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from google.protobuf import message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

from sarit.core.errors import Invalid
from sarit.schemas.protobuf_option_values import (
    BOOL_TYPE,
    BYTES_TYPE,
    DOUBLE_TYPE,
    ENUM_TYPE,
    FLOAT_TYPE,
    GROUP_TYPE,
    INTEGERS,
    MESSAGE_TYPE,
    STRING_TYPE,
    number_text,
)
from sarit.schemas.protobuf_tokens import quoted
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    from sarit.schemas.protobuf_names import Names
    from sarit.schemas.protobuf_option_values import Entry, Option, Value
    from sarit.schemas.protobuf_parser import Source

    FindExtension = Callable[[str, str], str]  # a name, and where it is used -> the full name, or nothing

_RESERVED = ("map_entry", "uninterpreted_option")
_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")


class OptionWriter:
    """Interprets and prints options with the types of a pool."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._classes: dict[str, Any] = {}

    def interpret(self, source: Source, names: Names, *, custom: bool) -> None:
        """Set the options of a source that are custom, or the others.  Raises Invalid, naming the place."""
        made: dict[int, tuple[Any, Any]] = {}
        for holder, option in source.options:
            if option.is_custom != custom:
                continue
            if id(holder) not in made:
                made[id(holder)] = holder, self._class(holder)()
            try:
                self._set_option(made[id(holder)][1], option, names.find_extension)
            except _NoOption as error:
                raise source.wrong(str(error), option.offset) from None
        for holder, options in made.values():
            if not options.IsInitialized():
                missing = shown(", ".join(options.FindInitializationErrors()))
                raise Invalid(f"{shown(getattr(holder, 'name', 'a range'))}: its options lack {missing}")
            holder.options.MergeFromString(options.SerializeToString(deterministic=True))

    def normalize(self, file: FileDescriptorProto) -> None:
        """Give the options of all descriptors in a file one form of bytes."""
        for holder in option_holders(file):
            if holder.HasField("options"):
                options = self._options(holder)
                holder.ClearField("options")
                data = options.SerializeToString(deterministic=True)
                if data:
                    holder.options.MergeFromString(data)

    def texts(self, holder: Any) -> list[str]:
        """Return the options of a descriptor as source, without `option` and semicolons.

        Raises Invalid for options that no file of the pool defines."""
        if not holder.HasField("options"):
            return []
        found = []
        for field, values in _fields_of(self._options(holder)):
            if field.name == "map_entry" and not field.is_extension:
                continue
            name = f"(.{field.full_name})" if field.is_extension else field.name
            for one in values:
                given = _printed_value(field, one)
                found.append(f"{name} = {{{given}}}" if _is_message(field) else f"{name} = {given}")
        return found

    def _options(self, holder: Any) -> Any:
        try:
            return self._class(holder).FromString(holder.options.SerializeToString())
        except Exception:  # DecodeError, and UnicodeDecodeError
            raise Invalid(f"{shown(getattr(holder, 'name', 'a range'))}: its options are malformed") from None

    def _class(self, holder: Any) -> Any:
        name = holder.DESCRIPTOR.fields_by_name["options"].message_type.full_name
        found = self._classes.get(name)
        if found is None:
            found = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
            self._classes[name] = found
        return found

    # -- interpretation --------------------------------------------------------------------------

    def _set_option(self, message: Any, option: Option, find: FindExtension) -> None:
        *path, (name, extension) = option.parts
        if option.parts[0][0] in _RESERVED and not option.parts[0][1]:
            raise _NoOption(f"the option {option.parts[0][0]} is set by compilers alone")
        for inner, inner_extension in path:
            field = self._field(message, inner, inner_extension, option.scope, find)
            if not _is_message(field) or field.is_repeated:
                raise _NoOption(f"the option {shown(inner)} is no message, or several")
            message = _inside(message, field)
        self._set(message, self._field(message, name, extension, option.scope, find), option.value, option.scope, find)

    def _field(self, message: Any, name: str, extension: bool, scope: str, find: FindExtension) -> Any:
        kind = message.DESCRIPTOR
        if extension:
            full = find(name, scope)
            found: Any = self._pool.FindExtensionByName(full) if full else None
            if found is None or found.containing_type.full_name != kind.full_name:
                raise _NoOption(f"no extension of {kind.full_name} has the name {shown(name)}")
            return found
        found = kind.fields_by_name.get(name)
        if found is None:  # a group is named by its type
            found = kind.fields_by_name.get(name.lower())
            if found is None or found.type != GROUP_TYPE or found.message_type.name != name:
                raise _NoOption(f"{kind.full_name} has no field {shown(name)}")
        return found

    def _set(self, message: Any, field: Any, value: Value, scope: str, find: FindExtension) -> None:
        if not field.is_repeated and _has(message, field):
            raise _NoOption(f"{shown(field.name)} is set twice")
        if not _is_message(field):
            scalar = _scalar(field, value)
            if field.is_repeated:
                _inside(message, field).append(scalar)
            elif field.is_extension:
                message.Extensions[field] = scalar
            else:
                setattr(message, field.name, scalar)
            return
        if not isinstance(value, list):
            raise _NoOption(f"{shown(field.name)} is a message: write its fields in braces")
        if _is_map(field):
            self._set_entry(message, field, value, scope, find)
            return
        inner = _inside(message, field)
        inner = inner.add() if field.is_repeated else inner
        inner.SetInParent()
        self._fill(inner, value, scope, find)

    def _fill(self, message: Any, entries: list[Entry], scope: str, find: FindExtension) -> None:
        for one in entries:
            self._set(message, self._field(message, one.name, one.extension, scope, find), one.value, scope, find)

    def _set_entry(self, message: Any, field: Any, entries: list[Entry], scope: str, find: FindExtension) -> None:
        entry: Any = message_factory.GetMessageClass(field.message_type)()
        self._fill(entry, entries, scope, find)
        container = _inside(message, field)
        if _is_message(field.message_type.fields_by_name["value"]):
            container[entry.key].CopyFrom(entry.value)
        else:
            container[entry.key] = entry.value


class _NoOption(Exception):
    """An option that does not exist, or has no such value.  Internal."""


def option_holders(file: FileDescriptorProto) -> Iterator[Any]:
    """Yield each descriptor of a file that has a place for options, the file first."""
    yield file
    for service in file.service:
        yield service
        yield from service.method
    left: list[Any] = [file]
    while left:
        one = left.pop()
        messages = one.message_type if one is file else one.nested_type
        if one is not file:
            yield from (*one.field, *one.oneof_decl, *one.extension_range)
        yield from one.extension
        for enum in one.enum_type:
            yield enum
            yield from enum.value
        yield from messages
        left += messages


def _scalar(field: Any, value: Value) -> Any:
    """Return the value of an option as the library takes it."""
    kind = field.type
    if isinstance(value, bytes) and kind in (STRING_TYPE, BYTES_TYPE):
        if kind == BYTES_TYPE:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _NoOption(f"{shown(field.name)}: the string is no UTF-8") from None
    if kind in INTEGERS and isinstance(value, int):
        least, most = INTEGERS[kind]
        if least <= value <= most:
            return value
    elif kind in (FLOAT_TYPE, DOUBLE_TYPE):
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str) and value.lstrip("-") in ("inf", "nan", "infinity"):
            return float(value)
    elif kind == BOOL_TYPE:
        if (isinstance(value, str) and value in _TRUE) or (isinstance(value, int) and value == 1):
            return True
        if (isinstance(value, str) and value in _FALSE) or (isinstance(value, int) and value == 0):
            return False
    elif kind == ENUM_TYPE:
        known = field.enum_type.values_by_name.get(value) if isinstance(value, str) else None
        if known is not None:
            return known.number
        if isinstance(value, int) and value in field.enum_type.values_by_number:
            return value
    given = (
        value.decode(errors="replace") if isinstance(value, bytes) else "{...}" if isinstance(value, list) else value
    )
    raise _NoOption(f"{shown(field.name)} has no value {shown(str(given))}")


def _inside(message: Any, field: Any) -> Any:
    return message.Extensions[field] if field.is_extension else getattr(message, field.name)


def _has(message: Any, field: Any) -> bool:
    try:
        return bool(message.HasExtension(field) if field.is_extension else message.HasField(field.name))
    except ValueError:  # a field of proto3 whose default is no different from none
        return False


def _is_message(field: Any) -> bool:
    return field.type in (MESSAGE_TYPE, GROUP_TYPE)


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.type == MESSAGE_TYPE and field.message_type.GetOptions().map_entry)


def _fields_of(message: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the fields that a message has, by number, each with its values.  Raises Invalid for unknown ones."""
    if len(UnknownFieldSet(message)):
        number = UnknownFieldSet(message)[0].field_number
        raise Invalid(f"no file of the schema defines the field {number} of {message.DESCRIPTOR.full_name}")
    for field, value in message.ListFields():
        if _is_map(field):
            entry: Any = message_factory.GetMessageClass(field.message_type)
            yield field, [entry(key=key, value=value[key]) for key in sorted(value)]
        else:
            yield field, list(value) if field.is_repeated else [value]


def _printed_message(message: Any) -> str:
    """Return the fields of a message in text format.  As deep as the message, whose depth the library bounds."""
    parts = []
    for field, values in _fields_of(message):
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if field.type == GROUP_TYPE and not field.is_extension and field.message_type.name.lower() == field.name:
            name = field.message_type.name
        for one in values:
            given = _printed_value(field, one)
            parts.append(f"{name} {{{given}}}" if _is_message(field) else f"{name}: {given}")
    return f" {', '.join(parts)} " if parts else ""


def _printed_value(field: Any, value: Any) -> str:
    """Return a value as source, that of a message without its braces."""
    kind = field.type
    if _is_message(field):
        return _printed_message(value)
    if kind in (STRING_TYPE, BYTES_TYPE):
        return quoted(value if isinstance(value, bytes) else value.encode())
    if kind == BOOL_TYPE:
        return "true" if value else "false"
    if kind in (FLOAT_TYPE, DOUBLE_TYPE):
        return "nan" if math.isnan(value) else number_text(value, single=kind == FLOAT_TYPE)
    if kind == ENUM_TYPE:
        known = field.enum_type.values_by_number.get(value)
        if known is None:
            raise Invalid(f"{field.enum_type.full_name} has no value {value}, which an option has")
        return str(known.name)
    return str(value)
