"""Values of schema registries: schemas, their references and versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sarit.core.errors import Invalid

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses: `name` as that one calls it, and the subject and version where it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as registries hold it.  `format`: AVRO, JSON, PROTOBUF, or another that the registry knows.

    `text`: JSON for Avro and JSON Schema; the .proto file, or its FileDescriptorProto in base64, for Protobuf."""

    text: str
    format: str = AVRO
    references: tuple[SchemaReference, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not isinstance(self.format, str):
            raise Invalid("a schema has a text and a format, both str: Schema('{...}', 'AVRO')")
        object.__setattr__(self, "format", self.format.upper())
        object.__setattr__(self, "references", tuple(self.references))


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject: its number there, and the id of its schema in the whole registry."""

    subject: str
    version: int
    id: int
    schema: Schema
