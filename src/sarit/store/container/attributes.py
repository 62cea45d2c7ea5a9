"""Conditional changes of attributes: what they come to is decided before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Invalid
from sarit.core.limits import NULL_ATTRIBUTE_VALUE

if TYPE_CHECKING:
    from sarit.store.container.segment import Segment


@dataclass(frozen=True, slots=True)
class AttributeUpdate:
    """One conditional change of an attribute; `kind` as in wire.md par. 5.1."""

    attribute: bytes
    kind: int
    value: int
    expected: int


def resolve_attributes(segment: Segment, updates: tuple[AttributeUpdate, ...]) -> tuple[tuple[bytes, int], ...]:
    """The values after `updates`, judged against the assigned state.  Raises Conflict, Invalid."""
    out = []
    for update in updates:
        current = segment.attributes[update.attribute].assigned
        absent = current == NULL_ATTRIBUTE_VALUE
        value = update.value
        if (
            (update.kind == 0 and not absent)
            or (update.kind == 2 and not absent and value <= current)
            or (update.kind == 4 and current != update.expected)
        ):
            raise Conflict(
                f"attribute {update.attribute.hex()} of {segment.name}", expected=update.expected, actual=current
            )
        if update.kind == 3 and not absent:
            value += current
            if not -(1 << 63) <= value < 1 << 63:
                raise Invalid(f"attribute {update.attribute.hex()} of {segment.name} cannot be {value}: it has 64 bits")
        out.append((update.attribute, value))
    return tuple(out)
