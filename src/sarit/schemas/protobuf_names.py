"""Names in files of Protobuf: what each file defines, what it sees of others, and which type a name means.

As in protoc, a name is searched in the innermost scope first, and its first part alone decides in which: `a.B` in the
message `x.a` is no other than `x.a.B`.  A file sees what it defines itself, what its imports define, and what those
import publicly.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_PROTOBUF_LEVELS, MAX_PROTOBUF_NAME, MAX_SCHEMA_NAMES
from sarit.schemas.protobuf_option_values import ENUM_TYPE, GROUP_TYPE, MESSAGE_TYPE
from sarit.schemas.protobuf_schema import described, messages_of
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

MESSAGE, ENUM, SERVICE, PACKAGE, EXTENSION = "message", "enum", "service", "package", "extension"
_SCOPES: Final = frozenset((MESSAGE, ENUM, SERVICE, PACKAGE))
_TYPES: Final = frozenset((MESSAGE, ENUM))


def defined_names(file: FileDescriptorProto) -> dict[str, str]:
    """Return the full name of each message, enum, service, package and extension of a file, with its kind.

    Raises Invalid for a name that is defined twice, and beyond the bounds."""
    what = described(file.name)
    found: dict[str, str] = {}
    if len(file.package) > MAX_PROTOBUF_NAME or file.package.count(".") >= MAX_PROTOBUF_LEVELS:
        raise Invalid(f"{what}: a package has at most {MAX_PROTOBUF_NAME} characters and {MAX_PROTOBUF_LEVELS} names")
    package = ""
    for part in file.package.split(".") if file.package else ():
        package = f"{package}.{part}".lstrip(".")
        found[package] = PACKAGE
    _add(found, file.package, [(one.name, ENUM) for one in file.enum_type], what)
    _add(found, file.package, [(one.name, EXTENSION) for one in file.extension], what)
    _add(found, file.package, [(one.name, SERVICE) for one in file.service], what)
    _add(found, file.package, [(one.name, MESSAGE) for one in file.message_type], what)
    for name, message in messages_of(file):
        _add(found, name, [(one.name, MESSAGE) for one in message.nested_type], what)
        _add(found, name, [(one.name, ENUM) for one in message.enum_type], what)
        _add(found, name, [(one.name, EXTENSION) for one in message.extension], what)
    if sum(kind in _TYPES for kind in found.values()) > MAX_SCHEMA_NAMES:
        raise Invalid(f"{what} has more than {MAX_SCHEMA_NAMES:,} messages and enums")
    return found


def _add(found: dict[str, str], scope: str, names: Iterable[tuple[str, str]], what: str) -> None:
    for name, kind in names:
        full = f"{scope}.{name}" if scope else name
        if len(full) > MAX_PROTOBUF_NAME:
            raise Invalid(f"{what}: a full name has at most {MAX_PROTOBUF_NAME} characters: {shown(full)}")
        if full in found:
            raise Invalid(f"{what}: {shown(full)} is defined twice")
        found[full] = kind


class Names:
    """The names that one file sees: its own, and those of its imports."""

    def __init__(self, own: Mapping[str, str], seen: Iterable[Mapping[str, str]], package: str) -> None:
        self._package = package
        self._kinds: dict[str, str] = {}
        for one in seen:
            self._kinds.update(one)
        self._kinds.update(own)

    def find(self, name: str, scope: str, kinds: frozenset[str]) -> str:
        """Return the full name that a name means in a scope, of one of some kinds; nothing if none."""
        if name.startswith("."):
            full = name[1:]
            return full if self._kinds.get(full) in kinds else ""
        first, dot, rest = name.partition(".")
        while True:
            inner = f"{scope}.{first}" if scope else first
            kind = self._kinds.get(inner)
            if not dot:
                if kind in kinds:
                    return inner
            elif kind in _SCOPES:
                full = f"{inner}.{rest}"
                return full if self._kinds.get(full) in kinds else ""
            if not scope:
                return ""
            scope = scope.rpartition(".")[0]

    def find_extension(self, name: str, scope: str) -> str:
        """Return the full name of the extension that a name means in a message; nothing if none.

        `scope`: the name of the message without the package."""
        return self.find(name, f"{self._package}.{scope}".strip("."), frozenset((EXTENSION,)))

    def resolve(self, file: FileDescriptorProto) -> None:
        """Give each use of a type in a file its full name and kind.  Raises Invalid for a name that none has."""
        what = described(file.name)
        for field in file.extension:
            self._resolve_field(field, file.package, what)
        for scope, message in messages_of(file):
            for field in (*message.field, *message.extension):
                self._resolve_field(field, scope, what)
        for service in file.service:
            scope = f"{file.package}.{service.name}".lstrip(".")
            for method in service.method:
                for role in ("input_type", "output_type"):
                    full = self.find(getattr(method, role), scope, _TYPES)
                    if self._kinds.get(full) != MESSAGE:
                        raise _unresolved(what, f"{scope}.{method.name}", getattr(method, role))
                    setattr(method, role, f".{full}")

    def _resolve_field(self, field: FieldDescriptorProto, scope: str, what: str) -> None:
        where = f"{scope}.{field.name}".lstrip(".")
        if field.HasField("extendee"):
            full = self.find(field.extendee, scope, _TYPES)
            if self._kinds.get(full) != MESSAGE:
                raise _unresolved(what, where, field.extendee)
            field.extendee = f".{full}"
        if field.HasField("type") and field.type not in (ENUM_TYPE, GROUP_TYPE, MESSAGE_TYPE):
            if field.HasField("type_name"):
                raise Invalid(f"{what}: {shown(where)} has two types")
            return
        full = self.find(field.type_name, scope, _TYPES) if field.type_name else ""
        kind = self._kinds.get(full)
        if kind is None:
            raise _unresolved(what, where, field.type_name)
        if not field.HasField("type"):
            field.type = MESSAGE_TYPE if kind == MESSAGE else ENUM_TYPE  # type: ignore[assignment]
        elif (field.type == ENUM_TYPE) != (kind == ENUM):
            raise Invalid(f"{what}: {shown(where)} is of another kind than {shown(full)}")
        field.type_name = f".{full}"


def _unresolved(what: str, where: str, name: str) -> Invalid:
    return Invalid(f"{what}: {shown(where)} is of {shown(name or 'no type')}, which neither it nor its imports define")
