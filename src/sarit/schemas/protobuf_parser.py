"""Source of .proto files as descriptors, before names are resolved and options interpreted.

A parser of its own, since none for Python has bounds (docs/decisions/0801): by recursive descent, whose depth is that
of messages within each other and of messages within values of options.  As protoc, and up to edition 2023.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as attribute
from typing import TYPE_CHECKING, Any, Final

from sarit.schemas.protobuf_option_values import GROUP_TYPE, OptionParser
from sarit.schemas.protobuf_schema import new_file
from sarit.schemas.protobuf_tokens import END, NAME, STRING, TokenReader
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )

    from sarit.core.errors import Invalid
    from sarit.schemas.protobuf_option_values import Option

EDITION_2023: Final = 1000
TYPES: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_MAX_INT32: Final = (1 << 31) - 1


@dataclass(slots=True)
class Source:
    """A parsed text: its descriptor, and the options of the descriptors within, in order, still to be interpreted."""

    file: FileDescriptorProto
    wrong: Callable[[str, int], Invalid]  # the error at an offset
    options: list[tuple[Any, Option]] = attribute(default_factory=list)


def parse_source(text: str, what: str) -> Source:
    """Return what a text defines.  Raises Invalid, which names the text as `what`, with the place of the fault."""
    return _Parser(text, what).parse()


class _Parser:
    """The tokens of a text, and what those read so far define.  Internal."""

    def __init__(self, text: str, what: str) -> None:
        self._in = TokenReader(text, what)
        self._syntax = ""
        self._scopes = [""]  # names of the messages that contain the next token, with dots between, outermost first
        self._made = Source(new_file(), self._in.wrong)
        self._values = OptionParser(self._in)

    # -- files -----------------------------------------------------------------------------------

    def parse(self) -> Source:
        """Return what the tokens define."""
        file = self._made.file
        self._parse_syntax(file)
        while self._in.next.kind != END:
            self._parse_of_file(file)
        return self._made

    def _parse_syntax(self, file: FileDescriptorProto) -> None:
        if self._in.accept("edition"):
            self._in.expect("=")
            found = self._in.utf8()
            if found != "2023":
                self._in.back()
                raise self._in.wrong(f"edition {shown(found)} is not known: use 2023, or a syntax")
            file.syntax = self._syntax = "editions"
            file.edition = EDITION_2023  # type: ignore[assignment]
            self._in.expect(";")
        elif self._in.accept("syntax"):
            self._in.expect("=")
            self._syntax = self._in.utf8()
            if self._syntax not in ("proto2", "proto3"):
                self._in.back()
                raise self._in.wrong(f"syntax {shown(self._syntax)} is not known: use proto2, proto3, or an edition")
            if self._syntax == "proto3":
                file.syntax = "proto3"
            self._in.expect(";")
        else:
            self._syntax = "proto2"

    def _parse_of_file(self, file: FileDescriptorProto) -> None:
        if self._in.accept(";"):
            return
        match self._in.name():
            case "import":
                self._parse_import(file)
            case "package":
                if file.package:
                    raise self._in.wrong("a file has one package")
                file.package = self._in.full_name()
                self._in.expect(";")
            case "option":
                self._parse_option(file)
            case "message":
                self._parse_message(file.message_type.add())
            case "enum":
                self._parse_enum(file.enum_type.add())
            case "service":
                self._parse_service(file.service.add())
            case "extend":
                self._parse_extend(file.extension.add, file.message_type.add)
            case other:
                self._in.back()
                raise self._in.wrong(f"{shown(other)} begins nothing that a file has")

    def _parse_import(self, file: FileDescriptorProto) -> None:
        index = len(file.dependency)
        if self._in.accept("public"):
            file.public_dependency.append(index)
        elif self._in.accept("weak"):
            file.weak_dependency.append(index)
        file.dependency.append(self._in.utf8())
        self._in.expect(";")

    def _parse_option(self, holder: Any) -> None:
        self._add_option(holder)
        self._in.expect(";")

    def _parse_options_in_brackets(self, *holders: Any) -> None:
        if self._in.accept("["):
            self._add_option(*holders)
            while self._in.accept(","):
                self._add_option(*holders)
            self._in.expect("]")

    def _add_option(self, *holders: Any) -> None:
        option = self._values.parse(self._scopes[-1])
        self._made.options += [(one, option) for one in holders]

    # -- messages --------------------------------------------------------------------------------

    def _parse_message(self, made: DescriptorProto) -> None:
        made.name = self._in.name()
        self._in.expect("{")
        self._parse_body(made)

    def _parse_body(self, made: DescriptorProto) -> None:
        self._in.enter()
        self._scopes.append(f"{self._scopes[-1]}.{made.name}".lstrip("."))
        proto3_optional: list[FieldDescriptorProto] = []
        while not self._in.accept("}"):
            self._parse_of_message(made, proto3_optional)
        self._scopes.pop()
        self._in.leave()
        _add_synthetic_oneofs(made, proto3_optional)

    def _parse_of_message(self, made: DescriptorProto, proto3_optional: list[FieldDescriptorProto]) -> None:
        match self._in.next.text:
            case ";":
                self._in.take()
            case "message":
                self._in.take()
                self._parse_message(made.nested_type.add())
            case "enum":
                self._in.take()
                self._parse_enum(made.enum_type.add())
            case "extend":
                self._in.take()
                self._parse_extend(made.extension.add, made.nested_type.add)
            case "extensions":
                self._in.take()
                self._parse_extensions(made)
            case "reserved":
                self._in.take()
                self._parse_reserved(made, MAX_FIELD_NUMBER, 1)
            case "option":
                self._in.take()
                self._parse_option(made)
            case "oneof":
                self._in.take()
                self._parse_oneof(made)
            case "map" if self._in.after_next.text == "<":
                self._parse_map(made)
            case _:
                one = made.field.add()
                self._parse_field(one, made.nested_type.add)
                if one.proto3_optional:
                    proto3_optional.append(one)

    def _parse_field(
        self, made: FieldDescriptorProto, add_group: Callable[[], DescriptorProto], *, labelled: bool = True
    ) -> None:
        """Parse a field or an extension.  `labelled`: false within a oneof, where none has a label."""
        label = self._in.next.text if self._in.next.text in LABELS else ""
        if label and not labelled:
            raise self._in.wrong("a field of a oneof has no label")
        if label in ("optional", "required") and self._syntax == "editions":
            raise self._in.wrong(f"an edition has no label {label}: use the option features.field_presence")
        if label:
            self._in.take()
        elif labelled and self._syntax == "proto2":
            raise self._in.wrong(
                f"{self._in.shown_next()} has no label: proto2 wants optional, required or repeated before a type"
            )
        made.label = LABELS[label or "optional"]  # type: ignore[assignment]
        if label == "optional" and self._syntax == "proto3":
            made.proto3_optional = True
        if self._in.next.text == "group" and self._in.after_next.kind == NAME:
            self._parse_group(made, add_group)
            return
        self._parse_type(made)
        made.name = self._in.name()
        self._parse_number(made)
        self._in.expect(";")

    def _parse_type(self, made: FieldDescriptorProto) -> None:
        scalar = TYPES.get(self._in.next.text)
        if scalar and self._in.after_next.text != ".":
            made.type = scalar  # type: ignore[assignment]
            self._in.take()
        else:
            made.type_name = self._in.full_name(dotted=True)

    def _parse_number(self, made: FieldDescriptorProto) -> None:
        self._in.expect("=")
        made.number = self._in.number(_MAX_INT32)
        self._parse_field_options(made)

    def _parse_field_options(self, made: FieldDescriptorProto) -> None:
        if not self._in.accept("["):
            return
        while True:
            if self._in.next.text == "json_name" and self._in.after_next.text == "=":
                self._take_pseudo_option(made.HasField("json_name"))
                made.json_name = self._in.utf8()
            elif self._in.next.text == "default" and self._in.after_next.text == "=":
                self._take_pseudo_option(made.HasField("default_value"))
                made.default_value = self._values.default(made)
            else:
                self._add_option(made)
            if not self._in.accept(","):
                break
        self._in.expect("]")

    def _take_pseudo_option(self, is_set: bool) -> None:
        if is_set:
            raise self._in.wrong(f"the option {self._in.next.text} is set twice")
        self._in.skip(2)

    def _parse_group(self, made: FieldDescriptorProto, add_group: Callable[[], DescriptorProto]) -> None:
        if self._syntax != "proto2":
            raise self._in.wrong(f"{self._syntax} has no groups: use a message")
        self._in.take()
        name = self._in.next.text
        if not name[:1].isupper():
            raise self._in.wrong("the name of a group begins with a capital letter")
        self._in.take()
        made.name, made.type, made.type_name = name.lower(), GROUP_TYPE, name  # type: ignore[assignment]
        self._parse_number(made)
        group = add_group()
        group.name = name
        self._in.expect("{")
        self._parse_body(group)

    def _parse_map(self, made: DescriptorProto) -> None:
        self._in.skip(2)
        pair: list[FieldDescriptorProto] = []
        for role in ("key", "value"):
            one = new_file().message_type.add().field.add()
            one.name, one.number, one.label = role, len(pair) + 1, 1  # type: ignore[assignment]
            self._parse_type(one)
            pair.append(one)
            self._in.expect("," if role == "key" else ">")
        field = made.field.add()
        field.name = self._in.name()
        field.label, field.type_name = LABELS["repeated"], map_entry_name(field.name)  # type: ignore[assignment]
        self._parse_number(field)
        self._in.expect(";")
        entry = made.nested_type.add()
        entry.name = field.type_name
        entry.field.extend(pair)
        entry.options.map_entry = True

    def _parse_oneof(self, made: DescriptorProto) -> None:
        index = len(made.oneof_decl)
        oneof = made.oneof_decl.add()
        oneof.name = self._in.name()
        self._in.expect("{")
        while not self._in.accept("}"):
            if self._in.accept("option"):
                self._parse_option(oneof)
            elif not self._in.accept(";"):
                field = made.field.add()
                field.oneof_index = index
                self._parse_field(field, made.nested_type.add, labelled=False)

    def _parse_extend(self, add: Callable[[], FieldDescriptorProto], add_group: Callable[[], DescriptorProto]) -> None:
        extendee = self._in.full_name(dotted=True)
        self._in.expect("{")
        if self._in.next.text == "}":
            raise self._in.wrong(f"the extend of {shown(extendee)} has no fields")
        while not self._in.accept("}"):
            if self._in.accept(";"):
                continue
            field = add()
            field.extendee = extendee
            self._parse_field(field, add_group)

    # -- ranges, enums, services -----------------------------------------------------------------

    def _range(self, most: int, least: int) -> tuple[int, int]:
        """Return the first and the last number of a range."""
        first = self._in.number(most, least=least)
        if not self._in.accept("to"):
            return first, first
        return first, most if self._in.accept("max") else self._in.number(most, least=least)

    def _parse_extensions(self, made: DescriptorProto) -> None:
        begin = len(made.extension_range)
        while True:
            one = made.extension_range.add()
            first, last = self._range(MAX_FIELD_NUMBER, 1)
            one.start, one.end = first, last + 1
            if not self._in.accept(","):
                break
        self._parse_options_in_brackets(*made.extension_range[begin:])
        self._in.expect(";")

    def _parse_reserved(self, made: DescriptorProto | EnumDescriptorProto, most: int, least: int) -> None:
        if self._in.next.kind == STRING or self._in.next.kind == NAME:
            quoted = self._syntax != "editions"
            while True:
                made.reserved_name.append(self._in.utf8() if quoted else self._in.name())
                if not self._in.accept(","):
                    break
        else:
            after = 1 if least == 1 else 0  # a range of a message ends before its end, and one of an enum with it
            while True:
                one = made.reserved_range.add()
                first, last = self._range(most, least)
                one.start, one.end = first, last + after
                if not self._in.accept(","):
                    break
        self._in.expect(";")

    def _parse_enum(self, made: EnumDescriptorProto) -> None:
        made.name = self._in.name()
        self._in.expect("{")
        while not self._in.accept("}"):
            if self._in.accept(";"):
                continue
            if self._in.next.text == "option" and self._in.after_next.text != "=":
                self._in.take()
                self._parse_option(made)
            elif self._in.next.text == "reserved" and self._in.after_next.text != "=":
                self._in.take()
                self._parse_reserved(made, _MAX_INT32, -_MAX_INT32 - 1)
            else:
                value = made.value.add()
                value.name = self._in.name()
                self._in.expect("=")
                value.number = self._in.number(_MAX_INT32, least=-_MAX_INT32 - 1)
                self._parse_options_in_brackets(value)
                self._in.expect(";")

    def _parse_service(self, made: ServiceDescriptorProto) -> None:
        made.name = self._in.name()
        self._in.expect("{")
        while not self._in.accept("}"):
            if self._in.accept("option"):
                self._parse_option(made)
            elif not self._in.accept(";"):
                self._in.expect("rpc")
                self._parse_method(made.method.add())

    def _parse_method(self, made: Any) -> None:
        made.name = self._in.name()
        self._in.expect("(")
        if self._in.accept("stream"):
            made.client_streaming = True
        made.input_type = self._in.full_name(dotted=True)
        self._in.expect(")")
        self._in.expect("returns")
        self._in.expect("(")
        if self._in.accept("stream"):
            made.server_streaming = True
        made.output_type = self._in.full_name(dotted=True)
        self._in.expect(")")
        if self._in.accept("{"):
            while not self._in.accept("}"):
                if not self._in.accept(";"):
                    self._in.expect("option")
                    self._parse_option(made)
        else:
            self._in.expect(";")


def map_entry_name(field: str) -> str:
    """Return the name of the message that holds the entries of a map."""
    return "".join(part[:1].upper() + part[1:] if part[:1].islower() else part for part in field.split("_")) + "Entry"


def _add_synthetic_oneofs(message: DescriptorProto, fields: list[FieldDescriptorProto]) -> None:
    """Put each field with a proto3 `optional` into a oneof of its own, as protoc does, after all others."""
    if not fields:
        return
    names = {one.name for one in message.field} | {one.name for one in message.oneof_decl}
    for field in fields:
        name = field.name if field.name.startswith("_") else f"_{field.name}"
        while name in names:
            name = f"X{name}"
        names.add(name)
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add().name = name
