"""Schemas of all formats by one interface: parsed, normalized and compared.

A registry keeps the normal text of a schema, and calls two schemas the same if their kinds, normal texts and references
are.  The format of a schema says how its text is parsed and how two of them are compared; opaque ones are bytes that
nobody checks.  Pure.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.schemas import avro_compatibility, json_compatibility, protobuf_compatibility, protobuf_forms
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import normal_text
from sarit.schemas.json_definition import normal_json_text, parse_json_schema
from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.schema_text import check_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """A format of schemas.  The text of an opaque schema is base64."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"
    OPAQUE = "OPAQUE"


@dataclass(frozen=True, slots=True)
class Definition:
    """A parsed schema.

    `text`: its normal text, in ASCII.  `type_name`: the full name of the record, enum or fixed type, or of the first
    message; "" for a schema without one.  `schema`: what the format's own modules make of it."""

    kind: Kind
    text: str
    type_name: str
    schema: Any = field(repr=False, compare=False)


def parse_definition(kind: Kind, text: str, references: Mapping[str, str] | None = None) -> Definition:
    """Parse a schema.  `references`: name -> text of each schema that this one uses, and of those that they use.

    Raises Invalid for a text that is no schema of that kind, and beyond the bounds of size."""
    given = references or {}
    if kind is Kind.AVRO:
        avro = parse_avro(text, given)
        return Definition(kind, normal_text(avro), avro.root.name, avro)
    if kind is Kind.OPAQUE:
        return _opaque(text, given)
    if kind is Kind.PROTOBUF:
        protobuf = parse_protobuf(text, given)
        names = protobuf_forms.message_names(protobuf)
        return Definition(kind, protobuf_forms.normal_text(protobuf), names[0] if names else "", protobuf)
    json = parse_json_schema(text, given)
    return Definition(kind, normal_json_text(json), "", json)


def _opaque(text: str, references: Mapping[str, str]) -> Definition:
    if references:
        raise Invalid("an opaque schema has no references")
    check_sizes([text])
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("the text of an opaque schema is no base64") from None
    return Definition(Kind.OPAQUE, base64.b64encode(data).decode(), "", data)


def incompatibilities(reader: Definition, writer: Definition) -> list[str]:
    """Return why data of the writer's schema may not be readable with the reader's: a sentence each; none if all are.

    Raises Invalid for schemas that are too large together."""
    if reader.kind is not writer.kind:
        return [f"the reader's schema is of the kind {reader.kind.value}, and the writer's {writer.kind.value}"]
    if reader.kind is Kind.AVRO:
        return avro_compatibility.incompatibilities(reader.schema, writer.schema)
    if reader.kind is Kind.JSON:
        return json_compatibility.incompatibilities(reader.schema, writer.schema)
    if reader.kind is Kind.PROTOBUF:
        return protobuf_compatibility.incompatibilities(reader.schema, writer.schema)
    return []


__all__ = ["Definition", "Kind", "incompatibilities", "parse_definition"]
