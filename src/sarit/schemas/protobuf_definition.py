"""Protobuf schemas from texts of others: .proto source, or descriptors, with the files that they import.

Each file is resolved and checked after all that it imports, and added to one pool of the schema's own.  A file that is
given as a descriptor is printed and parsed again: one whose text would mean something else was made by no compiler, and
is refused.  So a schema is what its normal text says, whichever way it came.  Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_SCHEMA_BYTES, MAX_SCHEMA_REFERENCES
from sarit.schemas.protobuf_checks import check_file, check_names, default_json_name
from sarit.schemas.protobuf_forms import message_names, printed
from sarit.schemas.protobuf_known_files import known_source
from sarit.schemas.protobuf_names import Names, defined_names
from sarit.schemas.protobuf_options import OptionWriter
from sarit.schemas.protobuf_parser import parse_source
from sarit.schemas.protobuf_schema import (
    DESCRIPTOR_FILE,
    MAIN_FILE,
    ProtobufSchema,
    add_to_pool,
    described,
    given_file,
    is_closed,
    messages_of,
    new_pool,
    well_known_file,
)
from sarit.schemas.schema_text import check_sizes, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor_pb2 import EnumDescriptorProto, FileDescriptorProto

    from sarit.schemas.protobuf_parser import Source

_BASE64: Final = re.compile(r"\s*(?:[A-Za-z0-9+/]\s*)+(?:=\s*){0,2}")


def parse_protobuf(text: str, references: Mapping[str, str] | None = None) -> ProtobufSchema:
    """Return the schema of a text: .proto source, or a FileDescriptorProto in base64.

    `references`: path of import -> text of each file that others import, in either form.  `google/protobuf/*.proto`,
    `google/type/*.proto` and Confluent's own need none.  Raises Invalid for what protoc does not compile, for imports
    that are not given, and beyond the bounds.
    """
    given = references or {}
    if len(given) > MAX_SCHEMA_REFERENCES:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_REFERENCES} references")
    check_sizes([text, *given.values()])
    return _schema(_read(text, MAIN_FILE), lambda name: _read(given[name], name) if name in given else None)


def parse_descriptor_set(data: bytes, message: str = "") -> ProtobufSchema:
    """Return the schema of a FileDescriptorSet.

    `message`: the full name of a message that the schema defines; by default, the schema is the one file that no other
    imports.  Raises Invalid as `parse_protobuf` does."""
    if len(data) > MAX_SCHEMA_BYTES:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_BYTES:,} bytes together with its references")
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(data)
        files = {one.name: given_file(one.SerializeToString()) for one in found.file}
    except (DecodeError, ValueError):
        raise Invalid("the Protobuf schema is no FileDescriptorSet") from None
    if len(files) > MAX_SCHEMA_REFERENCES + 1:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_REFERENCES} references")
    if len(files) < len(found.file):
        raise Invalid("the FileDescriptorSet has two files of one name")
    main = _main_of(files, message)
    schema = _schema(_Given(main), lambda name: _Given(files[name]) if name in files else None)
    if message and message not in message_names(schema):
        raise Invalid(f"the Protobuf schema has no message {shown(message)}")
    return schema


def _main_of(files: Mapping[str, FileDescriptorProto], message: str) -> FileDescriptorProto:
    if message:
        found = [one for one in files.values() if any(name == message for name, _ in messages_of(one))]
    else:
        imported = {name for one in files.values() for name in one.dependency}
        found = [one for name, one in files.items() if name not in imported]
    if len(found) != 1:
        why = f"{len(found)} of its {len(files)} files define {shown(message)}" if message else (
            f"{len(found)} of its {len(files)} files are imported by no other: name a message of the schema"
        )  # fmt: skip
        raise Invalid(f"the FileDescriptorSet has no file that is the schema: {why}")
    return found[0]


class _Given:
    """A file as it was given: a descriptor, or a source with its descriptor.  Internal."""

    def __init__(self, file: FileDescriptorProto, source: Source | None = None) -> None:
        self.file, self.source = file, source


def _read(text: str, name: str) -> _Given:
    """Return a file from its text."""
    what = described(name)
    if not text.strip():
        raise Invalid(f"{what} is empty")
    if not _BASE64.fullmatch(text):
        if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
            raise Invalid(f"{what} is no UTF-8")
        source = parse_source(text, what)
        return _Given(source.file, source)
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise Invalid(f"{what} is neither .proto source nor base64") from None
    try:
        return _Given(given_file(data))
    except (DecodeError, ValueError):
        raise Invalid(f"{what} is base64, but of no FileDescriptorProto") from None


def _schema(main: _Given, find: Callable[[str], _Given | None]) -> ProtobufSchema:
    """Return the schema of a file, with the files that `find` gives for paths of import."""
    main.file.name = MAIN_FILE
    linker = _Linker()
    *dependencies, own = [linker.link(one) for one in _in_order(main, find)]
    own.ClearField("name")
    return ProtobufSchema(own.SerializeToString(), tuple(one.SerializeToString() for one in dependencies))


def _in_order(main: _Given, find: Callable[[str], _Given | None]) -> list[_Given]:
    """Return a file and all that it imports, each after those that it imports itself."""
    files = {MAIN_FILE: main}
    left = [MAIN_FILE]
    while left:
        user = left.pop()
        for name in files[user].file.dependency:
            if name == MAIN_FILE:
                raise Invalid(f"{described(user)} imports {shown(name)}, which no reference can be named")
            if name not in files:
                files[name] = _imported(name, user, find)
                left.append(name)
    waits = {name: set(one.file.dependency) for name, one in files.items()}
    users: dict[str, list[str]] = {}
    for name, uses in waits.items():
        for used in uses:
            users.setdefault(used, []).append(name)
    ready = [name for name, uses in waits.items() if not uses]
    found = []
    while ready:
        done = ready.pop()
        del waits[done]
        found.append(files[done])
        for user in users.get(done, ()):
            waits[user].discard(done)
            if not waits[user]:
                ready.append(user)
    if waits:
        some = ", ".join(shown(name) for name in sorted(waits)[:10] if name != MAIN_FILE)
        raise Invalid(f"{some}: these files import each other in a circle")
    return found


def _imported(name: str, user: str, find: Callable[[str], _Given | None]) -> _Given:
    known = well_known_file(name)
    if known is not None:
        return _Given(known)
    found = find(name)
    source = known_source(name) if found is None else None
    if source is not None:
        found = _read(source, name)
    if found is None:
        raise Invalid(f"{described(user)} imports {shown(name)}, which no reference has as its name")
    found.file.name = name
    return found


class _Linker:
    """The files of one schema, as far as they are resolved and checked.  Internal."""

    def __init__(self) -> None:
        self._pool = new_pool()
        self._options = OptionWriter(self._pool)
        self._defined: dict[str, dict[str, str]] = {}
        self._public: dict[str, list[str]] = {}
        self._enums: dict[str, tuple[EnumDescriptorProto, bool]] = {}  # with whether each is closed

    def link(self, given: _Given) -> FileDescriptorProto:
        """Return the descriptor of a file in its one form.  All that it imports must be linked before."""
        if given.source is not None:
            return self._link_source(given.source, add=True)
        file = given.file
        if well_known_file(file.name) is not None:
            self._take(file)
            if file.name != DESCRIPTOR_FILE:
                add_to_pool(self._pool, file)
            return file
        self._resolve(file)
        add_to_pool(self._pool, file)
        self._normalize(file)
        again = parse_source(printed(file, self._options), described(file.name))
        again.file.name = file.name
        if self._link_source(again, add=False).SerializeToString() != file.SerializeToString():
            raise Invalid(f"{described(file.name)}: the descriptor is none that a compiler makes of a file")
        return file

    def _link_source(self, source: Source, *, add: bool) -> FileDescriptorProto:
        file = source.file
        names = self._resolve(file, source)
        if add:
            add_to_pool(self._pool, file)
        self._options.interpret(source, names, custom=True)
        self._normalize(file)
        return file

    def _take(self, file: FileDescriptorProto) -> None:
        """Keep what a file defines for those that import it."""
        self._defined[file.name] = defined_names(file)
        public = [file.dependency[index] for index in file.public_dependency]
        self._public[file.name] = list(dict.fromkeys(one for name in public for one in self._seen(name)))
        prefix = f".{file.package}" if file.package else ""
        for enum in file.enum_type:
            self._enums[f"{prefix}.{enum.name}"] = enum, is_closed(enum, file)
        for name, message in messages_of(file):
            for enum in message.enum_type:
                self._enums[f".{name}.{enum.name}"] = enum, is_closed(enum, file)

    def _seen(self, name: str) -> list[str]:
        """Return the files that one sees which imports a file: that, and those it imports publicly."""
        return [name, *self._public[name]]

    def _resolve(self, file: FileDescriptorProto, source: Source | None = None) -> Names:
        check_names(file)
        for index in (*file.public_dependency, *file.weak_dependency):
            if not 0 <= index < len(file.dependency):
                raise Invalid(f"{described(file.name)} has a public or weak import that is not there")
        self._take(file)
        seen = dict.fromkeys(one for name in file.dependency for one in self._seen(name))
        names = Names(self._defined[file.name], [self._defined[one] for one in seen], file.package)
        names.resolve(file)
        if source is not None:
            self._options.interpret(source, names, custom=False)
        check_file(file, self._enums)
        return names

    def _normalize(self, file: FileDescriptorProto) -> None:
        file.ClearField("source_code_info")
        if file.syntax == "proto2":
            file.ClearField("syntax")
        fields = list(file.extension)
        for _, message in messages_of(file):
            fields += (*message.field, *message.extension)
            if message.options.map_entry:
                for field in message.field:
                    field.ClearField("options")  # a compiler may copy some from the field of the map
        for field in fields:
            if field.HasField("json_name") and field.json_name == default_json_name(field.name):
                field.ClearField("json_name")
        self._options.normalize(file)
