"""Defaults of Avro fields: whether a value of JSON is one of a type. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_SCHEMA_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.schemas.avro_types import AvroType

_INTEGERS: Final = {"int": 31, "long": 63}  # bits beside the sign
_MOST_BYTE: Final = 255
_MISSING: Final = object()  # of no type


class DefaultChecker:
    """Checks of the defaults of one schema: each value with each type once, and a bounded number of them."""

    def __init__(self) -> None:
        # Records in unions of each other take exponential time without what was found before.
        self._found: dict[tuple[int, int], bool] = {}
        self._left = MAX_SCHEMA_STEPS

    def fits(self, value: Any, kind: AvroType) -> bool:
        """Return whether a JSON value is a default of a type.  A union takes a default of any of its branches.

        The values and types must live as long as the checker.  Raises Invalid beyond the bound."""
        key = id(value), id(kind)
        if key not in self._found:
            self._count()
            self._found[key] = self._calculate(value, kind)
        return self._found[key]

    def _calculate(self, value: Any, kind: AvroType) -> bool:
        # As deep as the value, whose levels are bounded.
        if kind.kind == "union":
            return any(self.fits(value, branch) for branch in kind.children)
        return _fits_itself(value, kind) and all(self.fits(inner, of) for inner, of in self._inner(value, kind))

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Invalid("the defaults of the schema are too many: write fewer, or shorter ones")

    def _inner(self, value: Any, kind: AvroType) -> Iterator[tuple[Any, AvroType]]:
        """Yield each value inside with its type; `_MISSING` for a field that has neither a value nor a default."""
        if kind.kind == "array":
            yield from ((one, kind.children[0]) for one in value)
        elif kind.kind == "map":
            yield from ((one, kind.children[0]) for one in value.values())
        elif kind.kind == "record":
            for field, child in zip(kind.fields, kind.children, strict=True):
                self._count()
                if field.name in value:
                    yield value[field.name], child
                elif not field.has_default:
                    yield _MISSING, child


def _fits_itself(value: Any, kind: AvroType) -> bool:
    name = kind.kind
    if name == "null":
        return value is None
    if name == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if name in _INTEGERS:
        bits = _INTEGERS[name]
        return isinstance(value, int) and -(1 << bits) <= value < 1 << bits
    if name in ("float", "double"):
        return isinstance(value, int | float)
    if name == "string":
        return isinstance(value, str)
    if name in ("bytes", "fixed"):
        right = isinstance(value, str) and all(ord(one) <= _MOST_BYTE for one in value)
        return right and (name == "bytes" or len(value) == kind.size)
    if name == "enum":
        return isinstance(value, str) and value in kind.symbols
    return isinstance(value, list if name == "array" else dict)
