"""Serialization formats of Pravega: schemas as its clients send them, and as they need them back.  Pure.

A group whose format is Any takes schemas of every format.  A schema whose own format is Any, or Custom with a name, is
opaque: it is kept as it came.  Others are kept as their normal text.  Pravega's serializers know no references, so
that what they get is whole: of an Avro schema the text that defines all its types, of a Protobuf schema a
FileDescriptorSet with all its files.

A FileDescriptorSet that uses files besides its own and those of Protobuf has no text: a reference would need a group
for each file, and Java's serializers leave out the files that a class imports.  It is kept as it came, too, as an
opaque schema with the name `PROTOBUF_FORMAT`.  Nothing is lost by that: Pravega compares no Protobuf schemas.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.registry.errors import BadSchema
from sarit.registry.pravega.descriptor_sets import imports_others, message_in
from sarit.registry.pravega.fields import shown
from sarit.registry.values import PROTOBUF_FORMAT, NewSchema
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import whole_text
from sarit.schemas.definitions import Kind
from sarit.schemas.protobuf_definition import parse_descriptor_set, parse_protobuf
from sarit.schemas.protobuf_forms import descriptor_set, normal_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.pravega.fields import Fields
    from sarit.registry.values import Schema
    from sarit.schemas.avro_types import AvroType

_ANY: Final = "Any"
_CUSTOM: Final = "Custom"
_KINDS: Final = {"Avro": Kind.AVRO, "Protobuf": Kind.PROTOBUF, "Json": Kind.JSON}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_ALL: Final = (*_KINDS, _ANY, _CUSTOM)


def read_format(fields: Fields) -> tuple[Kind | None, str]:
    """Return kind and name of a SerializationFormat: no kind for Any, a name for Custom alone.  Raises Invalid."""
    found = fields.one_of("serializationFormat", _ALL)
    if found != _CUSTOM:
        return _KINDS.get(found), ""
    name = fields.text("fullTypeName")
    if not name or name in _ALL:
        raise Invalid(f"fullTypeName is {shown(name)}: a Custom format has a name of its own")
    return Kind.OPAQUE, name


def format_body(kind: Kind | None, format_name: str) -> dict[str, Any]:
    """Return the SerializationFormat of a group or of a schema."""
    full = full_name(kind, format_name)
    return {"serializationFormat": full if full in _ALL else _CUSTOM, "fullTypeName": full}


def full_name(kind: Kind | None, format_name: str) -> str:
    """Return the name of a format in VersionInfo and in paths."""
    return format_name or (_ANY if kind is None else _NAMES.get(kind, _ANY))


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """A schema as a SchemaInfo has it, before its data are parsed."""

    kind: Kind
    type: str
    data: bytes
    format_name: str
    properties: Mapping[str, str]

    @property
    def takes_long(self) -> bool:
        """Whether `new_schema` parses the data."""
        return self.kind in (Kind.AVRO, Kind.PROTOBUF)


def read_schema(fields: Fields) -> GivenSchema:
    """Return the schema of a SchemaInfo.  Raises Invalid."""
    kind, format_name = read_format(fields.object("serializationFormat"))
    return GivenSchema(
        kind or Kind.OPAQUE,
        fields.text("type"),
        fields.data("schemaData"),
        format_name,
        fields.properties("properties"),
    )


def new_schema(given: GivenSchema) -> NewSchema:
    """Return a schema to be registered.  Raises BadSchema: it is malformed, or its type is another one."""
    if given.kind is Kind.OPAQUE:
        text = base64.b64encode(given.data).decode()
        return NewSchema(given.kind, text, type=given.type, format_name=given.format_name)
    try:
        if given.kind is Kind.PROTOBUF:
            return _protobuf_schema(given.data, given.type)
        text = given.data.decode()
        if given.kind is Kind.AVRO:
            return NewSchema(given.kind, text, type=_avro_type(text, given.type))
        return NewSchema(given.kind, text, type=given.type)
    except UnicodeDecodeError as error:
        raise BadSchema(f"schemaData is not UTF-8: byte {error.start} is wrong") from None
    except BadSchema:
        raise
    except Invalid as error:
        raise BadSchema(str(error)) from None


def _avro_type(text: str, given: str) -> str:
    """Return the full name of the type that a SchemaInfo means."""
    root = parse_avro(text).root
    # A union has one type for each of its members, and one of its own: that of the serializer of the whole union.
    types = [root, *(root.children if root.kind == "union" else ())]
    names = [_avro_name(one) for one in types]
    for name in names:
        if given in ("", name, name.rpartition(".")[2]):
            return name
    raise BadSchema(f"the type is {shown(given)}, and the schema defines {shown(', '.join(names))}: give its full name")


def _avro_name(kind: AvroType) -> str:
    """Return the name of a type as Avro's Java library has it: that of a type without a name is its kind."""
    return kind.name or kind.kind


def _protobuf_schema(data: bytes, given: str) -> NewSchema:
    """Return the schema of a FileDescriptorSet, and of the message in it that a SchemaInfo means."""
    message = message_in(data, given)
    if imports_others(data):
        return NewSchema(Kind.OPAQUE, base64.b64encode(data).decode(), type=message, format_name=PROTOBUF_FORMAT)
    return NewSchema(Kind.PROTOBUF, normal_text(parse_descriptor_set(data, message)), type=message)


def schema_data(schema: Schema, references: Mapping[str, str]) -> bytes:
    """Return a schema as Pravega's serializers need it.  `references`: name -> text, of all that it uses."""
    if schema.kind is Kind.OPAQUE:
        return base64.b64decode(schema.text)
    if schema.kind is Kind.PROTOBUF:
        return descriptor_set(parse_protobuf(schema.text, references))
    if schema.kind is Kind.AVRO and references:
        return whole_text(parse_avro(schema.text, references)).encode()
    return schema.text.encode()


def readable_text(schema: Schema) -> str:
    """Return the text of a schema for people; empty for one that is opaque."""
    return "" if schema.kind is Kind.OPAQUE else schema.text
