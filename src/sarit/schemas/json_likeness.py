"""Whether parts of two JSON Schemas are written alike, with all that their references lead to.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.schemas.json_definition import JsonSchema


class Likeness:
    """The numbers that alike values of two schemas' texts have in common.

    `count(steps)` is called with the steps taken, and may raise."""

    def __init__(self, ours: JsonSchema, theirs: JsonSchema, count: Callable[[int], None]) -> None:
        self._ours = ours
        self._theirs = theirs
        self._count = count
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}  # by id() of an array or object
        self._referring: set[int] = set()  # numbers of values with references inside
        self._alike: set[tuple[int, int]] = set()  # pairs by id(), with references that lead to alike schemas

    def alike(self, ours: Any, theirs: Any) -> bool:
        """Return whether a part of our schema is written as one of theirs.  1 and 1.0 are not alike, nor 1 and true."""
        left, seen = [(ours, theirs)], set()
        while left:
            one, other = left.pop()
            number = self._number(one)
            if number != self._number(other):
                return False
            pair = (id(one), id(other))
            if number not in self._referring or pair in self._alike or pair in seen:
                continue
            self._count(1)
            seen.add(pair)
            if isinstance(one, list):
                left += zip(one, other, strict=True)
            else:
                left += ((value, other[name]) for name, value in one.items())
                left.append((self._ours.target(one), self._theirs.target(other)))
        self._alike |= seen
        return True

    def _number(self, value: Any) -> int:
        """Return the number of a value.  As deep as a text's JSON, whose levels are bounded."""
        if not isinstance(value, dict | list):
            return self._numbers.setdefault((type(value), value), len(self._numbers))
        found = self._known.get(id(value))
        if found is None:
            self._count(1)
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            members = [(name, self._number(one)) for name, one in inner]
            key = (type(value), *sorted(members))
            found = self._known[id(value)] = self._numbers.setdefault(key, len(self._numbers))
            if "$ref" in value if isinstance(value, dict) else False:
                self._referring.add(found)
            if any(number in self._referring for _, number in members):
                self._referring.add(found)
        return found
