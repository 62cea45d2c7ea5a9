"""Types of Avro as a graph: what a parsed schema is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = frozenset(("record", "enum", "fixed"))
_LOG2_10: Final = 3.3219280948873623


@dataclass(slots=True)
class AvroField:
    """A field of a record, whose type is the record's child of the same index.  `properties`: also its default."""

    name: str
    aliases: tuple[str, ...]
    properties: dict[str, Any]

    @property
    def has_default(self) -> bool:
        return "default" in self.properties


@dataclass(slots=True, eq=False)
class AvroType:
    """A type: one object for each named type, wherever it is used.

    `children`: the types of a record's fields, the branches of a union, the items of an array, the values of a map.
    `name` and `aliases`: full names.
    `aliases` and `symbols`: in order, to no value.  `properties`: attributes without a place here, as logical types."""

    kind: str
    properties: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    aliases: dict[str, None] = field(default_factory=dict)
    children: list[AvroType] = field(default_factory=list, repr=False)  # may lead back to this one
    fields: list[AvroField] = field(default_factory=list)
    symbols: dict[str, None] = field(default_factory=dict)
    size: int = 0

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale of a decimal; None for another type, and for a decimal that its type cannot hold."""
        if self.properties.get("logicalType") != "decimal" or self.kind not in ("bytes", "fixed"):
            return None
        precision, scale = self.properties.get("precision"), self.properties.get("scale", 0)
        if not is_integer(precision) or not is_integer(scale) or precision < 1 or not 0 <= scale <= precision:
            return None
        if self.kind == "fixed" and precision > int((8 * self.size - 1) / _LOG2_10):
            return None
        return precision, scale

    @property
    def enum_default(self) -> str | None:
        """The symbol that a reader takes for one that its enum lacks."""
        return self.properties.get("default") if self.kind == "enum" else None


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema: its type, and the names of those types that its references define."""

    root: AvroType
    referred: frozenset[str]


def is_integer(value: Any) -> TypeGuard[int]:
    """Return whether a value of JSON is an integer: true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)
